"""What every connection does alike: credentials, request ids, the error vocabulary, and when a call may be repeated.

A mutation carries a `request_id` and the controller answers a repeat with the first answer (DESIGN §4), so a call
whose fate is unknown may be sent again under the same id. A call without one is never repeated here: only its caller
knows whether that is safe; nor is one whose first answer a restart of the controller takes with it. Must never import grpc or a
socket: both transports stand on this room.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from iris_core.client.context import headers_now
from iris_core.contracts import ConnectFailed, Denied, IrisError, RpcFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.message import Message

    from iris_core.client.context import ClientContext
    from iris_core.wire.gen.iris.v1.common_pb2 import ErrorDetail

M = TypeVar("M", bound="Message")

MAX_MESSAGE_BYTES: Final = 64 * 1024 * 1024
"""Largest message of either direction."""

DETAIL_KEY: Final = "iris-error-detail-bin"
"""Trailing metadata that carries a serialised `iris.v1.ErrorDetail`."""

CLUSTER_HEADER: Final = "iris-cluster"
"""Names the cluster that a call is for."""

TOKEN_VARIABLES: Final = ("IRIS_TOKEN", "MARIN_CLUSTER_TOKEN")
"""Where a bearer token is taken from, the first that is set (cli-auth-logs §2.3)."""

REPEAT_FOR_S: Final = 20.0
"""How long a call of unknown fate is repeated before its caller hears of it."""

FIRST_CONTACT_FOR_S: Final = 5.0
"""The same while nothing has ever answered at that address: a mistyped one should not cost twenty seconds."""

EXEC: Final = "ControllerService/ExecInContainer"
KEPT_IN_MEMORY: Final = frozenset({EXEC, "ControllerService/ProfileTask"})
"""Methods whose answers do not survive a restart of the controller: a repeat could do it a second time. They are sent again only when
it is certain that nothing was begun."""

NOT_KNOWN_IF_RUN: Final = "not known whether it ran"
"""How the error of an exec begins whose worker was asked and did not answer."""

WORKER_GONE: Final = "worker_gone"
"""The code of an error: the worker was asked, and went away."""
WORKER_SILENT: Final = "worker_silent"
"""The code of an error: the worker was asked, and has not answered in time."""
UNHEARD_CODES: Final = frozenset({WORKER_GONE, WORKER_SILENT})
"""Of errors that say: a worker was asked, and gave no answer."""

_JITTER: Final = random.Random()
"""A source of its own: calls run in threads, and a program that seeds the global one must get the numbers it asked for."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a connection says about its caller. An empty token means: trusted by its address, or not at all."""

    token: str = field(default="", repr=False)
    read_only: bool = False
    """Asks the server to refuse every mutation, whatever the role allows (DESIGN §5.18)."""
    cluster: str = ""
    """The name that the controller must have, "" if any will do: whoever listens where another cluster was refuses every call."""
    context: Callable[[], ClientContext] | None = None
    """What each change says of how it came about, where nothing nearer says it."""

    def now(self, *, change: bool) -> list[tuple[str, str]]:
        """What a call that is sent now carries besides."""
        return headers_now(self.context, read_only=self.read_only, change=change)

    def headers(self) -> list[tuple[str, str]]:
        """Lower-case names, as both transports want them."""
        pairs = []
        if self.token:
            pairs.append(("authorization", f"Bearer {self.token}"))
        if self.read_only:
            pairs.append(("iris-read-only", "1"))
        if self.cluster:
            pairs.append((CLUSTER_HEADER, self.cluster))
        return pairs


def token_from_environment(environ: Mapping[str, str] | None = None) -> str:
    """The bearer token of this process, "" if it has none.

    Raises ConnectFailed for one that could not be sent in a header; the value is never part of the message.
    """
    variables = os.environ if environ is None else environ
    for name in TOKEN_VARIABLES:
        token = variables.get(name, "").strip()
        if token:
            if not token.isascii() or not token.isprintable() or " " in token:
                raise ConnectFailed(f"${name} is not a token: it has blanks or unprintable characters")
            return token
    return ""


def identified(request: M) -> tuple[M, bool]:
    """The request with a `request_id`, and whether its kind carries one at all. The caller's message is left as it is."""
    if "request_id" not in request.DESCRIPTOR.fields_by_name:
        return request, False
    if request.request_id:  # type: ignore[attr-defined]
        return request, True
    named = type(request)()
    named.CopyFrom(request)
    named.request_id = os.urandom(16).hex()  # type: ignore[attr-defined]
    return named, True


def failure(status: str, message: str, detail: ErrorDetail | None) -> RpcFailed:
    """The exception for a server's error: `status` is a gRPC code's name."""
    kind = Denied if status in ("UNAUTHENTICATED", "PERMISSION_DENIED") else RpcFailed
    if detail is None:
        return kind(status, message or status)
    return kind(
        status,
        message or status,
        code=detail.code,
        subject=detail.subject,
        field=detail.field,
        position=detail.position if detail.HasField("position") else None,
        hint=detail.hint,
        retry_after_ms=detail.retry_after_ms,
    )


class Timeout(ConnectFailed):
    """No answer within the call's deadline; the server may still be working on it."""


class NotReached(ConnectFailed):
    """There was no connection: whatever was asked, nobody has heard of it."""


def fate_unknown(method: str, error: IrisError) -> bool:
    """Whether what was asked for may have been done nevertheless, of a method whose repeat cannot find that out."""
    if method not in KEPT_IN_MEMORY:
        return False
    if isinstance(error, RpcFailed):
        # A proxy that refuses gRPC with an HTTP status of its own has passed nothing on.
        passed = "header with status: 4" not in error.message
        broke = passed and error.status in ("INTERNAL", "UNKNOWN") and error.code in ("", "internal")
        return broke or error.code in UNHEARD_CODES or error.status in ("CANCELLED", "DEADLINE_EXCEEDED")
    return isinstance(error, ConnectFailed) and not isinstance(error, NotReached)


class NoHttp2(NotReached):
    """Something listens there that gRPC cannot talk to: another try would not change that."""


class Repeater:
    """Decides how long to wait before a call of unknown fate is sent again; one per call.

    `clock` is monotonic seconds. `answered` says whether this address ever answered; `note` is told once, before the
    first wait. `method` is what is called.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        method: str = "",
        *,
        answered: bool,
        note: Callable[[str], None] | None = None,
    ) -> None:
        self._clock = clock
        self._method = method
        self._budget_s = REPEAT_FOR_S if answered else FIRST_CONTACT_FOR_S
        self._until: float | None = None
        self._step_s = 0.1
        self._note = note
        self._heard = False

    def last(self, error: IrisError) -> IrisError:
        """The error for the caller: that nobody was reached counts only if no earlier try may have been heard."""
        if isinstance(error, NotReached) and self._heard:
            return ConnectFailed(error.message, hint=error.hint)
        return error

    def delay_s(self, error: IrisError) -> float | None:
        """Seconds to wait before the next try, None when the error must go to the caller."""
        self._heard = self._heard or not isinstance(error, NotReached)
        if isinstance(error, (Timeout, NoHttp2)) or not isinstance(error, (ConnectFailed, RpcFailed)):
            return None
        if fate_unknown(self._method, error):
            return None
        least_s = 0.0
        if isinstance(error, RpcFailed):
            if error.status != "UNAVAILABLE" or error.retry_after_ms <= 0:
                return None
            least_s = error.retry_after_ms / 1000
        now = self._clock()
        if self._until is None:
            self._until = now + self._budget_s
            if self._note is not None:
                self._note(f"{error.message}; trying again for {self._budget_s:.0f} s")
        delay = max(self._step_s * _JITTER.uniform(0.8, 1.2), least_s)
        self._step_s = min(self._step_s * 2, 2.0)
        return delay if now + delay < self._until else None
