"""Lines that something wrote before it ended and that are not in the log store: waited for a moment, and counted.

Each attempt that ended says how many lines it wrote, and the store how many it has. Without this a log that is read at once after
its job, or while its worker cannot deliver, looks as if it were whole. Must never turn a log command into a failure.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from iris_core.cli.reads import now_ms
from iris_core.contracts import IrisError
from iris_core.model.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.log_subject import Standing, Subject
    from iris_core.cli.session import Session
    from iris_core.contracts import Client

LATE_S: Final = 1.0
"""How long lines of something that has just ended are waited for."""
POLL_S: Final = 0.05
JUST_MS: Final = 30_000


def missing_lines(
    client: Client,
    subject: Subject,
    standing: Standing,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, int]:
    """Per attempt uid, how many of its lines the log store does not have now. Empty for what goes on; raises nothing."""
    if not standing.ended:
        return {}
    until = clock() + (LATE_S if now_ms() - standing.ended_at_ms < JUST_MS else 0.0)
    try:
        missing = written = subject.written(latest=True)
        while True:
            marks = _marks(client, subject, list(missing))
            missing = {uid: lines for uid, lines in missing.items() if lines > marks.get(uid, 0)}
            if not missing or clock() >= until:
                return {uid: written[uid] - marks.get(uid, 0) for uid in missing}
            sleep(POLL_S)
    except IrisError:
        return {}


def _marks(client: Client, subject: Subject, producers: list[str]) -> dict[str, int]:
    from iris_core.cli.log_reader import FETCH, TIMEOUT_S
    from iris_core.wire.gen.iris.v1.common_pb2 import MATCH_SCOPE_EXACT
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse

    if not producers:
        return {}
    # Only the marks are wanted, and a job or task has no line under its own name.
    request = FetchLogsRequest(source=subject.id, match_scope=MATCH_SCOPE_EXACT, max_lines=1, producers=producers)
    answer = client.call(FETCH, request, FetchLogsResponse, timeout_s=TIMEOUT_S)
    return {mark.producer: mark.next_number for mark in answer.marks}


def say_missing(session: Session, subject: Subject, missing: dict[str, int]) -> None:
    """Warns of the lines that are missing, with what the pipeline knows of why."""
    from iris_core.cli.pipeline import ask

    lines = sum(missing.values())
    found = ask(session, "")
    why = f": {found.problems[0]}" if found is not None and found.problems else ""
    session.diagnostics.warn(
        f"{counted(lines, 'line')} that {subject.id} wrote {'were' if lines != 1 else 'was'} not in the log store when it was asked{why}"
    )
