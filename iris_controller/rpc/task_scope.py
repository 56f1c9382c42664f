"""What a task may ask of the log store: the logs of its own subtree.

The store knows no tasks and gets raw bytes, so these requests are looked into before they are passed on. Must refuse whatever is
not listed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from google.protobuf.message import DecodeError, Message

from iris_controller.rpc.errors import denied, invalid
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2

if TYPE_CHECKING:
    from iris_controller.rpc.auth import Identity
    from iris_core.wire.services import Method

_M = TypeVar("_M", bound=Message)


def check_scope(identity: Identity, method: Method, request: bytes) -> None:
    """Raises PERMISSION_DENIED if the caller is a task and this is none of its business, INVALID_ARGUMENT for bytes that are no request."""
    if identity.task is None:
        return
    match method.full_name:
        case "LogService/FetchLogs":
            _check_source(identity, _decoded(logs_pb2.FetchLogsRequest, request))
        case "LogService/OpenLogView":
            view = _decoded(logs_pb2.OpenLogViewRequest, request)
            _check_source(identity, view.query)
            for one in view.also:
                _check_source(identity, one)
        case (
            "LogService/ReadLines"
            | "LogService/FindNext"
            | "LogService/Tail"
            | "LogService/ExportLogs"
            | "LogService/CloseLogView"
        ):
            # The id of a view is a secret of whoever opened it.
            pass
        case other:
            raise denied(f"a task may not call {other}", code="role")


def _check_source(identity: Identity, asked: logs_pb2.FetchLogsRequest | logs_pb2.LogViewSource) -> None:
    identity.require_scope(asked.source)
    if asked.match_scope == common_pb2.MATCH_SCOPE_REGEX:
        raise denied("a task may name one source or a prefix, not a pattern", code="outside_subtree")


def _decoded(kind: type[_M], request: bytes) -> _M:
    try:
        return kind.FromString(request)
    except DecodeError as error:
        raise invalid("", f"the request is not a {kind.DESCRIPTOR.full_name}", code="bad_request") from error
