"""Transfers whose every byte is checked, and the targets that answer them.

A client sends random bytes and the end of its stream. The target returns the bytes as they come,
then the SHA-256 of all that it received, then its own end. Datagrams return unchanged.
"""

import hashlib
import os
import selectors
import socket
import threading
import time

from world import PATIENCE, Failed, enter

CHUNK = 16384
DIGEST = hashlib.sha256().digest_size
# Maximum number of concurrent connections of a target, which bounds this program's threads.
MOST = 128


class Differs(Exception):
    """The received bytes differ from the sent bytes."""


def serve(namespace, address, kind=socket.SOCK_STREAM):
    """Runs a target in threads of its own until this program ends."""
    ready = threading.Event()

    def run():
        enter(namespace)
        place = socket.socket(socket.AF_INET, kind)
        place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        place.bind(address)
        if kind == socket.SOCK_STREAM:
            place.listen(MOST)
        ready.set()
        answer_streams(place) if kind == socket.SOCK_STREAM else answer_datagrams(place)

    threading.Thread(target=run, daemon=True).start()
    if not ready.wait(PATIENCE):
        raise Failed(f"no target listens at {address}")


def answer_streams(listener):
    slots = threading.BoundedSemaphore(MOST)

    def run(connection):
        try:
            with connection:
                answer(connection)
        finally:
            slots.release()

    while True:
        slots.acquire()
        threading.Thread(target=run, args=(listener.accept()[0],), daemon=True).start()


def answer(connection):
    connection.settimeout(PATIENCE)
    hashed = hashlib.sha256()
    try:
        while data := connection.recv(CHUNK):
            hashed.update(data)
            connection.sendall(data)
        connection.sendall(hashed.digest())
    except OSError:
        pass  # The client counts a broken transfer.


def answer_datagrams(place):
    while True:
        try:
            data, source = place.recvfrom(65536)
            place.sendto(data, source)
        except OSError:
            pass  # An ICMP error of an earlier datagram.


def stream(address, size, seconds=0.0, source=None, is_late=lambda: False):
    """Sends `size` random bytes over `seconds`, without pauses while the client is late, and checks all
    returned bytes."""
    deadline = time.monotonic() + PATIENCE + seconds
    with socket.create_connection(address, PATIENCE, source) as connection:
        connection.setblocking(False)
        received, hashed, sent, waiting = hashlib.sha256(), hashlib.sha256(), 0, b""
        arrived, tail, ended = 0, b"", False
        step, due = max(seconds * CHUNK / max(size, 1), 0), time.monotonic()
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            while True:
                now = time.monotonic()
                if now > deadline:
                    raise Failed(f"{sent} of {size} bytes sent and {arrived} received in time")
                if not waiting and sent < size and (now >= due or is_late()):
                    waiting, due = os.urandom(min(CHUNK, size - sent)), now + step
                    hashed.update(waiting)
                    sent += len(waiting)
                if waiting:
                    try:
                        waiting = waiting[connection.send(waiting):]
                    except BlockingIOError:
                        pass
                if sent == size and not waiting and not ended:
                    connection.shutdown(socket.SHUT_WR)
                    ended = True
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if waiting else 0)
                selector.modify(connection, events)
                # An empty pause would spin, and a long pause would miss the time of the next bytes to send.
                pause = 1 if sent == size else min(max(due - now, 0.001), 1)
                if not any(mask & selectors.EVENT_READ for _, mask in selector.select(pause)):
                    continue
                data = connection.recv(4 * CHUNK)
                if not data:
                    break
                tail += data
                new = min(max(size - arrived, 0), len(tail))
                received.update(tail[:new])
                arrived, tail = arrived + new, tail[new:]
                if len(tail) > DIGEST:
                    raise Differs(f"more than the {size} bytes and their digest came back")
    if arrived < size or len(tail) < DIGEST:
        # A killed target ends its streams early, and then an end of file would claim that the stream is complete.
        raise Differs(f"end of file after {arrived + len(tail)} of {size + DIGEST} bytes")
    if received.digest() != hashed.digest() or tail != hashed.digest():
        raise Differs(f"{size} bytes came back changed")


def datagrams(address, count, size):
    """Sends datagrams one by one. Returns the number of datagrams that came back; a changed datagram is an error."""
    back = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as place:
        place.connect(address)
        place.settimeout(2)
        for number in range(count):
            data = number.to_bytes(4, "big") + os.urandom(size)
            place.send(data)
            try:
                while (answer := place.recv(65536))[:4] != data[:4]:
                    pass  # A late answer to an earlier datagram.
            except OSError:
                continue
            if answer != data:
                raise Differs(f"a datagram of {len(data)} bytes came back changed")
            back += 1
    return back


def checked(account, kind, action):
    """Runs a transfer and puts its outcome on the account."""
    began = time.monotonic()
    try:
        action()
    except Differs as differs:
        account.lose(kind, str(differs))
    except (OSError, Failed) as failed:
        account.broken(kind, began, str(failed))
    else:
        account.count(kind)
