"""Which headers pass the proxy, and what becomes of them.

A workload gets neither the caller's credential nor a say over anything beside its own prefix: it may not set cookies for the
controller, redirect into other names by accident, or claim a service worker over them. Must never look at a body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.http.proxy_target import Target

Headers = list[tuple[bytes, bytes]]

_HOP: Final = frozenset(
    [
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    ]
)
_OURS: Final = frozenset(
    [b"host", b"authorization", b"forwarded", b"via", b"x-real-ip", b"expect", b"x-goog-iap-jwt-assertion"]
)
_OURS_PREFIXES: Final = (b"x-forwarded-", b"iris-", b"x-iris-", b"x-envoy-")
_COOKIES: Final = b"iris_"


def upward(headers: Iterable[tuple[bytes, bytes]], target: Target, peer: str, host: str) -> Headers:
    """Of a request, as the workload gets it."""
    given = list(headers)
    dropped = _HOP | _OURS | _named(given)
    kept = [
        (name, value)
        for name, value in given
        if name not in dropped and not name.startswith(_OURS_PREFIXES) and name != b"cookie"
    ]
    cookies = [
        crumb.strip()
        for name, value in given
        if name == b"cookie"
        for crumb in value.split(b";")
        if crumb.strip() and not crumb.strip().startswith(_COOKIES)
    ]
    if cookies:
        kept.append((b"cookie", b"; ".join(cookies)))
    address = f"[{target.host}]:{target.port}" if ":" in target.host else f"{target.host}:{target.port}"
    kept.insert(0, (b"host", address.encode()))
    # With these nothing that comes back to us this way is taken for a call from this machine.
    kept.append((b"x-forwarded-for", peer.rpartition(":")[0].strip("[]").encode()))
    kept.append((b"x-forwarded-host", host.encode("latin-1", "replace")))
    kept.append((b"x-forwarded-proto", b"http"))
    kept.append((b"x-forwarded-prefix", target.prefix.encode()))
    return kept


def downward(headers: Iterable[tuple[bytes, bytes]], target: Target) -> Headers:
    """Of an answer, as the caller gets it."""
    given = [(name.lower(), value) for name, value in headers]
    dropped = _HOP | _named(given) | {b"service-worker-allowed", b"clear-site-data"}
    if any(name == b"transfer-encoding" for name, _ in given):
        # A length beside it is not the body's (RFC 9112 §6.3).
        dropped |= {b"content-length"}
    found: Headers = []
    policy = False
    for name, value in given:
        if name in dropped:
            continue
        if name == b"location":
            value = _location(value, target)
        elif name == b"set-cookie":
            value = _cookie(value, target)
            if value.startswith(_COOKIES):
                continue
        policy = policy or name == b"referrer-policy"
        found.append((name, value))
    if not policy:
        # The path may hold a token.
        found.append((b"referrer-policy", b"same-origin"))
    return found


def _named(headers: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """Headers that `connection` says are of this hop only."""
    return frozenset(
        word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")
    )


def _location(value: bytes, target: Target) -> bytes:
    """A redirect within the workload stays within its prefix; one to another site is the caller's to follow or not."""
    for scheme in (b"http://", b"https://"):
        authority = f"{target.host}:{target.port}".encode()
        own = scheme + authority
        if value == own or value.startswith(own + b"/"):
            value = value[len(own) :] or b"/"
            break
    if value.startswith(b"/") and not value.startswith(b"//"):
        return target.prefix.encode() + value
    return value


def _cookie(value: bytes, target: Target) -> bytes:
    """Scoped to the workload's prefix, and to no domain."""
    parts = [part.strip() for part in value.split(b";")]
    path = b"/"
    kept = parts[:1]
    for part in parts[1:]:
        name, _, text = part.partition(b"=")
        if name.strip().lower() == b"path":
            path = text.strip() if text.strip().startswith(b"/") else b"/"
        elif name.strip().lower() != b"domain":
            kept.append(part)
    kept.append(b"Path=" + target.prefix.encode() + path)
    return b"; ".join(kept)
