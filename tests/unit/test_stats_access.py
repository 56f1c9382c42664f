"""What a task may ask of the log store, looked into before the bytes are passed on."""

from __future__ import annotations

import pytest

from iris_controller.rpc.auth import Identity, Role, TaskClaims
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.task_scope import check_scope
from iris_core.wire.gen.iris.v1 import stats_pb2
from iris_core.wire.services import method

UID = "0123456789abcdef"
TASK = Identity("ann", Role.TASK, "token", "127.0.0.1:1", task=TaskClaims("ann", "/ann/r", "/ann/r/c", UID))


def status(table: str = "iris.task_status", producer: str = UID, **row: str) -> stats_pb2.RowBatch:
    batch = stats_pb2.RowBatch(table=table, producer=producer, rows=1)
    for name, value in row.items():
        batch.columns.add(name=name, type=stats_pb2.COLUMN_TYPE_STRING, strings=[value])
    return batch


def refusal(name: str, request: bytes) -> str:
    try:
        check_scope(TASK, method(name), request)
    except RpcError as refused:
        return refused.code
    return ""


@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (status(task_id="/ann/r/c/0", attempt_uid=UID), ""),
        (status(task_id="/ann/r/c/d/0"), ""),
        (status("iris.task_event", task_id="/ann/r/c/0"), "outside_subtree"),
        (status(producer="w1", task_id="/ann/r/c/0"), "outside_subtree"),
        (status(task_id="/ann/r/0"), "outside_subtree"),
        (status(task_id="/ann/r/c2/0"), "outside_subtree"),
        (status(task_id="/ann/r/c/0", attempt_uid="fedcba9876543210"), "outside_subtree"),
    ],
)
def test_a_task_writes_rows_about_its_own_attempt_alone(batch: stats_pb2.RowBatch, code: str) -> None:
    good = status(task_id="/ann/r/c/0")
    request = stats_pb2.WriteRowsRequest(batches=[good, batch]).SerializeToString()
    assert refusal("StatsService/WriteRows", request) == code


def test_bytes_that_are_no_request_and_methods_that_are_none_of_its_business() -> None:
    assert refusal("StatsService/WriteRows", b"\xff") == "bad_request"
    assert refusal("StatsService/Query", b"") == "role"


def test_everybody_else_is_not_looked_at() -> None:
    worker = Identity("w1", Role.WORKER, "token", "127.0.0.1:1")
    check_scope(worker, method("StatsService/WriteRows"), b"\xff")
