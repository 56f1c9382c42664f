"""Whether a call is for this controller at all: one address can come to be another cluster's.

A client that took the address from a cluster file names the cluster in a header. Must never refuse a call that names none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.rpc.errors import RpcError, clean
from iris_core.client.calls import CLUSTER_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping


def require_meant(own: str, headers: Mapping[str, str]) -> None:
    """Raises FAILED_PRECONDITION: the call names another cluster than `own`; "" is no name. Names of headers in any case."""
    if not own:
        return
    for name, wanted in headers.items():
        if name.lower() == CLUSTER_HEADER and wanted not in ("", own):
            raise RpcError(
                "FAILED_PRECONDITION",
                f"the controller at this address is that of cluster {own}, not of {clean(wanted, 100)}: nothing was done",
                code="other_cluster",
                subject=own,
                hint="two cluster files may name one address: look at controller.local.port in both",
            )
