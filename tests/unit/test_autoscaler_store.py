"""Slices and scale groups in the database: what is written is what a restarted controller reads, and what the manual's SQL finds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_controller.state.model import Model
from iris_controller.state.overlay import Overlay
from iris_controller.state.records import Worker
from iris_controller.state.slices import Lifecycle, ScalingGroup, Slice, change_slice, forget
from iris_controller.store.database import migrate, open_writer
from iris_controller.store.encode import statements
from iris_controller.store.load import load_model

ROW = Slice("tpu-0badcafe", "tpu", Lifecycle.READY, ("tpu-0badcafe-w-0", "tpu-0badcafe-w-1"), 5, updated_at_ms=5)


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = open_writer(tmp_path / "controller.sqlite3")
    migrate(connection, 0)
    yield connection
    connection.close()


def commit(connection: sqlite3.Connection, o: Overlay) -> Model:
    """Writes a batch, applies it, and reads everything anew."""
    for sql, values in statements(o, 10):
        connection.execute(sql, values)
    connection.commit()
    o.model.apply(o)
    read = load_model(connection)
    assert read.slices == o.model.slices and read.scaling_groups == o.model.scaling_groups
    return o.model


def test_what_is_written_is_what_is_read(connection: sqlite3.Connection) -> None:
    o = Overlay(Model())
    o.slices[ROW.slice_id] = ROW
    o.slices["cpu-00000001"] = Slice("cpu-00000001", "cpu", Lifecycle.FAILED, (), 6, 'it said "no"', manual=True)
    o.scaling_groups["tpu"] = ScalingGroup("tpu", 2, 3, 4, 5, 6, "Quota 'TPUS' exceeded", 1, "stock out", 9)
    assert o.dirty
    model = commit(connection, o)
    o = Overlay(model)
    changed = change_slice(o, ROW, 5, lifecycle=Lifecycle.DRAINING, error_message="idle")
    assert changed.updated_at_ms == 6, "a version never repeats, whatever the clock says"
    o.slices["cpu-00000001"] = None
    model = commit(connection, o)
    assert model.slices == {ROW.slice_id: changed}
    assert model.apply(Overlay(model)).slices == set()


def test_the_manuals_queries_find_them(connection: sqlite3.Connection) -> None:
    o = Overlay(Model())
    o.slices[ROW.slice_id] = ROW
    o.scaling_groups["tpu"] = ScalingGroup("tpu", quota_reason="TPUS")
    commit(connection, o)
    ready = connection.execute(
        "SELECT slice_id, lifecycle, scale_group, worker_ids FROM slices WHERE lifecycle='ready'"
    ).fetchall()
    assert [tuple(row) for row in ready] == [
        ("tpu-0badcafe", "ready", "tpu", '["tpu-0badcafe-w-0", "tpu-0badcafe-w-1"]')
    ]
    blocked = connection.execute(
        "SELECT name, consecutive_failures, quota_reason FROM scaling_groups"
        " WHERE consecutive_failures > 0 OR quota_reason != ''"
    ).fetchall()
    assert [tuple(row) for row in blocked] == [("tpu", 0, "TPUS")]


def test_a_slice_goes_with_its_workers_in_one_batch(connection: sqlite3.Connection) -> None:
    o = Overlay(Model())
    o.slices[ROW.slice_id] = ROW
    o.workers["tpu-0badcafe-w-0"] = Worker("tpu-0badcafe-w-0", slice_id=ROW.slice_id, scale_group="tpu")
    model = commit(connection, o)
    o = Overlay(model)
    forget(o, ROW, "autoscaler", "idle", 10)
    model = commit(connection, o)
    assert not model.slices and not model.workers
    assert connection.execute("SELECT count(*) FROM workers").fetchone()[0] == 0
    assert [event.action for event in o.audit] == ["worker_pruned", "slice_pruned"]


def test_a_lifecycle_of_another_release_is_taken_as_booting(connection: sqlite3.Connection) -> None:
    connection.execute(
        "INSERT INTO slices (slice_id, scale_group, lifecycle, created_at_ms) VALUES ('a', 'g', 'dreaming', 1)"
    )
    assert load_model(connection).slices["a"].lifecycle is Lifecycle.BOOTING
