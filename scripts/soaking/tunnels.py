"""Tunnels: churn, a client that moves, reloads, key changes, and a pair whose ends are killed.

The pair `steady` runs from the beginning to the end, and none of its transfers may break. The ends
of the pair `killed` are killed in turn: only transfers under way may break then.
"""

import functools
import itertools
import json
import random
import time

import transfer
from world import Failed

SERVER = "198.18.0.2"
# The first address of the client, and the addresses to which the client moves.
CLIENT = "198.18.0.1"
MOVES = [f"198.18.0.{number}" for number in range(10, 200)]
TARGET = 9000


class Pair:
    """A server in the namespace `far` and a client in the namespace `near`."""

    def __init__(self, world, name, port, listen, lives):
        self.world, self.name, self.port, self.listen = world, name, port, listen
        self.folder = world.work / name
        self.folder.mkdir()
        self.pins = {role: [self.keys(role)["pin"]] for role in ("server", "client")}
        self.write()
        self.ends = {}
        for role, namespace, ready in [("server", "far", "listening on"),
                                       ("client", "near", "the server listens")]:
            words = [world.weir, "tunnel", role, "--config", self.folder / f"{role}.toml",
                     "--key-file", self.folder / f"{role}.key", "--endpoints", 1,
                     "--cert-file", self.folder / f"{role}.crt",
                     "--status-socket", self.socket(role)]
            self.ends[role] = world.service(f"tunnel {role} {name}", namespace, *words,
                                            lives=lives)
            self.ends[role].said(ready)

    def socket(self, role):
        return self.folder / f"{role}.sock"

    def keys(self, role, *more):
        words = ["tunnel", "keys", role, "--directory", self.folder, "--json", *more]
        return json.loads(self.world.command(*words, *["--name", "soak"] * (not more)).stdout)

    def write(self):
        """Writes both files with the pins that each end accepts."""
        rules = [f"tcp:127.0.0.1:{TARGET}", f"udp:127.0.0.1:{TARGET}"]
        (self.folder / "server.toml").write_text(
            f'[server]\nlisten-on = "{SERVER}:{self.port}"\n'
            f'access-log = "{self.folder}/access.log"\n'
            f'[[server.peer]]\nname = "soak"\npin = {json.dumps(self.pins["client"])}\n'
            f'allow = {json.dumps(rules)}\nreverse = ["tcp:127.0.0.1:{self.listen + 2}"]\n')
        forwards = "".join(
            f'[[client.{kind}]]\nlisten-on = "{carrier}:127.0.0.1:{self.listen + offset}"\n'
            f'target = "{carrier}:127.0.0.1:{TARGET}"\n'
            for kind, carrier, offset in [("forward", "tcp", 0), ("forward", "udp", 1),
                                          ("reverse", "tcp", 2)])
        (self.folder / "client.toml").write_text(
            f'[[client.server]]\nendpoint = "{SERVER}:{self.port}"\n'
            f'pin = {json.dumps(self.pins["server"])}\n{forwards}')

    def reload(self, *roles):
        for role in roles:
            self.world.command("tunnel", "reload", "--status-socket", self.socket(role))

    def status(self, role):
        words = ["tunnel", "status", "--json", "--status-socket", self.socket(role)]
        return json.loads(self.world.command(*words).stdout)[0]

    def change_key(self, role):
        """Changes a key by the steps of the guide: both keys are accepted until no connection uses the old key."""
        other = {"server": "client", "client": "server"}[role]
        old, new = self.pins[role][0], self.keys(role, "--next")["pin"]
        self.pins[role] = [old, new]
        self.write()
        self.reload(other)
        self.keys(role, "--use-next")
        self.reload(role)

        def old_is_unused():
            keys = self.status(other)["peer_keys"]
            return not any(key["connections"] for key in keys if key["key"] == old)
        self.world.until(f"end of the connections with the old key of the {role}", old_is_unused,
                         patience=180)
        self.pins[role] = [new]
        self.write()
        self.reload(other)


class Tunnels:
    def __init__(self, world):
        self.world, self.account = world, world.account
        transfer.serve("far", ("127.0.0.1", TARGET))
        transfer.serve("near", ("127.0.0.1", TARGET))
        transfer.serve("far", ("127.0.0.1", TARGET), transfer.socket.SOCK_DGRAM)
        self.steady = Pair(world, "steady", 7500, 8000, lives=True)
        self.killed = Pair(world, "killed", 7501, 8100, lives=False)
        # Otherwise the kernel removes all addresses of a network with the network's first address.
        keep = "echo 1 >/proc/sys/net/ipv4/conf/all/promote_secondaries"
        world.run("nsenter", "--net=/run/netns/near", "sh", "-c", keep)
        self.at, self.moves = CLIENT, itertools.cycle(MOVES)
        self.next_role = itertools.cycle(["client", "server"])
        self.victims = itertools.cycle(["client", "server"])

    def start(self):
        spawn = self.world.spawn
        for pair in (self.steady, self.killed):
            kind = f"tunnel {pair.name}"
            for number in range(2):
                spawn(f"{kind} short", functools.partial(self.short, pair), 0.5 + number, "near")
            spawn(f"{kind} reverse", functools.partial(self.short, pair, 2), 1.5, "far")
            spawn(f"{kind} datagrams", functools.partial(self.datagrams, pair), 2, "near")
        for number in range(3):
            spawn("tunnel steady long", self.long, 1 + number, "near")
        spawn("tunnel move", self.move, 20)
        spawn("tunnel reload", self.reload, 15)
        spawn("tunnel key change", self.change_key, 60)
        spawn("tunnel kill", self.kill, 40, "near")

    def finish(self):
        for pair in (self.steady, self.killed):
            self.account.count(f"bytes of access logs, {pair.name}",
                               (pair.folder / "access.log").stat().st_size)

    def short(self, pair, offset=0):
        size = int(2 ** random.uniform(0, 20))
        address = "127.0.0.1", pair.listen + offset
        kind = f"tunnel {pair.name}"
        transfer.checked(self.account, kind, lambda: transfer.stream(address, size))

    def long(self):
        """Makes a transfer that is open during moves, reloads and key changes."""
        seconds = random.uniform(5, 30)
        address = "127.0.0.1", self.steady.listen
        transfer.checked(self.account, "tunnel steady", lambda: transfer.stream(
            address, random.randrange(1 << 18, 1 << 20), seconds, is_late=self.world.still))
        self.account.count("tunnel transfers of 5 to 30 s")

    def datagrams(self, pair):
        address = "127.0.0.1", pair.listen + 1
        size = random.randrange(1, 1000)
        def some():
            # Datagrams may be lost, but a flow has failed if all of its ten datagrams are lost.
            if not transfer.datagrams(address, 10, size):
                raise Failed("all of ten datagrams were lost")
        transfer.checked(self.account, f"tunnel {pair.name}", some)

    def move(self):
        new = next(self.moves)
        self.world.ip("-n", "near", "address", "add", f"{new}/24", "dev", "eth0")
        self.world.ip("-n", "near", "address", "del", f"{self.at}/24", "dev", "eth0")
        self.at = new
        self.account.count("tunnel client moved")

    def reload(self):
        self.steady.reload("server", "client")
        self.account.count("tunnel reloads", 2)

    def change_key(self):
        self.steady.change_key(next(self.next_role))
        self.account.count("tunnel key changes")

    def kill(self):
        """Kills an end of the pair, and waits until the pair carries bytes again."""
        role = next(self.victims)
        address = "127.0.0.1", self.killed.listen
        with self.account.announced("tunnel killed"):
            self.killed.ends[role].kill()
            time.sleep(random.uniform(0, 5))
            self.killed.ends[role].start()

            def carries():
                try:
                    transfer.stream(address, 1000)
                except (OSError, Failed, transfer.Differs):
                    return False
                return True
            self.world.until(f"transfer after a kill of the {role}", carries)
        self.account.count("tunnel ends killed")
