"""The line that submits a job like another one: what it says is what was asked for."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import fields

import click
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.cli.run_options import RunOptions, run_options
from iris_core.cli.submit import build
from iris_core.contracts import RpcFailed
from iris_core.live.job_feed import trouble
from iris_core.live.polled import Polled
from iris_core.live.run_line import run_line
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from screens.comparing import pair_of


def parsed(words: list[str]) -> pb.LaunchJobRequest:
    """The request that `job run` makes of these words."""
    made: list[pb.LaunchJobRequest] = []

    @click.command()
    @run_options
    @click.argument("command", nargs=-1)
    def run(command: tuple[str, ...], **values: object) -> None:
        known = {field.name for field in fields(RunOptions)}
        options = RunOptions(command=command, **{name: value for name, value in values.items() if name in known})  # type: ignore[arg-type]
        made.append(build(options, ["job", "run"], "iris-core"))

    run.main(words, standalone_mode=False)
    return made[0]


WORD = st.text("abc -'\"$=\\é/", min_size=1, max_size=12)


@settings(max_examples=30)
@given(
    command=st.lists(WORD, min_size=1, max_size=4),
    env=st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True), WORD, max_size=3),
    millicores=st.integers(1, 64_000),
    memory=st.integers(1, 10**12),
    replicas=st.integers(1, 100),
    retries=st.integers(0, 9),
    failures=st.integers(0, 9),
    preemptions=st.none() | st.integers(0, 9),
    timeout_s=st.integers(0, 31_536_000),
    gpu=st.booleans(),
)
def test_the_line_asks_for_the_same_again(
    command: list[str], env: dict[str, str], millicores: int, memory: int, replicas: int, retries: int, failures: int,
    preemptions: int | None, timeout_s: int, gpu: bool,
) -> None:  # fmt: skip
    request = pb.LaunchJobRequest(
        name="/ada/train", replicas=replicas, max_retries_failure=retries, max_task_failures=failures, timeout_ms=timeout_s * 1000,
        max_retries_preemption=preemptions, priority_band="PRIORITY_BAND_BATCH",
    )  # fmt: skip
    request.entrypoint.run_command.argv.extend(command)
    request.environment.env_vars.update({name: value for name, value in env.items() if not name.startswith("IRIS_")})
    request.resources.cpu_millicores = millicores
    request.resources.memory_bytes = memory
    request.resources.disk_bytes = 5 * 10**9
    if gpu:
        request.resources.device.kind, request.resources.device.variant, request.resources.device.count = (
            "gpu",
            "h100",
            8,
        )
    text, _ = run_line(request, "--cluster=lab")
    words = shlex.split(text)
    assert words[:4] == ["iris-core", "--cluster=lab", "job", "run"]
    again = parsed(words[4:])
    for name in ("name", "replicas", "max_retries_failure", "max_task_failures", "timeout_ms", "priority_band"):
        assert getattr(again, name) == getattr(request, name), name
    assert again.HasField("max_retries_preemption") == (preemptions is not None)
    assert again.resources == request.resources
    assert again.entrypoint == request.entrypoint
    assert again.environment.env_vars == request.environment.env_vars


def test_what_it_cannot_say_is_said_beside_it() -> None:
    request = pb.LaunchJobRequest(name="/ada/train/eval", bundle_id="5f" * 32)
    request.environment.env_vars["WANDB_API_KEY"] = "[redacted:WANDB_API_KEY]"
    request.environment.setup_scripts.append("uv sync")
    request.entrypoint.workdir_files["a.txt"] = b"x"
    text, left_out = run_line(request, "--cluster=lab")
    assert "--job-name eval" in text and "--no-sync" not in text
    said = "\n".join(left_out)
    for word in ("WANDB_API_KEY", "setup steps", "files are those", "1 file that", "child of /ada/train"):
        assert word in said


def test_a_rank_that_failed_first_comes_before_those_that_followed_it() -> None:
    def task(index: int, state: str, **more: int) -> pb.TaskStatus:
        return pb.TaskStatus(task_index=index, state=f"TASK_STATE_{state}", **more)  # type: ignore[arg-type]

    tasks = [
        task(0, "COSCHED_FAILED", finished_at_ms=1),
        task(1, "RUNNING"),
        task(2, "PENDING", failure_count=1),
        task(3, "FAILED", finished_at_ms=20),
        task(4, "FAILED", finished_at_ms=10),
        task(5, "PENDING", failure_count=3),
        task(6, "SUCCEEDED"),
    ]
    assert [task.task_index for task in sorted(tasks, key=trouble)] == [4, 3, 0, 5, 2, 1, 6]


def test_two_are_compared_and_nothing_else() -> None:
    assert pair_of(["/a/j/0"]) == ("/a/j/0",), "its last two"
    assert pair_of(["/a/j/0:2"]) == ("/a/j/0:1", "/a/j/0:2")
    assert pair_of(["/a/j/0:0"]) == ("/a/j/0:0",), "the first, with the one that followed"
    assert pair_of(["/a/j/0:2", "/a/j/0:1"]) == ("/a/j/0:1", "/a/j/0:2")
    assert pair_of(["/a/j/3", "/a/k/1"]) == ("/a/j/3", "/a/k/1")
    for wrong in ([], ["/a/j"], ["/a/j/0", "/a/j/1", "/a/j/2"], ["/a/j", "/a/k"]):
        with pytest.raises(ModelError):
            pair_of(wrong)


def test_what_is_polled_is_read_when_it_is_due_and_kept_when_it_fails() -> None:
    answers: list[object] = [1, RpcFailed("UNAVAILABLE", "away"), RpcFailed("UNAVAILABLE", "away"), 2]

    async def load() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def main() -> None:
        polled = Polled(load, every_s=10)
        assert polled.due(0) and not polled.loaded
        reading = polled.read(0, 5)
        assert polled.loading and not polled.due(0), "two never run at once"
        await reading
        assert (polled.value, polled.version, polled.read_at_ms) == (1, 1, 5)
        assert not polled.due(9) and polled.due(10)
        await polled.read(10, 15)
        assert (polled.value, polled.fault, polled.read_at_ms) == (1, "away", 5)
        assert not polled.due(12) and polled.due(13)
        await polled.read(13, 18)
        assert not polled.due(18) and polled.due(19), "twice as late"
        polled.want()
        assert polled.due(14)
        await polled.read(14, 19)
        assert (polled.value, polled.fault, polled.version) == (2, "", 2)

    asyncio.run(main())


def test_what_is_read_once_is_read_once_unless_it_is_wanted() -> None:
    async def load() -> int:
        return 1

    async def main() -> None:
        polled = Polled(load, every_s=0)
        await polled.read(0, 0)
        assert not polled.due(1e9)
        polled.want()
        assert polled.due(0)

    asyncio.run(main())


def test_what_is_wanted_while_it_is_being_read_is_read_once_more() -> None:
    asked = "before"
    given: asyncio.Event

    async def load() -> str:
        answer = asked
        await given.wait()
        return answer

    async def main() -> None:
        nonlocal asked, given
        given = asyncio.Event()
        polled = Polled(load, every_s=10)
        reading = asyncio.ensure_future(polled.read(0, 0))
        await asyncio.sleep(0)
        asked = "now"
        polled.want()
        assert not polled.due(0), "two never run at once"
        given.set()
        await reading
        assert polled.value == "before" and polled.due(0)
        await polled.read(0, 0)
        assert polled.value == "now" and not polled.due(9)

    asyncio.run(main())
