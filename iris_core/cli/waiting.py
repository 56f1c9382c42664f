"""Waiting for something the controller will tell: asked again and again, slower the longer it takes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

from iris_core.cli import output
from iris_core.cli.reads import Patience
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.log_subject import Standing, Subject
    from iris_core.cli.session import Session

T = TypeVar("T")

FIRST_S: Final = 0.05
LONGEST_S: Final = 1.0


def wait_until(session: Session, ask: Callable[[], T | None], meanwhile: str, timeout_s: float = 0.0) -> T:
    """The first answer that is not None. `meanwhile` is said when the connection breaks: what goes on without us.

    Raises IrisError: `timeout_s` (0 = none) is over, the controller stays away, or the question fails.
    """
    patience = Patience(session.diagnostics, meanwhile)
    until = time.monotonic() + timeout_s if timeout_s else None
    step_s = FIRST_S
    while (answer := patience.ask(ask)) is None:
        session.require_live("what has not ended in it never will")
        if until is not None:
            left_s = until - time.monotonic()
            if left_s <= 0:
                raise IrisError(f"not within {timeout_s:g} s; {meanwhile}")
            step_s = min(step_s, left_s)
        time.sleep(step_s)
        step_s = min(step_s * 1.3, LONGEST_S)
    return answer


def wait_for_end(session: Session, subject: Subject, timeout_s: float) -> int:
    """Waits until the subject has ended, prints its state, and returns the exit code for it. Raises IrisError, as `wait_until`: Replaced
    once its name is a later job's.
    """

    def ended() -> Standing | None:
        standing = subject.standing()
        return standing if standing.ended else None

    standing = wait_until(session, ended, f"{subject.id} goes on", timeout_s)
    output.line(standing.label)
    if standing.succeeded:
        return 0
    if standing.reason:
        session.diagnostics.note(f"{subject.id}: {standing.reason}")
    return 1
