"""What names the state of a thing, so that a change which was confirmed is carried out on what was looked at, or not at all.

A job is named by its incarnation, an attempt by its uid while it is current and on a worker, a worker by its boot id, a budget and a
slice by the version of their row, an endpoint by the attempt that registered it (DESIGN §5.18). Must never decide what a difference
means: who asks refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_core.model.ids import AttemptId
from iris_core.model.states import ACTIVE, task_label

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.state.overlay import Overlay

ABSENT = ""
"""The generation of what is not there."""
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Frozen:
    """One thing as it was looked at. `kind` is job, attempt, worker, budget, slice, endpoint, scale_group or controller."""

    kind: str
    id: str
    generation: str
    note: str = ""


def generation_of(o: Overlay, kind: str, name: str) -> str:
    """The generation as of now, ABSENT for what is not there. Of what cannot change while the controller runs it is ABSENT, too."""
    match kind:
        case "job":
            job = o.job(name)
            return str(job.submitted_at_ms) if job is not None else ABSENT
        case "attempt":
            return _attempt(o, name)
        case "worker":
            worker = o.worker(name)
            return worker.boot_id if worker is not None else ABSENT
        case "budget":
            return str(o.budget_of(name).updated_at_ms)
        case "slice":
            row = o.slice(name)
            return str(row.updated_at_ms) if row is not None else ABSENT
        case "endpoint":
            endpoint = o.endpoint(name)
            return endpoint.attempt_uid if endpoint is not None else ABSENT
    return ABSENT


def _attempt(o: Overlay, name: str) -> str:
    """Ten thousand of these are compared within one command: the name is one that was made here, and only taken apart."""
    task_id, _, number = name.rpartition(":")
    job_id, _, index = task_id.rpartition("/")
    task = o.task(job_id, int(index)) if index.isdecimal() else None
    if task is None or task.state not in ACTIVE or str(task.attempt_number) != number:
        return ABSENT
    return task.attempt_uid


def differences(o: Overlay, targets: Iterable[Frozen]) -> str:
    """What became of the targets that are no longer what they were, in one line; "" if all are."""
    changed = [target for target in targets if generation_of(o, target.kind, target.id) != target.generation]
    if not changed:
        return ""
    said = "; ".join(_what_became(o, target) for target in changed[:SHOWN])
    return said + (f"; and {len(changed) - SHOWN:,} more" if len(changed) > SHOWN else "")


def _what_became(o: Overlay, target: Frozen) -> str:
    now = generation_of(o, target.kind, target.id)
    match target.kind:
        case "job":
            if not target.generation:
                return f"there is a job {target.id} by now"
            return f"job {target.id} was replaced by a new job of that name" if now else f"job {target.id} is gone"
        case "attempt":
            attempt = AttemptId.parse(target.id)
            task = o.task(str(attempt.task.job), attempt.task.index)
            if task is None:
                return f"the job of {target.id} has ended"
            if task.attempt_uid != target.generation:
                return f"{target.id} is not the current attempt any more"
            return f"{target.id} has ended, its task is {task_label(task.state)}"
        case "worker":
            return f"worker {target.id} was started anew" if now else f"worker {target.id} is gone"
        case "budget":
            return f"the budget of {target.id} was changed"
        case "endpoint":
            return f"endpoint {target.id} was registered by another attempt" if now else f"endpoint {target.id} is gone"
    return f"{target.kind} {target.id} has changed" if now else f"{target.kind} {target.id} is gone"
