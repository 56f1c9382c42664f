"""The backends described: what they offer by scale group, why tasks wait, and which workers take no work."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from iris_core.live.wording import NOTHING, Tone
from iris_core.live.worker_columns import HEALTH, attribute_text
from iris_core.model.quantities import format_cpu, format_size
from iris_core.model.text import counted, one_line
from iris_tui.aligned import aligned

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.watch_rows_pb2 import BackendRow
    from iris_tui.pages import Lines

_LABEL: Final = 14
_MOST_VALUES: Final = 12


def describe(backends: Sequence[BackendRow]) -> Lines:
    """The lines of their page."""
    if not backends:
        return [("No backend is known yet.", Tone.DIM)]
    lines: list[tuple[str, Tone]] = []
    for backend in backends:
        if lines:
            lines.append(("", Tone.PLAIN))
        lines += _one(backend)
    return lines


def _one(backend: BackendRow) -> Iterable[tuple[str, Tone]]:
    status, provider = backend.status, backend.provider
    facts = [
        ("Backend", status.name or backend.backend_id),
        ("Kind", f"{status.kind}{' on ' + provider.platform if provider.platform else ''}"),
        ("Wrong", status.detail),
        ("Workers", f"{status.workers_healthy} of {status.workers_total} healthy"),
        ("Tasks", f"{status.pending_tasks:,} pending, {status.running_tasks:,} running"),
        ("Can", ", ".join(status.capabilities)),
    ]
    for label, text in facts:
        if text:
            yield f"{label:<{_LABEL}}{one_line(text)}", Tone.BAD if label == "Wrong" else Tone.PLAIN
    for key in sorted(status.attributes):
        values = [attribute_text(value) for value in status.attributes[key].values]
        more = f" and {len(values) - _MOST_VALUES} more" if len(values) > _MOST_VALUES else ""
        yield f"{'Attribute':<{_LABEL}}{one_line(f'{key}: ' + ', '.join(values[:_MOST_VALUES]) + more)}", Tone.DIM
    yield from _table(
        ("SCALE GROUP", "SLICES", "HEALTHY", "CPU", "MEMORY", "DEVICES"),
        [
            (
                group.scale_group or "(none)",
                str(group.slices),
                f"{group.workers_healthy}/{group.workers_total}",
                f"{format_cpu(group.committed.cpu_millicores)}/{format_cpu(group.total.cpu_millicores)}",
                f"{format_size(group.committed.memory_bytes)}/{format_size(group.total.memory_bytes)}",
                ", ".join(f"{d.total - d.free}/{d.total} {d.variant or d.kind}" for d in group.devices) or NOTHING,
            )
            for group in provider.capacity
        ],
    )
    yield from _table(
        ("TASKS", "JOBS", "WHY THEY WAIT", "ONE OF THEM"),
        [(f"{e.tasks:,}", f"{e.jobs:,}", e.reason, e.example_job_id) for e in provider.scheduling_events],
    )
    yield from _table(
        ("TAKES NO WORK", "HEALTH", "WHY"),
        [(p.worker_id, HEALTH.get(p.health, (str(int(p.health)), Tone.PLAIN))[0], p.reason) for p in provider.problems],
    )
    left = provider.problems_total - len(provider.problems)
    if left > 0:
        yield f"and {counted(left, 'more worker')} that {'takes' if left == 1 else 'take'} no work", Tone.WARN
    elif provider.capped:
        yield "there are more reasons than are listed", Tone.WARN


def _table(titles: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> Iterable[tuple[str, Tone]]:
    if rows:
        yield "", Tone.PLAIN
        right = frozenset({"SLICES", "HEALTHY", "CPU", "MEMORY", "TASKS", "JOBS"})
        yield from aligned(titles, right, [[one_line(cell) or NOTHING for cell in row] for row in rows])
