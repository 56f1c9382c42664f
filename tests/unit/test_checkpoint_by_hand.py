"""A checkpoint put in the place of a stopped controller's database by its id, looked at, and taken back; killed at every rename."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from iris_controller import main
from iris_controller.checkpoint import by_hand
from iris_controller.store.database import open_writer
from iris_core.contracts import UsageFailed
from providers.objects import open_store
from tests.unit.checkpoint_world import T0, checkpoint, insert_jobs, make_state

URL = "controller-state"


class Place:
    """A state directory with a checkpoint of 10 jobs, and 5 jobs that came after it."""

    def __init__(self, folder: Path) -> None:
        self.remote = f"file://{folder}/remote"
        self.state = make_state(folder / "state", jobs=10)
        taken = checkpoint(self.state, open_store(self.remote), now_ms=T0 + 9)
        self.saved = f"{self.remote}/{URL}/{taken.epoch_ms}"
        with closing(open_writer(self.state.database)) as connection:
            insert_jobs(connection, 10, 5)

    def run(self, *words: str) -> int:
        return main.main(["restore", *words, "--state-dir", str(self.state.path)])

    def jobs(self) -> int:
        with closing(sqlite3.connect(self.state.database)) as connection:
            return int(connection.execute("SELECT COUNT(*) FROM jobs").fetchone()[0])

    def names(self) -> list[str]:
        return sorted(path.name for path in self.state.path.glob("db*"))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_a_restore_would_drop_is_shown_also_beside_whoever_holds_the_state(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.state.acquire()
    try:
        assert place.run(place.saved, "--show") == 0
    finally:
        place.state.release()
    found = json.loads(capsys.readouterr().out)
    assert (found["submitted"], found["changed"], found["mark"], found["kept"]) == (5, 0, "", [])
    with closing(open_writer(place.state.database)) as connection:
        # One of the five is replaced by a job of its name.
        (taken_over,) = connection.execute("SELECT job_id FROM jobs ORDER BY submitted_at_ms DESC LIMIT 1").fetchone()
        connection.execute("UPDATE jobs SET submitted_at_ms = submitted_at_ms + 1000 WHERE job_id = ?", (taken_over,))
    assert place.run(place.saved, "--show") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["newest"] == found["newest"] + 1000 and again | {"newest": 0} == found | {"newest": 0}
    assert found["jobs"] == ["/u/job10", "/u/job11", "/u/job12", "/u/job13", "/u/job14"]
    assert found["database_bytes"] >= place.state.database.stat().st_size
    place.state.database.write_bytes(b"no database")
    assert place.run(place.saved, "--show") == 0
    assert "DatabaseError" in json.loads(capsys.readouterr().out)["unknown"]


def test_it_is_put_in_place_once_for_an_id_and_taken_back_once(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    assert place.run(place.saved, "--mark", "run-1") == 0
    assert (place.jobs(), place.names()) == (10, ["db", "db.aside.run-1"])
    with closing(open_writer(place.state.database)) as connection:
        insert_jobs(connection, 20, 1)
    assert place.run(place.saved, "--mark", "run-1") == 0, "done again it is done already"
    assert place.jobs() == 11
    assert place.run("--undo", "run-1") == 0
    assert (place.jobs(), place.names()) == (15, ["db", "db.undone.run-1"])
    assert place.run("--undo", "run-1") == 0
    assert place.jobs() == 15
    capsys.readouterr()
    assert place.run("--undo", "run-2") == 2 and "no restore run-2 here" in capsys.readouterr().err
    assert place.run("--undo", "../x") == 2
    assert place.run() == 2 and "no checkpoint is named" in capsys.readouterr().err


def test_another_database_is_never_taken_for_the_restored_one(place: Place) -> None:
    assert place.run(place.saved, "--mark", "run-1") == 0
    assert place.run(place.saved, "--mark", "run-2") == 0
    with pytest.raises(UsageFailed, match="is not the one that the restore run-1 brought"):
        by_hand.put_back(place.state, "run-1")
    with pytest.raises(UsageFailed, match="the restore run-1 was made before"):
        by_hand.put(place.state, place.saved, "run-1", T0)
    assert place.names() == ["db", "db.aside.run-1", "db.aside.run-2"]


def test_an_id_that_another_one_begins_with_is_another_restore(place: Place) -> None:
    assert place.run(place.saved, "--mark", "run-10") == 0
    assert place.run("--undo", "run-10") == 0
    with pytest.raises(UsageFailed, match="there was no restore run-1 here"):
        by_hand.put_back(place.state, "run-1")
    assert place.run(place.saved, "--mark", "run-10") == 0, "it was taken back: the id is free again"
    assert place.run("--undo", "run-10") == 0
    assert (place.jobs(), place.names()) == (15, ["db", "db.undone.run-10", "db.undone.run-10-2"])


class Killed(BaseException):
    """What no handler of errors takes."""


def killed_after_the_first_rename(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    rename = Path.rename

    def once(self: Path, target: str | os.PathLike[str]) -> Path:
        done = rename(self, target)
        if self.name == "db":
            raise Killed
        return done

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", once)
        with pytest.raises(Killed):
            work()


def test_killed_between_its_renames_a_restore_goes_on_under_its_id(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed_after_the_first_rename(monkeypatch, lambda: by_hand.put(place.state, place.saved, "run-1", T0))
    assert place.names() == ["db.aside.run-1", "db.restored"]
    assert place.run(place.saved, "--mark", "run-1") == 0
    assert (place.jobs(), place.names()) == (10, ["db", "db.aside.run-1"])
    assert place.run("--undo", "run-1") == 0
    assert place.jobs() == 15


def test_killed_between_its_renames_taking_back_goes_on(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    assert place.run(place.saved, "--mark", "run-1") == 0
    killed_after_the_first_rename(monkeypatch, lambda: by_hand.put_back(place.state, "run-1"))
    assert place.names() == ["db.aside.run-1", "db.undone.run-1"]
    assert place.run("--undo", "run-1") == 0
    assert (place.jobs(), place.names()) == (15, ["db", "db.undone.run-1"])


def test_without_a_command_the_commands_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 2
    shown = capsys.readouterr()
    assert not shown.out
    assert "run the controller in the foreground" in shown.err and "restore" in shown.err
