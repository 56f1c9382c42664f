"""How the controller's RPCs do, as rows of `telltale` (cli-auth-logs §6, RPC stats): totals since this process began, with its boot.

Only methods that were called since the last time are told; a reader takes the newest row of each series. Pure, over what
`/metrics` collects.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.metrics_core import Metric

Row = dict[str, Any]
_DURATION = "iris_rpc_duration_seconds"


class RpcMetrics:
    """See the module. `source` says whose figures these are, `boot_id` since when they count."""

    def __init__(self, source: str, cluster: str, boot_id: str) -> None:
        self._source = source
        self._cluster = cluster
        self._boot_id = boot_id
        self._told: dict[str, float] = {}
        """Calls of each method when it was last told."""

    def rows(self, families: Iterable[Metric], now_ms: int) -> list[Row]:
        """The rows of all methods that were called since the last call."""
        calls: dict[str, float] = {}
        samples: list[tuple[str, str, dict[str, str], float]] = []
        for family in families:
            for sample in family.samples:
                name, labels = sample.name, sample.labels
                rpc = labels.get("method", "")
                if name == "iris_rpc_total":
                    calls[rpc] = calls.get(rpc, 0.0) + sample.value
                    samples.append((rpc, "iris_rpc_responses_total", {"status": labels["code"]}, sample.value))
                elif name == "iris_rpc_seconds_bucket":
                    samples.append((rpc, f"{_DURATION}_bucket", {"le": labels["le"]}, sample.value))
                elif name in ("iris_rpc_seconds_sum", "iris_rpc_seconds_count"):
                    samples.append((rpc, f"{_DURATION}_{name.rpartition('_')[2]}", {}, sample.value))
        fresh = {rpc for rpc, total in calls.items() if total != self._told.get(rpc)}
        self._told.update(calls)
        samples += [(rpc, "iris_rpc_requests_total", {}, total) for rpc, total in calls.items()]
        return [self._row(name, rpc, more, value, now_ms) for rpc, name, more, value in samples if rpc in fresh]

    def _row(self, name: str, rpc: str, more: dict[str, str], value: float, now_ms: int) -> Row:
        service, _, word = rpc.rpartition("/")
        labels = {"service": service, "method": word, "boot_id": self._boot_id, **more}
        return {
            "name": name,
            "value": float(value),
            "ts": now_ms,
            "source": self._source,
            "labels": json.dumps(labels, separators=(",", ":")),
            "cluster": self._cluster,
        }
