"""The checkpoint that a rollback goes back with is read whole before anything is stopped for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_controller.checkpoint.layout import COMPRESSED, MANIFEST, folder_of
from iris_core.cli.restart_target import newest_whole, saved
from iris_core.contracts import IrisError
from providers.objects import open_store
from tests.unit.checkpoint_world import T0, checkpoint, make_state


def test_a_checkpoint_that_is_damaged_anywhere_is_refused_while_the_controller_still_runs(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    store = open_store(f"file://{tmp_path}/remote")
    checkpoint(state, store, T0)
    path = f"{store.url}/{folder_of(T0)}"
    good = saved(store, path)
    assert (good.path, good.epoch_ms) == (path, T0)
    name = f"{folder_of(T0)}/{COMPRESSED}"
    whole = store.get(name)
    for at in range(0, len(whole), max(len(whole) // 20, 1)):
        store.put(name, whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(IrisError, match=r"cannot be used: .* is damaged") as refused:
            saved(store, path)
        assert "nothing was changed" in refused.value.hint
        assert saved(store, path, whole=False) == good, "what it would lose can be counted all the same"
    for cut in (b"", whole[:-1], whole + b"x"):
        store.put(name, cut)
        with pytest.raises(IrisError, match="cannot be used"):
            saved(store, path)
    store.put(name, whole)
    assert saved(store, path) == good
    store.delete(f"{folder_of(T0)}/{MANIFEST}")
    with pytest.raises(IrisError, match="cannot be used"):
        saved(store, path)


def test_a_restart_without_a_checkpoint_reads_the_one_that_it_would_go_back_to(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state")
    store = open_store(f"file://{tmp_path}/remote")
    for at in (T0, T0 + 1_000, T0 + 2_000):
        checkpoint(state, store, at)
    passed_over: list[str] = []
    found = newest_whole(store, passed_over)
    assert found is not None and found.epoch_ms == T0 + 2_000 and not passed_over
    name = f"{folder_of(T0 + 2_000)}/{COMPRESSED}"
    whole = store.get(name)
    store.put(name, whole[:-1] + bytes([whole[-1] ^ 1]))
    store.delete(f"{folder_of(T0 + 1_000)}/{MANIFEST}")
    found = newest_whole(store, passed_over)
    assert found is not None and found.epoch_ms == T0
    assert [line.partition(":")[0] for line in passed_over] == [f"checkpoint {T0 + 2_000}", f"checkpoint {T0 + 1_000}"]
    assert "is damaged" in passed_over[0]
    name = f"{folder_of(T0)}/{COMPRESSED}"
    store.put(name, store.get(name)[:-1])
    assert newest_whole(store, []) is None
