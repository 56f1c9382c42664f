"""Profiles in the console: the list, capturing now, one profile as a flame graph, functions or text, and two compared."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from iris_core.live import capture
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
from iris_tui.pages import TextPage
from iris_tui.widgets.pane import State
from iris_tui.widgets.prompt import PromptInput
from providers.fake.clock import FakeClock
from providers.fake.profile_samples import FakeProfiles
from providers.fake.samples import sample
from screens.profile import ProfileScreen
from screens.profiles import ProfilesScreen
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


class Profiles(Rig):
    """A console with kept profiles."""

    kept: FakeProfiles

    @property
    def list(self) -> ProfilesScreen:
        screen = self.app.screen
        assert isinstance(screen, ProfilesScreen)
        return screen

    @property
    def viewer(self) -> ProfileScreen:
        screen = self.app.screen
        assert isinstance(screen, ProfileScreen)
        return screen

    async def show(self, name: str) -> ProfileScreen:
        self.app.go("profile", name)
        await self.until(lambda: isinstance(self.app.screen, ProfileScreen) and self.viewer.polled.loaded)
        await self.until(lambda: self.viewer.pane.status.state is State.READY)
        return self.viewer


@asynccontextmanager
async def profiles(size: tuple[int, int] = (120, 40), *, read_only: bool = False) -> AsyncIterator[Profiles]:
    clock = FakeClock()
    client = sample(clock)
    kept = FakeProfiles(client).attach()
    async with console(client, size=size, read_only=read_only) as rig:
        found = Profiles(rig.app, rig.pilot, client, rig.clock)
        found.kept = kept
        rig.app.go("profiles")
        await found.until(lambda: isinstance(rig.app.screen, ProfilesScreen) and found.list.store.order)
        yield found


# --- what is typed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "target", "kind", "seconds"),
    [
        ("/ada/train/0", "/ada/train/0", "cpu", 10),
        ("/ada/train/0:2 threads", "/ada/train/0:2", "threads", 0),
        ("/system/worker/w-1 mem 30s", "/system/worker/w-1", "mem", 30),
        ("/system/controller cpu 600", "/system/controller", "cpu", 600),
    ],
)
def test_a_capture_is_typed_as_it_is_read(text: str, target: str, kind: str, seconds: int) -> None:
    found = capture.parse(text)
    assert (found.target, found.kind, found.seconds) == (target, kind, seconds)
    assert capture.parse(found.text) == found


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "name a task"),
        ("/ada/train", 0, "is a job"),
        ("/ada/train/0 cpus", 13, "cpu"),
        ("/ada/train/0 cpu 0", 17, "from 1 to 600"),
        ("/ada/train/0 cpu 5 6", 19, "from 1 to 600"),
        ("/ada/train/0 threads 5", 21, "at once"),
    ],
)
def test_what_is_wrong_with_it_is_said_with_its_place(text: str, position: int, words: str) -> None:
    with pytest.raises(ModelError) as caught:
        capture.parse(text)
    assert caught.value.position == position
    assert words in str(caught.value)


# --- the list --------------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_kept_profiles_are_listed_newest_first_and_filtered() -> None:
    async with profiles() as rig:
        assert rig.list.store.order == ["p-cpu-2", "p-cpu-1", "p-thr-1", "p-mem-1", "p-html-1"]
        assert "5 profiles" in rig.screen_text()
        rig.list.set_filter("type=cpu source=/ada/train-llama/0")
        await rig.until(lambda: rig.list.store.order == ["p-cpu-1"])


@pytest.mark.asyncio
async def test_a_failure_keeps_what_was_listed_and_ages_it() -> None:
    async with profiles() as rig:
        rig.client.break_connection()
        rig.clock.advance(60)
        await rig.until(lambda: rig.list.pane.status.state is State.STALE)
        assert "p-cpu-1" in rig.screen_text()
        rig.client.restore()
        rig.clock.advance(60)
        await rig.until(lambda: rig.list.pane.status.state is State.READY)


@pytest.mark.asyncio
async def test_no_profile_says_how_one_is_taken() -> None:
    clock = FakeClock()
    client = sample(clock)
    kept = FakeProfiles(client).attach()
    kept.kept.clear()
    async with console(client) as rig:
        rig.app.go("profiles")
        await rig.until(lambda: ":capture /ada/train/0 cpu 10 takes one now" in rig.screen_text())


@pytest.mark.asyncio
async def test_capturing_asks_with_the_selected_target_and_opens_the_result() -> None:
    async with profiles() as rig:
        assert rig.list.table.move_to("p-cpu-1")
        rig.app.run_command("capture")
        await rig.until(lambda: rig.list.prompt.is_open)
        assert rig.list.prompt.query_one(PromptInput).value == "/ada/train-llama/0 cpu 10"
        await rig.keys("enter")
        await rig.until(lambda: isinstance(rig.app.screen, ProfileScreen) and rig.viewer.polled.loaded)
        request = rig.client.called("ProfileTask")[0]
        assert (request.target, request.options.type, request.options.duration_seconds) == (
            "/ada/train-llama/0",
            pb.PROFILE_TYPE_CPU,
            10,
        )
        await rig.until(lambda: "forward (/j/model.py)" in rig.screen_text())


@pytest.mark.asyncio
async def test_a_capture_shows_its_progress_while_it_runs() -> None:
    async with profiles() as rig:
        rig.client.freeze()
        rig.app.run_command("capture /ada/train-llama/0 cpu 30")
        await rig.until(lambda: "capturing /ada/train-llama/0 cpu 30: 0s of 30s" in rig.screen_text())
        rig.clock.advance(10)
        await rig.until(lambda: ": 10s of 30s, about 25s" in rig.screen_text())
        rig.client.thaw()
        await rig.until(lambda: isinstance(rig.app.screen, ProfileScreen))


@pytest.mark.asyncio
async def test_a_read_only_console_captures_nothing() -> None:
    async with profiles(read_only=True) as rig:
        rig.app.run_command("capture /ada/train-llama/0 cpu 1")
        await rig.until(lambda: "console is read-only" in rig.screen_text())
        assert [action.id for action in rig.list.menu_entries("profile", marked=False)] == [
            "profiles.open",
            "profiles.compare",
        ]
        assert not rig.client.called("ProfileTask")


@pytest.mark.asyncio
async def test_two_marked_profiles_are_compared_the_older_first() -> None:
    async with profiles() as rig:
        for name in ("p-cpu-2", "p-cpu-1"):
            rig.list.store.mark(name)
        await rig.keys("D")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and "load_batch" in rig.screen_text())
        line = next(line for line in rig.lines() if "load_batch" in line)
        assert line.split()[:3] == ["+37.5%", "0.0%", "37.5%"]
        assert "p-cpu-1 and then /ada/train-llama/1 p-cpu-2" in rig.screen_text()


# --- one profile -----------------------------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_the_flame_graph_says_share_seconds_and_samples_of_a_frame() -> None:
    async with profiles((80, 24)) as rig:
        viewer = await rig.show("p-cpu-1")
        await rig.keys("down", "down")
        assert viewer.flame.node.frame.name == "forward"
        assert "60.0% 6.00 s (120 samples), itself 10.0%, 69.8% of its caller" in rig.screen_text()
        await rig.keys("enter")
        await rig.until(lambda: viewer.flame.top.frame.name == "forward")
        await rig.keys("slash")
        await rig.type("data.py")
        await rig.keys("enter")
        await rig.until(lambda: "/data.py 1/1, 13.0% of all" in rig.screen_text())
        assert viewer.flame.node.frame.name == "load_batch"


@pytest.mark.asyncio
async def test_functions_are_a_table_and_lead_back_to_the_graph() -> None:
    async with profiles() as rig:
        viewer = await rig.show("p-cpu-1")
        await rig.keys("tab")
        await rig.until(lambda: "FUNCTION" in rig.screen_text())
        line = next(line for line in rig.lines() if "matmul" in line)
        assert line.split()[:4] == ["▌", "50.0%", "5.00", "50.0%"]
        await rig.keys("down", "enter")
        await rig.until(lambda: viewer.view == "flame graph")
        assert viewer.flame.node.frame.name == "backward"
        await rig.keys("escape", "escape")
        await rig.until(lambda: isinstance(rig.app.screen, ProfilesScreen))


@pytest.mark.asyncio
async def test_what_is_no_flame_graph_is_text() -> None:
    said = {
        "p-mem-1": "load_batch:/j/data.py:31",
        "p-thr-1": "all_reduce (dist.py:88)",
        "p-html-1": "the format html is not for a terminal",
    }
    async with profiles() as rig:
        for name, words in said.items():
            await rig.show(name)
            await rig.until(lambda words=words: words in rig.screen_text())  # type: ignore[misc]
            await rig.keys("escape")
            await rig.until(lambda: isinstance(rig.app.screen, ProfilesScreen))


@pytest.mark.asyncio
async def test_a_profile_and_its_picture_are_saved_and_the_path_is_said(tmp_path: Path) -> None:
    async with profiles() as rig:
        await rig.show("p-cpu-1")
        rig.app.run_command(f"save-profile {tmp_path / 'one.json'}")
        rig.app.run_command(f"save-svg {tmp_path / 'one.svg'}")
        await rig.until(lambda: "saved the flame graph in" in rig.screen_text() and "one.svg" in rig.screen_text())
        assert (tmp_path / "one.json").read_bytes() == rig.kept.kept["p-cpu-1"][1]
        assert b"forward" in (tmp_path / "one.svg").read_bytes()
        with pytest.raises(ModelError, match="not saved"):
            rig.app.run_command(f"save-profile {tmp_path / 'one.json'}")


@pytest.mark.asyncio
async def test_a_profile_that_is_gone_or_damaged_says_so() -> None:
    async with profiles() as rig:
        rig.kept.keep("bad", "/a/b/0", pb.PROFILE_TYPE_CPU, pb.PROFILE_FORMAT_SPEEDSCOPE, b"{}", 1)
        for name, words in (("bad", "cannot be read"), ("nowhere", "no profile nowhere")):
            rig.app.go("profile", name)
            await rig.until(lambda words=words: words in rig.screen_text())  # type: ignore[misc]
