"""Whether an HTTP request may be a web page's doing (DESIGN §11).

A page of somebody else can make a browser send requests here, under a name of its own that points to 127.0.0.1 as well. Such a request
shows in Host, Origin or Sec-Fetch-Site, which no script can forge. Must never be weakened for a credential: a browser may carry one.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

from iris_controller.rpc.errors import RpcError, clean, denied

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


def check_origin(headers: Mapping[str, str], local: str, allowed_hosts: Collection[str]) -> None:
    """Raises PERMISSION_DENIED if the request may come from a foreign page.

    `local` is the `address:port` that the caller connected to: a Host that is this very address is ours, because a name that a page
    controls can never be an address. `allowed_hosts` are further names, lower case, without port.
    """
    host = headers.get("host", "")
    name = host_name(host)
    if not (name and (_is_loopback(name) or name in allowed_hosts or name == host_name(local))):
        raise _foreign(
            f"the Host {clean(host, 200) or '(none)'} is not a name of this controller",
            "use 127.0.0.1 or localhost, or add the name to the configured hosts",
        )
    origin = headers.get("origin")
    # Compared as text: an origin is scheme and authority and nothing else, and browsers write it one way.
    if origin is not None and origin.lower() not in {f"http://{host.lower()}", f"https://{host.lower()}"}:
        raise _foreign(f"the Origin {clean(origin, 200)} is another site", "web pages of others may not call this")
    if headers.get("sec-fetch-site", "").lower() == "cross-site":
        raise _foreign("the request comes from another site's page", "web pages of others may not call this")


def check_page(headers: Mapping[str, str]) -> None:
    """Raises PERMISSION_DENIED if a page of this very origin asks without a credential of its own.

    What tasks serve through the proxy has our origin, and an operator who looks at it is known by their address alone: such a page
    must not speak to the controller in their name. Opening a route by hand is no page's doing.
    """
    if "authorization" in headers:
        return
    mode = headers.get("sec-fetch-mode", "").lower()
    if "origin" in headers or mode in {"cors", "no-cors", "same-origin", "websocket"}:
        raise _foreign("a web page asks without a credential", "send a bearer token in the header `authorization`")


def host_name(host: str) -> str:
    """The name in a Host header or an `address:port`, lower case, without port, brackets and a closing dot; "" if it is none."""
    text = host.strip().lower()
    if text.startswith("["):
        name, bracket, port = text[1:].partition("]")
        if not bracket or (port and not (port[0] == ":" and port[1:].isdigit())):
            return ""
        return name
    name, colon, port = text.partition(":")
    if colon and not port.isdigit():
        return ""
    return name.removesuffix(".")


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _foreign(message: str, hint: str) -> RpcError:
    return denied(message, code="foreign_origin", hint=hint)
