"""The registry of endpoints over the wire: register and renew, remove, list, and mint a URL that opens one.

Must never hand out an address that its task's machine does not have, and never store or log a minted token.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from iris_controller.rpc.auth import Identity, parse_peer
from iris_controller.rpc.errors import denied, invalid, not_found, precondition
from iris_controller.rpc.once import Once, remember
from iris_controller.state.endpoints import (
    MAX_PER_TASK,
    Address,
    Endpoint,
    EndpointAccess,
    full_name,
    on_its_worker,
    parse_address,
    path_name,
)
from iris_core.model.errors import ModelError
from iris_core.model.ids import AttemptId, JobId, TaskId, parse_target
from iris_core.model.states import ACTIVE, label
from iris_core.wire.gen.iris.v1 import endpoints_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.loop import ControllerLoop
    from iris_controller.places import Places
    from iris_controller.rpc.attach import WorkerSessions
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.state.overlay import Overlay
    from iris_controller.state.records import Task
    from iris_core.auth.tokens import TokenSigner

PAGE_MOST: Final = 1_000
MAX_METADATA: Final = 64
MAX_METADATA_BYTES: Final = 16 << 10
MIN_LEASE_MS: Final = 1_000
MAX_LEASE_MS: Final = 7 * 24 * 3_600_000
DEFAULT_TTL_MS: Final = 3_600_000
MAX_TTL_MS: Final = 30 * 24 * 3_600_000
ENDPOINT_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")


class EndpointService:
    """See the module."""

    def __init__(
        self,
        loop: ControllerLoop,
        sessions: WorkerSessions,
        once: Once,
        places: Places,
        signer: TokenSigner,
    ) -> None:
        self._loop = loop
        self._model = loop.model
        self._sessions = sessions
        self._once = once
        self._places = places
        self._signer = signer

    def register(self, router: Router) -> None:
        router.add("ControllerService/RegisterEndpoint", self.register_endpoint)
        router.add("ControllerService/UnregisterEndpoint", self.unregister_endpoint)
        router.add("ControllerService/ListEndpoints", self.list_endpoints)
        router.add("ControllerService/MintEndpointToken", self.mint)

    # Registering --------------------------------------------------------------------------------------------

    async def register_endpoint(
        self, request: endpoints_pb2.RegisterEndpointRequest, call: Call
    ) -> endpoints_pb2.RegisterEndpointResponse:
        access = _checked(request)
        address = parse_address(request.address)
        task_id = self._task_of(request.task_id, call.identity)
        name = full_name(request.name, task_id)
        uid = call.identity.task.attempt_uid if call.identity.task is not None else ""

        def plan(o: Overlay, now_ms: int) -> endpoints_pb2.RegisterEndpointResponse:
            task = o.task(str(task_id.job), task_id.index)
            if task is None or task.state not in ACTIVE or (uid and task.attempt_uid != uid):
                state = "gone" if task is None else "on another attempt" if task.state in ACTIVE else label(task.state)
                raise precondition(
                    str(task_id), f"{task_id} is {state}: only a running attempt has endpoints", code="not_running"
                )
            endpoint = Endpoint(
                endpoint_id=request.endpoint_id or secrets.token_hex(8),
                name=name,
                address=self._dialled(address, task),
                job_id=task.job_id,
                task_index=task.index,
                attempt_uid=task.attempt_uid,
                registered_at_ms=now_ms,
                metadata=dict(request.metadata),
                lease_ms=request.lease_ms,
                access=access,
            )
            before = o.endpoint(endpoint.endpoint_id)
            if before is not None and before.attempt_uid != task.attempt_uid:
                raise denied(
                    f"endpoint id {endpoint.endpoint_id} is in use by {before.task_id}", subject=endpoint.endpoint_id
                )
            if before is None and len(o.endpoints_of(task.job_id, task.index)) >= MAX_PER_TASK:
                raise precondition(
                    str(task_id), f"{task_id} has {MAX_PER_TASK} endpoints, which is the most", code="too_many"
                )
            o.endpoints[endpoint.endpoint_id] = endpoint
            if before is None:
                o.note(
                    "endpoint_registered",
                    name,
                    call.identity.principal,
                    task=endpoint.task_id,
                    address=endpoint.address,
                    access=access.name.lower(),
                )
            response = endpoints_pb2.RegisterEndpointResponse(endpoint=_view(endpoint))
            if before is None:
                # A renewal says the same however often it is done; its answers would be most of what is remembered.
                remember(o, call, response)
            return response

        return await self._once.run(
            call, endpoints_pb2.RegisterEndpointResponse, lambda: self._loop.submit("register endpoint", plan)
        )

    def _task_of(self, text: str, identity: Identity) -> TaskId:
        """The task that the endpoint is registered for. Raises RpcError or ModelError."""
        if identity.task is not None:
            attempt = self._model.attempts.get(identity.task.attempt_uid)
            own = attempt.task_id if attempt is not None else ""
            if text and text != own:
                raise denied(f"a task registers its own endpoints, this one is {own}", subject=text)
            text = own
        parsed = parse_target(text)
        if isinstance(parsed, JobId):
            raise invalid("task_id", f"{text} is a job, name one of its tasks: {text}/0")
        task = parsed.task if isinstance(parsed, AttemptId) else parsed
        identity.require_owner(task.job.user, str(task))
        return task

    def _dialled(self, address: Address, task: Task) -> str:
        """Raises RpcError: the address is not the worker's, or the worker is not attached."""
        worker = self._model.workers.get(task.worker_id)
        peer = parse_peer(self._sessions.peer_of(task.worker_id))
        if worker is None or peer is None:
            raise precondition(task.task_id, f"worker {task.worker_id} is not attached", code="worker_gone")
        hosts = {str(peer), worker.hostname.lower(), worker.address.rpartition(":")[0].strip("[]").lower()} - {""}
        try:
            return on_its_worker(address, hosts, str(peer))
        except ModelError as error:
            raise invalid("address", error.message, hint=error.hint) from None

    async def unregister_endpoint(
        self, request: endpoints_pb2.UnregisterEndpointRequest, call: Call
    ) -> endpoints_pb2.UnregisterEndpointResponse:
        def plan(o: Overlay, now_ms: int) -> endpoints_pb2.UnregisterEndpointResponse:
            endpoint = o.endpoint(request.endpoint_id)
            if endpoint is not None:
                task = call.identity.task
                if task is not None and task.attempt_uid != endpoint.attempt_uid:
                    raise denied(f"endpoint {endpoint.name} is of {endpoint.task_id}", subject=endpoint.name)
                call.identity.require_owner(JobId.parse(endpoint.job_id).user, endpoint.name)
                o.endpoints[endpoint.endpoint_id] = None
                o.note("endpoint_removed", endpoint.name, call.identity.principal, task=endpoint.task_id)
            response = endpoints_pb2.UnregisterEndpointResponse(removed=endpoint is not None)
            remember(o, call, response)
            return response

        return await self._once.run(
            call,
            endpoints_pb2.UnregisterEndpointResponse,
            lambda: self._loop.submit("unregister endpoint", call.guarded(plan)),
        )

    # Reading ------------------------------------------------------------------------------------------------

    async def list_endpoints(
        self, request: endpoints_pb2.ListEndpointsRequest, call: Call
    ) -> endpoints_pb2.ListEndpointsResponse:
        size = min(request.page_size or PAGE_MOST, PAGE_MOST)
        if size < 0:
            raise invalid("page_size", f"page_size {size} is negative")
        names = self._model.endpoints.by_name
        found = [name for name in ([request.prefix] if request.exact else sorted(names)) if name in names]
        rows = registered(
            self._places, (name for name in found if name.startswith(request.prefix) and _may_see(call.identity, name))
        )
        if call.identity.task is None:
            rows.extend(
                row
                for row in of_the_cluster(self._places)
                if (row.name == request.prefix if request.exact else row.name.startswith(request.prefix))
            )
            rows.sort(key=position)
        response = endpoints_pb2.ListEndpointsResponse(total_count=len(rows))
        rest = [row for row in rows if position(row) > request.page_token]
        response.endpoints.extend(rest[:size])
        if len(rest) > size:
            response.next_page_token = position(rest[size - 1])
        return response

    async def mint(
        self, request: endpoints_pb2.MintEndpointTokenRequest, call: Call
    ) -> endpoints_pb2.MintEndpointTokenResponse:
        ttl_ms = request.ttl_ms or DEFAULT_TTL_MS
        if not 1_000 <= ttl_ms <= MAX_TTL_MS:
            raise invalid("ttl_ms", f"a URL lives between a second and 30 days, not {ttl_ms} ms")
        found = self._places.alive(request.name)
        if not found:
            raise not_found(request.name, f"there is no endpoint {request.name}", hint="see: iris endpoints list")
        for endpoint in found:
            call.identity.require_owner(JobId.parse(endpoint.job_id).user, request.name)
        if any(endpoint.access is not EndpointAccess.LINK for endpoint in found):
            raise precondition(
                request.name,
                f"{request.name} is private",
                hint="its task must register it anew with access link, in Python serve(…, link=True)",
                code="private_endpoint",
            )
        token = self._signer.endpoint_token(request.name, call.identity.principal, ttl_ms // 1000)
        call.audit(entity=request.name, ttl_ms=ttl_ms)
        return endpoints_pb2.MintEndpointTokenResponse(
            path=f"/proxy/t/{token}/{quote(path_name(request.name))}/",
            expires_at_ms=self._loop.now_ms() + ttl_ms // 1000 * 1000,
        )


def _checked(request: endpoints_pb2.RegisterEndpointRequest) -> EndpointAccess:
    if request.endpoint_id and not ENDPOINT_ID.fullmatch(request.endpoint_id):
        raise invalid("endpoint_id", "an endpoint id is 1 to 128 letters, digits and . _ -")
    size = sum(len(k.encode()) + len(v.encode()) for k, v in request.metadata.items())
    if len(request.metadata) > MAX_METADATA or size > MAX_METADATA_BYTES:
        raise invalid("metadata", f"at most {MAX_METADATA} entries of {MAX_METADATA_BYTES} bytes in all are kept")
    if request.lease_ms and not MIN_LEASE_MS <= request.lease_ms <= MAX_LEASE_MS:
        raise invalid("lease_ms", f"a lease is between a second and 7 days, not {request.lease_ms} ms; 0 = none")
    try:
        return EndpointAccess(request.access or EndpointAccess.PRIVATE)
    except ValueError:
        raise invalid("access", f"access {request.access} is unknown", hint="PRIVATE or LINK") from None


def _may_see(identity: Identity, name: str) -> bool:
    """A task sees the endpoints of its own tree: its siblings and its children."""
    return identity.task is None or name.startswith(identity.task.root_job + "/")


def registered(places: Places, names: Iterable[str]) -> list[endpoints_pb2.Endpoint]:
    """The registrations of these names whose lease is not over."""
    return [_view(endpoint) for name in names for endpoint in places.alive(name)]


def of_the_cluster(places: Places) -> list[endpoints_pb2.Endpoint]:
    """The cluster's own endpoints, which have no id."""
    return [
        endpoints_pb2.Endpoint(
            name=name,
            address=system.uri,
            metadata=system.metadata,
            access=endpoints_pb2.ENDPOINT_ACCESS_PRIVATE,
            proxy_path=f"/proxy/{quote(path_name(name))}/",
        )
        for name, system in places.system().items()
    ]


def position(row: endpoints_pb2.Endpoint) -> str:
    """In the order of names, then of ids."""
    return f"{row.name}\0{row.endpoint_id}"


def _view(endpoint: Endpoint) -> endpoints_pb2.Endpoint:
    return endpoints_pb2.Endpoint(
        endpoint_id=endpoint.endpoint_id,
        name=endpoint.name,
        address=endpoint.address,
        task_id=endpoint.task_id,
        attempt_uid=endpoint.attempt_uid,
        metadata=endpoint.metadata,
        registered_at_ms=endpoint.registered_at_ms,
        lease_ms=endpoint.lease_ms,
        access=endpoint.access.value,  # type: ignore[arg-type]
        proxy_path=f"/proxy/{quote(path_name(endpoint.name))}/",
    )
