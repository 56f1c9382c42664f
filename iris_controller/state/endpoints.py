"""Where tasks serve something: the registry behind the proxy, and by which siblings find each other (control-plane §5).

An endpoint belongs to one attempt and goes with it, in the same transaction: what is listed is never of a process that the
controller knows to be over. A lease only shortens that. Must never resolve a host name, and never look at a clock.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeVar

from iris_controller.state.records import record
from iris_core.model.errors import ModelError
from iris_core.model.ids import TaskId, check_component

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

K = TypeVar("K")

MAX_NAME_BYTES: Final = 512
MAX_PER_TASK: Final = 1_000
LOOPBACK_NAMES: Final = frozenset({"", "localhost", "0.0.0.0", "::"})
"""What a task may write for "the machine I am on"."""


class EndpointAccess(IntEnum):
    """Who reaches it through the proxy; the numbers of the wire. In the database PRIVATE is NULL."""

    PRIVATE = 1
    LINK = 2


@record
class Endpoint:
    """One registration. Times in ms; `lease_ms` 0 = as long as its attempt."""

    endpoint_id: str
    name: str
    address: str
    """`host:port`, the host an IP address."""
    job_id: str
    task_index: int
    attempt_uid: str
    registered_at_ms: int
    metadata: dict[str, str]
    lease_ms: int = 0
    access: EndpointAccess = EndpointAccess.PRIVATE

    @property
    def task_id(self) -> str:
        return f"{self.job_id}/{self.task_index}"

    @property
    def lease_deadline_ms(self) -> int | None:
        return self.registered_at_ms + self.lease_ms if self.lease_ms else None


@dataclass(frozen=True, slots=True)
class Address:
    """A host as it was written and a port."""

    host: str
    port: int


def full_name(name: str, task: TaskId) -> str:
    """The endpoint's name below its root job. Raises ModelError: it is not below it, or not a name."""
    root = str(task.job.root)
    full = name if name.startswith("/") else f"{root}/{name}"
    if len(full.encode()) > MAX_NAME_BYTES:
        raise ModelError(f"an endpoint's name has at most {MAX_NAME_BYTES} bytes", field="name")
    if not full.startswith(root + "/"):
        raise ModelError(
            f"endpoint {name} is not below {root}", field="name", hint=f"write a name without '/' in front: {root}/NAME"
        )
    for component in full[len(root) + 1 :].split("/"):
        check_component(component)
    return full


def parse_address(text: str) -> Address:
    """Reads `host:port`, `:port`, `port`, `[v6]:port` or one with `http://` before it. Raises ModelError."""
    rest = text.strip().removeprefix("http://").rstrip("/")
    host, colon, port = rest.rpartition(":")
    if not colon:
        host = ""
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "/" in host or "@" in host:
        raise ModelError(f"address {text!r} is not host:port", field="address", hint="write :8080 or [::1]:8080")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65_536):
        raise ModelError(f"address {text!r} has no port between 1 and 65535", field="address", hint="write :8080")
    return Address(host, int(port))


def on_its_worker(address: Address, hosts: Collection[str], reached_at: str) -> str:
    """The `host:port` that is dialled for a registration of a task on a worker.

    `hosts` are the worker's own names and addresses, `reached_at` the address the controller reaches it at. A task serves on the
    machine it runs on and nowhere else: through the proxy any other address would be the controller's word for somebody else's
    machine, such as the metadata server of a cloud.

    Raises:
        ModelError: the address is another machine's.
    """
    host = address.host.partition("%")[0].lower()
    if host in LOOPBACK_NAMES or host in hosts or _is_loopback(host):
        return join(reached_at, address.port)
    raise ModelError(
        f"{address.host} is not the machine that the task runs on ({', '.join(sorted(hosts))})",
        field="address",
        hint=f"write :{address.port}",
    )


def join(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def path_name(name: str) -> str:
    """A name as one segment of a proxy path: the slash in front is dropped, the others are written as dots."""
    return name.lstrip("/").replace("/", ".")


class Endpoints:
    """The registrations of the committed state, by id, by name, by path and by task."""

    def __init__(self) -> None:
        self.by_id: dict[str, Endpoint] = {}
        self.by_name: dict[str, dict[str, None]] = {}
        self._by_path: dict[str, dict[str, None]] = {}
        """Names, by `path_name`."""
        self._by_task: dict[tuple[str, int], dict[str, None]] = {}

    def put(self, endpoint: Endpoint) -> None:
        self.drop(endpoint.endpoint_id)
        self.by_id[endpoint.endpoint_id] = endpoint
        self.by_name.setdefault(endpoint.name, {})[endpoint.endpoint_id] = None
        self._by_path.setdefault(path_name(endpoint.name), {})[endpoint.name] = None
        self._by_task.setdefault((endpoint.job_id, endpoint.task_index), {})[endpoint.endpoint_id] = None

    def drop(self, endpoint_id: str) -> None:
        endpoint = self.by_id.pop(endpoint_id, None)
        if endpoint is None:
            return
        if _discard(self.by_name, endpoint.name, endpoint_id):
            _discard(self._by_path, path_name(endpoint.name), endpoint.name)
        _discard(self._by_task, (endpoint.job_id, endpoint.task_index), endpoint_id)

    def of_task(self, job_id: str, index: int) -> Iterator[Endpoint]:
        return (self.by_id[e] for e in self._by_task.get((job_id, index), ()))

    def names_at(self, segment: str) -> list[str]:
        """The names that a segment of a proxy path may mean; one whose own dots were meant comes first."""
        exact = [name for name in (segment, f"/{segment}") if name in self.by_name]
        return exact or sorted(self._by_path.get(segment, ()))

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, endpoint_id: object) -> bool:
        return endpoint_id in self.by_id


def _discard(index: dict[K, dict[str, None]], key: K, value: str) -> bool:
    """Takes a value out of an index. Returns whether it was the last of its key."""
    held = index.get(key)
    if held is None:
        return False
    held.pop(value, None)
    if held:
        return False
    del index[key]
    return True
