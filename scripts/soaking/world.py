"""The world of a soak run: namespaces, cables, long-lived processes, and the pace of the load."""

import collections
import ctypes
import os
import pathlib
import signal
import subprocess
import threading
import time
import traceback

CLONE_NEWNET = 0x40000000
# The longest wait for a command, for a service to start or to end, and for the world to settle.
PATIENCE = 60
TICKS = os.sysconf("SC_CLK_TCK")
LIBC = ctypes.CDLL(None, use_errno=True)


class World:
    def __init__(self, weir, out, account, cores, turn):
        self.weir, self.out, self.account, self.turn = weir, out, account, turn
        self.work = pathlib.Path("/run/soak")
        self.work.mkdir()
        self.services, self.namespaces = [], []
        # Load runs while `open` is set; `busy` counts the rounds under way by their kind.
        self.open, self.over = threading.Event(), threading.Event()
        self.busy, self.lock = collections.Counter(), threading.Lock()
        self.pace, self.primed = Pace(cores), 0.0

    def namespace(self, name):
        self.ip("netns", "add", name)
        self.ip("-n", name, "link", "set", "lo", "up")
        self.namespaces.append(name)

    def cable(self, one, other):
        """Makes a veth pair between two interfaces, each `namespace:interface`, and sets both up."""
        (near, end), (far, peer) = one.split(":"), other.split(":")
        self.ip("-n", near, "link", "add", end, "type", "veth", "peer", "name", peer, "netns", far)
        for name, interface in [(near, end), (far, peer)]:
            self.ip("-n", name, "link", "set", interface, "up")

    def ip(self, *words):
        return self.run("ip", *words)

    def run(self, *words, check=True):
        """Runs a command to its end. A failure raises an error with the end of the command's output."""
        words = [str(word) for word in words]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE,
                                  stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            raise Failed(f"`{' '.join(words)}` did not end within {PATIENCE} s") from None
        if check and done.returncode:
            said = (done.stderr or done.stdout).strip()[-300:]
            raise Failed(f"`{' '.join(words)}` ended with {done.returncode}: {said}")
        return done

    def command(self, *words, check=True):
        return self.run(self.weir, *words, check=check)

    def service(self, name, namespace, *words, lives=True, statuses=(0,)):
        """Starts a program that runs until the run's end. Only a program that lives long has a trend."""
        service = Service(self, name, namespace, [str(word) for word in words], lives, statuses)
        self.services.append(service)
        service.start()
        return service

    def spawn(self, kind, action, pause, namespace=None):
        """Repeats `action` in a thread of its own, with pauses of about `pause` seconds."""
        thread = threading.Thread(target=self.repeat, args=(kind, action, pause, namespace))
        thread.daemon = True
        thread.start()

    def repeat(self, kind, action, pause, namespace):
        if namespace:
            enter(namespace)
        while not self.over.is_set():
            # A pause precedes each round, so that rounds of different pieces do not coincide.
            self.rest(pause)
            if not self.open.wait(1):
                continue
            with self.lock:
                self.busy[kind] += 1
            try:
                action()
            except Failed as failed:
                self.account.fail(kind, str(failed))
            except Exception:  # noqa: BLE001: a defect of the soak itself is a failure, too
                self.account.fail(kind, traceback.format_exc(limit=-3))
            finally:
                with self.lock:
                    self.busy[kind] -= 1

    def rest(self, seconds):
        self.over.wait(seconds * self.pace.factor)

    def still(self):
        """Returns whether the load has to end."""
        return not self.open.is_set() or self.over.is_set()

    def until(self, what, condition, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while not (found := condition()):
            if time.monotonic() > deadline:
                raise Failed(f"no {what} within {patience} s")
            time.sleep(0.1)
        return found


class Failed(Exception):
    """A command, a service or a transfer has failed."""


class Service:
    def __init__(self, world, name, namespace, words, lives, statuses):
        self.world, self.name, self.namespace, self.words = world, name, namespace, words
        self.lives, self.statuses, self.process = lives, statuses, None
        self.log = world.out / "logs" / f"{name.replace(' ', '-')}.log"

    def start(self):
        # nsenter(1) becomes the program, and keeps its process ID. `ip netns exec` would hide the
        # BPF file system.
        apart = ["nsenter", f"--net=/run/netns/{self.namespace}"] if self.namespace else []
        with open(self.log, "a", encoding="utf-8") as log:
            self.process = subprocess.Popen([*apart, *self.words], stdout=log, stderr=log,
                                            stdin=subprocess.DEVNULL)

    def said(self, text):
        """Waits until the log has this text."""
        def found():
            if (status := self.process.poll()) is not None:
                raise Failed(f"{self.name} ended with {status}: {self.last_words()}")
            return text in self.log.read_text(errors="replace")
        self.world.until(f"line `{text}` of {self.name}", found)

    def last_words(self):
        return self.log.read_text(errors="replace").strip()[-300:]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Ends the program as a service manager does. The program must end by itself, with one of its statuses."""
        status = self.process.poll()
        if status is not None:
            self.world.account.fail(self.name, f"ended early with {status}: {self.last_words()}")
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.world.account.fail(self.name, f"did not end within {PATIENCE} s of SIGTERM")
            self.kill()
            return
        if status not in self.statuses:
            self.world.account.fail(self.name, f"ended with {status}: {self.last_words()}")


class Pace:
    """Stretches the pauses of the load until all processes together take at most `cores`."""

    def __init__(self, cores):
        self.cores, self.factor, self.used = cores, 1.0, 0.0
        self.last = time.monotonic(), cpu_seconds()
        self.first = self.last

    def adjust(self):
        now = time.monotonic(), cpu_seconds()
        span = max(now[0] - self.last[0], 0.1)
        share = (now[1] - self.last[1]) / span / self.cores
        self.last = now
        self.used = (now[1] - self.first[1]) / (now[0] - self.first[0])
        # Correct the pauses by half of the deviation, because the load follows the pauses late.
        self.factor = min(max(self.factor * max(share, 0.25) ** 0.5, 0.5), 50)


def cpu_seconds():
    """Returns the CPU time of all living and ended processes of this process namespace."""
    total = 0
    for place in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = place.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def enter(namespace):
    """Moves the calling thread into a network namespace."""
    descriptor = os.open(f"/run/netns/{namespace}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if LIBC.setns(descriptor, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"setns to {namespace}")
    finally:
        os.close(descriptor)
