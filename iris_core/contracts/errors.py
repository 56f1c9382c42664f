"""What fails, in the words that every floor shares: an operator is told about it in one line, and the exit code follows from the kind.

Must never import another contract: all of them raise these.
"""

from __future__ import annotations

from typing import ClassVar


class IrisError(Exception):
    """Any failure that an operator is told about in one line. `exit_code` is the command line's exit code for it.

    ConnectFailed    nobody answers there, or the connection broke          exit 1
    RpcFailed        the server answered with an error                      exit 1
      Denied         UNAUTHENTICATED or PERMISSION_DENIED                   exit 1
    UsageFailed      the caller's words are wrong                           exit 2

    The hint is not part of the text; a traceback shows it below.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(hint)


class ConnectFailed(IrisError):
    """The endpoint did not answer; nothing is known about what it did with the request."""

    on_the_way: ClassVar[bool] = False
    """Whether it is the way to its host that failed, so that nothing is known of the endpoint itself."""


class UsageFailed(IrisError):
    """The caller's input is wrong: nothing was sent."""

    exit_code = 2


class RpcFailed(IrisError):
    """The server answered with an error. `status` is the gRPC code's name (`NOT_FOUND`), the rest is `iris.v1.ErrorDetail`."""

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
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.subject = subject
        self.field = field
        self.position = position
        self.retry_after_ms = retry_after_ms
        if status == "INVALID_ARGUMENT":
            self.exit_code = 2


class Denied(RpcFailed):
    """The caller is unknown or may not do this."""
