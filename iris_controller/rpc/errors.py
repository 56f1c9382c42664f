"""What a handler raises, and how it looks on the wire: one clear line, a gRPC code and an `ErrorDetail` (DESIGN §4).

Everything that leaves the controller as an error passes through here, so that no traceback, no control character and no
unbounded text of somebody else's ever reaches a caller. Must never decide whether an error is retried.
"""

from __future__ import annotations

import logging
import secrets
from typing import TYPE_CHECKING, Any

from iris_core.contracts import ConnectFailed, IrisError, RpcFailed, UsageFailed
from iris_core.model.errors import ModelError

if TYPE_CHECKING:
    import grpc

    from iris_core.wire.gen.iris.v1 import common_pb2

log = logging.getLogger("iris.rpc")

DETAIL_KEY = "iris-error-detail-bin"
"""The trailing metadata of a gRPC error that carries the serialised `ErrorDetail`."""

HTTP_STATUS = {
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INVALID_ARGUMENT": 400,
    "DEADLINE_EXCEEDED": 504,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    "FAILED_PRECONDITION": 412,
    "ABORTED": 409,
    "OUT_OF_RANGE": 400,
    "UNIMPLEMENTED": 501,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DATA_LOSS": 500,
    "UNAUTHENTICATED": 401,
}
"""The HTTP status of each gRPC code."""

# Trailing metadata shares one small HTTP/2 header budget (8 KiB); the message travels percent-encoded on top.
# In bytes.
_LIMITS = {"message": 1200, "code": 64, "subject": 600, "field": 128, "hint": 600}


class RpcError(Exception):
    """A refusal or failure that the caller is told about.

    status          name of a gRPC code (`NOT_FOUND`)
    message         one line: what, where
    code            a stable word for programs (`job_exists`)
    subject         the id or value it is about
    field           the request field at fault
    position        character offset in that field
    hint            what to do
    retry_after_ms  0 = do not retry as it is
    """

    def __init__(
        self,
        status: str,
        message: str,
        *,
        code: str = "",
        subject: str = "",
        field: str = "",
        position: int | None = None,
        hint: str = "",
        retry_after_ms: int = 0,
    ) -> None:
        if status not in HTTP_STATUS:
            raise ValueError(f"{status!r} is no gRPC code for an error")
        super().__init__(message)
        self.status = status
        self.message = clean(message, _LIMITS["message"])
        self.code = clean(code, _LIMITS["code"])
        self.subject = clean(subject, _LIMITS["subject"])
        self.field = clean(field, _LIMITS["field"])
        self.position = position
        self.hint = clean(hint, _LIMITS["hint"])
        self.retry_after_ms = retry_after_ms

    def __str__(self) -> str:
        return self.message

    @property
    def http_status(self) -> int:
        """The HTTP status that says the same. 429 invites a repeat, which does not help a request that is too large."""
        return 413 if self.code == "request_too_large" else HTTP_STATUS[self.status]

    def grpc_code(self) -> grpc.StatusCode:
        """The gRPC code."""
        import grpc

        return grpc.StatusCode[self.status]

    def detail(self) -> common_pb2.ErrorDetail:
        """The part of the error that programs read."""
        from iris_core.wire.gen.iris.v1 import common_pb2

        return common_pb2.ErrorDetail(
            code=self.code,
            subject=self.subject,
            field=self.field,
            position=self.position,
            hint=self.hint,
            retry_after_ms=self.retry_after_ms,
        )

    def metadata(self) -> tuple[tuple[str, bytes], ...]:
        """The trailing metadata of the gRPC answer."""
        return ((DETAIL_KEY, self.detail().SerializeToString()),)

    def as_json(self) -> dict[str, Any]:
        """The error as one JSON object: `status`, `message`, and the fields of `ErrorDetail` that are set."""
        from google.protobuf import json_format

        detail = json_format.MessageToDict(self.detail(), preserving_proto_field_name=True)
        return {"status": self.status, "message": self.message, **detail}


def clean(text: str, limit: int) -> str:
    """`text` as one line of at most `limit` bytes: what a terminal would obey, or UTF-8 cannot hold, is shown as an escape."""
    shown = "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text[: limit + 1]
    )
    encoded = shown.encode()
    if len(encoded) <= limit:
        return shown
    return encoded[: limit - 3].decode(errors="ignore") + "…"


def invalid(field: str, message: str, **more: Any) -> RpcError:
    """INVALID_ARGUMENT: the caller's words are wrong, in `field`."""
    more.setdefault("code", "invalid")
    return RpcError("INVALID_ARGUMENT", message, field=field, **more)


def not_found(subject: str, message: str = "", **more: Any) -> RpcError:
    """NOT_FOUND: there is no `subject`."""
    more.setdefault("code", "not_found")
    return RpcError("NOT_FOUND", message or f"{subject} does not exist", subject=subject, **more)


def precondition(subject: str, message: str, **more: Any) -> RpcError:
    """FAILED_PRECONDITION: `subject` is in a state that does not allow it."""
    more.setdefault("code", "failed_precondition")
    return RpcError("FAILED_PRECONDITION", message, subject=subject, **more)


def exists(subject: str, message: str, **more: Any) -> RpcError:
    """ALREADY_EXISTS: `subject` is there already."""
    more.setdefault("code", "already_exists")
    return RpcError("ALREADY_EXISTS", message, subject=subject, **more)


def unavailable(message: str, *, retry_after_ms: int = 1000, **more: Any) -> RpcError:
    """UNAVAILABLE: not now; nothing was changed. Retry after `retry_after_ms`."""
    more.setdefault("code", "unavailable")
    return RpcError("UNAVAILABLE", message, retry_after_ms=retry_after_ms, **more)


def exhausted(message: str, *, retry_after_ms: int = 0, **more: Any) -> RpcError:
    """RESOURCE_EXHAUSTED: over a limit. `retry_after_ms` = 0 says that waiting does not help."""
    more.setdefault("code", "limit_exceeded")
    return RpcError("RESOURCE_EXHAUSTED", message, retry_after_ms=retry_after_ms, **more)


def denied(message: str, **more: Any) -> RpcError:
    """PERMISSION_DENIED: the caller is known and may not do this."""
    more.setdefault("code", "permission_denied")
    return RpcError("PERMISSION_DENIED", message, **more)


def unauthenticated(message: str, **more: Any) -> RpcError:
    """UNAUTHENTICATED: nobody knows who the caller is."""
    more.setdefault("code", "unauthenticated")
    return RpcError("UNAUTHENTICATED", message, **more)


def as_rpc_error(error: Exception, where: str) -> RpcError:
    """What the caller is told about any exception that left a handler.

    `where` names the method for the log. Errors of the model and of the contracts keep their words. Anything else is a fault of
    ours: the caller gets an id, the log gets the traceback under the same id.
    """
    match error:
        case RpcError():
            return error
        case ModelError():
            return RpcError(
                "INVALID_ARGUMENT",
                error.message,
                code="invalid",
                field=error.field,
                position=error.position,
                hint=error.hint,
            )
        case RpcFailed():
            return RpcError(
                error.status if error.status in HTTP_STATUS else "UNKNOWN",
                error.message,
                code=error.code,
                subject=error.subject,
                field=error.field,
                position=error.position,
                hint=error.hint,
                retry_after_ms=error.retry_after_ms,
            )
        case ConnectFailed():
            return unavailable(error.message, hint=error.hint)
        case UsageFailed():
            return RpcError("INVALID_ARGUMENT", error.message, code="invalid", hint=error.hint)
        case IrisError():
            return RpcError("FAILED_PRECONDITION", error.message, code="failed_precondition", hint=error.hint)
        case _:
            fault = secrets.token_hex(4)
            log.error("fault %s in %s", fault, where, exc_info=error)
            return RpcError(
                "INTERNAL",
                f"internal error {fault} in {where}",
                code="internal",
                subject=fault,
                hint=f"look for {fault} in the controller's log: iris process logs --substring {fault}",
            )
