"""The columns of endpoints, for the command line's tables and the console; rules as in `columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import ColumnSpec, age, iso
from iris_core.live.wording import NOTHING, or_nothing
from iris_core.model.quantities import format_duration

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.endpoints_pb2 import Endpoint

ACCESS: Final = ("private", "private", "link")


def access_text(endpoint: Endpoint) -> str:
    """Who reaches it through the proxy."""
    number = int(endpoint.access)
    return ACCESS[number] if number < len(ACCESS) else str(number)


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


ENDPOINTS: Final[dict[str, ColumnSpec[Endpoint]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="name", title="NAME", min_width=16, flex=3,
            value=lambda endpoint: endpoint.name,
            text=lambda endpoint, _: or_nothing(endpoint.name),
            sort=lambda endpoint, _: endpoint.name,
        ),
        _column(
            id="address", title="ADDRESS", min_width=15, max_width=40, hide=2,
            value=lambda endpoint: endpoint.address,
            text=lambda endpoint, _: or_nothing(endpoint.address),
            sort=lambda endpoint, _: endpoint.address,
        ),
        _column(
            id="task_id", title="TASK", min_width=12, flex=2, hide=1,
            value=lambda endpoint: endpoint.task_id or None,
            text=lambda endpoint, _: or_nothing(endpoint.task_id),
            sort=lambda endpoint, _: endpoint.task_id,
        ),
        _column(
            id="access", title="ACCESS", min_width=7, max_width=7,
            value=access_text,
            text=lambda endpoint, _: access_text(endpoint),
            sort=lambda endpoint, _: endpoint.access,
        ),
        _column(
            id="age", title="AGE", min_width=4, max_width=8, align="right",
            value=lambda endpoint: iso(endpoint.registered_at_ms),
            text=lambda endpoint, now_ms: age(endpoint.registered_at_ms, now_ms), moves=True,
            sort=lambda endpoint, _: -endpoint.registered_at_ms,
        ),
        _column(
            id="lease", title="LEASE", min_width=5, max_width=8, align="right", hide=3,
            value=lambda endpoint: endpoint.lease_ms or None,
            text=lambda endpoint, _: format_duration(endpoint.lease_ms) if endpoint.lease_ms else NOTHING,
            sort=lambda endpoint, _: endpoint.lease_ms,
        ),
        _column(
            id="proxy_path", title="PROXY PATH", min_width=16, flex=3, hide=4,
            value=lambda endpoint: endpoint.proxy_path,
            text=lambda endpoint, _: or_nothing(endpoint.proxy_path),
            sort=lambda endpoint, _: endpoint.proxy_path,
        ),
        _column(
            id="endpoint_id", title="ID", min_width=16, max_width=36, hide=5,
            value=lambda endpoint: endpoint.endpoint_id or None,
            text=lambda endpoint, _: or_nothing(endpoint.endpoint_id),
            sort=lambda endpoint, _: endpoint.endpoint_id,
        ),
        _column(
            id="metadata", title="METADATA", min_width=8, flex=1, hide=6,
            value=lambda endpoint: dict(endpoint.metadata),
            text=lambda endpoint, _: or_nothing(" ".join(f"{k}={v}" for k, v in sorted(endpoint.metadata.items()))),
            sort=lambda endpoint, _: sorted(endpoint.metadata.items()),
        ),
    )
}  # fmt: skip
