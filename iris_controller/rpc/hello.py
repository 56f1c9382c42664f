"""What a worker says of itself, checked and as plain values, before a session believes any of it.

Must never touch a session or the model.
"""

from __future__ import annotations

import re
from typing import Any

from iris_controller.rpc.auth import Role
from iris_controller.rpc.errors import denied, invalid
from iris_controller.state import kernel
from iris_controller.store.outputs import to_json
from iris_core.model.resources import Resources
from iris_core.model.states import TERMINAL, TaskState
from iris_core.wire.gen.iris.v1 import worker_pb2

WORKER_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@+-]{0,127}")
MAX_TEXT = 512
MAX_ATTRIBUTES = 256
TERMINAL_NUMBERS = frozenset(s.value for s in TERMINAL) | {TaskState.MISSING.value}
"""States on the wire after which nothing of an attempt is left on its worker."""


def device_attributes(total: Resources) -> dict[str, str | int | float]:
    """The well-known attributes that follow from what the worker has (control-plane §2.5)."""
    device = total.device
    if device is None:
        return {"device-type": "cpu"}
    found: dict[str, str | int | float] = {"device-type": device.kind}
    if device.variant:
        found["device-variant"] = device.variant
    if device.kind == "gpu":
        found["gpu-count"] = device.count
    return found


def check_hello(first: worker_pb2.AttachRequest, call: Any) -> None:
    """Raises RpcError unless the first message introduces a worker that this caller may be."""
    hello = first.hello
    if first.WhichOneof("message") != "hello":
        raise invalid("hello", "the first message of an attach stream must be a hello")
    if not WORKER_ID.fullmatch(hello.worker_id):
        raise invalid("hello.worker_id", "the worker id must be 1 to 128 of letters, digits and . _ @ + -")
    if not re.fullmatch(r"[0-9a-f]{16}", hello.boot_id):
        raise invalid("hello.boot_id", "the boot id must be 16 hex digits")
    for name in ("address", "hostname", "version", "release", "slice_id", "scale_group"):
        if len(getattr(hello, name)) > MAX_TEXT:
            raise invalid(f"hello.{name}", f"the {name} is longer than {MAX_TEXT} characters")
    if len(hello.attributes) > MAX_ATTRIBUTES:
        raise invalid("hello.attributes", f"{len(hello.attributes)} attributes, at most {MAX_ATTRIBUTES} are allowed")
    if call.identity.role is Role.WORKER and call.identity.user_id != hello.worker_id:
        raise denied(f"this token belongs to worker {call.identity.user_id}")


def observed(message: worker_pb2.Observation) -> kernel.Observed:
    """A worker's report as a plain value; an unknown state is UNSPECIFIED and changes nothing."""
    state = TaskState(message.state) if message.state in TaskState._value2member_map_ else TaskState.UNSPECIFIED
    return kernel.Observed(
        attempt_uid=message.attempt_uid,
        state=state,
        exit_code=message.exit_code if message.HasField("exit_code") else None,
        error=message.error,
        failure_kind=int(message.failure_kind),
        started_at_ms=message.started_at_ms,
        finished_at_ms=message.finished_at_ms,
        memory_peak_bytes=message.memory_peak_bytes,
        log_lines=message.log_lines if message.HasField("log_lines") else None,
        outputs=to_json(message.outputs) if message.HasField("outputs") else "",
    )
