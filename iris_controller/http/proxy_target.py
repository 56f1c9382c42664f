"""Which endpoint a proxied request is for, and whether its caller may go there (control-plane §5, DESIGN §11).

`/proxy/<name with dots>/<path>` is for callers whom the cluster knows; `/proxy/t/<token>/<name>/<path>` for whoever holds the URL. The
name is decoded once and must be registered; the path behind it travels byte by byte. Must never dial, and never let a token or a
credential of ours get past.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes

from iris_controller.rpc.auth import Role
from iris_controller.rpc.errors import RpcError, clean, denied, invalid, not_found, precondition, unauthenticated
from iris_controller.state.endpoints import EndpointAccess, path_name
from iris_core.auth.tokens import TokenError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from iris_controller.rpc.auth import Authenticator, Identity
    from iris_core.auth.tokens import KeySet

PREFIX: Final = b"/proxy/"
_READERS: Final = frozenset({Role.ADMIN, Role.USER, Role.DASHBOARD, Role.TASK})
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Place:
    """One registration that serves: `host:port` or a URL without a path."""

    name: str
    address: str
    access: EndpointAccess


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request goes. `path` starts with `/` and is as the caller wrote it; `prefix` is what stood before it."""

    name: str
    host: str
    port: int
    secure: bool
    path: bytes
    prefix: str


class Targets:
    """Finds targets. `places` gives the names that a path segment may mean, each with what serves it, the latest first."""

    def __init__(
        self,
        authenticator: Authenticator,
        keys: KeySet,
        places: Callable[[str], Mapping[str, Sequence[Place]]],
    ) -> None:
        self._authenticator = authenticator
        self._keys = keys
        self._places = places

    def find(self, raw_path: bytes, method: str, headers: Mapping[str, str], peer: str) -> Target:
        """The target of a request. Raises RpcError: nobody we know, nothing registered, not allowed."""
        rest = raw_path.removeprefix(PREFIX)
        if rest.startswith(b"t/"):
            return self._by_token(rest.removeprefix(b"t/"))
        identity = self._authenticator.authenticate(headers, peer)
        segment, path = _split(rest)
        place = self._place(segment)
        _check(identity, place, method)
        return _target(place, path, f"/proxy/{quote(segment)}")

    def _by_token(self, rest: bytes) -> Target:
        token, slash, rest = rest.partition(b"/")
        segment, path = _split(rest)
        try:
            grant = self._keys.verify_endpoint(token.decode("ascii", "replace"))
        except TokenError:
            raise unauthenticated("this link is not valid or has expired", code="bad_credential") from None
        if not slash or path_name(grant.endpoint) != segment:
            raise denied("this link is for another endpoint", code="other_endpoint")
        place = self._place(segment, grant.endpoint)
        if place.access is not EndpointAccess.LINK:
            raise denied(f"{place.name} is private now", subject=place.name, code="private_endpoint")
        return _target(place, path, f"/proxy/t/{token.decode('ascii')}/{quote(segment)}")

    def _place(self, segment: str, name: str = "") -> Place:
        found = self._places(segment)
        if name:
            found = {name: found.get(name, ())}
        alive = {name: places for name, places in found.items() if places}
        if not alive:
            raise not_found(clean(segment, 200), f"there is no endpoint {clean(segment, 200)}")
        if len(alive) > 1:
            names = " and ".join(sorted(alive))
            raise RpcError("FAILED_PRECONDITION", f"{names} are both written {clean(segment, 200)}", code="ambiguous")
        # Of several that serve one name any will do; the load spreads.
        return random.choice(next(iter(alive.values())))


def _check(identity: Identity, place: Place, method: str) -> None:
    if identity.role not in _READERS:
        raise denied(f"{identity.role} may not use the proxy", code="role")
    if identity.task is not None and not place.name.startswith(identity.task.root_job + "/"):
        raise denied(f"{place.name} is of another tree", subject=place.name, code="outside_subtree")
    if method not in _SAFE and (identity.read_only or identity.role is Role.DASHBOARD):
        raise denied(f"{method} may change something and this caller only reads", subject=place.name, code="read_only")


def _split(rest: bytes) -> tuple[str, bytes]:
    """The decoded name and the path behind it. Raises RpcError: not a name."""
    raw, slash, path = rest.partition(b"/")
    try:
        segment = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        raise invalid("", "the endpoint's name is not UTF-8", code="bad_name") from None
    if not segment or any(ord(c) < 0x20 or c == "\x7f" for c in segment):
        raise not_found("/proxy/", "write /proxy/NAME/PATH, with the slashes of the name as dots")
    return segment, (slash or b"/") + path


def _target(place: Place, path: bytes, prefix: str) -> Target:
    address = place.address
    if "://" in address and not address.startswith(("http://", "https://")):
        raise precondition(
            place.name, f"{place.name} is {address}, which this release cannot resolve", code="unresolved"
        )
    secure = address.startswith("https://")
    address = address.removeprefix("https://").removeprefix("http://").rstrip("/")
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        host, port = address, "443" if secure else "80"
    return Target(place.name, host.strip("[]"), int(port), secure, path, prefix)
