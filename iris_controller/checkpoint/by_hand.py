"""Putting a checkpoint in the place of a stopped controller's database, by a person or a runbook, and taking that back.

Each such restore has an id: the database that it replaces is kept as `db.aside.<id>`, and the one that it brings is marked with the id, both
by the same renames, so that whoever died in between can see what has happened. Must never delete a database.
"""

from __future__ import annotations

import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from iris_controller.checkpoint import restore
from iris_controller.checkpoint.choose import put_in_place
from iris_controller.checkpoint.claims import OwnClaims
from iris_controller.store.database import StateDir, StateDirError, open_reader
from iris_core.contracts import UsageFailed
from iris_core.procedures.files import sync_folder
from iris_core.procedures.losses import counted_after, named_after

LOOK_S: Final = 30.0
"""What counting may take in a database that has grown too large to be served."""
STEPS: Final = 200_000
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def shown(state: StateDir, checkpoint: str) -> dict[str, Any]:
    """What a state directory holds, and what going back to a checkpoint would drop of it; also beside a controller that hangs.

    {"database_bytes", "mark", "kept": names of databases that were moved aside, newest last, "submitted", "changed", "jobs",
    "newest", "which"}; the last five only with a checkpoint, and without them "unknown" says why. Raises BadCheckpoint: it cannot be restored; IrisError.
    """
    files = [state.database, state.database.with_name(f"{state.database.name}-wal")]
    kept = [path for path in state.path.glob("db.*") if path.is_dir() and (path / state.database.name).exists()]
    found: dict[str, Any] = {
        "database_bytes": sum(path.stat().st_size for path in files if path.exists()),
        "mark": restore.mark_of(state.path),
        "kept": [path.name for path in sorted(kept, key=lambda path: path.stat().st_mtime_ns)],
    }
    if not checkpoint:
        return found
    candidate = restore.find(checkpoint)
    if not candidate.epoch_ms:
        return {**found, "unknown": "when it was taken is not known"}
    try:
        found.update(_dropped(state.database, candidate.epoch_ms))
    except (sqlite3.Error, OSError) as error:
        found["unknown"] = f"{type(error).__name__}: {error}"
    return found


def _dropped(database: Path, epoch_ms: int) -> dict[str, Any]:
    if not database.exists():
        return {"unknown": "there is no database"}
    deadline = time.monotonic() + LOOK_S
    with closing(open_reader(database)) as connection:
        connection.set_progress_handler(lambda: time.monotonic() > deadline, STEPS)
        made, older, newest, which = connection.execute(counted_after(epoch_ms)).fetchone()
        jobs = [row[0] for row in connection.execute(named_after(epoch_ms))]
        return {"submitted": made, "changed": older, "jobs": jobs, "newest": newest, "which": which}


def put(state: StateDir, checkpoint: str, id_: str, now_ms: int) -> tuple[str, Path | None]:
    """Restores a checkpoint into a state directory whose lock is held; which, and where the database of before is kept.

    Done again under the same id it is done already. Raises UsageFailed: the id was used, and another database stands there by now. Raises
    as `put_in_place`; nothing was touched then.
    """
    if not id_:
        return put_in_place(state, checkpoint, now_ms)
    try:
        restore.settle(state.path)  # one that was killed between its renames
    except OSError as error:
        raise StateDirError(f"the state in {state.path} cannot be prepared: {error}") from error
    kept = state.path / f"db.aside.{id_}"
    if restore.mark_of(state.path) == id_:
        return restore.find(checkpoint).label, kept if kept.exists() else None
    if kept.exists():
        # A second one would be kept under another name, and taking this id back would bring the wrong one of the two.
        raise UsageFailed(f"the restore {id_} was made before: it keeps {kept}", hint="choose another id")
    return put_in_place(state, checkpoint, now_ms, id_)


def put_back(state: StateDir, id_: str) -> Path | None:
    """Takes the restore of that id back, in a state directory whose lock is held: the database of before stands in its place again.

    Returns where the restored one is kept; None if it was taken back already. Raises UsageFailed: there was no such restore, or
    another database stands there by now; StateDirError.
    """
    database, kept = state.database.parent, state.path / f"db.aside.{id_}"
    stands, undone = (database / state.database.name).exists(), list[Path]()
    for moved in restore.names(state.path / f"db.undone.{id_}"):
        if not moved.exists():
            break
        undone.append(moved)
    try:
        if not (kept / state.database.name).exists():
            if undone:
                return None
            raise UsageFailed(
                f"there was no restore {id_} here that moved a database aside",
                hint="restore --show lists what was moved aside",
            )
        if stands:
            if restore.mark_of(state.path) != id_:
                raise UsageFailed(f"the database in {database} is not the one that the restore {id_} brought")
            database.rename(moved)
            sync_folder(state.path)
        else:
            moved = undone[-1] if undone else moved  # killed between the two renames
        kept.rename(database)
        sync_folder(state.path)
        OwnClaims(state.path).forget()
        return moved
    except OSError as error:
        raise StateDirError(f"the state in {state.path} cannot be put back: {error}") from error


def require_id(id_: str) -> str:
    """Raises UsageFailed for an id that could not be part of a folder's name."""
    if not _ID.fullmatch(id_):
        raise UsageFailed(f"{id_!r} is no id of a restore", hint="letters, digits, . _ -; at most 128")
    return id_
