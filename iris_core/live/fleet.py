"""The pulse of a cluster in words: what is wrong, said first, and then how much waits, runs, is held, and how old it all is.

Pure: rows of a Watch in, lines out, each with the place that shows more about it. The console's Overview draws them; plain output
can print them. A trouble is a sentence, never a colour alone, and is there only while it is so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from iris_core.live.wording import Tone, age
from iris_core.live.worker_columns import without_work
from iris_core.model.bands import band_label
from iris_core.model.resources import format_age, format_cpu, format_duration, format_size
from iris_core.model.text import counted, one_line, visible

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.autoscaler_pb2 import ScaleGroupStatus
    from iris_core.wire.gen.iris.v1.pipeline_pb2 import StoreHealth
    from iris_core.wire.gen.iris.v1.watch_rows_pb2 import CheckpointCondition, ControllerRow, FleetRow, NeverFits

LATE_LOOP_MS: Final = 250.0
LATE_LINES_MS: Final = 60_000
LATE_CHECKPOINT_MS: Final = 10 * 60_000
LONG_WAIT_MS: Final = 3_600_000
HOUR_MS: Final = 3_600_000
_HEALTH: Final = {1: ("healthy", Tone.GOOD), 2: ("degraded", Tone.WARN), 3: ("dead", Tone.BAD)}
_COMING: Final = ("requesting", "booting", "initializing")

Part = tuple[str, Tone]


@dataclass(frozen=True, slots=True)
class Pulse:
    """One line.

    Attributes:
        id: Its name for as long as the console is open.
        label: What it is about; "" for a trouble, which is a whole sentence.
        parts: Its text in pieces of one tone each, harmless for a terminal.
        share: How full the bar before the text is, 0 to 1; None = no bar.
        screen: Where more about it is shown, and `argument` what is asked for there.
    """

    id: str
    label: str
    parts: tuple[Part, ...]
    share: float | None = None
    screen: str = ""
    argument: str = ""

    @property
    def text(self) -> str:
        """What is said, without the label."""
        return "".join(text for text, _ in self.parts)


def pulse(
    fleet: FleetRow | None, controller: ControllerRow | None, groups: Sequence[ScaleGroupStatus], now_ms: int
) -> list[Pulse]:
    """All lines, the troubles first; what is not known is left out."""
    found = list(troubles(fleet, controller, groups, now_ms))
    if not found and fleet is not None:
        found.append(
            line("well", "", ("Nothing is wrong that the controller knows of.", Tone.GOOD), screen="controller")
        )
    if fleet is not None:
        found += _work(fleet, now_ms)
        found += _room(fleet)
        found += _ends(fleet, now_ms)
        found += _autoscaler(fleet)
    if controller is not None:
        found += _keeping(controller, now_ms)
    return found


def line(
    name: str, label: str, *parts: Part, share: float | None = None, screen: str = "", argument: str = ""
) -> Pulse:
    """A line whose parts are made harmless; empty ones are left out."""
    clean = tuple((visible(text), tone) for text, tone in parts if text)
    return Pulse(name, label, clean, share, screen, argument)


# --- what is wrong -----------------------------------------------------------------------------------------------------


def troubles(
    fleet: FleetRow | None, controller: ControllerRow | None, groups: Iterable[ScaleGroupStatus], now_ms: int
) -> Iterator[Pulse]:
    """Everything that is wrong, each as a sentence; the worst first."""
    if controller is not None:
        yield from _controller_troubles(controller, now_ms)
    if fleet is not None:
        for health, tone in ((3, Tone.BAD), (2, Tone.WARN)):
            count = sum(entry.count for entry in fleet.workers if entry.health == health)
            word = _HEALTH[health][0]
            if count:
                said = f"{counted(count, 'worker')} {word.upper()} of {fleet.workers_total:,}"
                yield line(f"workers/{word}", "", (said, tone), screen="workers", argument=f"health={word}")
        if fleet.workers_excluded:
            said = without_work(fleet.workers_excluded)
            yield line(
                "workers/excluded", "", (said, Tone.WARN), screen="workers", argument="health=healthy excluded=yes"
            )
    if fleet is not None and fleet.HasField("never_fits"):
        yield _never_fits(fleet.never_fits)
    yield from group_troubles(groups, now_ms)
    if fleet is not None and not fleet.autoscaler.enabled and fleet.autoscaler.detail and fleet.autoscaler.groups:
        said = f"the autoscaler does not work: {fleet.autoscaler.detail}"
        yield line("autoscaler/off", "", (said, Tone.WARN), screen="capacity")


def _never_fits(found: NeverFits) -> Pulse:
    """Work that waits for a machine that there is not and will not be."""
    least = "at least " if found.unjudged else ""
    more = f" and {counted(found.jobs - 1, 'more job')}" if found.jobs > 1 else ""
    said = f"{least}{counted(found.tasks, 'task')} can never run here: {found.job_id}{more}; {found.reason}"
    return line("never", "", (said, Tone.BAD), screen="explain", argument=found.job_id)


def group_troubles(groups: Iterable[ScaleGroupStatus], now_ms: int) -> Iterator[Pulse]:
    """Scale groups that may not ask for machines now, and why."""
    for group in sorted(groups, key=lambda group: group.name):
        name = one_line(group.name)
        if group.quota_exceeded_until_ms > now_ms:
            left = format_duration(group.quota_exceeded_until_ms - now_ms)
            said = f"quota block on {name} for {left}: {group.quota_reason or group.availability_reason}"
        elif group.backoff_until_ms > now_ms:
            left = format_duration(group.backoff_until_ms - now_ms)
            why = group.failure_reason or group.availability_reason
            said = f"{name} is in backoff for {left} after {counted(group.consecutive_failures, 'failure')}: {why}"
        else:
            continue
        yield line(f"group/{group.name}", "", (said, Tone.WARN), screen="capacity", argument=group.name)


def _controller_troubles(row: ControllerRow, now_ms: int) -> Iterator[Pulse]:
    for number, problem in enumerate(row.problems):
        yield line(f"problem/{number}", "", (f"controller not ready: {problem}", Tone.BAD), screen="controller")
    if row.store_error:
        yield line("commit", "", (f"the controller cannot save: {row.store_error}", Tone.BAD), screen="controller")
    if row.lag.samples and row.lag.p99_ms > LATE_LOOP_MS:
        said = f"the controller's loop is {row.lag.p99_ms:.0f} ms late (p99 of the last minute)"
        yield line("lag", "", (said, Tone.WARN), screen="controller")
    if not row.store.state:
        yield line("store", "", ("nothing is known of the log store", Tone.WARN), screen="controller")
    yield from store_troubles(row.store)
    if row.shipping_lag_ms > LATE_LINES_MS:
        whose = f"worker {row.shipping_lag_worker}" if row.shipping_lag_worker else "the controller"
        said = f"lines of {whose} arrive {format_duration(row.shipping_lag_ms)} late"
        argument = f"worker={row.shipping_lag_worker}" if row.shipping_lag_worker else ""
        yield line("shipping", "", (said, Tone.WARN), screen="workers" if argument else "controller", argument=argument)
    if row.stats_rows_lost:
        yield line(
            "stats", "", (f"{counted(row.stats_rows_lost, 'row')} of measurements lost", Tone.WARN), screen="controller"
        )
    condition = row.checkpoint
    if condition.failure:
        yield line(
            "checkpoint/failed",
            "",
            (f"the last checkpoint failed: {condition.failure}", Tone.BAD),
            screen="checkpoints",
        )
    elif condition.next_due_ms and now_ms - condition.next_due_ms > LATE_CHECKPOINT_MS:
        late = format_duration(now_ms - condition.next_due_ms)
        yield line("checkpoint/late", "", (f"a checkpoint is {late} overdue", Tone.WARN), screen="checkpoints")


def store_troubles(store: StoreHealth) -> Iterator[Pulse]:
    """What is wrong with the log store."""
    if store.state and store.state != "serving":
        said = f"the log store is {store.state}" + (f": {store.problem}" if store.problem else "")
        yield line("store", "", (said, Tone.BAD), screen="controller")
    if store.damaged_lines:
        said = f"{store.damaged_lines:,} stored lines are damaged and cannot be read"
        yield line("store/damaged", "", (said, Tone.WARN), screen="controller")
    if store.shipping.state in ("behind", "stopped"):
        said = f"the log store's copies are {store.shipping.state}: {store.shipping.problem or 'no reason is known'}"
        yield line("store/shipping", "", (said, Tone.WARN), screen="controller")


# --- how it is ---------------------------------------------------------------------------------------------------------


def _work(fleet: FleetRow, now_ms: int) -> Iterator[Pulse]:
    states = ("running", "building", "assigned", "pending")
    counts = [f"{fleet.tasks_by_state[state]:,} {state}" for state in states if fleet.tasks_by_state.get(state)]
    jobs = sum(fleet.jobs_by_state.values())
    who = f", {counted(fleet.users, 'user')}" if fleet.users else ""
    yield line(
        "tasks",
        "Tasks",
        (f"{', '.join(counts) or 'none'}", Tone.PLAIN),
        (f"  of {counted(jobs, 'job')}{who}", Tone.DIM),
        screen="jobs",
    )
    if not fleet.pending:
        yield line("pending", "Waiting", ("nothing waits", Tone.GOOD), screen="scheduler")
    for number, band in enumerate(fleet.pending):
        waits = now_ms - band.pending_since_ms if band.pending_since_ms else 0
        name = band_label(band.band)
        yield line(
            f"pending/{name}", "Waiting" if not number else "", (f"{band.tasks:,} {name}", Tone.WAIT),
            (f", the oldest {format_age(waits)}" if band.pending_since_ms else "", Tone.WARN if waits > LONG_WAIT_MS else Tone.PLAIN),
            (f"  {band.job_id}" if band.job_id else "", Tone.DIM), screen="scheduler", argument=f"band={name}",
        )  # fmt: skip
    running = ", ".join(f"{band.tasks:,} {band_label(band.band)}" for band in fleet.running if band.tasks)
    yield line(
        "running",
        "Running",
        (running or "nothing runs", Tone.BUSY if running else Tone.DIM),
        screen="jobs",
        argument="state=running",
    )


def _room(fleet: FleetRow) -> Iterator[Pulse]:
    total, used = fleet.total, fleet.committed
    if total.cpu_millicores:
        said = f"{format_cpu(used.cpu_millicores)} of {format_cpu(total.cpu_millicores)} cores held"
        yield _bar("cpu", "CPU", used.cpu_millicores, total.cpu_millicores, said)
    if total.memory_bytes:
        said = f"{format_size(used.memory_bytes)} of {format_size(total.memory_bytes)} held"
        yield _bar("memory", "Memory", used.memory_bytes, total.memory_bytes, said)
    for device in fleet.devices:
        held = device.total - device.free
        bands = ", ".join(f"{count:,} {band}" for band, count in sorted(device.held_by_band.items()) if count)
        said = f"{held:,} of {device.total:,} held{f' ({bands})' if bands else ''}"
        name = device.variant or device.kind
        yield _bar(f"device/{device.kind}/{name}", name, held, device.total, said)
    counts = [
        (entry.count, *_HEALTH.get(entry.health, (str(int(entry.health)), Tone.PLAIN))) for entry in fleet.workers
    ]
    parts: list[Part] = []
    for count, word, tone in counts:
        parts.append((f"{', ' if parts else ''}{count:,} {word}", tone))
    if fleet.workers_leaving:
        parts.append((f", {fleet.workers_leaving:,} leaving", Tone.WAIT))
    yield line("workers", "Workers", *(parts or [("none", Tone.WARN)]), screen="workers")


def _bar(name: str, label: str, used: int, total: int, said: str) -> Pulse:
    share = used / total if total else 0.0
    return line(name, label, (f"{100 * share:3.0f}%  ", Tone.PLAIN), (said, Tone.PLAIN), share=share, screen="workers")


def _ends(fleet: FleetRow, now_ms: int) -> Iterator[Pulse]:
    ends = fleet.ends
    young = (
        f"  counted for {format_age(now_ms - ends.counted_since_ms)}"
        if now_ms - ends.counted_since_ms < HOUR_MS - 60_000
        else ""
    )
    yield line(
        "ends", "Last hour", (counted(ends.failures, "failure"), Tone.BAD if ends.failures else Tone.GOOD),
        (f", {counted(ends.preemptions, 'preemption')}", Tone.PLAIN), (young, Tone.DIM), screen="jobs", argument="failures>0",
    )  # fmt: skip


def _autoscaler(fleet: FleetRow) -> Iterator[Pulse]:
    scaler = fleet.autoscaler
    if not scaler.groups:
        return
    coming = sum(scaler.slices_by_lifecycle.get(state, 0) for state in _COMING)
    slices = ", ".join(f"{count} {state}" for state, count in sorted(scaler.slices_by_lifecycle.items()) if count)
    blocked = f", {scaler.groups_blocked} blocked" if scaler.groups_blocked else ""
    yield line(
        "autoscaler", "Autoscaler", (counted(scaler.groups, "group"), Tone.PLAIN), (blocked, Tone.WARN),
        (f"; slices: {slices}" if slices else "; no slices", Tone.BUSY if coming else Tone.PLAIN),
        (f"; {counted(scaler.current_demand, 'task')} more than fit" if scaler.current_demand else "", Tone.WAIT), screen="capacity",
    )  # fmt: skip


def _keeping(row: ControllerRow, now_ms: int) -> Iterator[Pulse]:
    yield line("checkpoint", "Checkpoint", *checkpoint_parts(row.checkpoint, now_ms), screen="checkpoints")
    yield line("store/health", "Log store", *store_parts(row, now_ms), screen="controller")
    lag = f"loop {row.lag.p99_ms:.1f} ms late (p99)" if row.lag.samples else "loop not measured yet"
    up = f"up {format_duration(row.process.uptime_ms)}, {lag}, {counted(row.attached_workers, 'worker')} attached"
    yield line("controller", "Controller", (up, Tone.PLAIN), screen="controller")


def checkpoint_parts(condition: CheckpointCondition, now_ms: int) -> list[Part]:
    """The last checkpoint, its size, and when the next one is due."""
    if condition.taking:
        return [("one is being taken", Tone.BUSY)]
    if not condition.last_at_ms:
        said, tone = "none yet", Tone.WARN
    else:
        said, tone = f"{age(condition.last_at_ms, now_ms)} ago", Tone.PLAIN
    size = f", {format_size(condition.size_bytes)}" if condition.size_bytes else ""
    ahead = condition.next_due_ms - now_ms
    due = f", the next {f'in {format_age(ahead)}' if ahead > 0 else 'is due'}" if condition.next_due_ms else ""
    return [(said, tone), (f"{size}{due}", Tone.DIM)]


def store_parts(row: ControllerRow, now_ms: int) -> list[Part]:
    """How the log store is, how full, how late lines come."""
    store = row.store
    if not store.state:
        return [("nothing is known of it", Tone.WARN)]
    parts: list[Part] = [(store.state, Tone.GOOD if store.state == "serving" else Tone.BAD)]
    if store.disk_bytes:
        full = f" of {format_size(store.max_bytes)}" if store.max_bytes else ""
        parts.append((f", {format_size(store.disk_bytes)}{full}", Tone.PLAIN))
    if store.last_line_at_ms:
        parts.append((f", last line {age(store.last_line_at_ms, now_ms)} ago", Tone.PLAIN))
    late = format_duration(row.shipping_lag_ms) if row.shipping_lag_ms else "at once"
    parts.append((f", lines come {late if late == 'at once' else f'{late} late'}", Tone.DIM))
    return parts
