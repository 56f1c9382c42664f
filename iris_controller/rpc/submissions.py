"""Which submission of a job's name a request means: a later job of that name is another one, and left alone."""

from __future__ import annotations

from iris_controller.rpc.errors import precondition


def require_submission(job_id: str, wanted: int, found: int) -> None:
    """Raises FAILED_PRECONDITION `replaced` unless the job that has the name is the one that is meant (0 = whichever has it)."""
    if wanted and wanted != found:
        raise precondition(
            job_id,
            f"job {job_id} was replaced by {'a later' if found > wanted else 'another'} job of this name; nothing was done",
            code="replaced",
        )
