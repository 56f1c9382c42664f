"""The journal: on the disk before anything follows from it, whole lines only, one driver."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.contracts import IrisError
from iris_core.procedures import journal as journals
from iris_core.procedures.journal import Journal, JournalBroken, JournalHeld, journal_dir, path_of, read, read_from

if TYPE_CHECKING:
    from pathlib import Path

LINES = [{"type": "a", "n": number, "text": "é\n✓"} for number in range(4)]


def write(path: Path) -> bytes:
    with Journal.create(path) as journal:
        for line in LINES:
            journal.append(dict(line))
    return path.read_bytes()


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_however_it_is_torn_the_whole_lines_are_kept(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("journal") / "p.jsonl"
    whole = write(path)
    cut = data.draw(st.integers(0, len(whole)))
    path.write_bytes(whole[:cut])
    kept = whole[:cut].count(b"\n")
    assert read(path) == LINES[:kept]
    with Journal.open(path) as journal:
        assert journal.records == LINES[:kept]
        journal.append({"type": "after"})
    assert read(path) == [*LINES[:kept], {"type": "after"}]


def test_a_damaged_line_in_the_middle_is_named_and_nothing_is_guessed(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    whole = write(path)
    path.write_bytes(whole.replace(b'"n":1', b'"n":x'))
    with pytest.raises(JournalBroken, match="line 2"):
        read(path)
    with pytest.raises(JournalBroken):
        Journal.open(path)


def test_one_process_drives(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    first = Journal.create(path)
    with pytest.raises(JournalHeld, match="driven by another process"):
        Journal.open(path)
    assert read(path) == []
    first.close()
    Journal.open(path).close()


@pytest.mark.parametrize("name", ["rollout-1", "restart-1"])
def test_whoever_finds_a_driver_is_told_how_to_look_on_and_where(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "the journals"
    folder.mkdir()
    path = folder / f"{name}.jsonl"
    with Journal.create(path), pytest.raises(JournalHeld) as caught:
        Journal.open(path)
    watch = f"watch it: iris-core rollout status --journal-dir='{folder}' rollout-1; "
    assert caught.value.hint.startswith(watch if name == "rollout-1" else f"wait for it: its journal is {path}; ")


def test_reading_goes_on_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with Journal.create(path) as journal:
        journal.append({"type": "a"})
        records, at = read_from(path, 0)
        assert records == [{"type": "a"}]
        assert read_from(path, at) == ([], at)
        journal.append({"type": "b"})
        assert read_from(path, at)[0] == [{"type": "b"}]


def test_the_folder_is_private_unless_it_was_named(tmp_path: Path) -> None:
    own = journal_dir(None, {"XDG_STATE_HOME": str(tmp_path / "state")})
    assert own == tmp_path / "state" / "iris" / "procedures"
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o2770)
    os.chmod(shared, 0o2770)
    assert journal_dir(str(shared), {}) == shared
    assert stat.S_IMODE(shared.stat().st_mode) == 0o2770
    assert journal_dir(None, {"IRIS_JOURNAL_DIR": str(shared)}) == shared


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "x" * 200])
def test_an_id_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(IrisError, match="no procedure id"):
        path_of(tmp_path, name)


def test_a_line_that_cannot_be_written_leaves_the_journal_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "p.jsonl"
    with Journal.create(path) as journal:
        journal.append({"type": "a"})

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(IrisError, match="No space left"):
                journal.append({"type": "b"})
        assert journal.records == [{"type": "a"}]
        assert read(path) == [{"type": "a"}]
        journal.append({"type": "c"})
    assert read(path) == [{"type": "a"}, {"type": "c"}]


def test_names_that_are_no_utf8_come_back_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    line = {"type": "gathered", "value": [os.fsdecode(b"caf\xe9.py"), "caf\u00e9"]}
    with Journal.create(path) as journal:
        journal.append(line)
        journal.append({"type": "after"})
    assert read(path) == [line, {"type": "after"}]


def test_none_is_begun_where_there_is_no_room_to_see_it_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        if size > left:
            raise OSError(28, "No space left on device")

    left = journals.ROOM - 1
    monkeypatch.setattr(journals, "allocate", full)
    with pytest.raises(IrisError, match="too little room for a journal: No space left") as refused:
        Journal.create(tmp_path / "p.jsonl")
    assert "nothing was changed" in refused.value.hint and not list(tmp_path.iterdir())
    left = journals.ROOM
    write(tmp_path / "p.jsonl")
    left = journals.LEAST_ROOM
    Journal.open(tmp_path / "p.jsonl").close()  # what was begun is finished with less
    left -= 1
    with pytest.raises(IrisError, match="too little room"):
        Journal.open(tmp_path / "p.jsonl")
    assert read(tmp_path / "p.jsonl") == LINES


def test_room_that_was_not_used_is_given_back(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with Journal.create(path) as journal:
        journal.append({"type": "a"})
        held = path.stat().st_blocks * 512
    assert path.stat().st_blocks * 512 < max(held, journals.ROOM) and read(path) == [{"type": "a"}]
