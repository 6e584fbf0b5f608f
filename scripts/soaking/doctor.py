"""`weir doctor`, which serves figures in one namespace and prints changes in another."""

import socket

from world import Failed


class Doctor:
    def __init__(self, world):
        self.world, self.account = world, world.account
        self.socket = world.work / "doctor.sock"
        words = [world.weir, "doctor", "--serve", f"unix:{self.socket}"]
        self.service = world.service("doctor --serve", "far", *words)
        world.service("doctor --watch", "near", world.weir, "doctor", "--watch")
        world.until("socket of weir doctor --serve", self.socket.exists)

    def start(self):
        self.world.spawn("doctor scrape", self.scrape, 3)

    def finish(self):
        pass

    def scrape(self):
        """Reads the metrics as Prometheus does."""
        with socket.socket(socket.AF_UNIX) as place:
            place.settimeout(30)
            answer = b""
            try:
                place.connect(str(self.socket))
                place.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                while data := place.recv(65536):
                    answer += data
            except OSError as error:
                raise Failed(f"no figures of weir doctor --serve: {error}") from None
        head, _, body = answer.partition(b"\r\n\r\n")
        if b" 200 " not in head.split(b"\r\n")[0] or b"# TYPE " not in body:
            raise Failed(f"the figures of weir doctor --serve are {answer[:200]!r}")
        self.account.count("doctor scrapes")
