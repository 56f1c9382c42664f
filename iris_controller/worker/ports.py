"""Named ports: numbers from 30000 to 40000 that no other attempt of this host gets and nobody listens on.

A number is reserved by an abstract Unix socket of its own name: like the port itself it belongs to the network namespace, every
worker sees it whichever user it runs as, and the kernel gives it back when the worker dies. Between the reservation and the
task's own bind only a program that is not Iris could take the port.
"""

from __future__ import annotations

import random
import socket

FIRST, LAST = 30000, 40000


class NoPort(Exception):
    """No number is left."""


class Reservation:
    """Ports held until `release`."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}
        self._locks: list[socket.socket] = []

    def release(self) -> None:
        """Gives the numbers back; a second call is no error."""
        for lock in self._locks:
            lock.close()
        self._locks.clear()


def reserve(names: list[str], *, first: int = FIRST, last: int = LAST) -> Reservation:
    """A free port for each name. Raises NoPort."""
    held = Reservation()
    span = last - first + 1
    start = random.randrange(span)
    candidates = iter(first + (start + step) % span for step in range(span))
    for name in names:
        for number in candidates:
            lock = _lock(number)
            if lock is None:
                continue
            if _free(number):
                held._locks.append(lock)
                held.numbers[name] = number
                break
            lock.close()
        else:
            held.release()
            raise NoPort(f"no free port from {first} to {last}")
    return held


def _lock(number: int) -> socket.socket | None:
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        lock.bind(f"\0iris-port-{number}")
    except OSError:
        lock.close()
        return None
    return lock


def _free(number: int) -> bool:
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            continue  # a host without that family
        with probe:
            # A closed connection in TIME_WAIT does not keep a server from listening there; a listener does.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((address, number))
                probe.listen(1)
            except OSError as error:
                if error.errno == 99:  # EADDRNOTAVAIL: IPv6 is there but switched off
                    continue
                return False
    return True
