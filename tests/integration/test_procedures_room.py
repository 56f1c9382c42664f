"""The disk of a journal fills while a procedure is under way: what was begun is finished, and nothing more is begun."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from iris_core.contracts import IrisError
from iris_core.procedures import journal as journals
from iris_core.procedures.events import Status
from tests.conftest import RequireService
from tests.integration.test_disk_full import fill
from tests.unit.procedures_world import Killed
from tests.unit.restart_world import NEW, OLD, World

pytestmark = pytest.mark.asyncio
SIZE = 4 << 20


@pytest.fixture
def disk(tmp_path: Path, require_service: RequireService) -> Iterator[Path]:
    """A file system of 4 MiB."""
    require_service(os.geteuid() == 0, "mounting a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "none", str(folder)], check=False, capture_output=True
    )
    require_service(mounted.returncode == 0, f"cannot mount a tmpfs: {mounted.stderr.decode(errors='replace')}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("healthy", [True, False])
async def test_a_disk_that_fills_while_the_controller_is_down_does_not_leave_it_down(disk: Path, healthy: bool) -> None:
    world = World(disk, migrates=True)
    if not healthy:
        world.host.unhealthy.add(NEW)
    ended = world.checkpoint

    def fills(stop: bool, timeout_s: float) -> str:
        if stop:
            fill(disk)
        return ended(stop, timeout_s)

    world.checkpoint = fills  # type: ignore[method-assign]
    outcome = await world.run()
    assert outcome.status is (Status.DONE if healthy else Status.ROLLED_BACK), outcome
    assert (world.host.release, world.host.running, world.free) == (NEW if healthy else OLD, True, True)
    assert journals.read(disk / "p.jsonl")[-1]["type"] == "ended"
    with pytest.raises(IrisError, match="too little room for a journal: No space left"):
        await world.run(procedure="next")
    assert not (disk / "next.jsonl").exists()
    (disk / "filler").unlink()
    assert (await world.run(procedure="next")).status is not Status.FAILED


async def test_a_driver_that_was_killed_goes_on_though_the_disk_is_full_by_then(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = World(tmp_path)
    await whole.run()
    lines = [(line["type"], line.get("event")) for line in journals.read(tmp_path / "p.jsonl")]
    world = World(disk)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(
            journals.Journal, "close", journals.Journal._drop
        )  # the system closes it, and gives nothing back
        await world.run(die_at=lines.index(("done", "stop")))
    assert not world.host.running, "killed with the controller down"
    fill(disk)
    assert (await world.run()).status is Status.DONE and world.host.release == NEW and world.free


async def test_one_that_waited_at_its_gate_while_the_disk_filled_changes_nothing(disk: Path) -> None:
    world = World(disk)
    filled = False

    def fills() -> None:
        nonlocal filled
        if not filled:
            # What fills the room that a journal has left was never in it: its own lines are.
            (disk / "p.jsonl").write_bytes((disk / "p.jsonl").read_bytes())
            fill(disk)
            filled = True

    world.secrets = fills  # type: ignore[method-assign]
    outcome = await world.run()
    assert outcome.status is Status.FAILED and "too little room for a journal" in outcome.state
    assert not world.host.effects and world.free and "make room" in outcome.next
