"""How requests for slices end, as `iris.provisioning` tells it; and RPC metrics as `telltale` tells them."""

from __future__ import annotations

import json

import pytest

from iris_controller.autoscaling.actions import Outcome as Ended
from iris_controller.http.metrics import Metrics
from iris_controller.stats import provisioning
from iris_controller.stats.telltale import RpcMetrics
from iris_core.model.namespaces import PROVISIONING, TELLTALE
from iris_core.model.states import TaskState
from iris_core.wire.rows import batch_of
from providers.fake.machines import Outcome, quota, stock_out
from tests.unit.autoscaler_world import AutoscalerWorld, group, tpu_group


def told(w: AutoscalerWorld) -> list[Ended]:
    """Every outcome from now on."""
    found: list[Ended] = []
    w.scaler.actions.on_outcome = found.append
    return found


@pytest.mark.asyncio
async def test_requests_that_are_refused_fail_or_succeed_are_told_with_their_reason_and_latency() -> None:
    w = AutoscalerWorld(group(zone="z1"))
    outcomes = told(w)
    fails = Outcome(ready_s=30, fails="disk image missing")
    w.machines.script("cpu", [stock_out(), quota("Quota 'CPUS' exceeded"), fails, Outcome()])
    w.world.submit(cpu=3)
    await w.look(2)
    await w.pass_time(600)
    assert [(one.outcome, one.message) for one in outcomes] == [
        ("stockout", "There is no more capacity in the zone"),
        ("error", "Quota 'CPUS' exceeded"),
        ("error", "the provider could not make it: disk image missing"),
        ("ready", ""),
    ]
    assert outcomes[2].latency_ms is not None and outcomes[2].latency_ms >= 30_000
    assert outcomes[3].latency_ms is not None and outcomes[3].latency_ms > 0 and outcomes[3].workers == 1
    rows = [provisioning.row(one, w.config.scale_groups[one.group], 7) for one in outcomes]
    batch_of(PROVISIONING, "p", 0, rows)
    assert (rows[0]["zone"], rows[0]["resource_type"], rows[0]["ts"]) == ("z1", "cpu", 7)


@pytest.mark.asyncio
async def test_a_slice_that_the_provider_takes_back_is_preempted_and_one_that_is_given_up_is_nothing() -> None:
    w = AutoscalerWorld(group(max_slices=2), delay_ms=60_000)
    outcomes = told(w)
    w.world.submit(cpu=3)
    await w.look(3)
    await w.pass_time(20)
    task = w.world.task()
    w.world.observe(task.attempt_uid, TaskState.RUNNING, task.worker_id)
    w.machines.preempt(w.machines.created[0].slice_id)
    await w.pass_time(80)
    assert [one.outcome for one in outcomes] == ["ready", "preempted", "ready"]
    assert outcomes[1].message == "the provider took it back"
    task = w.world.task()
    w.world.observe(task.attempt_uid, TaskState.SUCCEEDED, task.worker_id)
    await w.pass_time(300)
    assert not w.lifecycles() and len(outcomes) == 3


def test_a_row_names_the_accelerator_and_bounds_the_message() -> None:
    row = provisioning.row(Ended("tpu", "error", "x" * 5_000), tpu_group(), 1)
    assert (row["resource_type"], row["accelerator_variant"]) == ("tpu", "v5litepod-16")
    assert len(row["error_message"]) == provisioning.MAX_MESSAGE
    gone = provisioning.row(Ended("gone", "ready"), None, 1)
    assert gone["zone"] is None and gone["error_message"] is None
    batch_of(PROVISIONING, "p", 0, [row, gone])


def test_only_methods_that_were_called_since_are_told_again() -> None:
    metrics, rpc = Metrics(), RpcMetrics("/system/controller", "rig", "boot")
    metrics.observe("ControllerService/ListJobs", "OK", 0.02)
    metrics.observe("ControllerService/ListJobs", "NOT_FOUND", 3.0)
    metrics.observe("LogService/FetchLogs", "OK", 0.5)
    first = rpc.rows(metrics.registry.collect(), 7)
    batch_of(TELLTALE, "p", 0, first)
    by_name = {(row["name"], json.loads(row["labels"])["method"], row["labels"]): row["value"] for row in first}
    totals = {method: value for (name, method, _), value in by_name.items() if name == "iris_rpc_requests_total"}
    assert totals == {"ListJobs": 2.0, "FetchLogs": 1.0}
    assert {json.loads(row["labels"]).get("status") for row in first if row["name"] == "iris_rpc_responses_total"} == {
        "OK", "NOT_FOUND"
    }  # fmt: skip
    buckets = [row["value"] for row in first if row["name"].endswith("_bucket") and "ListJobs" in row["labels"]]
    assert buckets == sorted(buckets) and buckets[-1] == 2.0
    assert rpc.rows(metrics.registry.collect(), 8) == []
    metrics.observe("LogService/FetchLogs", "OK", 0.5)
    again = rpc.rows(metrics.registry.collect(), 9)
    assert {json.loads(row["labels"])["method"] for row in again} == {"FetchLogs"}
    assert json.loads(again[0]["labels"])["boot_id"] == "boot" and again[0]["cluster"] == "rig"
