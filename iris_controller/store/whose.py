"""Whose an attempt is, also once it has ended: the model forgets an attempt with its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3


class Whose(NamedTuple):
    """An attempt by what does not change of it any more."""

    task_id: str
    number: int
    worker_id: str
    incarnation: int
    """The submit time of its job."""


def whose(connection: sqlite3.Connection, attempt_uid: str) -> Whose | None:
    """Whose that attempt is; None when its job is not kept any more, or there never was one."""
    row = connection.execute(
        "SELECT a.task_id, a.attempt_id, a.worker_id, j.submitted_at_ms FROM task_attempts a"
        " JOIN tasks t ON t.task_id = a.task_id JOIN jobs j ON j.job_id = t.job_id WHERE a.attempt_uid = ?",
        (attempt_uid,),
    ).fetchone()
    return Whose(row[0], row[1], row[2] or "", row[3]) if row is not None else None
