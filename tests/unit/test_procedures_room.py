"""Room on the disks of a controller: looked at right before the one that runs is told to end."""

from __future__ import annotations

import errno
import io
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from iris_controller import host_command
from iris_core.contracts import IrisError
from iris_core.procedures import room
from iris_core.procedures.events import Status
from iris_core.procedures.record import Phase
from tests.unit.restart_world import BEFORE, NEW, OLD, World


class Usage(NamedTuple):
    total: int
    used: int
    free: int


class Disk:
    """What is free, wherever one looks; where that was."""

    def __init__(self, free: int) -> None:
        self.free = free
        self.looked: list[Path] = []

    def usage(self, place: Path) -> Usage:
        self.looked.append(place)
        return Usage(1 << 40, 0, self.free)


def state(folder: Path, size: int) -> Path:
    (folder / "state" / room.DATABASE).mkdir(parents=True)
    (folder / "state" / room.DATABASE / "controller.sqlite3").write_bytes(b"")
    with (folder / "state" / room.DATABASE / "controller.sqlite3-wal").open("wb") as file:
        file.truncate(size)
    return folder / "state"


@pytest.mark.parametrize(("remote", "copies"), [("", 2), ("remote", 3), ("not/there/yet", 3)])
def test_the_room_that_is_needed_goes_with_the_database_and_counts_a_shared_disk_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remote: str, copies: int
) -> None:
    size = 100 << 20
    root = state(tmp_path, size)
    (tmp_path / "remote").mkdir()
    needed = copies * size + room.SPARE_BYTES
    disk = Disk(needed)
    monkeypatch.setattr(shutil, "disk_usage", disk.usage)
    room.require(root, tmp_path / remote if remote else None)
    disk.free -= 1
    with pytest.raises(IrisError, match=r"free, .* are needed to replace a controller and to go back") as refused:
        room.require(root, tmp_path / remote if remote else None)
    assert str(root) in refused.value.message and "make room" in refused.value.hint
    assert all(place.exists() for place in disk.looked)


@pytest.mark.parametrize("seen", [0, 1])
def test_a_write_ahead_log_that_goes_away_while_it_is_looked_at_takes_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: int
) -> None:
    root = state(tmp_path, 1 << 20)
    stat, left = Path.stat, seen

    def vanishing(path: Path, **options: Any) -> Any:
        nonlocal left
        if path.name.endswith("-wal"):
            left -= 1
            if left < 0:
                raise FileNotFoundError(errno.ENOENT, "No such file or directory", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", vanishing)
    monkeypatch.setattr(shutil, "disk_usage", Disk((2 << 20) + room.SPARE_BYTES).usage)
    room.require(root, None)


@pytest.mark.asyncio
@pytest.mark.parametrize(("skip", "back"), [(False, False), (True, False), (False, True)])
async def test_a_disk_that_filled_after_the_gate_refuses_before_the_controller_is_told_to_end(
    tmp_path: Path, skip: bool, back: bool
) -> None:
    world = World(tmp_path)
    if back:
        assert (await world.run(procedure="first")).status is Status.DONE
    before, boot, release = world.record, world.host.boot, NEW if back else OLD
    assert back or before == BEFORE
    world.refuse_room = "/var/lib/iris/lab: 1.0 MiB free, 64 MiB are needed"
    told = world.host.effects.count("ended")
    outcome = await world.run(skip=skip, back=back)
    assert outcome.status is Status.FAILED and outcome.state == f"nothing was changed: {world.refuse_room}"
    assert world.host.effects.count("ended") == told and "stop" not in world.host.effects[3 if back else 0 :]
    assert (world.host.running, world.host.boot, world.host.release) == (True, boot, release)
    assert world.record == before and world.free
    # Once there is room, it goes.
    world.refuse_room = ""
    outcome = await world.run(procedure="again", skip=skip, back=back)
    assert outcome.status is Status.DONE and world.record is not None
    assert world.record.phase is (Phase.ROLLED_BACK if back else Phase.COMMITTED)


@pytest.mark.parametrize("shared", [True, False])
def test_a_host_is_asked_where_its_controller_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    root = state(tmp_path, 100 << 20)
    monkeypatch.setattr(shutil, "disk_usage", Disk((250 << 20) + room.SPARE_BYTES).usage)
    asked = {
        "state_dir": str(root),
        "cluster": "far",
        "remote": f"file://{tmp_path}/remote" if shared else "gs://b/far",
    }
    answers: list[str] = []

    def answer(line: str) -> None:
        answers.append(line)

    code = host_command.run("room", io.BytesIO(json.dumps(asked).encode() + b"\n"), answer)
    said = json.loads(answers[0])
    assert code == (1 if shared else 0)
    assert ("are needed" in said["error"]["message"]) if shared else said == {"value": None}
