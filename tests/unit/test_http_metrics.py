"""What `/metrics` says of RPCs: each call counted once, under its own method and outcome."""

from __future__ import annotations

from iris_controller.http.metrics import Metrics


def figures(metrics: Metrics) -> dict[str, float]:
    lines = (line.rpartition(" ") for line in metrics.text().decode().splitlines() if line.startswith("iris_rpc"))
    return {name: float(value) for name, _, value in lines}


def test_calls_are_counted_by_method_and_outcome_and_timed_by_method() -> None:
    metrics, other = Metrics(), Metrics()
    for method, code, seconds in (
        ("A/B", "OK", 0.5),
        ("A/B", "OK", 0.25),
        ("A/B", "CANCELLED", 2.0),
        ("A/C", "OK", 1.0),
    ):
        metrics.observe(method, code, seconds)
    other.observe("A/B", "OK", 8.0)
    found = figures(metrics)
    assert found['iris_rpc_total{code="OK",method="A/B"}'] == 2
    assert found['iris_rpc_total{code="CANCELLED",method="A/B"}'] == 1
    assert found['iris_rpc_total{code="OK",method="A/C"}'] == 1
    assert found['iris_rpc_seconds_sum{method="A/B"}'] == 2.75 and found['iris_rpc_seconds_count{method="A/B"}'] == 3
    assert found['iris_rpc_seconds_bucket{le="0.25",method="A/B"}'] == 1
    assert figures(other)['iris_rpc_seconds_sum{method="A/B"}'] == 8
