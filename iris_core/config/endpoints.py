"""Endpoints of the cluster itself, from its file: services beside the tasks that the proxy reaches too (control-plane §8 `endpoints`).

Must never resolve one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_core.model.errors import shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.config.document import Value

SCHEMES: Final = ("http://", "https://", "gcp://", "k8s://")


@dataclass(frozen=True, slots=True)
class SystemEndpoint:
    """One of them. `uri` is `http(s)://host[:port]`, or `gcp://service`, `k8s://service[.namespace]` for the cloud's own names."""

    uri: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def parse_endpoints(value: Value) -> dict[str, SystemEndpoint]:
    """`endpoints`, by name. Raises UsageFailed."""
    found: dict[str, SystemEndpoint] = {}
    for name, item in value.mapping().items():
        if not name.strip("/") or any(not part for part in name.strip("/").split("/")) or not name.isprintable():
            raise item.wrong(f"{shown(name)} is not a name of an endpoint", hint="write it like /system/dashboard")
        keys = item.mapping({"uri", "metadata"})
        if "uri" not in keys:
            raise item.wrong("the key 'uri' is missing")
        uri = keys["uri"].text()
        host = uri.partition("://")[2].rstrip("/")
        if not uri.startswith(SCHEMES) or not host or "/" in host or "@" in host:
            raise keys["uri"].wrong(
                f"{shown(uri)} is not the address of a service", hint="write http://host:port, without a path"
            )
        metadata = keys["metadata"].mapping() if "metadata" in keys else {}
        found[name] = SystemEndpoint(uri.rstrip("/"), {key: text.text() for key, text in metadata.items()})
    return found
