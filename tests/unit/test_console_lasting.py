"""A console that is open for long: the login changes, rows arrive under a choice, files were torn meanwhile, and nothing piles up."""

from __future__ import annotations

import asyncio
import json
import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from iris_core.contracts import Denied
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from iris_tui.gate import GateScreen, MenuScreen
from iris_tui.pages import TextPage
from iris_tui.registry import SCREENS
from iris_tui.saved import load_saved, saved_file
from iris_tui.widgets.pane import State
from providers.fake.samples import job
from providers.fake.task_samples import GANG, RANKS
from providers.objects import open_store
from tests.unit.checkpoint_world import T0, checkpoint, make_state
from tests.unit.console_world import SUBJECTS, console, every_screen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.unit.console_world import Rig

pytestmark = pytest.mark.asyncio
HOUR_MS: Final = 3_600_000


# --- logins ----------------------------------------------------------------------------------------------------------


async def test_an_expired_login_keeps_what_is_shown_and_the_next_one_is_who_it_is() -> None:
    async with console() as rig:
        jobs = await rig.go("jobs", "")
        await rig.until(lambda: "ada (admin)  LIVE" in rig.lines()[0])
        rows = list(jobs.store.order)
        rig.client.deny("the token has expired")
        await rig.until(lambda: "DENIED" in rig.lines()[0] and jobs.pane.status.state is State.STALE)
        assert jobs.store.order == rows and "the token has expired" in jobs.pane.status.note
        jobs.table.move_to("/cleo/sweep-lr")
        jobs.perform_or_say(_action("target.cancel"))
        await rig.until(lambda: "what is shown is not live (DENIED)" in rig.text())
        # Somebody logs in anew, and it is somebody else.
        rig.client.user, rig.client.role = "bob", "viewer"
        rig.client.restore()
        rig.app.do_refresh()
        await rig.passing(lambda: "bob (viewer)  LIVE" in rig.lines()[0])
        assert jobs.store.order == rows


async def test_a_token_that_may_only_read_locks_and_the_next_one_unlocks() -> None:
    async with console() as rig:
        await rig.go("jobs", "")
        rig.client.deny("the token has expired")
        await rig.until(lambda: "DENIED" in rig.lines()[0])
        may_write = False

        def who(request: pb.GetCurrentUserRequest) -> pb.GetCurrentUserResponse:
            return pb.GetCurrentUserResponse(user_id="eve", role="admin", read_only=not may_write)

        rig.client._get_current_user = who  # type: ignore[method-assign]
        rig.client.restore()
        rig.app.do_refresh()
        await rig.passing(lambda: "READ-ONLY  eve (admin)" in rig.lines()[0])
        rig.app.run_command("readonly")
        may_write = True
        rig.client.deny("the token has expired")
        await rig.until(lambda: "DENIED" in rig.lines()[0])
        rig.client.restore()
        rig.app.do_refresh()
        await rig.passing(lambda: not rig.app.session.locked and "LIVE" in rig.lines()[0])


async def test_a_change_that_was_begun_while_it_was_allowed_is_not_asked_for_when_it_no_longer_is() -> None:
    """`:write` lasts its minutes, not as long as a gate is open."""
    async with console(read_only=True) as rig:
        jobs = await rig.go("jobs", "")
        rig.app.run_command("write")
        await rig.until(lambda: "WRITE 15m" in rig.lines()[0])
        jobs.table.move_to("/cleo/sweep-lr")
        jobs.perform_or_say(_action("target.cancel"))
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.focused is not None)
        rig.clock.advance(16 * 60)
        rig.app.check_write()
        assert rig.app.session.read_only
        await rig.keys("right", "enter")
        await rig.until(lambda: "read-only" in rig.text() and not isinstance(rig.app.screen, GateScreen))
        await rig.until(lambda: not _changing(rig))
        assert not rig.client.called("TerminateJob")


def _action(name: str) -> Any:
    from iris_tui.actions import BY_ID

    return BY_ID[name]


def _changing(rig: Rig) -> bool:
    return any(worker.group == "change" and not worker.is_finished for worker in rig.app.workers)


# --- all that match --------------------------------------------------------------------------------------------------


async def test_all_that_match_are_those_that_did_when_it_was_said_whatever_arrives() -> None:
    async with console() as rig:
        jobs = await rig.go("jobs", "")
        jobs.set_filter("state=running")
        await rig.until(lambda: jobs.store.order)
        jobs.perform_or_say(_action("list.mark_all"))
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen) and rig.app.focused is not None)
        await rig.keys("escape")
        await rig.until(lambda: rig.app.screen is jobs)
        chosen = set(jobs.store.marks)
        assert chosen >= {"/ada/train-llama", "/cleo/sweep-lr"}

        def arrive(name: str) -> None:
            rig.client.put(
                job(name, "RUNNING", now_ms=rig.client.now_ms, age_min=1, started_min=1, counts={"RUNNING": 1})
            )

        arrive("/late/before-the-gate")
        await rig.until(lambda: "/late/before-the-gate" in jobs.store.rows)
        assert jobs.store.marks == chosen and f"{len(chosen)} marked" in rig.text()
        jobs.perform_or_say(_action("target.cancel"))
        await rig.until(lambda: isinstance(rig.app.screen, GateScreen) and rig.app.focused is not None)
        gate: Any = rig.app.screen
        assert {target.id for target in gate.plan.targets} == chosen
        arrive("/late/under-the-gate")
        await rig.until(lambda: "/late/under-the-gate" in jobs.store.rows)
        assert {target.id for target in gate.plan.targets} == chosen
        gate.query_one("#gate-read").press()
        await rig.until(lambda: not gate.query_one("#gate-confirm").disabled)
        gate.query_one("#gate-confirm").press()
        await rig.until(lambda: len(rig.client.called("TerminateJob")) == len(chosen) and not _changing(rig))
        assert {request.job_id for request in rig.client.called("TerminateJob")} == chosen


# --- files -----------------------------------------------------------------------------------------------------------

NONSENSE: Final[tuple[Any, ...]] = (None, 7, -1, 1e300, True, "", "[red]", "x" * 400, [], [7], {}, {"a": [1]})


@every_screen
async def test_a_saved_view_that_makes_no_sense_is_left_out(name: str) -> None:
    """Whatever a file of another release, or of nobody, says of how a screen looked."""
    async with console() as rig:
        screen = await rig.go(name, SUBJECTS.get(name, ""))
        known = {"filter", "sort", "cursor", "descending", "part", "view", "search", *screen.view_state()}
        for number in range(0, len(NONSENSE), 3):
            screen.restore({key: NONSENSE[(number + place) % len(NONSENSE)] for place, key in enumerate(sorted(known))})
            screen.flush_now()
            await rig.pilot.pause()
        assert rig.screen is screen


@pytest.mark.parametrize(
    ("screen", "subject"), [("job", "no id"), ("worker", "a b"), ("task", "/ada/x"), ("logs", "?"), ("explain", "x"), ("profile", "?")]
)  # fmt: skip
async def test_a_console_that_was_left_where_nothing_is_opens_where_everything_starts(
    screen: str, subject: str
) -> None:
    path = saved_file("lab")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps({"version": 1, "screen": screen, "subject": subject, "views": {"jobs": {"filter": '"'}}})
    )
    saved = load_saved("lab")
    assert saved.screen == screen
    async with console(saved=saved) as rig:
        await rig.until(lambda: rig.screen is not None and rig.is_shown())
        assert rig.screen.place[0] == ("profile" if screen == "profile" else "jobs")


async def test_a_checkpoint_that_was_tampered_with_is_refused_in_words(tmp_path: Path) -> None:
    made = checkpoint(make_state(tmp_path / "state", jobs=3), open_store(f"file://{tmp_path}/remote"), T0 + HOUR_MS)
    good = tmp_path / "remote" / "controller-state" / str(made.epoch_ms)

    def spoilt(name: str, spoil: Callable[[Path], object]) -> Path:
        folder = shutil.copytree(good, tmp_path / name)
        spoil(folder)
        return folder

    def flip(folder: Path) -> None:
        file = folder / "controller.sqlite3.zst"
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 0xFF
        file.write_bytes(data)

    def other(folder: Path) -> None:
        import zstandard

        (folder / "controller.sqlite3.zst").write_bytes(zstandard.compress(b"#!/bin/sh\necho owned\n" * 100))

    manifest = next(path.name for path in good.iterdir() if "manifest" in path.name)
    cases = {
        "flipped": flip,
        "cut": lambda folder: (folder / "controller.sqlite3.zst").write_bytes(
            (folder / "controller.sqlite3.zst").read_bytes()[:200]
        ),
        "other": other,
        "manifest": lambda folder: (folder / manifest).write_text('{"epoch_ms": [[[['),
    }
    async with console() as rig:
        await rig.go("jobs", "")
        for name, spoil in cases.items():
            rig.app.open_checkpoint(str(spoilt(name, spoil)))
            await rig.until(lambda: "tries again" in rig.text())
            assert "OFFLINE  cannot be opened" in rig.lines()[0] and "Traceback" not in rig.text(), name
            await rig.keys("escape")
            await rig.until(lambda: rig.screen.place[0] == "jobs" and rig.app.session.name == "lab")
        assert rig.app.session.link.fresh


# --- what piles up ---------------------------------------------------------------------------------------------------


def _alive(rig: Rig) -> dict[str, int]:
    """Everything that could be kept too long."""
    return {
        "screens": len(rig.app._screens),
        "installed": len(rig.app._installed_screens),
        "widgets": len(rig.app._registry),
        "workers": len(list(rig.app.workers)),
        "tasks": len(asyncio.all_tasks()),
        "streams": len(rig.client.watch.streams),
        "stack": len(rig.app.screen_stack),
    }


async def test_many_screens_leave_nothing_behind(soak: bool) -> None:
    """More than are kept, of each kind; `make soak` opens two hundred."""
    kinds = ("job", "task", "worker", "profile", "explain", "page")
    first, count = 18, 200 if soak else 42

    async def show(number: int) -> None:
        kind, rank = kinds[number % len(kinds)], number // len(kinds)
        if kind == "page":
            rig.app.run_command(f"describe {GANG}/{rank % RANKS}")
            await rig.until(lambda: isinstance(rig.app.screen, TextPage) and rig.app.screen.is_mounted)
            return
        subject = {
            "job": f"/ada/none-{number}",
            "task": f"{GANG}/{rank}",
            "worker": f"none-{number}",
            "profile": f"none-{number}",
            "explain": f"/ada/none-{number}",
        }[kind]
        rig.app.go(kind, subject)
        await rig.until(lambda: rig.screen.place == (kind, subject) and rig.screen.is_mounted)

    async with console(size=(80, 24)) as rig:
        await rig.go("jobs", "")
        most: dict[str, int] = {}
        for number in range(count):
            await show(number)
            if number == first:
                await rig.go("jobs", "")
                most = _alive(rig)
        jobs = await rig.go("jobs", "")
        await rig.until(lambda: all(_alive(rig)[what] <= count + 10 for what, count in most.items()))
        assert len(rig.app._screens) <= len(SCREENS) + 8
        assert jobs.pane.status.state is State.READY and rig.app.session.link.fresh


@pytest.mark.parametrize("status", ["UNAUTHENTICATED", "PERMISSION_DENIED"])
async def test_a_new_token_is_offered_to_who_is_not_known_and_not_to_who_may_not(status: str) -> None:
    async with console() as rig:
        rig.client._failure = Denied(status, "not for you")
        await rig.go("workers", "")
        await rig.until(lambda: "not for you" in rig.text())
        assert ("put a new one into $IRIS_TOKEN" in rig.text()) == (status == "UNAUTHENTICATED")
