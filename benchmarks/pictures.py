"""A picture of every screen of the console, for docs/console.md: `make pictures`.

Drawn at 120 by 40 from the sample cluster that exists only in memory: a gang whose rank 3 failed, jobs that wait, machines that are
full, logs, profiles. Its clock stands still, so that the same screens give the same files, and nothing of this machine is in them.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from iris_core.live.backoff import Backoff
from iris_tui.app import IrisApp
from iris_tui.glyphs import UNICODE
from iris_tui.registry import SCREENS
from iris_tui.session import Session
from iris_tui.widgets import plotting
from iris_tui.widgets.pane import Pane, State
from providers.fake.clock import FakeClock
from providers.fake.machine_samples import GANG as WAITING
from providers.fake.machine_samples import SLICE
from providers.fake.query_samples import KEPT_IN, kept_checkpoints
from providers.fake.rollout_samples import write_sample
from providers.fake.whole_sample import SUBJECTS, whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from textual.pilot import Pilot

    from iris_core.contracts import AsyncClient

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "pictures"
SIZE: Final = (120, 40)
WITHIN_S: Final = 20.0
_FONTS: Final = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
_BLANKS: Final = re.compile(r"[ \t]+$", re.MULTILINE)


class Stage:
    """One console over the sample cluster."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.client = whole(self.clock)

        async def connect() -> AsyncClient:
            return self.client

        session = Session("lab", connect, self.clock, backoff=Backoff(rng=random.Random(1)))
        self.app = IrisApp(session, glyphs=UNICODE)
        self.app.animation_level = "none"
        self.pilot: Pilot[Any]

    @property
    def screen(self) -> Any:
        """The one that is shown."""
        return self.app.console_screen

    async def until(self, condition: Callable[[], object], what: str) -> None:
        """Raises RuntimeError when it never holds."""
        ends = time.monotonic() + WITHIN_S
        while not condition():
            if time.monotonic() > ends:
                panes = [(pane.title, pane.status, pane.region) for pane in self.screen.query(Pane)]
                raise RuntimeError(f"{what} never came: {panes}")
            await self.pilot.pause()
            if self.screen is not None and self.screen.is_mounted:
                self.screen.flush_now()
            await asyncio.sleep(0.005)

    async def go(self, name: str) -> None:
        """Show the screen, and wait for what it shows."""
        await self.until(
            lambda: self.screen is not None and self.screen.place[0] == "jobs" and self.app.session.role, "the console"
        )
        if name != "jobs":
            self.app.go(name, SUBJECTS.get(name, ""))
        await self.until(lambda: self.screen.place[0] == name and self.screen.is_mounted, name)
        await self.until(self._is_shown, name)

    def _is_shown(self) -> bool:
        panes = [pane for pane in self.screen.query(Pane) if pane.display and pane.region.area]
        return bool(panes) and all(pane.status.state in (State.READY, State.PARTIAL) for pane in panes)

    async def prepare(self, name: str) -> None:
        """What an operator would have done there first."""
        screen = self.screen
        if name == "jobs":
            for row in ("/ada/train-llama", "/ada/train-llama/7"):
                await self.until(lambda row=row: screen.table.move_to(row), row)  # type: ignore[misc]
                await self.pilot.press("enter")
            screen.table.move_to("/ada/train-llama")
        elif name == "job":
            await self.until(lambda: screen.reads.cause.loaded and screen.reads.found.loaded, "the cause")
        elif name == "scheduler":
            screen.table.move_to(f"pending {WAITING}")
        elif name == "capacity":
            screen.store.expand(f"slice {SLICE}")
            screen.soon()
        elif name == "logs":
            await self.until(lambda: screen.pane.view.is_whole and screen.pane.view.pipeline.account.known, "the log")
        elif name == "explain":
            self.app.run_command("what-if --region us-east5")
            await self.until(lambda: screen.what_if.polled.loaded, "the what-if")
        elif name == "query":
            screen.editor.cursor_blink = False
            await self.pilot.press("space", "space")
        elif name in ("overview", "controller"):
            _remember(self, screen)
        elif name == "profile":
            screen.flame.find("model.py")
            screen.flame.do_next()

    async def settle(self) -> None:
        """Nothing more will change."""
        for _ in range(4):
            await self.pilot.pause()
            self.screen.prompt.input.cursor_blink = False
            self.screen.flush_now()
        await self.pilot.pause()


def _remember(stage: Stage, screen: Any) -> None:
    """Some minutes of history, with something to see in the charts."""
    now_ms = stage.clock.now_ms()
    for place, samples in enumerate(screen.samples()):
        last = samples.last
        highest = last.value if last is not None and last.value else 8.0
        values = (highest * (0.3 + 0.7 * abs((number + 7 * place) % 40 - 20) / 20) for number in range(60))
        samples.put_before((now_ms - (60 - number) * 5000, value) for number, value in enumerate(values))


async def draw(name: str) -> str:
    """The picture of one screen, as SVG that asks nothing of another host."""
    await plotting.load()
    stage = Stage()
    listed = (KEPT_IN, kept_checkpoints(stage.clock.now_ms()), "")
    with mock.patch("screens.checkpoints.read", lambda _: listed), tempfile.TemporaryDirectory() as folder:
        if name == "rollout":
            stage.app.rollouts.journal_dir = folder
            path = Path(folder) / f"{write_sample(Path(folder), stage.clock.now_ms())}.jsonl"
            with path.open("rb") as driven:
                fcntl.flock(driven, fcntl.LOCK_EX)  # somebody drives it, and the console looks on
                return await _drawn(stage, name)
        return await _drawn(stage, name)


async def _drawn(stage: Stage, name: str) -> str:
    async with stage.app.run_test(size=SIZE) as pilot:
        stage.pilot = pilot
        await stage.go(name)
        await stage.prepare(name)
        await stage.settle()
        svg = stage.app.export_screenshot(title=f"iris: {SCREENS[name].title}")
    return _BLANKS.sub("", _FONTS.sub("", svg)).rstrip() + "\n"


def main(names: Sequence[str]) -> None:
    """Draw those screens, or all."""
    FOLDER.mkdir(exist_ok=True)
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")  # whatever terminal they are drawn from
    os.environ.pop("NO_COLOR", None)
    for name in names or SCREENS:
        (FOLDER / f"{name}.svg").write_text(asyncio.run(draw(name)))
        print(FOLDER / f"{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
