"""Opening a folder: who the store is, what its ledger and files say, and what a crash or damage left.

A torn tail was never acknowledged and goes in silence. Everything else that cannot be read any more is said with its range of seqs,
and what lies on both sides of it is served. Must never take an unreadable folder for an empty one.
"""

from __future__ import annotations

import json
import logging
import secrets
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from iris_controller.finelog import ledger as ledgers
from iris_controller.finelog import sidecar
from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.disk import write_atomically
from iris_controller.finelog.files import OpenFiles, WalFile, replay
from iris_controller.finelog.ledger import Ledger, LedgerDamaged
from iris_controller.finelog.records import FILE_BYTES, MARKER_BYTES, marker_of
from iris_controller.finelog.wal import AppendFile, Loss, Sync, list_files
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from iris_controller.finelog.catalog import Catalog
    from iris_controller.finelog.segment import Segment

log = logging.getLogger("iris.finelog")

FORMAT = 2
"""1 had write-ahead files only; a store of that kind is taken over as it is."""
_EVER = (-(1 << 62), 1 << 62)


class StoreUnusable(IrisError):
    """The folder cannot be opened as a store: another process has it, or nothing in it can be read."""


@dataclass(slots=True)
class Opened:
    """What a store starts from. `append` is None where the next line needs a new file."""

    ledger: Ledger
    files: tuple[WalFile, ...]
    append: AppendFile | None


def identity(folder: Path) -> bytes:
    """The store's marker: made for an empty folder, otherwise as `store.json` or any file header tells it.

    Raises StoreUnusable, OSError.
    """
    path = folder / "store.json"
    try:
        told = json.loads(path.read_text())
        if told["format"] > FORMAT:
            raise StoreUnusable(
                f"{folder} was written by a newer release (format {told['format']}, this one reads {FORMAT})",
                hint="start the newer release again",
            )
        marker = bytes.fromhex(told["marker"])
        if len(marker) == MARKER_BYTES:
            if told["format"] < FORMAT:
                tell_identity(folder, marker)
            return marker
        fault = f"{path.name} holds no marker"
    except FileNotFoundError:
        fault = ""
    except (ValueError, KeyError, TypeError) as error:
        fault = f"{path.name} cannot be read ({error})"
    files = list_files(folder)
    for _, file in files:
        with file.open("rb") as opened:
            found = marker_of(opened.read(FILE_BYTES))
        if found is not None:
            log.warning("%s: taking the store's identity from %s", fault or f"{path.name} is missing", file.name)
            break
    else:
        if files or fault:
            raise StoreUnusable(
                f"{folder} holds logs of a store that cannot be told: {fault or f'{path.name} is missing'}"
                " and no file header can be read",
                hint=f"restore {path.name} from a copy, or move the folder aside to start a new store",
            )
        found = secrets.token_bytes(MARKER_BYTES)
    tell_identity(folder, found)
    return found


def tell_identity(folder: Path, marker: bytes) -> None:
    """Durable when it returns. Raises OSError."""
    write_atomically(folder / "store.json", json.dumps({"format": FORMAT, "marker": marker.hex()}).encode() + b"\n")


def load_ledger(folder: Path) -> Ledger:
    """The ledger as it was saved last, or an empty one. Raises OSError."""
    try:
        return ledgers.load(folder / "ledger.json") or Ledger()
    except LedgerDamaged as error:
        log.error("%s; producers are counted anew from the files, and what retention removed is forgotten", error)
        return Ledger()


def take_segments(catalog: Catalog, ledger: Ledger, note_loss: Callable[[str, Loss], None]) -> None:
    """Takes up the segments of the log; `ledger` then holds all that is in them. Raises OSError."""
    segments = catalog.segments(LOG)
    # Retention was interrupted between remembering and removing.
    gone = [one for one in segments if one.last_seq <= ledger.removed_seq]
    missing = [
        one
        for one in segments
        if one not in gone and not one.object and not (catalog.folder_of(LOG) / one.name).exists()
    ]
    for segment in missing:
        note_loss(segment.name, Loss(segment.first_seq, segment.last_seq))
    expected = ledger.removed_seq + 1
    for segment in segments:
        if segment.first_seq > expected:
            note_loss(segment.name, Loss(expected, segment.first_seq - 1))
        expected = max(expected, segment.last_seq + 1)
        if segment.last_seq > ledger.covers_seq and not segment.object and segment not in (*gone, *missing):
            _note_marks(catalog.folder_of(LOG) / segment.name, segment, ledger, note_loss)
    if gone or missing:
        catalog.commit(LOG, remove=[*gone, *missing])
    ledger.next_seq = max(ledger.next_seq, expected)
    ledger.covers_seq = max(ledger.covers_seq, expected - 1)


def _note_marks(path: Path, segment: Segment, ledger: Ledger, note_loss: Callable[[str, Loss], None]) -> None:
    """Only where the ledger is older than the segment, or lost: it takes what is heavy to load."""
    from iris_controller.finelog.segments import SegmentDamaged, read_footer

    try:
        ledger.note_marks(read_footer(path).marks.items(), segment.last_seq)
    except SegmentDamaged as error:
        log.error("%s; how far its producers got follows from their other lines", error)
        note_loss(segment.name, Loss(segment.first_seq, segment.last_seq))


def load_files(
    folder: Path,
    marker: bytes,
    ledger: Ledger,
    covered: int,
    open_files: OpenFiles,
    note_loss: Callable[[str, Loss], None],
    sync: Sync,
) -> Opened:
    """Takes up every write-ahead file; `ledger` then holds all that is in them. Lines up to `covered` are in segments or gone.

    Raises OSError.
    """
    files = [WalFile(path, first_seq) for first_seq, path in list_files(folder)]
    while files and (
        files[0].first_seq <= covered
        # Retention was interrupted between remembering and removing.
        or (len(files) > 1 and files[1].first_seq <= ledger.removed_seq + 1)
    ):
        gone = files.pop(0)
        gone.path.unlink(missing_ok=True)
        gone.sidecar_path.unlink(missing_ok=True)
    expected = max(covered, ledger.removed_seq) + 1
    if files and files[0].first_seq > expected:
        note_loss(files[0].path.name, Loss(expected, files[0].first_seq - 1))
    for file, follower in pairwise(files):
        _take_finished(file, follower.first_seq, ledger, open_files)
        if file.last_seq + 1 < follower.first_seq:
            note_loss(file.path.name, Loss(file.last_seq + 1, follower.first_seq - 1))
    if not files:
        if ledger.next_seq > expected:
            log.error("%s: all files are gone; lines %d to %d are lost", folder, expected, ledger.next_seq - 1)
            note_loss("the last file", Loss(expected, ledger.next_seq - 1))
        return Opened(ledger, (), None)
    append = _take_last(files[-1], marker, ledger, note_loss, sync)
    return Opened(ledger, tuple(files), append)


def _take_finished(file: WalFile, limit_seq: int, ledger: Ledger, open_files: OpenFiles) -> None:
    file.limit_seq = limit_seq
    file.size = file.path.stat().st_size
    try:
        header = sidecar.read_header(file.sidecar_path)
        header.check(file.first_seq, file.size)
        file.take_bounds(header)
    except sidecar.SidecarDamaged:
        # The first reader makes it anew.
        file.last_seq = limit_seq - 1
        file.earliest_ms, file.latest_ms = _EVER
    if file.last_seq > ledger.covers_seq:
        ledger.note_marks(open_files.get(file).index.marks.items(), file.last_seq)


def _take_last(
    file: WalFile, marker: bytes, ledger: Ledger, note_loss: Callable[[str, Loss], None], sync: Sync
) -> AppendFile | None:
    vouched = ledger.synced if ledger.last_file == file.first_seq else 0
    index, findings = replay(file.path, marker, file.first_seq, None, vouched)
    size = file.path.stat().st_size
    file.live = index
    file.size = findings.end
    file.take_bounds(index)
    ledger.note_marks(index.marks.items(), index.last_seq)
    if ledger.next_seq > findings.next_seq:
        findings.losses.append(Loss(findings.next_seq, ledger.next_seq - 1))
    for loss in findings.losses:
        note_loss(file.path.name, loss)
    if findings.torn_bytes:
        log.warning("%s: cutting %d bytes of a write that was never acknowledged", file.path.name, findings.torn_bytes)
    ledger.next_seq = max(ledger.next_seq, findings.next_seq)
    with file.path.open("rb") as opened:
        header = marker_of(opened.read(FILE_BYTES))
    if findings.losses or header != marker or size < findings.end:
        # Left as it is for whoever wants to look at it; what comes next goes into a new file, which takes its place if it
        # never held a line.
        file.limit_seq = ledger.next_seq
        return None
    # Written when the file was full once; its successor is gone and it grows again.
    file.sidecar_path.unlink(missing_ok=True)
    ledger.last_file, ledger.synced = file.first_seq, findings.end
    return AppendFile.go_on(file.path, findings.end, sync)
