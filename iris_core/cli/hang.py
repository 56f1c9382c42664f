"""`job hang`: fresh thread dumps of all running tasks at once, grouped by where they stand.

All of them have 30 seconds together. A task that does not answer in time is stood in for by its newest stored dump, and the answer
says so and how old it is.
"""

from __future__ import annotations

import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.options import output_option
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_core.analysis.dumps import Process
    from iris_core.analysis.hang import Group, Rank, Verdict
    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

LIMIT_S: Final = 30.0
AT_ONCE: Final = 32
FRAMES: Final = 40
"""Of one thread; more are counted."""


@click.command(short_help="Show where all running tasks of a job stand, the odd one first.")
@click.argument("job_id", metavar="JOB")
@click.option("--all-threads", is_flag=True, help="Compare and show every thread, not the main ones alone.")
@click.option("--stored", is_flag=True, help="Take the newest stored dumps and touch no task.")
@output_option("text", "json")
@click.pass_obj
def hang(session: Session, job_id: str, all_threads: bool, stored: bool, how: str) -> None:
    """Dump the threads of all running tasks of a job at once (30 s in all) and group the tasks by where they stand.

    The smallest group comes first: in a hung job it holds the task that all others wait for. A task that does not
    answer is shown by its newest stored dump, with its age.
    """
    from iris_core.analysis.hang import judge
    from iris_core.cli import reads
    from iris_core.model.ids import JobId

    job = JobId.parse(job_id)
    ranks = _ranks(session, job, touch=not stored)
    verdict = judge(ranks, all_threads=all_threads)
    now_ms = reads.now_ms()
    if how == "json":
        output.line(output.as_json(_as_object(verdict, now_ms, all_threads)))
    else:
        output.write(text_of(verdict, now_ms, all_threads))
    output.flush()
    if not verdict.groups:
        raise IrisError(f"nothing is known of where the tasks of {job} stand", hint="the reasons are listed above")


def _ranks(session: Session, job: Any, *, touch: bool) -> list[Rank]:
    """Every running task with what is known of it. Raises IrisError: none runs."""
    from iris_core.cli import reads
    from iris_core.model.states import TERMINAL, TaskState, job_label, task_label

    status = reads.job_status(session.client, job).job
    tasks = reads.list_tasks(session.client, job)
    running = [task.task_id for task in tasks if int(task.state) == TaskState.RUNNING]
    begin = Counter(task_label(task.state) for task in tasks if int(task.state) not in {TaskState.RUNNING, *TERMINAL})
    to_come = ", ".join(f"{number} {word}" for word, number in begin.items())
    if not running:
        if begin:
            command = "its command has" if begin.total() == 1 else "their commands have"
            to_come += f", {command} not begun"
        hint = f"see: {session.program} {session.selector()}job explain {job}"
        hint = "its child jobs may: name one of them" if status.has_children else hint
        raise IrisError(f"no task of {job} is running: {to_come or f'the job is {job_label(status.state)}'}", hint=hint)
    if to_come:
        session.diagnostics.note(f"not looked at, since they do not run: {to_come}")
    fresh, problems = _fresh(session, running) if touch else ({}, dict.fromkeys(running, "not asked (--stored)"))
    missing = [task_id for task_id in running if task_id not in fresh]
    kept = _stored(session, str(job), status.incarnation, missing) if missing else {}
    return [rank_of(task_id, fresh.get(task_id), kept.get(task_id), problems.get(task_id, "")) for task_id in running]


def rank_of(task_id: str, fresh: bytes | None, kept: tuple[pb.ProfileRecord, bytes] | None, problem: str) -> Rank:
    """A task by its fresh dump, else by a kept one; `problem` is why there is no fresh one."""
    from iris_core.analysis.hang import Rank

    index = int(task_id.rpartition("/")[2])
    if fresh is not None:
        found = _parsed(fresh)
        return Rank(index, task_id, found, problem="" if found else "its dump cannot be read")
    if kept is not None:
        record, data = kept
        return Rank(index, task_id, _parsed(data), record.captured_at_ms, problem, record.profile_id)
    return Rank(index, task_id, problem=problem)


def _parsed(data: bytes) -> tuple[Process, ...]:
    from iris_core.analysis import dumps

    return tuple(dumps.parse(data.decode("utf-8", "replace")))


def _fresh(session: Session, task_ids: Sequence[str]) -> tuple[dict[str, bytes], dict[str, str]]:
    """The dumps that came in time, and why the others did not."""
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

    until = time.monotonic() + LIMIT_S
    client = session.client

    def dump(task_id: str) -> bytes:
        left = until - time.monotonic()
        if left <= 0:
            raise IrisError(f"its turn did not come within {LIMIT_S:.0f} s")
        request = pb.ProfileTaskRequest(target=task_id, options=pb.ProfileOptions(type=pb.PROFILE_TYPE_THREADS))
        answer = client.call("ControllerService/ProfileTask", request, pb.ProfileTaskResponse, timeout_s=left)
        return answer.profile_data

    found: dict[str, bytes] = {}
    problems: dict[str, str] = {}
    pool = ThreadPoolExecutor(min(AT_ONCE, len(task_ids)), thread_name_prefix="dump")
    try:
        asked = {pool.submit(dump, task_id): task_id for task_id in task_ids}
        done, late = wait_for(asked, timeout=max(until - time.monotonic(), 0.0) + 1.0)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    problems |= {asked[future]: f"no answer within {LIMIT_S:.0f} s" for future in late}
    for future in done:
        error = future.exception()
        if error is None:
            found[asked[future]] = future.result()
        elif isinstance(error, IrisError):
            problems[asked[future]] = error.message
        else:
            raise error
    return found, problems


def _stored(
    session: Session, job_id: str, incarnation: int, task_ids: Iterable[str]
) -> dict[str, tuple[pb.ProfileRecord, bytes]]:
    """The newest stored dump of each; what the store does not give is said and left out."""
    from iris_core.cli.profiles import fetch
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

    wanted = set(task_ids)
    found: dict[str, tuple[pb.ProfileRecord, bytes]] = {}
    request = pb.ListProfilesRequest(
        prefix=job_id,
        types=[pb.PROFILE_TYPE_THREADS],
        latest_only=True,
        min_incarnation=incarnation,
        page_size=10_000,
    )
    try:
        answer = session.client.call("ControllerService/ListProfiles", request, pb.ListProfilesResponse)
        for record in answer.profiles:
            if record.source in wanted and record.source not in found:
                found[record.source] = (record, fetch(session.client, record))
    except IrisError as error:
        session.diagnostics.warn(f"the stored dumps cannot be read: {error.message}")
    return found


# --- words -------------------------------------------------------------------------------------------------------------


def text_of(verdict: Verdict, now_ms: int, all_threads: bool) -> str:
    """Where the tasks stand, in lines for a person."""
    from iris_core.analysis.hang import spans
    from iris_core.model.text import one_line

    known = sum(len(group.ranks) for group in verdict.groups)
    lines = [
        f"{known} of {known + len(verdict.unknown)} running tasks {'are' if known != 1 else 'is'} known to stand at {len(verdict.groups)} "
        f"{'places' if len(verdict.groups) != 1 else 'place'}."
    ]
    for group in verdict.groups:
        lines += ["", f"{_named(group)}:"]
        lines += [f"  {note}" for note in _notes(group, now_ms, all_threads)]
        lines += _stacks(group.example.processes, all_threads)
    if verdict.unknown:
        lines += ["", f"nothing is known of {spans([rank.index for rank in verdict.unknown])}:"]
        for problem in dict.fromkeys(rank.problem for rank in verdict.unknown):
            which = spans([rank.index for rank in verdict.unknown if rank.problem == problem])
            lines.append(f"  {which}: {one_line(problem)}")
    return "\n".join(lines) + "\n"


def _named(group: Group) -> str:
    from iris_core.analysis.hang import spans

    count = len(group.ranks)
    if count == 1:
        return f"1 task, {group.ranks[0].task_id}"
    job = group.ranks[0].task_id.rpartition("/")[0]
    return f"{count} tasks, {job}/{spans([rank.index for rank in group.ranks])}"


def _notes(group: Group, now_ms: int, all_threads: bool) -> list[str]:
    from iris_core.live.wording import age
    from iris_core.model.text import one_line

    notes = [
        f"({rank.task_id.rpartition('/')[2]}: stored dump {rank.profile_id}, {age(rank.stored_ms, now_ms)} old, "
        f"because {one_line(rank.problem)})"
        for rank in group.ranks
        if rank.stored_ms
    ]
    if len(notes) > 10:
        notes[10:] = [f"(and {len(notes) - 10} more stored dumps)"]
    if not all_threads and group.varied:
        notes.append("(other threads differ between these tasks: --all-threads compares them, too)")
    return notes


def _stacks(processes: Sequence[Process], all_threads: bool) -> list[str]:
    from iris_core.model.text import one_line, truncate_cells

    lines = []
    for process in processes:
        lines.append(f"  process {process.pid}: {truncate_cells(one_line(process.command), 120)}")
        threads = process.threads if all_threads else [process.main] if process.main is not None else []
        for thread in threads:
            name = f'"{one_line(thread.name)}"' if thread.name else thread.number
            lines.append(f"    thread {name} ({thread.state})")
            lines += [f"      {one_line(frame)}" for frame in thread.frames[:FRAMES]]
            if len(thread.frames) > FRAMES:
                lines.append(f"      … {len(thread.frames) - FRAMES} more frames")
    return lines


def _as_object(verdict: Verdict, now_ms: int, all_threads: bool) -> dict[str, object]:
    from iris_core.live.wording import iso

    def rank(one: Rank) -> dict[str, object]:
        return {
            "task_id": one.task_id,
            "fresh": not one.stored_ms and not one.problem,
            "captured_at": iso(one.stored_ms) if one.stored_ms else None,
            "age_ms": now_ms - one.stored_ms if one.stored_ms else None,
            "profile_id": one.profile_id or None,
            "problem": one.problem or None,
        }

    def stacks(processes: Sequence[Process]) -> list[dict[str, object]]:
        return [
            {
                "pid": process.pid,
                "command": process.command,
                "threads": [
                    {"name": thread.name, "state": thread.state, "frames": list(thread.frames)}
                    for thread in (process.threads if all_threads else [process.main])
                    if thread is not None
                ],
            }
            for process in processes
        ]

    return {
        "groups": [
            {"ranks": [rank(one) for one in group.ranks], "processes": stacks(group.example.processes)}
            for group in verdict.groups
        ],
        "unknown": [rank(one) for one in verdict.unknown],
    }
