"""What Prometheus reads at `/metrics`: the process, and every RPC by method and outcome.

One registry per controller, so that two in one process (tests) do not share figures. Labels are method and code names alone: nothing
that a caller chooses may become one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable

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
        self._counting: dict[tuple[str, str], Callable[[], None]] = {}
        self._timing: dict[str, Callable[[float], None]] = {}
        """Of each label that came: to find it by its labels takes longer than to count."""

    def observe(self, method: str, code: str, seconds: float) -> None:
        """Counts one finished call: the `observe` of a Router."""
        count, time = self._counting.get((method, code)), self._timing.get(method)
        if count is None:
            count = self._counting[method, code] = self._calls.labels(method, code).inc
        if time is None:
            time = self._timing[method] = self._seconds.labels(method).observe
        count()
        time(seconds)

    def text(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)
