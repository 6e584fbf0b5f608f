"""The account of a soak run: served transfers, and failures without an announced reason."""

import collections
import contextlib
import math
import threading
import time

# A disturbance may still break a transfer for this number of seconds after its announced end.
GRACE = 5


class Account:
    def __init__(self, log):
        self.log, self.lock = log, threading.Lock()
        self.begin = time.monotonic()
        self.served = collections.Counter()
        self.excused = collections.Counter()
        self.failures, self.lost, self.left = [], [], []
        self.windows = collections.defaultdict(list)

    def count(self, kind, number=1):
        with self.lock:
            self.served[kind] += number

    def fail(self, kind, reason):
        self.note(self.failures, f"{kind}: {reason}")

    def lose(self, kind, reason):
        """Records bytes that differ, which no disturbance excuses."""
        self.note(self.lost, f"{kind}: {reason}")

    def leave(self, what):
        self.note(self.left, what)

    def note(self, place, text):
        with self.lock:
            place.append((time.monotonic() - self.begin, " ".join(text.split())[:500]))
            print(f"{place[-1][0]:9.1f} s  {place[-1][1]}", file=self.log, flush=True)

    @contextlib.contextmanager
    def announced(self, kind):
        """Permits transfers of `kind` to break within the `with` block, which kills an end."""
        window = [time.monotonic(), math.inf]
        with self.lock:
            self.windows[kind].append(window)
        try:
            yield
        finally:
            window[1] = time.monotonic() + GRACE

    def broken(self, kind, began, reason):
        """Records that a transfer that began at `began` has failed now."""
        now = time.monotonic()
        with self.lock:
            excuse = any(begin <= now and began <= end for begin, end in self.windows[kind])
            if excuse:
                self.excused[kind] += 1
        if not excuse:
            self.fail(kind, reason)
