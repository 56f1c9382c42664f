"""The columns of workers, for the command line's tables and the console; rules as in `columns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from iris_core.live.columns import ColumnSpec
from iris_core.live.wording import NOTHING, Tone, or_nothing
from iris_core.model.quantities import format_cpu, format_duration, format_size
from iris_core.model.text import counted, one_line

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.common_pb2 import AttributeValue, Device
    from iris_core.wire.gen.iris.v1.controller_pb2 import WorkerStatus

HEALTH: Final = {1: ("healthy", Tone.GOOD), 2: ("degraded", Tone.WARN), 3: ("dead", Tone.BAD)}
_HEALTHY: Final = 1


def health_of(worker: WorkerStatus) -> tuple[str, Tone]:
    """The health in a word, and its tone; an unknown one shows as its number."""
    word, tone = HEALTH.get(worker.health, (str(int(worker.health)), Tone.PLAIN))
    return word, Tone.WARN if worker.excluded and tone is Tone.GOOD else tone


def without_work(count: int) -> str:
    """How many workers get none because they failed to stage; what brings each back is its own reason."""
    return f"{counted(count, 'worker')} get{'s' * (count == 1)} no work after failing to stage"


def attribute_text(value: AttributeValue) -> str:
    """An attribute's value as it is written."""
    kind = value.WhichOneof("value")
    return str(getattr(value, kind)) if kind is not None else ""


def attribute(worker: WorkerStatus, name: str) -> str:
    """The value of one attribute, "" where the worker has none of that name."""
    return attribute_text(worker.attributes[name]) if name in worker.attributes else ""


def device_text(device: Device) -> str:
    """Accelerators as a person reads them: `8 h100`, "-" for none."""
    return f"{device.count} {one_line(device.variant or device.kind)}" if device.count else NOTHING


def free_memory(worker: WorkerStatus) -> int:
    """Bytes that nothing has been promised of."""
    return max(worker.total.memory_bytes - worker.committed.memory_bytes, 0)


def devices_text(worker: WorkerStatus) -> str:
    """Accelerators in use, of all: `4/8 h100`."""
    device = worker.total.device
    return f"{worker.committed.device.count}/{device_text(device)}" if device.count else NOTHING


def heard_text(worker: WorkerStatus) -> str:
    """How long it has been silent at least; nothing for a healthy one, which was heard a moment ago."""
    return f"≥{format_duration(worker.last_message_age_ms)}" if worker.health != _HEALTHY else NOTHING


def _column(**fields: Any) -> ColumnSpec[Any]:
    return ColumnSpec(**fields)


WORKERS: Final[dict[str, ColumnSpec[WorkerStatus]]] = {
    spec.id: spec
    for spec in (
        _column(
            id="worker_id", title="WORKER", min_width=12, flex=2,
            value=lambda worker: worker.worker_id,
            text=lambda worker, _: or_nothing(worker.worker_id),
            sort=lambda worker, _: worker.worker_id,
        ),
        _column(
            id="health", title="HEALTH", min_width=8, max_width=8,
            value=lambda worker: health_of(worker)[0],
            text=lambda worker, _: health_of(worker)[0],
            sort=lambda worker, _: -worker.health,
            tone=lambda worker: health_of(worker)[1],
        ),
        _column(
            id="running", title="TASKS", min_width=5, max_width=7, align="right",
            value=lambda worker: worker.running_tasks,
            text=lambda worker, _: str(worker.running_tasks),
            sort=lambda worker, _: -worker.running_tasks, falls=True,
        ),
        _column(
            id="cpu", title="CPU", min_width=7, max_width=13, align="right", hide=1,
            value=lambda worker: {"used": worker.committed.cpu_millicores, "total": worker.total.cpu_millicores},
            text=lambda worker, _: (
                f"{format_cpu(worker.committed.cpu_millicores)}/{format_cpu(worker.total.cpu_millicores)}"
            ),
            sort=lambda worker, _: -worker.committed.cpu_millicores, falls=True,
        ),
        _column(
            id="memory", title="MEMORY", min_width=9, max_width=17, align="right", hide=2,
            value=lambda worker: {"used": worker.committed.memory_bytes, "total": worker.total.memory_bytes},
            text=lambda worker, _: (
                f"{format_size(worker.committed.memory_bytes)}/{format_size(worker.total.memory_bytes)}"
            ),
            sort=lambda worker, _: -worker.committed.memory_bytes, falls=True,
        ),
        _column(
            id="devices", title="DEVICES", min_width=9, max_width=18, align="right", hide=2,
            value=lambda worker: (
                {"used": worker.committed.device.count, "total": worker.total.device.count, "variant": worker.total.device.variant}
                if worker.total.device.count else None
            ),
            text=lambda worker, _: devices_text(worker),
            sort=lambda worker, _: (-worker.committed.device.count, -worker.total.device.count), falls=True,
        ),
        _column(
            id="free_memory", title="FREE MEM", min_width=8, max_width=9, align="right", hide=6,
            value=free_memory,
            text=lambda worker, _: format_size(free_memory(worker)),
            sort=lambda worker, _: -free_memory(worker), falls=True,
        ),
        _column(
            id="heard", title="SILENT", min_width=6, max_width=8, align="right", hide=5,
            value=lambda worker: worker.last_message_age_ms,
            text=lambda worker, _: heard_text(worker),
            sort=lambda worker, _: -worker.last_message_age_ms, falls=True,
            tone=lambda worker: health_of(worker)[1] if worker.health != _HEALTHY else Tone.DIM,
        ),
        _column(
            id="builds", title="BUILD FAILS", min_width=11, max_width=11, align="right", hide=7,
            value=lambda worker: worker.build_failures,
            text=lambda worker, _: str(worker.build_failures) if worker.build_failures else NOTHING,
            sort=lambda worker, _: -worker.build_failures, falls=True,
            tone=lambda worker: Tone.WARN if worker.build_failures else Tone.DIM,
        ),
        _column(
            id="zone", title="ZONE", min_width=8, max_width=16, hide=8,
            value=lambda worker: attribute(worker, "zone") or attribute(worker, "region") or None,
            text=lambda worker, _: or_nothing(attribute(worker, "zone") or attribute(worker, "region")),
            sort=lambda worker, _: (attribute(worker, "region"), attribute(worker, "zone")),
        ),
        _column(
            id="release", title="RELEASE", min_width=8, max_width=12, hide=9,
            value=lambda worker: worker.release or worker.version or None,
            text=lambda worker, _: or_nothing(worker.release[:12] or worker.version),
            sort=lambda worker, _: (worker.release, worker.version),
        ),
        _column(
            id="address", title="ADDRESS", min_width=12, max_width=28, hide=3,
            value=lambda worker: worker.address,
            text=lambda worker, _: or_nothing(worker.address),
            sort=lambda worker, _: worker.address,
        ),
        _column(
            id="reason", title="REASON", min_width=12, flex=3,
            value=lambda worker: worker.health_reason,
            text=lambda worker, _: or_nothing(worker.health_reason),
            sort=lambda worker, _: worker.health_reason,
            tone=lambda worker: Tone.DIM,
        ),
    )
}  # fmt: skip
