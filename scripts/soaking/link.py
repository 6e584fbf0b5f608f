"""The path between the namespaces `near` and `far`: `weir link` with changing loss, or a cable."""

import random

NAME = "soak"


class Path:
    def __init__(self, world, near, far, is_emulated):
        self.world, self.is_emulated = world, is_emulated
        if is_emulated:
            words = [world.weir, "link", "up", "--name", NAME, "--a", "near:eth0", "--b",
                     "far:eth0", "--address-a", near, "--address-b", far, "--rate", "100mbit",
                     "--delay", "2ms", "--no-real-time", "--spin", "0us"]
            # Status 1: frames left late, because the machine was busy.
            world.service("link", None, *words, statuses=(0, 1))
            interface = "address", "show", "dev", "eth0", "up"
            world.until("interface of weir link", lambda: all(
                "inet " in world.run("ip", "-n", end, *interface, check=False).stdout
                for end in ("near", "far")))
        else:
            world.cable("near:eth0", "far:eth0")
            for end, address in [("near", near), ("far", far)]:
                world.ip("-n", end, "address", "add", address, "dev", "eth0")

    def start(self):
        if self.is_emulated:
            self.world.spawn("link", self.change, 15)

    def finish(self):
        pass

    def change(self):
        loss, delay = random.uniform(0, 1), random.uniform(1, 10)
        self.world.command("link", "set", NAME, f"loss={loss:.2f}%", f"delay={delay:.1f}ms")
        self.world.account.count("link changes")
