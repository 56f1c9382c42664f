"""A folder takes the place in the object store back that another folder of its store had taken: asked for by `--take-over` alone.

What is here counts from then on. The numbers of both stores go on above everything that the other one was given, then the manifest
moves by compare-and-set under a new writer, so that whoever shipped there until then stops. What only the other one stored is stated as
a loss, stays on its disk, and its objects go an hour after nothing names them any more.

It is asked for by a small file, so that it is done once, also if it takes several starts. Must never touch the place of another store,
nor claim before the numbers are above the ceiling that is there.
"""

from __future__ import annotations

import logging
import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from iris_controller.finelog.disk import write_atomically
from iris_controller.finelog.shipping import manifest as manifests
from iris_controller.finelog.shipping.manifest import Part
from iris_controller.finelog.shipping.writer import own_writer, save_writer
from iris_controller.finelog.steps import reached
from iris_core.contracts import GenerationMismatch, IrisError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from iris_core.contracts import ObjectStore

log = logging.getLogger("iris.finelog.shipping")

REQUEST: Final = "take-over.json"
TRIES: Final = 8


class Reclaiming(Protocol):
    """One sequence of rows that goes on above what another folder gave away."""

    name: str

    def go_on_above(self, seq: int, why: str) -> None:
        """The next row gets a number above `seq`. Durable when it returns; calling it again is harmless. Raises OSError."""
        ...

    def marks(self) -> Mapping[str, Mapping[str, tuple[int, int]]]:
        """As a part of the manifest has them, of what is here."""
        ...


def ask(folder: Path) -> None:
    """The next start of the store in `folder` reclaims its place. Nothing where there is no store. Durable. Raises OSError."""
    if folder.is_dir():
        write_atomically(folder / REQUEST, b"{}\n")


def is_asked(folder: Path) -> bool:
    """Whether `ask` was called and is not done."""
    return (folder / REQUEST).exists()


def settle(folder: Path) -> None:
    """It is done, or there is nothing to be done. Raises OSError."""
    (folder / REQUEST).unlink(missing_ok=True)


def reclaim(
    folder: Path,
    marker: bytes,
    owners: Sequence[Reclaiming],
    remote: ObjectStore,
    *,
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
) -> bool:
    """Makes this folder the one that ships; False where nobody took its place, or the place is another store's.

    Raises IrisError: the object store does not answer, or others write there all the time; OSError. It is tried again then.
    """
    for _ in range(TRIES):
        found = manifests.read(remote)
        there = found.manifest
        if there is None or there.writer == own_writer(folder):
            return False
        if there.marker != marker.hex():
            log.error("%s holds the segments of another store, and is not taken over", remote.url)
            return False
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now_ms() / 1000))
        why = f"another controller stored them, and this one took over ({at} UTC)"
        parts = dict(there.parts)
        for owner in owners:
            part = parts.get(owner.name, Part())
            owner.go_on_above(part.ceiling, why)
            parts[owner.name] = replace(part, ceiling=part.ceiling + manifests.HEADROOM, marks=owner.marks())
        reached("reclaim: the numbers are above")
        writer = secrets.token_hex(8)
        claimed = replace(there, writer=writer, revision=there.revision + 1, written_ms=now_ms(), parts=parts)
        try:
            manifests.write(remote, claimed, found.generation)
        except GenerationMismatch:
            continue
        reached("reclaim: the manifest is ours")
        save_writer(folder, writer)
        log.warning("this log store ships into %s again; what the other one stored since is given up", remote.url)
        return True
    raise IrisError(f"somebody keeps writing into {remote.url}: stop whatever ships there")
