"""A worker that cannot stage what it is given must not eat the queue.

A machine with a full disk fails each task within moments, is therefore always free, and gets the next one. So failures to stage
are counted against the machine and it gets no more work: after three in a row, or ten in all (the limit of control-plane §4.2),
whichever comes first. Three in a row stops a broken machine at once; ten in all stops one that still runs jobs which have
nothing to stage. An attempt that starts running clears the row, and lifts an exclusion that came from it; only a restarted
worker clears the total. Must never judge a job by what its machine did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Worker

MAX_IN_A_ROW: Final = 3
MAX_IN_ALL: Final = 10


def count_staging_failure(o: Overlay, worker_id: str, error: str) -> None:
    """Counts one failure to stage, and excludes the worker when it reaches a limit."""
    worker = o.worker(worker_id)
    if worker is None:
        return
    in_a_row = worker.staging_streak + 1
    in_all = worker.build_failures + 1
    excluded = in_a_row >= MAX_IN_A_ROW or in_all >= MAX_IN_ALL
    o.set_worker(
        worker,
        staging_streak=in_a_row,
        build_failures=in_all,
        excluded=excluded or worker.excluded,
        excluded_reason=error or "cannot stage" if excluded else worker.excluded_reason,
    )
    if excluded and not worker.excluded:
        o.note("worker_failing", worker_id, "staging", in_a_row=in_a_row, in_all=in_all, reason=error)


def why_excluded(worker: Worker) -> str:
    """What a worker that gets no work did, to stand behind its name; "" = it is not excluded."""
    if not worker.excluded:
        return ""
    times = "once" if worker.build_failures == 1 else f"{worker.build_failures} times"
    return f"gets no work, it failed to stage {times}" + (
        f": {worker.excluded_reason}" if worker.excluded_reason else ""
    )


def forgive_staging_failures(o: Overlay, worker_id: str) -> None:
    """Clears the row of failures: an attempt of this worker runs, so it can stage."""
    worker = o.worker(worker_id)
    if worker is None or not worker.staging_streak:
        return
    excluded = worker.build_failures >= MAX_IN_ALL
    o.set_worker(
        worker,
        staging_streak=0,
        excluded=excluded,
        excluded_reason=worker.excluded_reason if excluded else "",
    )
