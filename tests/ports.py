"""Port numbers for programs that have to be told theirs, and what this process listens on."""

from __future__ import annotations

import itertools
import os
import re
import socket
from pathlib import Path
from typing import Final

FIRST: Final = 21_000
EACH: Final = 500
"""Below the range from which the kernel gives numbers to whoever asks for any, so that a number that was found stays free until it is
used; and another range for each of the processes that run tests at the same time."""
_WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 16
_NUMBERS: Final = itertools.count(os.getpid() * 7)
LISTENING: Final = "0A"
"""As /proc/net/tcp says it."""


def free_port() -> int:
    """One on which nobody listens, and that no other test is given."""
    for number in itertools.islice(_NUMBERS, EACH):
        port = FIRST + _WORKER * EACH + number % EACH
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise AssertionError("no port is free")


def listening(port: int) -> set[str]:
    """The addresses on which this process listens at a port; another one may listen there on another address."""
    own = set()
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            own.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            pass
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *rest = line.split()
            address, number = local.rsplit(":", 1)
            if state == LISTENING and int(number, 16) == port and f"socket:[{rest[5]}]" in own:
                found.add(_shown(address))
    return found


def _shown(address: str) -> str:
    """The kernel prints each four bytes as one number in the order of this machine."""
    raw = b"".join(int(word, 16).to_bytes(4, "little") for word in re.findall("." * 8, address))
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
