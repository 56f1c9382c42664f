"""Fields written down without a message read as those of one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.wire.gen.iris.v1 import controller_pb2
from iris_core.wire.raw import delimited, tag

BUCKETS = tag(controller_pb2.GetSchedulerStateResponse, "running_buckets")
WORKER = tag(controller_pb2.RunningBucket, "worker_id")


@given(st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=300), st.integers(0, 5))))
def test_what_is_written_is_what_a_message_would_be(buckets: list[tuple[str, int]]) -> None:
    wanted = controller_pb2.GetSchedulerStateResponse(total_running=7)
    written = wanted.SerializeToString()
    for worker, count in buckets:
        wanted.running_buckets.add(worker_id=worker, count=count, job_id="/a/b")
        rest = controller_pb2.RunningBucket(count=count, job_id="/a/b").SerializeToString()
        written += delimited(BUCKETS, delimited(WORKER, worker.encode()) + rest)
    assert controller_pb2.GetSchedulerStateResponse.FromString(written) == wanted


@pytest.mark.parametrize("size", [0, 127, 128, 16_383, 16_384, 2_097_152])
def test_every_length_is_read_back(size: int) -> None:
    written = delimited(WORKER, b"w" * size)
    assert len(controller_pb2.RunningBucket.FromString(written).worker_id) == size


def test_numbers_are_not_written_here() -> None:
    with pytest.raises(AssertionError):
        tag(controller_pb2.RunningBucket, "count")
