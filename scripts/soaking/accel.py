"""`weir accel`: policies that change while connections that they choose carry bytes.

The rules name only the networks of this run, because an algorithm holds in all network namespaces
of the machine. Its pins are in a BPF file system of this run, and end with it.
"""

import fcntl
import pathlib
import random

import transfer

PINS = pathlib.Path("/sys/fs/bpf")
# Iterators that the kernel itself pins in each BPF file system.
KERNELS = ("maps.debug", "progs.debug")
TARGET = 9001
SERVER, SOURCE = "198.18.0.2", "198.18.2.1"
KINDS = {"tcpa": 'algorithm = "tcpa"\ninit_cwnd = {}\n', "none": 'algorithm = "none"\n'}


class Accel:
    def __init__(self, world):
        self.world, self.account = world, world.account
        self.file, self.turn = world.work / "accel.toml", world.turn
        transfer.serve("far", (SERVER, TARGET))
        # The address of the tunnel's client moves, and would take the connections with it.
        world.ip("-n", "near", "address", "add", f"{SOURCE}/32", "dev", "eth0")
        world.ip("-n", "far", "route", "add", SOURCE, "dev", "eth0")
        words = ["nsenter", "--net=/run/netns/near", world.weir, "accel", "status"]
        status = world.run(*words, check=False)
        self.missing = (status.stderr or status.stdout).strip() if status.returncode else None

    def start(self):
        if self.missing is None:
            self.world.spawn("accel", self.change, 20, "near")

    def finish(self):
        if left := [str(place) for place in PINS.glob("**/*") if place.name not in KERNELS]:
            self.account.leave(f"pins of weir accel: {', '.join(left)[:300]}")

    def change(self):
        try:
            fcntl.flock(self.turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.account.count("accel rounds left out: weir's tests have the lock")
            return
        try:
            self.change_alone()
        finally:
            fcntl.flock(self.turn, fcntl.LOCK_UN)

    def change_alone(self):
        try:
            for _ in range(4):
                self.write()
                self.world.command("accel", "policy", self.file)
                size = random.randrange(1, 1 << 19)
                transfer.checked(self.account, "accel transfer",
                                 lambda: transfer.stream((SERVER, TARGET), size,
                                                         source=(SOURCE, 0)))
                self.world.command("accel", "status", "--json")
                self.world.command("accel", "memory", "--json")
                self.account.count("accel policies")
                self.world.rest(2)
        finally:
            self.world.command("accel", "disable")
        self.finish()

    def write(self):
        rules = [("198.18.0.0/24", "tcpa")]
        for number in random.sample(range(16, 256), random.randrange(6)):
            rules.append((f"198.18.{number}.0/24", random.choice(list(KINDS))))
        random.shuffle(rules)
        self.file.write_text("".join(
            f'[[rule]]\nto = "{to}"\n{KINDS[kind].format(random.randrange(4, 90))}'
            for to, kind in rules))
