"""Where all running tasks of a job stand, the odd one first: fresh thread dumps of all at once, grouped by stack.

All tasks have the same 30 seconds. One that does not answer in time is stood in for by its newest stored dump, with its age; a
read-only console touches no task and shows stored dumps alone. What is said is said in the words of `job hang`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError
from iris_core.live.wording import Tone
from iris_core.model.states import TaskState, job_label

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1 import profiles_pb2
    from iris_tui.pages import Lines
    from iris_tui.session import Session

LIMIT_S: Final = 30.0
AT_ONCE: Final = 32
MOST_TASKS: Final = 10_000
PAGE: Final = 5_000
Kept = dict[str, tuple["profiles_pb2.ProfileRecord", bytes]]


async def load(session: Session, job_id: str) -> Lines:
    """The lines of the page. Raises IrisError: no task runs, or the controller cannot be asked."""
    from iris_core.analysis.hang import judge
    from iris_core.cli.hang import rank_of, text_of
    from iris_tui.threads import in_thread

    running, incarnation = await _running(session, job_id)
    fresh: dict[str, bytes] = {}
    problems = dict.fromkeys(running, "not asked: this console is read-only")
    if not session.read_only:
        fresh, problems = await _fresh(session, running)
    missing = [task_id for task_id in running if task_id not in fresh]
    kept, notes = await _kept(session, job_id, incarnation, missing) if missing else ({}, [])
    now_ms = session.clock.now_ms()

    def words() -> str:
        ranks = [rank_of(name, fresh.get(name), kept.get(name), problems.get(name, "")) for name in running]
        return text_of(judge(ranks), now_ms, False)

    text = await in_thread(words, name="group dumps")
    first, *rest = text.rstrip("\n").split("\n")
    return [(first, Tone.BUSY), *((note, Tone.WARN) for note in notes), *((line, _tone(line)) for line in rest)]


def _tone(line: str) -> Tone:
    """Names of groups stand out, remarks are dim."""
    if line and not line.startswith(" "):
        return Tone.WARN
    return Tone.DIM if line.startswith("  (") else Tone.PLAIN


async def _running(session: Session, job_id: str) -> tuple[list[str], int]:
    """The running tasks of a job, and its incarnation. Raises IrisError: none runs."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    request = pb.GetJobStatusRequest(job_id=job_id)
    job = (await session.client.call("ControllerService/GetJobStatus", request, pb.GetJobStatusResponse)).job
    found: list[str] = []
    token = ""
    while True:
        page = await session.client.call(
            "ControllerService/ListTasks",
            pb.ListTasksRequest(job_id=job_id, page_size=PAGE, page_token=token),
            pb.ListTasksResponse,
        )
        found += [task.task_id for task in page.tasks if int(task.state) == TaskState.RUNNING]
        token = page.next_page_token
        if not token:
            break
    if not found:
        hint = "its child jobs may: choose one of them" if job.has_children else ""
        raise IrisError(f"no task of {job_id} is running: the job is {job_label(job.state)}", hint=hint)
    return found, job.incarnation


async def _fresh(session: Session, task_ids: Sequence[str]) -> tuple[dict[str, bytes], dict[str, str]]:
    """The dumps that came in time, and why the others did not."""
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

    clock = session.clock
    until = clock.monotonic() + LIMIT_S
    turns = asyncio.Semaphore(AT_ONCE)
    found: dict[str, bytes] = {}
    problems = dict.fromkeys(task_ids, f"no answer within {LIMIT_S:.0f} s")

    async def dump(task_id: str) -> None:
        async with turns:
            left = until - clock.monotonic()
            if left <= 0:
                problems[task_id] = f"its turn did not come within {LIMIT_S:.0f} s"
                return
            request = pb.ProfileTaskRequest(target=task_id, options=pb.ProfileOptions(type=pb.PROFILE_TYPE_THREADS))
            try:
                answer = await session.client.call(
                    "ControllerService/ProfileTask", request, pb.ProfileTaskResponse, timeout_s=left
                )
            except IrisError as error:
                problems[task_id] = error.message
            else:
                found[task_id] = answer.profile_data

    await asyncio.gather(*(dump(task_id) for task_id in task_ids))
    return found, problems


async def _kept(session: Session, job_id: str, incarnation: int, task_ids: Iterable[str]) -> tuple[Kept, list[str]]:
    """The newest stored dump of each, and what the store did not give."""
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

    wanted = set(task_ids)
    found: Kept = {}
    request = pb.ListProfilesRequest(
        prefix=job_id,
        types=[pb.PROFILE_TYPE_THREADS],
        latest_only=True,
        min_incarnation=incarnation,
        page_size=MOST_TASKS,
    )
    try:
        answer = await session.client.call("ControllerService/ListProfiles", request, pb.ListProfilesResponse)
        for record in answer.profiles:
            if record.source in wanted and record.source not in found:
                one = await session.client.call(
                    "ControllerService/GetProfile",
                    pb.GetProfileRequest(profile_id=record.profile_id, type=record.type, format=record.format),
                    pb.GetProfileResponse,
                )
                found[record.source] = (record, one.profile_data)
    except IrisError as error:
        return found, [f"the stored dumps cannot be read: {error.message}"]
    return found, []
