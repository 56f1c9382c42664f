"""Where a controller listens: the one parser of its URL, with every spelling that is right and a clear word on those
that are not.

A URL is scheme, host and port, nothing else; the port is 10000 unless given. IPv6 addresses are bracketed and may
carry a zone. Must never resolve a name or open a connection.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from iris_core.contracts import UsageFailed
from iris_core.model.errors import shown

DEFAULT_PORT: Final = 10000

_URL_RE = re.compile(r"(?:(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<authority>[^/?#]*)(?P<rest>.*)", re.S)
_HOST_RE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?")
_LOOPBACK_RE = re.compile(r"127\.[0-9]{1,3}\.[0-9]{1,3}\.[0-9]{1,3}")
_ZONE_RE = re.compile(r"[A-Za-z0-9_.~-]{1,64}")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A controller's address. `host` is a name or an address without brackets; an IPv6 zone stands in `zone`."""

    tls: bool
    host: str
    port: int
    zone: str = ""

    @property
    def bracketed(self) -> str:
        """The host as it stands in a URL or an HTTP Host header: an IPv6 address has brackets and no zone."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def url(self) -> str:
        """Canonical, without a trailing slash; the zone is spelled as RFC 6874 wants it."""
        host = f"[{self.host}%25{self.zone}]" if self.zone else self.bracketed
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def authority(self) -> str:
        """What gRPC dials."""
        return f"[{self.host}%{self.zone}]:{self.port}" if self.zone else f"{self.bracketed}:{self.port}"

    @property
    def dial(self) -> str:
        """The host as a socket wants it."""
        return f"{self.host}%{self.zone}" if self.zone else self.host

    @property
    def is_loopback(self) -> bool:
        """Whether it is this machine, as far as its text tells."""
        return self.host in ("localhost", "127.0.0.1", "::1") or bool(_LOOPBACK_RE.fullmatch(self.host))


def parse_url(text: str, *, what: str = "--controller-url") -> Endpoint:
    """Read a controller URL; a missing scheme means http.

    Raises UsageFailed: not a URL of a controller; the hint has the right spelling where one can be guessed.
    """
    match = _URL_RE.fullmatch(text.strip())
    assert match is not None
    scheme = (match["scheme"] or "http").lower()
    if not text.strip():
        raise UsageFailed(f"{what} is empty", hint="write it as http://HOST:10000")
    if scheme not in ("http", "https"):
        raise UsageFailed(f"{what} {shown(text)}: the scheme {scheme!r} is not http or https")
    if match["rest"] not in ("", "/"):
        raise UsageFailed(
            f"{what} {shown(text)}: only scheme, host and port belong there",
            hint=f"drop {shown(match['rest'])}",
        )
    authority = match["authority"]
    if "@" in authority:
        raise UsageFailed(
            f"{what} has a user or password in it", hint="give a token in $IRIS_TOKEN and drop what stands before '@'"
        )
    if authority.startswith("["):
        host, bracket, rest = authority[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise UsageFailed(
                f"{what} {shown(text)}: the brackets are not closed", hint=f"write {scheme}://[::1]:10000"
            )
        address, _, zone = host.partition("%")
        canonical, zone = _ipv6(address, text, what), _zone(zone, text, what)
        # Beyond link-local addresses a zone says nothing, and resolvers refuse it.
        scoped = zone if canonical.startswith("fe80:") else ""
        return Endpoint(scheme == "https", canonical, _port(rest[1:], bool(rest), text, what), scoped)
    if authority.count(":") > 1:
        raise UsageFailed(
            f"{what} {shown(text)}: an IPv6 address needs brackets", hint=f"write {_bracketed_guess(scheme, authority)}"
        )
    host, colon, port = authority.partition(":")
    if not _HOST_RE.fullmatch(host):
        raise UsageFailed(
            f"{what} {shown(text)}: {shown(host)} is not a host name", hint="write it as http://HOST:10000"
        )
    return Endpoint(scheme == "https", host, _port(port, bool(colon), text, what))


def _ipv6(address: str, text: str, what: str) -> str:
    import ipaddress

    try:
        return str(ipaddress.IPv6Address(address))
    except ValueError:
        raise UsageFailed(f"{what} {shown(text)}: {shown(address)} is not an IPv6 address") from None


def _zone(zone: str, text: str, what: str) -> str:
    name = zone.removeprefix("25") if zone.startswith("25") and len(zone) > 2 else zone
    if name and not _ZONE_RE.fullmatch(name):
        raise UsageFailed(f"{what} {shown(text)}: {shown(name)} is not a network interface")
    return name


def _port(digits: str, given: bool, text: str, what: str) -> int:
    if not given:
        return DEFAULT_PORT
    if digits.isascii() and digits.isdigit() and len(digits) <= 5 and 1 <= int(digits) <= 65535:
        return int(digits)
    raise UsageFailed(f"{what} {shown(text)}: {shown(digits)} is not a port", hint="use 1 to 65535")


def _bracketed_guess(scheme: str, authority: str) -> str:
    """`::1:18806` most likely means port 18806 of `::1`."""
    import ipaddress

    head, _, tail = authority.rpartition(":")
    for address, port in ((head, f":{tail}"), (authority, "")):
        try:
            if port and not (tail.isdigit() and len(tail) == 5):
                continue
            return f"{scheme}://[{ipaddress.IPv6Address(address)}]{port or ':10000'}"
        except ValueError:
            continue
    return f"{scheme}://[ADDRESS]:10000"
