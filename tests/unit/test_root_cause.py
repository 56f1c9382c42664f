"""Which lines of a log are shown as the cause of an end (cli-auth-logs §4.7)."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.analysis.root_cause import highlights, is_fault, is_noise
from iris_core.cli.root_cause import culprit
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_core.wire.gen.iris.v1.common_pb2 import TASK_STATE_COSCHED_FAILED, TASK_STATE_FAILED, TASK_STATE_SUCCEEDED

FAULTS = (
    "Traceback (most recent call last):",
    '  File "/app/train.py", line 12, in main',
    "ValueError: shapes do not match",
    "java.lang.OutOfMemoryError: Java heap space",
    "jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory allocating 1 bytes",
    "Fatal Python error: Segmentation fault",
    "status: DEADLINE_EXCEEDED",
    "OOMKilled",
    "CUDA error: an illegal memory access was encountered",
    "[rank0] NCCL WARN Net: unhandled system error",
    "Aborted (core dumped)",
    "bash: line 1: 7 Segmentation fault      ./train",
    "Coscheduled sibling task 3 failed",
    "gang mate task 3 failed: exit code 1",
    "Terminating process because the JAX distributed service detected fatal errors.",
)
NOISE = (
    "",
    "   ",
    " 45%|████▌     | 45/100 [00:05<00:06,  9.1it/s]",
    "Loading shards: 100%|##########| 3/3 [00:01<00:00,  2.9it/s, loss=0.1]",
    "training: 1234it [10:05, 2.04it/s]",
    "0it [00:00, ?it/s]",
    "12it [01:02:03, 1.1s/it]",
    '127.0.0.1 - - [01/Jan/2026 12:00:00] "GET /health HTTP/1.1" 200 -',
    'INFO:     10.0.0.1:4242 - "POST /v1/completions HTTP/1.1" 500 Internal Server Error',
    'INFO:httpx:HTTP Request: GET https://example.com/api "HTTP/1.1 200 OK"',
    "Extension modules: numpy._core._multiarray_umath, yaml._yaml (total: 2)",
)
PLAIN = (
    "[12:30:05] step 17 loss 2.5",
    "[12:30] starting",
    "epoch 3 of 10",
    "errors: 0",
    "listening at 10:00, ready",
    "100% done",
)


@pytest.mark.parametrize("line", FAULTS)
def test_words_of_a_fault_are_kept(line: str) -> None:
    assert is_fault(line) and not is_noise(line)
    assert highlights(["step 1", line, "step 2"]) == [line]


@pytest.mark.parametrize("line", NOISE)
def test_what_scrolls_by_is_dropped(line: str) -> None:
    assert is_noise(line) and highlights(["before", line, "after"]) == ["before", "after"]


@pytest.mark.parametrize("line", PLAIN)
def test_ordinary_lines_are_neither(line: str) -> None:
    assert not is_noise(line) and not is_fault(line)


def test_without_any_fault_the_last_lines_are_shown() -> None:
    lines = [line for number in range(50) for line in (f"step {number}", NOISE[2])]
    assert highlights(lines) == [f"step {number}" for number in range(30, 50)]


def test_repeats_in_a_row_are_one_line_also_with_noise_between() -> None:
    assert highlights(["A: Error", NOISE[2], "A: Error", "B: Error", "A: Error"]) == [
        "A: Error",
        "B: Error",
        "A: Error",
    ]


def test_a_fault_behind_an_overwritten_progress_bar_is_found() -> None:
    assert highlights([" 10%|#  | 1/10 [00:01<00:09]\r 20%|## | 2/10 [00:02<00:08]\rKeyError: 'x'"]) == [
        "KeyError: 'x'"
    ]


LINES = st.lists(st.one_of(st.sampled_from([*FAULTS, *NOISE, *PLAIN]), st.text(max_size=40)), max_size=120)


@settings(max_examples=80)
@given(LINES, st.integers(0, 30))
def test_what_is_shown_comes_from_the_log_in_its_order_and_says_no_more(lines: list[str], most: int) -> None:
    shown = highlights(lines, most)
    assert len(shown) <= most
    assert all(not is_noise(line) for line in shown)
    assert all(a != b for a, b in pairwise(shown))
    rest = iter(lines)
    assert all(any(line in candidate for candidate in rest) for line in shown), "a subsequence"
    assert highlights(shown, most) == shown, "once more changes nothing"
    faults = [line for line in lines if "\r" not in line and is_fault(line) and not is_noise(line)]
    if faults and most:
        assert shown and all(is_fault(line) for line in shown), "a fault is never crowded out by ordinary lines"


def test_the_culprit_is_the_task_that_the_job_names_and_no_mate_that_was_stopped() -> None:
    mate = pb.TaskStatus(
        task_id="/u/j/0", state=TASK_STATE_COSCHED_FAILED, error="gang mate task 2 failed: exit code 9"
    )
    other = pb.TaskStatus(task_id="/u/j/1", state=TASK_STATE_FAILED, error="exit code 1")
    first = pb.TaskStatus(task_id="/u/j/2", state=TASK_STATE_FAILED, error="exit code 9")
    done = pb.TaskStatus(task_id="/u/j/3", state=TASK_STATE_SUCCEEDED)
    tasks = [mate, other, first, done]
    assert culprit(pb.JobStatus(error="task 2: exit code 9"), tasks) is first
    assert culprit(pb.JobStatus(error="cancelled"), tasks) is other, "nothing is said: one that failed by itself"
    assert culprit(pb.JobStatus(error="exit code 1"), [other]) is other
    outlived = pb.JobStatus(error=f"task 0: {mate.error}")
    assert culprit(outlived, [mate, first]) is first, "a job that outlives one failure has the error of a mate"
    assert culprit(pb.JobStatus(), [done]) is None and culprit(pb.JobStatus(), [mate]) is mate
