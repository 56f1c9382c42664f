"""The Scheduler's and the Capacity view's trees: totals that follow every change, rows that find each other, filters."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from iris_core.live.bucket_columns import SPECS as BUCKET_SPECS
from iris_core.live.capacity_columns import SPECS as CAPACITY_SPECS
from iris_core.live.capacity_tree import CapacityTree, Group, Machine, Slice
from iris_core.live.scheduler_tree import PENDING, RUNNING, SchedulerTree
from iris_core.live.scheduler_tree import Group as Totals
from iris_core.live.tree_filters import (
    BUCKET_FIELDS,
    BUCKET_WORDS,
    CAPACITY_FIELDS,
    CAPACITY_WORDS,
    bucket_row,
    capacity_row,
)
from iris_core.live.watch_keys import KIND_FIELDS, ROW_IDS
from iris_core.model.filter import parse_filter
from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as scaling
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_tui.filter_suggester import completed
from providers.fake.clock import FakeClock
from providers.fake.machine_samples import SLICE, machine_sample, pending, resources, running, user, worker

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.feed import Feed

CLOCK = FakeClock()
NOW = CLOCK.now_ms()
SECTIONS = {PENDING: "pending_buckets", RUNNING: "running_buckets", "users": "users"}


def bring(tree: Feed[Any], selector: str, field: str, *values: Any, removed: tuple[str, ...] = ()) -> None:
    rows = pb.WatchRows(selector_id=selector, removed=removed)
    getattr(rows, field).extend(values)
    tree.apply(selector, rows)


def nobody() -> AsyncClient:
    return machine_sample(CLOCK)


def waits(job: str, user_id: str, band: str, count: int, position: int, minutes: float) -> Any:
    return pending(
        job, band, count, position, now_ms=NOW, waits_min=minutes, reason="full", asks=resources(1, 1), user=user_id
    )


STEP = st.tuples(
    st.sampled_from("abcdef"),
    st.sampled_from(("ada", "bob")),
    st.sampled_from(("production", "batch")),
    st.integers(1, 5),
    st.integers(1, 9),
    st.integers(0, 5),
    st.booleans(),
)


@given(st.lists(STEP, max_size=40))
def test_totals_are_those_of_the_buckets_that_are_there(steps: list[Any]) -> None:
    tree = SchedulerTree(nobody(), CLOCK)
    there: dict[str, Any] = {}
    for name, user_id, band, count, position, minutes, gone in steps:
        job = f"/{user_id}/{name}" if name in "abc" else f"/x/{name}"
        if gone:
            there.pop(job, None)
            bring(tree, PENDING, "pending_buckets", removed=(job,))
        else:
            there[job] = waits(job, user_id, band, count, position, minutes)
            bring(tree, PENDING, "pending_buckets", there[job])
    expected: dict[str, list[Any]] = defaultdict(list)
    for bucket in there.values():
        expected[f"pending band {bucket.band}"].append(bucket)
        expected[f"pending band {bucket.band} user {bucket.user_id}"].append(bucket)
    tree.store.reorder(force=True)
    groups = {row.id: row.value for row in tree.store.rows.values() if isinstance(row.value, Totals) and not row.gone}
    assert set(groups) == set(expected)
    for name, buckets in expected.items():
        group = groups[name]
        assert (group.tasks, group.buckets) == (sum(b.count for b in buckets), len(buckets))
        assert group.since_ms == min(b.pending_since_ms for b in buckets)
        assert group.position == min(b.position for b in buckets)
        assert set(group.jobs) == {b.job_id for b in buckets}
    assert tree.totals(PENDING) == (sum(b.count for b in there.values()), len(there))
    for row in tree.store.rows.values():
        if not row.gone and row.kind == "job":
            above: Any = tree.store.rows[row.parent].value
            below: Any = row.value
            assert above.user == below.user_id


def test_a_user_s_budget_stands_beside_their_work_in_every_band() -> None:
    tree = SchedulerTree(nobody(), CLOCK)
    bring(tree, PENDING, "pending_buckets", waits("/cleo/a", "cleo", "batch", 3, 1, 1))
    bring(tree, RUNNING, "running_buckets", running("/cleo/b", "production", 2, "w-1"))
    bring(tree, "users", "users", user("cleo", 9_000, 8_000, served="batch"))
    found = [row for row in tree.store.rows.values() if row.kind == "user"]
    assert len(found) == 2
    for row in found:
        text = BUCKET_SPECS["user"]["reason"].text(row.value, NOW)
        assert text == "1 job; spends 9,000 of 8,000 (112%), interactive is served as batch"
    bring(tree, "users", "users", user("cleo", 100, 8_000))
    assert "served" not in BUCKET_SPECS["user"]["reason"].text(found[0].value, NOW)


def test_a_snapshot_takes_away_what_it_does_not_name_and_the_groups_above_it() -> None:
    tree = SchedulerTree(nobody(), CLOCK)
    bring(tree, PENDING, "pending_buckets", waits("/a/x", "a", "batch", 1, 1, 1), waits("/b/y", "b", "batch", 1, 2, 1))
    tree.complete(PENDING, {"/b/y"}, 1)
    assert not tree.loaded
    tree.complete(RUNNING, set(), 0)
    tree.complete("users", set(), 0)
    assert tree.loaded
    tree.store.reorder(force=True)
    assert [row.value.user for row in tree.store.rows.values() if row.kind == "user"] == ["b"]


def test_a_bucket_filter_knows_pending_and_running() -> None:
    waiting, at_work = waits("/ada/x", "ada", "batch", 4, 7, 30), running("/bob/y", "production", 2, "w-1")

    def found(text: str) -> list[bool]:
        wanted = parse_filter(text, BUCKET_FIELDS, default=BUCKET_WORDS)
        return [wanted.matches(bucket_row(bucket, NOW)) for bucket in (waiting, at_work)]

    assert found("state:pending") == [True, False]
    assert found("worker:w-1") == [False, True]
    assert found("age>20m position<9") == [True, False]
    assert found("band:production") == [False, True]
    assert found("tasks>=2") == [True, True]
    assert found("full") == [True, False]


def capacity() -> CapacityTree:
    client = machine_sample(CLOCK)
    tree = CapacityTree(client, CLOCK)
    for selector, kind in (("worker", 3), ("group", 7), ("slice", 8), ("action", 9)):
        field = KIND_FIELDS[kind]
        values = client.rows[field].values()
        bring(tree, selector, field, *values)
        tree.complete(selector, {ROW_IDS[field](value) for value in values}, len(values))
    return tree


def value(tree: CapacityTree, name: str) -> Any:
    row = tree.store.get(name)
    assert row is not None
    return row.value


def test_slices_stand_below_their_group_and_machines_with_their_workers_below_those() -> None:
    tree = capacity()
    group = value(tree, "group tpu-v5e-16")
    assert isinstance(group, Group)
    assert (group.slices, group.running) == (2, 3)
    item = value(tree, f"slice {SLICE}")
    assert isinstance(item, Slice)
    assert item.running == 3
    machine = value(tree, f"worker {SLICE}-w-3")
    assert isinstance(machine, Machine)
    assert machine.worker is not None and machine.worker.running_tasks == 0
    assert [action.value.action_id for action in tree.actions.rows.values()] == ["1", "2", "3", "4", "5"]
    tree.actions.reorder(force=True)
    assert tree.actions.order[0] == "action 5"


def test_a_worker_that_changes_or_goes_changes_what_stands_above_it() -> None:
    tree = capacity()
    bring(tree, "worker", "workers", worker(f"{SLICE}-w-3", has=resources(1, 1), tasks=4))
    assert value(tree, f"slice {SLICE}").running == 7
    assert value(tree, "group tpu-v5e-16").running == 7
    bring(tree, "worker", "workers", removed=(f"{SLICE}-w-0",))
    assert value(tree, f"slice {SLICE}").running == 6
    assert value(tree, f"worker {SLICE}-w-0").worker is None


def test_a_slice_that_goes_takes_its_machines_along_and_leaves_the_totals() -> None:
    tree = capacity()
    bring(tree, "slice", "slices", removed=(SLICE,))
    tree.store.reorder(force=True)
    assert tree.store.get(f"worker {SLICE}-w-0") is None
    assert (value(tree, "group tpu-v5e-16").slices, value(tree, "group tpu-v5e-16").running) == (1, 0)


def test_a_slice_that_loses_a_machine_shows_one_less() -> None:
    tree = capacity()
    smaller = scaling.SliceStatus()
    smaller.CopyFrom(value(tree, f"slice {SLICE}").status)
    del smaller.vms[0]
    bring(tree, "slice", "slices", smaller)
    assert len(tree.machines(f"slice {SLICE}")) == 3
    assert value(tree, f"slice {SLICE}").running == 2


def test_a_slice_is_idle_since_the_clock_of_whoever_looks() -> None:
    tree = capacity()
    assert CAPACITY_SPECS["slice"]["idle"].text(value(tree, "slice gpu-h100-77aa"), NOW + 60_000) == "10m"


def test_a_scale_group_says_what_holds_it_back_in_the_words_of_whoever_said_so() -> None:
    tree = capacity()
    specs = CAPACITY_SPECS["scale group"]
    blocked = value(tree, "group tpu-v5p-8")
    assert specs["state"].text(blocked, NOW) == "backoff, 4m, 3 fails"
    assert specs["reason"].text(blocked, NOW).startswith("Stockout: There is no more capacity")
    assert specs["slices"].text(blocked, NOW) == "0→1 of 4"
    assert specs["reason"].text(value(tree, "group gpu-h100"), NOW).startswith("Quota 'NVIDIA_H100_GPUS' exceeded")
    assert specs["demand"].text(value(tree, "group tpu-v5e-16"), NOW) == "2+1"


def test_a_capacity_filter_asks_each_kind_for_what_it_has() -> None:
    tree = capacity()
    rows = {row.id: row.value for row in tree.store.rows.values()}

    def found(text: str) -> set[str]:
        wanted = parse_filter(text, CAPACITY_FIELDS, default=CAPACITY_WORDS)
        return {name for name, row in rows.items() if wanted.matches(capacity_row(row, NOW))}

    assert found("idle>5m") == {"slice gpu-h100-77aa"}
    assert found("state:booting") >= {"slice tpu-v5e-16-1cebabe0"}
    assert found("failures>0") == {"group tpu-v5p-8"}
    assert found("Stockout") == {"group tpu-v5p-8"}
    assert found(f"worker={SLICE}-w-1") == {f"worker {SLICE}-w-1"}
    assert found("tasks>2") == {"group tpu-v5e-16", f"slice {SLICE}"}


def test_a_filter_is_completed_by_field_and_by_word_and_only_with_what_it_understands() -> None:
    assert completed("po", BUCKET_FIELDS) == "position>="
    assert completed("job:x st", BUCKET_FIELDS) == "job:x state:"
    assert completed("!ga", BUCKET_FIELDS) == "!gang:"
    assert completed("state:pending,r", BUCKET_FIELDS) == "state:pending,running"
    assert completed("band!=ba", BUCKET_FIELDS) == "band!=batch"
    for text in ("", "zz", "state:", "state:pending", "job:x ", 'reason:"no w', "age>1", "user:a"):
        assert completed(text, BUCKET_FIELDS) is None
    for text in ("po", "job:x st", "!ga"):
        full = completed(text, BUCKET_FIELDS)
        assert full is not None
        parse_filter(f"{full}{'pending' if 'state' in full else 'yes' if 'gang' in full else '1'}", BUCKET_FIELDS)
