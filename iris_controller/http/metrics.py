"""What Prometheus reads at `/metrics`: the process, and every RPC by method and outcome.

One registry per controller, so that two in one process (tests) do not share figures. Labels are method and code names alone: nothing
that a caller chooses may become one.
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

_BUCKETS_S = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0)


class Metrics:
    """Registers itself in `registry`, to which others may add collectors of their own."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._calls = Counter("iris_rpc", "Finished RPCs", ["method", "code"], registry=self.registry)
        self._seconds = Histogram(
            "iris_rpc_seconds", "Duration of RPCs", ["method"], buckets=_BUCKETS_S, registry=self.registry
        )

    def observe(self, method: str, code: str, seconds: float) -> None:
        """Counts one finished call: the `observe` of a Router."""
        self._calls.labels(method, code).inc()
        self._seconds.labels(method).observe(seconds)

    def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)
