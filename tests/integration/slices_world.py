"""A served controller whose fleet are slices of local workers, and what the tests ask of gangs on them."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from iris_core.wire.gen.iris.v1 import autoscaler_pb2, common_pb2, controller_pb2
from providers.local.vm import recorded
from tests.integration.local_cluster import Done, Place
from tests.integration.served import Served, task

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from iris_core.client.grpc_client import GrpcClient
    from providers.local.processes import Known

CONFIG = """
name: slices
platform: {{local: }}
controller: {{local: {{port: {port}}}}}
worker_provider: {{}}
defaults:
  autoscaler: {{evaluation_interval: {{milliseconds: 500}}, scale_down_delay: {{milliseconds: {scale_down_ms}}}}}
scale_groups:
  tpu:
    num_vms: 4
    buffer_slices: {buffer}
    max_slices: {most}
    scale_up_rate_limit: 0
    scale_down_rate_limit: 0
    resources: {{cpu: 2, ram: 2GB, device_type: tpu, device_variant: v5litepod-16, capacity_type: preemptible}}
"""
HOLD = 'echo "begin $IRIS_TASK_ID"; while [ ! -e "$0" ]; do sleep 0.1; done; echo "end $IRIS_TASK_ID"'
"""Runs until the file exists."""


class Slices(Served):
    """Slices of four workers with four TPU chips each."""

    def __init__(self, folder: Path, buffer: int = 2, most: int = 2, scale_down_ms: int = 600_000) -> None:
        super().__init__(folder)
        self.config.write_text(
            CONFIG.format(port=self.port, buffer=buffer, most=most, scale_down_ms=scale_down_ms)
        )  # fmt: skip
        self.place = Place(folder / "operator")

    def cli(self, *words: str, stdin: bytes = b"") -> Done:
        """Runs `iris-core` against this controller."""
        return self.place.run(f"--controller-url={self.url}", *words, stdin=stdin)

    def process_of(self, worker_id: str, name: str) -> Known:
        """The worker, or its supervisor."""
        known = recorded(self.state / "workers" / worker_id / f"{name}.json")
        assert known is not None, f"{worker_id} has no live {name}"
        return known

    def kept(self) -> list[str]:
        """The slices that the provider still has on disk."""
        return sorted(path.stem for path in (self.state / "slices").glob("*.json"))


def until(wanted: Callable[[], Any], what: str, within_s: float = 60) -> Any:
    """Waits until it is true and returns it."""
    deadline = time.monotonic() + within_s
    while not (found := wanted()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def query(client: GrpcClient, sql: str) -> list[list[Any]]:
    """The rows of a statement on the controller's database."""
    request = controller_pb2.ExecuteRawQueryRequest(sql=sql)
    answer = client.call("ControllerService/ExecuteRawQuery", request, controller_pb2.ExecuteRawQueryResponse)
    return [json.loads(row) for row in answer.rows]


def launch_gang(
    client: GrpcClient, name: str, flag: Path, *, band: common_pb2.PriorityBand = common_pb2.PRIORITY_BAND_INHERIT
) -> str:
    """A gang of four that asks for a whole slice, and runs until the file exists."""
    request = controller_pb2.LaunchJobRequest(name=name, replicas=4, priority_band=band)
    request.entrypoint.run_command.argv.extend(["sh", "-c", HOLD, str(flag)])
    request.resources.cpu_millicores = 100
    request.resources.memory_bytes = 64 << 20
    request.resources.device.CopyFrom(common_pb2.Device(kind="tpu", variant="v5litepod-16", count=4))
    request.coscheduling.group_by = "tpu-name"
    return client.call("ControllerService/LaunchJob", request, controller_pb2.LaunchJobResponse, timeout_s=60).job_id


def members(client: GrpcClient, job_id: str) -> list[controller_pb2.GetTaskStatusResponse]:
    """The four of a gang."""
    return [task(client, f"{job_id}/{index}") for index in range(4)]


def running(client: GrpcClient, job_id: str, attempt: int = 0, within_s: float = 60) -> list[str]:
    """Waits until all four run with that attempt number; returns their workers, by index."""

    def workers() -> list[str] | None:
        found = [m.task for m in members(client, job_id)]
        whole = all(t.state == common_pb2.TASK_STATE_RUNNING and t.current_attempt_id == attempt for t in found)
        return [t.worker_id for t in found] if whole else None

    found: list[str] = until(workers, f"{job_id} never ran whole in attempt {attempt}", within_s)
    return found


def slice_of(worker_id: str) -> str:
    return worker_id.rpartition("-w-")[0]


def autoscaler(client: GrpcClient) -> autoscaler_pb2.GetAutoscalerStatusResponse:
    """What the autoscaler says of itself."""
    request = autoscaler_pb2.GetAutoscalerStatusRequest()
    name = "ControllerService/GetAutoscalerStatus"
    return client.call(name, request, autoscaler_pb2.GetAutoscalerStatusResponse)
