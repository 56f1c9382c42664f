"""From a call to a handler and back, the same way whether it came over gRPC (`grpc_rpc`) or HTTP (`json_rpc`).

Who calls, whether they may, and how large the request is are settled before a byte of it is decoded. A handler sees a message and a
`Call`, returns messages (or their bytes, when many callers get the same), and raises `RpcError`. Must never know what any method does,
nor how the call came.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError, Message

from iris_controller.rpc import audit_lines
from iris_controller.rpc.auth import Role
from iris_controller.rpc.call import Answer, Argument, Call
from iris_controller.rpc.client_context import CONFIRM_HEADER, PLAN_HEADER, read_context
from iris_controller.rpc.errors import RpcError, clean, exhausted, invalid
from iris_controller.rpc.meant import require_meant
from iris_controller.rpc.passthrough import PassThrough
from iris_controller.rpc.requests import MAX_REQUEST_ID, digest_of, subject_of
from iris_controller.rpc.roles import ACCESS, authorise
from iris_controller.rpc.task_scope import check_scope
from iris_core.wire.services import PACKAGE, method, methods, service_methods

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping

    from iris_controller.rpc.auth import Authenticator
    from iris_controller.rpc.plan_tokens import PlanTokens
    from iris_controller.rpc.roles import Access
    from iris_core.wire.services import Method

log = logging.getLogger("iris.rpc")


@dataclass(frozen=True, slots=True)
class Entry:
    """A method that is served: by a handler, or by another process."""

    method: Method
    access: Access
    handler: Callable[..., Any]
    raw: PassThrough | None = None

    def check_size(self, size: int) -> None:
        """Raises RESOURCE_EXHAUSTED if a request of `size` bytes is too large."""
        if size > self.access.max_bytes:
            raise exhausted(
                f"the request of {self.method.full_name} has {size} bytes, at most {self.access.max_bytes} are taken",
                code="request_too_large",
            )

    def decoded(self, raw: bytes) -> Argument:
        """What the handler is given. Raises RESOURCE_EXHAUSTED, INVALID_ARGUMENT."""
        self.check_size(len(raw))
        if self.raw is not None:
            return raw
        try:
            return self.method.request.FromString(raw)
        except DecodeError as error:
            name = self.method.request.DESCRIPTOR.full_name
            raise invalid("", f"the request is not a valid {name}", code="bad_request") from error


class Router:
    """All methods of one controller.

    `observe`, if given, is told method, status name and seconds of every finished call. `cluster` is whose controller this is: a
    call that names another is refused.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        observe: Callable[[str, str, float], None] | None = None,
        cluster: str = "",
    ) -> None:
        self._authenticator = authenticator
        self._cluster = cluster
        self._observe = observe
        self._entries: dict[str, Entry] = {}
        self._passed: list[PassThrough] = []
        self._mutations: set[asyncio.Task[Any]] = set()
        self.plans: PlanTokens | None = None
        """Set where there are RPCs of tier 3: they are refused without."""
        self.refuse: Callable[[], None] | None = None
        """Raises while nothing may be changed; what workers alone say is taken in."""

    # Registration ---------------------------------------------------------------------------------------------

    def add(self, method_name: str, handler: Callable[..., Any]) -> None:
        """Serves `Service/Name`. By what the method streams, the handler is

        - `async def h(request, call) -> response`
        - `def h(request, call) -> AsyncIterator[response]`
        - `def h(requests: AsyncIterator, call) -> AsyncIterator[response]`

        Raises KeyError if there is no such method or it has no row in the roles table, ValueError if it is served already.
        """
        self._enter(Entry(method(method_name), ACCESS[method_name], handler))

    def add_raw(self, service: str, target: Callable[[], str], what: str = "the log store") -> None:
        """Hands all methods of `service` on to the gRPC server at `target()` (`host:port`, "" while there is none)."""
        passed = PassThrough(target, what)
        self._passed.append(passed)
        for found in service_methods(service):
            if found.client_streaming:
                raise ValueError(f"{found.full_name} takes a stream and cannot be passed through")
            handler = passed.stream if found.server_streaming else passed.unary
            self._enter(Entry(found, ACCESS[found.full_name], handler, passed))

    def _enter(self, entry: Entry) -> None:
        if entry.method.path in self._entries:
            raise ValueError(f"{entry.method.full_name} is served already")
        self._entries[entry.method.path] = entry

    def unserved(self) -> list[str]:
        """The methods of the protos that nothing was registered for."""
        return [known.full_name for known in methods() if known.path not in self._entries]

    def is_unary(self, path: str) -> bool:
        """Whether the method is served, and takes one message and gives one."""
        entry = self._entries.get(path)
        return entry is not None and not (entry.method.client_streaming or entry.method.server_streaming)

    async def close(self) -> None:
        """Waits for mutations under way whose callers left, then ends the pass-through calls."""
        if self._mutations:
            await asyncio.wait(self._mutations)
        for passed in self._passed:
            await passed.close()

    # Calls --------------------------------------------------------------------------------------------------

    def admit(self, path: str, headers: Mapping[str, str], real_peer: str | None) -> tuple[Entry, Call]:
        """Who calls, and that they may: before anything of the request is looked at.

        Raises UNAUTHENTICATED, PERMISSION_DENIED, UNIMPLEMENTED, and FAILED_PRECONDITION for what is meant for another cluster.
        """
        identity = self._authenticator.authenticate(headers, real_peer)
        require_meant(self._cluster, headers)
        entry = self._entries.get(path)
        if entry is None:
            raise RpcError(
                "UNIMPLEMENTED",
                f"this controller has no {clean(name_of(path), 200)}",
                code="unknown_method",
                subject=path,
            )
        access = authorise(identity, entry.method.full_name)
        deadline = time.monotonic() + access.deadline_s if access.deadline_s else None
        call = Call(identity, entry.method, identity.peer, deadline=deadline)
        if access.mutates:
            said = {name.lower(): value for name, value in headers.items()}
            call.plan_token = said.get(PLAN_HEADER, "")
            call.confirm = said.get(CONFIRM_HEADER, "")
            call.context = read_context(said)
        return entry, call

    async def one(self, entry: Entry, call: Call, argument: Argument) -> Answer:
        """The answer of a unary method. Raises what the handler raises, and DEADLINE_EXCEEDED."""
        self._require_acting(entry)
        if isinstance(argument, Message):
            call.request_id = _request_id(argument)
            if call.request_id:
                call.request_digest, call.subject = digest_of(argument), subject_of(argument)
        limit = asyncio.timeout(call.time_left_s())
        try:
            async with limit:
                if entry.raw is not None:
                    check_scope(call.identity, entry.method, as_bytes(argument))
                    answer, call.trailing = await entry.raw.unary(entry.method, as_bytes(argument), call.time_left_s())
                    return answer
                if entry.access.mutates:
                    return await self._mutate(entry, call, argument)
                found: Answer = await entry.handler(argument, call)
                return found
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise RpcError(
                "DEADLINE_EXCEEDED", f"{entry.method.full_name} took too long", code="deadline", retry_after_ms=1000
            ) from error

    async def many(
        self, entry: Entry, call: Call, argument: Argument | AsyncIterator[Argument]
    ) -> AsyncGenerator[Answer, None]:
        """The answers of a streaming method; the handler's iterator is closed with this one."""
        self._require_acting(entry)
        if entry.raw is not None:
            assert isinstance(argument, bytes)
            check_scope(call.identity, entry.method, argument)
            answers = entry.raw.stream(entry.method, argument, call.time_left_s())
        else:
            answers = entry.handler(argument, call)
        try:
            async for answer in answers:
                yield answer
        finally:
            close = getattr(answers, "aclose", None)
            if close is not None:
                await close()

    def _require_acting(self, entry: Entry) -> None:
        if self.refuse is not None and entry.access.mutates and Role.WORKER not in entry.access.roles:
            self.refuse()

    def finished(self, path: str, status: str, started: float) -> None:
        """Tells the observer of a call that began at `started` (monotonic)."""
        if self._observe is not None:
            entry = self._entries.get(path)
            self._observe(entry.method.full_name if entry else "unknown", status, time.monotonic() - started)

    async def _mutate(self, entry: Entry, call: Call, argument: Argument) -> Answer:
        if self.plans is not None and isinstance(argument, Message):
            call.guard = self.plans.guard(call, argument, entry.access)

        heard: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        async def work() -> None:
            try:
                answer: Answer = await entry.handler(argument, call)
                if not call.replayed:
                    audit_lines.write(entry.access, call, argument, answer, self.plans)
            except asyncio.CancelledError:
                heard.cancel()
                raise
            except Exception as error:
                if heard.done():
                    _nobody_asks(entry, error)
                else:
                    heard.set_exception(error)
            else:
                if not heard.done():
                    heard.set_result(answer)

        # A task of its own, which tells of its end itself: the caller may leave, and one who waits is woken at once.
        task = asyncio.create_task(work(), name=entry.method.full_name)
        self._mutations.add(task)
        task.add_done_callback(self._mutations.discard)
        try:
            return await heard
        except asyncio.CancelledError:
            call.cancelled.set()
            if not heard.cancelled() and isinstance(error := heard.exception(), Exception):
                _nobody_asks(entry, error)
            raise


def name_of(path: str) -> str:
    """`ControllerService/LaunchJob` of `/iris.v1.ControllerService/LaunchJob`."""
    return path.removeprefix(f"/{PACKAGE}.")


def as_bytes(answer: Answer) -> bytes:
    """The answer as it travels."""
    return answer if isinstance(answer, bytes) else answer.SerializeToString()


def _request_id(request: Message) -> str:
    if "request_id" not in request.DESCRIPTOR.fields_by_name:
        return ""
    request_id: str = request.request_id  # type: ignore[attr-defined]
    if len(request_id) > MAX_REQUEST_ID or not request_id.isprintable():
        raise invalid("request_id", f"a request id has at most {MAX_REQUEST_ID} printable characters")
    return request_id


def _nobody_asks(entry: Entry, error: Exception) -> None:
    """Logs the failure of a mutation whose caller left."""
    if not isinstance(error, RpcError):
        log.error("%s failed after its caller had left", entry.method.full_name, exc_info=error)
