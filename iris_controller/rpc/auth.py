"""Who is calling (DESIGN §11, cli-auth-logs §2.5).

One chain for gRPC and HTTP: a supplied credential decides, also from loopback, and a bad one never falls through; without one the
address of the real peer may be trusted, unless a header says that somebody forwarded the call; everybody else is unknown. Must never
take the peer from anything but the port's own record, and must never tell a caller why a credential failed.
"""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING

from iris_controller.quiet import QuietLog
from iris_controller.rpc.errors import RpcError, clean, denied, unauthenticated
from iris_controller.state.budgets import LOCAL_ADMIN
from iris_core.auth import tokens
from iris_core.contracts import UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from iris_core.auth.tokens import Claims, KeySet

log = logging.getLogger("iris.auth")

READ_ONLY_HEADER = "iris-read-only"

_FORWARDED = frozenset(
    {"forwarded", "via", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip", "cf-connecting-ip"}
)
_FORWARDED_PREFIXES = ("x-forwarded-", "x-envoy-")
_ASSERTION = "x-goog-iap-jwt-assertion"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Role(StrEnum):
    """What a caller is to the roles table."""

    ADMIN = "admin"
    USER = "user"
    DASHBOARD = "dashboard"
    WORKER = "worker"
    TASK = "task"
    ANONYMOUS = "anonymous"


@dataclass(frozen=True, slots=True)
class TaskClaims:
    """The task that calls: its owner, its root job, its own job and its attempt."""

    owner: str
    root_job: str
    job_id: str
    attempt_uid: str


@dataclass(frozen=True, slots=True)
class Identity:
    """A caller. `via` is how it is known (`token`, `loopback`, `cidr`), `peer` its real address."""

    user_id: str
    role: Role
    via: str
    peer: str
    read_only: bool = False
    task: TaskClaims | None = None

    @property
    def principal(self) -> str:
        """The name under which request ids and audit lines are kept; a worker and a user of one name differ."""
        match self.role:
            case Role.WORKER:
                return f"worker/{self.user_id}"
            case Role.TASK if self.task is not None:
                return f"task/{self.task.attempt_uid}"
        return self.user_id

    def require_owner(self, owner: str, subject: str) -> None:
        """Raises PERMISSION_DENIED unless the caller owns `subject` (control-plane §5) or is an admin.

        A task is checked by `require_scope`, which is narrower.
        """
        if self.role is Role.ADMIN or self.user_id == owner:
            return
        raise denied(f"{subject} belongs to {owner}, you are {self.user_id}", subject=subject)

    def require_scope(self, name: str) -> None:
        """Raises PERMISSION_DENIED if the caller is a task and `name` (job, task or attempt id) is not in its own job's subtree."""
        if self.task is not None and not within(self.task.job_id, name):
            raise denied(f"a task of {self.task.job_id} may not reach {name}", subject=name, code="outside_subtree")


def within(job_id: str, name: str) -> bool:
    """Whether the job, task or attempt `name` is `job_id` or below it, by whole components."""
    return name == job_id or name.startswith(job_id + "/")


class Authenticator:
    """Turns the headers and the real peer of a call into an Identity.

    keys                verifies tokens
    trusted_cidrs       networks whose callers count as local, `10.0.0.0/8`; raises UsageFailed for one that is malformed
    admin_users         user ids that are admins; read at every call, so a name that leaves the set is one no longer
    is_current_attempt  whether that attempt uid is the current attempt of a live task
    """

    def __init__(
        self,
        keys: KeySet,
        trusted_cidrs: Iterable[str],
        admin_users: Iterable[str],
        is_current_attempt: Callable[[str], bool],
    ) -> None:
        self._keys = keys
        self._networks = tuple(_network(text) for text in trusted_cidrs)
        self._admins = frozenset(admin_users)
        self._is_current_attempt = is_current_attempt
        self._refused = QuietLog(log)

    def authenticate(self, metadata: Mapping[str, str], real_peer: str | None) -> Identity:
        """The caller. Raises UNAUTHENTICATED.

        `metadata` are the headers, names in any case. `real_peer` is `address:port` as the port recorded it, None if it did not.
        """
        headers = _lower(metadata)
        address = parse_peer(real_peer)
        if real_peer is None or address is None:
            self._refused.warning("refused a call whose connection did not come through the public port")
            raise unauthenticated("the caller's address is unknown", hint="use the controller's public port")
        read_only = headers.get(READ_ONLY_HEADER, "") not in {"", "0"}

        credential = headers.get("authorization")
        if _ASSERTION in headers:
            raise self._failed(real_peer, "an IAP assertion, and none is configured")
        if credential is not None:
            return self._by_token(credential, real_peer, read_only)
        if not any(name in _FORWARDED or name.startswith(_FORWARDED_PREFIXES) for name in headers):
            if address.is_loopback:
                return Identity(LOCAL_ADMIN, Role.ADMIN, "loopback", real_peer, read_only)
            if any(address in network for network in self._networks):
                return Identity(LOCAL_ADMIN, Role.ADMIN, "cidr", real_peer, read_only)
        raise unauthenticated("no credential was given", hint="send a bearer token in the header `authorization`")

    def _by_token(self, credential: str, peer: str, read_only: bool) -> Identity:
        scheme, _, token = credential.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise self._failed(peer, "no bearer token")
        try:
            claims = self._keys.verify(token.strip())
        except tokens.TokenError as error:
            raise self._failed(peer, str(error)) from error
        return self._identity(claims, peer, read_only or claims.read_only)

    def _identity(self, claims: Claims, peer: str, read_only: bool) -> Identity:
        match claims.role:
            case tokens.WORKER:
                return Identity(claims.subject, Role.WORKER, "token", peer, read_only)
            case tokens.TASK:
                if not self._is_current_attempt(claims.attempt_uid):
                    raise self._failed(peer, f"attempt {claims.attempt_uid} is no longer current")
                task = TaskClaims(claims.subject, claims.root_job, claims.job_id, claims.attempt_uid)
                return Identity(claims.subject, Role.TASK, "token", peer, read_only, task)
            case tokens.DASHBOARD:
                return Identity(claims.subject, Role.DASHBOARD, "token", peer, read_only)
        role = Role.ADMIN if claims.subject in self._admins else Role.USER
        return Identity(claims.subject, role, "token", peer, read_only)

    def _failed(self, peer: str, why: str) -> RpcError:
        self._refused.warning("refused a credential from %s: %s", peer, clean(why, 200))
        return unauthenticated("authentication failed", code="bad_credential")


@lru_cache(4096)
def parse_peer(peer: str | None) -> Address | None:
    """The address in `127.0.0.1:4711` or `[::1]:4711`, an IPv4 address that travels as IPv6 unwrapped; None if it is neither."""
    if peer is None:
        return None
    host, colon, port = peer.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        return None
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        return None
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address


def _network(text: str) -> Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageFailed(f"trusted network {text!r}: {error}", hint="write it like 10.0.0.0/8") from error


def _lower(metadata: Mapping[str, str]) -> dict[str, str]:
    """Headers by lower-case name; several of one name are joined, so that two credentials are never one good one."""
    headers: dict[str, str] = {}
    for name, value in metadata.items():
        key = name.lower()
        headers[key] = f"{headers[key]}, {value}" if key in headers else value
    return headers
