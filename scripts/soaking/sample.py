"""Samples of long-lived processes, and of the world around them."""

import collections
import csv
import os
import pathlib
import re
import threading
import time

QUANTITIES = {"rss": "kB", "anonymous": "kB", "file": "kB", "descriptors": "", "threads": "", "log": "B"}
WORLD = "all processes"


class Sampler:
    """Writes a line for each process and sample to a file, and keeps the lines of this run."""

    def __init__(self, world, every, place):
        self.world, self.every = world, every
        self.begin = time.monotonic()
        self.file = open(place, "w", encoding="utf-8", newline="")
        self.lines = csv.writer(self.file)
        self.lines.writerow(["seconds", "process", "pid", *QUANTITIES, "namespaces", "processes"])
        # The series by the process's name: the times, and the values by quantity.
        self.series, self.over = {}, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def run(self):
        due = time.monotonic()
        while not self.over.is_set():
            try:
                self.sample()
                self.world.pace.adjust()
            except (OSError, ValueError) as error:
                # Without samples there is no trend: the run must not pass.
                self.world.account.fail("sample", str(error))
            due = max(due + self.every, time.monotonic())
            self.over.wait(due - time.monotonic())

    def end(self):
        self.over.set()
        self.thread.join()
        self.file.close()

    def sample(self):
        now = time.monotonic() - self.begin
        for service in self.world.services:
            pid = service.process.pid
            if (values := quantities(pid)) is None:
                continue
            values["log"] = service.log.stat().st_size
            self.lines.writerow([f"{now:.1f}", service.name, pid, *values.values(), "", ""])
            if service.lives:
                self.keep(service.name, now, values)
        around = {"namespaces": len(namespaces()), "processes": len(processes())}
        self.lines.writerow([f"{now:.1f}", WORLD, "", *[""] * len(QUANTITIES), *around.values()])
        self.keep(WORLD, now, around)
        self.file.flush()

    def keep(self, name, now, values):
        times, columns = self.series.setdefault(name, ([], {}))
        times.append(now)
        for quantity, value in values.items():
            columns.setdefault(quantity, []).append(value)


def quantities(pid):
    """Returns the quantities of a process; None if the process has ended. PSS is no quantity, because another process of the
    same program changes PSS by its end."""
    folder = pathlib.Path("/proc", str(pid))
    try:
        status = fields(folder / "status")
        if "VmRSS" not in status:
            return None
        return {
            "rss": status["VmRSS"],
            "anonymous": status["RssAnon"],
            "file": status["RssFile"],
            "descriptors": len(os.listdir(folder / "fd")),
            "threads": status["Threads"],
        }
    except (OSError, KeyError):
        return None


def descriptors(pid):
    """Returns the number of open descriptors of each kind or path."""
    found = collections.Counter()
    for place in pathlib.Path("/proc", str(pid), "fd").iterdir():
        try:
            found[re.sub(r"\[\d+\]", "", os.readlink(place))] += 1
        except OSError:
            pass
    return found


def fields(place):
    """Returns the numbers of a file with lines `Name: number`."""
    found = {}
    for line in place.read_text().splitlines():
        name, _, rest = line.partition(":")
        first = rest.split()[:1]
        if first and first[0].isdigit():
            found[name] = int(first[0])
    return found


def processes():
    """Returns the process IDs of this process namespace, without this program."""
    own = str(os.getpid())
    return [name for name in os.listdir("/proc") if name.isdigit() and name != own]


def namespaces():
    """Returns the network namespaces that contain a process or have a name."""
    found = set()
    for place in [*pathlib.Path("/proc").glob("[0-9]*/ns/net"), *pathlib.Path("/run/netns").glob("*")]:
        try:
            found.add(place.stat().st_ino)
        except OSError:
            pass
    return found
