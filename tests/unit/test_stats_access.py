"""What a task may ask of the log store, looked into before the bytes are passed on."""

from __future__ import annotations

import pytest

from iris_controller.rpc.auth import Identity, Role, TaskClaims
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.task_scope import check_scope
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2
from iris_core.wire.services import method

UID = "0123456789abcdef"
TASK = Identity("ann", Role.TASK, "token", "127.0.0.1:1", task=TaskClaims("ann", "/ann/r", "/ann/r/c", UID))


def refusal(name: str, request: bytes) -> str:
    try:
        check_scope(TASK, method(name), request)
    except RpcError as refused:
        return refused.code
    return ""


@pytest.mark.parametrize(
    ("source", "scope", "code"),
    [
        ("/ann/r/c", common_pb2.MATCH_SCOPE_PREFIX, ""),
        ("/ann/r/c/0:1", common_pb2.MATCH_SCOPE_EXACT, ""),
        ("/ann/r/c", common_pb2.MATCH_SCOPE_REGEX, "outside_subtree"),
        ("/ann/r/0", common_pb2.MATCH_SCOPE_EXACT, "outside_subtree"),
        ("/ann/r/c2", common_pb2.MATCH_SCOPE_PREFIX, "outside_subtree"),
    ],
)
def test_a_task_reads_the_logs_of_its_own_subtree_alone(source: str, scope: common_pb2.MatchScope, code: str) -> None:
    asked = logs_pb2.FetchLogsRequest(source=source, match_scope=scope)
    assert refusal("LogService/FetchLogs", asked.SerializeToString()) == code
    view = logs_pb2.OpenLogViewRequest(query=asked)
    assert refusal("LogService/OpenLogView", view.SerializeToString()) == code
    own = logs_pb2.FetchLogsRequest(source="/ann/r/c", match_scope=common_pb2.MATCH_SCOPE_PREFIX)
    more = [logs_pb2.LogViewSource(source=source, match_scope=scope)]
    merged = logs_pb2.OpenLogViewRequest(query=own, also=more)
    assert refusal("LogService/OpenLogView", merged.SerializeToString()) == code


def test_bytes_that_are_no_request_and_methods_that_are_none_of_its_business() -> None:
    assert refusal("LogService/FetchLogs", b"\xff") == "bad_request"
    assert refusal("StatsService/Query", b"") == "role"
    assert refusal("StatsService/WriteRows", b"") == "role", (
        "its status goes through the controller, which knows whose it is"
    )


def test_everybody_else_is_not_looked_at() -> None:
    worker = Identity("w1", Role.WORKER, "token", "127.0.0.1:1")
    check_scope(worker, method("StatsService/WriteRows"), b"\xff")
