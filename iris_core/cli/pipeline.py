"""Why there are no lines, or not the latest: the likely cause, told wherever logs are shown (cli-auth-logs §7).

"Nothing printed" and "nothing arrived" look the same to a reader, and only the pipeline's own account tells them apart. It is asked
once, and a controller that cannot say costs nothing. Must never turn a log command into a failure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from iris_core.cli.log_subject import Standing, Subject
    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1.pipeline_pb2 import GetPipelineHealthResponse, ShippingHealth

BEHIND_MS: Final = 2_000
"""A line that waits longer is worth counting; shipping takes well under a second."""


def ask(session: Session, target: str) -> GetPipelineHealthResponse | None:
    """How the way of the lines of `target` is; None: this controller does not say."""
    from iris_core.client.logs import Logs

    try:
        return Logs(session.client).health(target)
    except IrisError as error:
        session.diagnostics.debug(f"how the log pipeline is: {error.message}")
        return None


def say_nothing(session: Session, subject: Subject, standing: Standing, *, is_filtered: bool) -> None:
    """Tells on standard error why there is no line, so that an empty answer is never taken for a fault."""
    why = f": {standing.reason}" if standing.reason else ""
    if is_filtered or standing.ended or not standing.started:
        # What is not searched for cannot match; of what has ended, lines may have been removed since.
        nothing = "no line matches" if is_filtered else "no line is kept" if standing.ended else "no line"
        so_far = "" if standing.ended else " so far"
        session.diagnostics.note(f"{subject.id} is {standing.label}{why}; {nothing}{so_far}")
        if not standing.ended:
            say_how_it_is(session, subject)
        return
    session.diagnostics.note(
        f"{subject.id} is {standing.label}{why}; no logs yet: {likely_cause(session, subject, standing)}"
    )


def likely_cause(session: Session, subject: Subject, standing: Standing) -> str:
    """Why something that runs has no line yet."""
    from iris_core.live import pipeline

    found = ask(session, subject.id)
    if standing.label in ("building", "assigned") and not (found is not None and found.problems):
        return "its setup has not printed anything so far"
    if found is None:
        return "it has not printed anything, or its lines are on the way"
    return pipeline.likely_cause(found) or "no worker runs a task of it at the moment"


def say_how_it_is(session: Session, subject: Subject) -> None:
    """Tells on standard error if lines of something that goes on are late or lost."""
    found = ask(session, subject.id)
    for problem in found.problems if found is not None else ():
        session.diagnostics.warn(problem)


def summary(found: GetPipelineHealthResponse) -> str:
    """The log store and the shipping in one line: `serving, 1.2GB of 21.5GB on disk, last line 3s ago, no worker is behind`."""
    from iris_core.live.columns import age
    from iris_core.model.quantities import format_duration, format_size
    from iris_core.model.text import counted

    store = found.store
    words = [store.state or "unknown"]
    if store.state != "down":
        words.append(f"{format_size(store.disk_bytes)} of {format_size(store.max_bytes)} on disk")
        if store.last_line_at_ms:
            words.append(f"last line {age(store.last_line_at_ms, found.now_ms)} ago")
        if store.shipping.state:
            words.append(_shipped(store.shipping, found.now_ms))
        if store.damaged_lines:
            words.append(f"{counted(store.damaged_lines, 'line')} lost to damage")
    behind = [worker for worker in found.workers if worker.shipper.lag_ms >= BEHIND_MS]
    if behind:
        longest = max(worker.shipper.lag_ms for worker in behind)
        words.append(
            f"{len(behind)} of {counted(len(found.workers), 'worker')} behind, up to {format_duration(longest)}"
        )
    elif found.workers:
        words.append("no worker is behind")
    if lost := sum(worker.shipper.lost_lines for worker in found.workers):
        words.append(f"{counted(lost, 'line')} lost on the way to the log store")
    return ", ".join(words)


def _shipped(shipping: ShippingHealth, now_ms: int) -> str:
    from iris_core.live.columns import age

    if shipping.state == "stopped":
        return "NOT shipped any more"
    if not shipping.unshipped_since_ms:
        return "all shipped"
    return f"shipped but for the last {age(shipping.unshipped_since_ms, now_ms)}"
