"""`weir perf server`: short tests by honest clients beside clients that stall or send rubbish."""

import itertools
import os
import random
import shutil
import socket

from world import Failed

SERVER, HONEST, HOSTILE = "198.18.1.2", "198.18.1.1", "198.18.1.66"
PORT = 5201


class Perf:
    def __init__(self, world):
        self.world, self.account = world, world.account
        world.namespace("tester")
        world.cable("tester:eth0", "far:perf0")
        for namespace, interface, address in [("tester", "eth0", HONEST), ("far", "perf0", SERVER),
                                              ("tester", "eth0", HOSTILE)]:
            world.ip("-n", namespace, "address", "add", f"{address}/24", "dev", interface)
        words = [world.weir, "perf", "server", "--bind", SERVER, "--patience", "3s",
                 "--rcv-timeout", "10s", "--max-time", "60"]
        self.service = world.service("perf server", "far", *words)
        self.service.said("istening")
        common = [SERVER, "--bind", HONEST, "--json"]
        self.tests = [
            ("client", ["-n", "200K", "--no-probes"]),
            ("client", ["-n", "100K", "-R", "-P", "3", "--no-probes"]),
            ("client", ["-n", "50K", "-u", "-b", "20mbit", "--no-probes"]),
            ("client", ["-t", "200ms", "--bidir", "-b", "5mbit", "--idle-probe", "10ms"]),
            ("rr", ["--time", "30ms"]), ("crr", ["--time", "20ms"]),
            ("udp-rr", ["--time", "30ms"]), ("stream", ["--time", "20ms"]),
        ]
        self.tests = [[world.weir, "perf", test, *common, *more] for test, more in self.tests]
        if shutil.which("iperf3"):
            self.tests.append(["iperf3", "-c", SERVER, "-B", HONEST, "-n", "200K", "--json"])
        self.turn = itertools.cycle(self.tests)
        self.attacks = itertools.cycle([self.stall, self.rubbish, self.leave, self.crowd])

    def start(self):
        self.world.spawn("perf test", self.test, 0.3, "tester")
        self.world.spawn("perf hostile", self.attack, 2, "tester")

    def finish(self):
        pass

    def test(self):
        words = next(self.turn)
        try:
            self.world.run(*words)
        except Failed as failed:
            self.account.fail("perf test", str(failed))
        else:
            self.account.count("perf tests")

    def attack(self):
        next(self.attacks)()
        self.account.count("perf hostile clients")

    def connect(self):
        place = socket.create_connection((SERVER, PORT), 5, (HOSTILE, 0))
        place.settimeout(8)
        return place

    def stall(self):
        """Sends the cookie, and sends nothing further until the server closes."""
        with self.connect() as place:
            place.sendall(os.urandom(18).hex().encode()[:36] + b"\0")
            try:
                while place.recv(4096):
                    pass
            except OSError:
                pass

    def rubbish(self):
        with self.connect() as place:
            try:
                place.sendall(os.urandom(random.randrange(1, 100_000)))
                place.recv(4096)
            except OSError:
                pass

    def leave(self):
        """Closes the connection in the middle of the client's parameters."""
        with self.connect() as place:
            try:
                place.sendall(b"a" * 36 + b"\0")
                place.recv(1)
                place.sendall((4000).to_bytes(4, "big") + b'{"tcp":true,')
            except OSError:
                pass

    def crowd(self):
        """Opens more connections than the server permits for an address."""
        crowd = []
        try:
            for _ in range(12):
                crowd.append(self.connect())
                crowd[-1].sendall(os.urandom(18).hex().encode()[:36] + b"\0")
            self.world.rest(1)
        except OSError:
            pass
        finally:
            for place in crowd:
                place.close()
