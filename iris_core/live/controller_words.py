"""How the controller itself is, in lines: what is wrong first, then process, loop, queue, memory, checkpoint, log store.

Pure: the row of a Watch in, lines out, in the form of `fleet`. What the Overview says in one line is taken apart here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from iris_core.live.fleet import LATE_LOOP_MS, Part, Pulse, checkpoint_parts, line, store_parts, troubles
from iris_core.live.wording import Tone, age, when
from iris_core.model.resources import format_cpu, format_duration, format_size
from iris_core.model.text import counted

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1.watch_rows_pb2 import ControllerRow

SOURCE: Final = "/system/controller"
_SHORT: Final = 12
SLOW_MS: Final = 50.0


def condition(row: ControllerRow, now_ms: int, address: str = "") -> list[Pulse]:
    """All lines. `address` is where it was asked, which another terminal needs to ask it too; "" is left out."""
    found = list(troubles(None, row, (), now_ms))
    if not found:
        found.append(line("well", "", ("The controller is ready, and knows of nothing wrong with itself.", Tone.GOOD)))
    if address:
        # What is reached through a tunnel has an address for people alone.
        use = "  for --controller-url" if address.startswith("http") else ""
        found.append(line("address", "Address", (address, Tone.PLAIN), (use, Tone.DIM)))
    found += _process(row, now_ms)
    found += _loop(row)
    found += _holds(row)
    found += _kept(row, now_ms)
    found += _background(row, now_ms)
    return found


def _process(row: ControllerRow, now_ms: int) -> Iterator[Pulse]:
    process = row.process
    who: list[Part] = [(f"{process.version or '?'}, release {process.release[:_SHORT] or '?'}", Tone.PLAIN)]
    who.append((f"  boot {process.boot_id}", Tone.DIM))
    yield line("version", "Version", *who)
    where = f"{process.hostname} pid {process.pid}, Python {process.python}, state in {row.state_dir}"
    yield line("process", "Process", (where, Tone.PLAIN), screen="profiles", argument=f"source={SOURCE}")
    since = f"up {format_duration(max(now_ms - row.started_at_ms, 0))}" if row.started_at_ms else "not known"
    yield line("since", "Started", (since, Tone.PLAIN), (f"  {when(row.started_at_ms)} UTC", Tone.DIM))
    cores = f"{format_cpu(process.cpu_millicores)} of {process.cpu_count} cores, {process.threads} threads, {process.open_fds} files"
    yield line("cpu", "CPU", (cores, Tone.PLAIN), screen="profiles", argument=f"source={SOURCE} type=cpu")
    total = f" of {format_size(process.memory_total_bytes)}" if process.memory_total_bytes else ""
    yield line(
        "memory", "Memory", (f"{format_size(process.memory_rss_bytes)}{total}", Tone.PLAIN),
        (f", {format_size(process.memory_vms_bytes)} virtual" if process.memory_vms_bytes else "", Tone.DIM),
        screen="profiles", argument=f"source={SOURCE} type=memory",
    )  # fmt: skip


def _loop(row: ControllerRow) -> Iterator[Pulse]:
    lag = row.lag
    if lag.samples:
        tone = Tone.WARN if lag.p99_ms > LATE_LOOP_MS else Tone.PLAIN
        said = f"late by {lag.p50_ms:.1f} ms (p50), {lag.p99_ms:.1f} ms (p99), {lag.max_ms:.1f} ms at most"
        yield line("loop", "Loop", (said, tone), (f"  of the last {format_duration(lag.window_ms)}", Tone.DIM))
    else:
        yield line("loop", "Loop", ("not measured yet", Tone.DIM))
    queue = f"{row.queued_commands:,} commands wait, {row.writing_commands:,} are being written"
    yield line("queue", "Queue", (queue, Tone.PLAIN))
    plan = Tone.WARN if row.last_plan_ms > SLOW_MS else Tone.PLAIN
    yield line(
        "batches", "Batches", (f"the last planned in {row.last_plan_ms:.1f} ms", plan),
        (f", written in {row.last_commit_ms:.1f} ms", Tone.WARN if row.last_commit_ms > SLOW_MS else Tone.PLAIN),
        (f"  {counted(row.commands, 'command')} in {row.batches:,} batches", Tone.DIM),
        (f", {row.failed_commits:,} could not be written" if row.failed_commits else "", Tone.BAD),
    )  # fmt: skip
    peers = f"{row.watchers:,} watch, {counted(row.attached_workers, 'worker')} attached"
    yield line("watchers", "Streams", (peers, Tone.PLAIN), screen="workers")


def _holds(row: ControllerRow) -> Iterator[Pulse]:
    counts = ("job", "task", "attempt", "worker", "slice", "endpoint")
    said = ", ".join(counted(getattr(row, f"{name}s"), name) for name in counts)
    yield line("model", "In memory", (said, Tone.PLAIN), screen="jobs")


def _kept(row: ControllerRow, now_ms: int) -> Iterator[Pulse]:
    place = row.checkpoint.place
    parts = checkpoint_parts(row.checkpoint, now_ms)
    yield line("checkpoint", "Checkpoint", *parts, (f"  in {place}" if place else "", Tone.DIM), screen="checkpoints")
    yield line("store", "Log store", *store_parts(row, now_ms), screen="logs", argument=SOURCE)
    store = row.store
    if store.files:
        free = f", {format_size(store.disk_free_bytes)} free on its disk" if store.disk_free_bytes else ""
        said = f"{counted(store.last_seq, 'line')} in {counted(store.files, 'file')}{free}"
        views = (
            f", {store.views:,} views open, {store.waiting_readers:,} readers wait"
            if store.views or store.waiting_readers
            else ""
        )
        yield line("store/files", "", (said, Tone.PLAIN), (views, Tone.DIM))
    shipping = store.shipping
    if shipping.state:
        tone = Tone.GOOD if shipping.state == "shipping" else Tone.WARN
        only = f", {format_size(shipping.unshipped_bytes)} on this disk alone" if shipping.unshipped_bytes else ""
        since = f" since {age(shipping.unshipped_since_ms, now_ms)}" if shipping.unshipped_since_ms else ""
        yield line(
            "store/shipping-now",
            "",
            (f"copies: {shipping.state}", tone),
            (f"{only}{since}", Tone.PLAIN),
            (f"  to {shipping.place}", Tone.DIM),
        )
    if row.stats_rows_waiting:
        yield line(
            "stats/waiting",
            "",
            (f"{counted(row.stats_rows_waiting, 'row')} of measurements on the way to the log store", Tone.WAIT),
        )


def _background(row: ControllerRow, now_ms: int) -> Iterator[Pulse]:
    """Those that ended, each by itself, and the names of those that go on."""
    for task in row.background:
        if task.ended:
            yield line(f"ended/{task.name}", "Background", (f"{task.name} ended: {task.ended}", Tone.BAD))
    alive = [task for task in row.background if not task.ended]
    if alive:
        names = ", ".join(task.name for task in alive)
        yield line("background", "Background", (f"{len(alive)} go on", Tone.PLAIN), (f"  {names}", Tone.DIM))
