"""What the console looks like on a checkpoint: while it opens, when it cannot be opened, and then."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from iris_core.contracts import IrisError
from iris_core.live.watch import Link
from iris_tui.app import IrisApp
from iris_tui.glyphs import UNICODE
from iris_tui.offline import OfflineSession, OpeningScreen, offline_session
from iris_tui.widgets.pane import State
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.samples import sample
from tests.snapshots.test_console_pictures import Snap, Stage, picture, sizes

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from iris_controller.offline_client import OfflineAsyncClient, Told

PLACE = "gs://lab/iris/state/controller-state/1764385200000"


class Taken(FakeClient):
    """A scripted cluster, as its checkpoint."""

    ended = False
    taken = True
    cluster = "lab"
    notes: tuple[str, ...] = ()

    @property
    def moment_ms(self) -> int:
        return self.now_ms


class Offline(Stage):
    """A console whose checkpoint is opened by `open`."""

    def __init__(self, open: Callable[[Offline, Callable[[Told], None]], Any]) -> None:
        clock = FakeClock()
        super().__init__(sample(clock), clock)

        async def opener(place: str, tell: Callable[[Told], None]) -> OfflineAsyncClient:
            return cast("OfflineAsyncClient", await open(self, tell))

        self.app = IrisApp(offline_session(PLACE, opener=opener), glyphs=UNICODE)
        self.app.animation_level = "none"


@sizes
def test_opening(snap_compare: Snap, size: tuple[int, int]) -> None:
    async def halfway(stage: Offline, tell: Callable[[Told], None]) -> None:
        tell(("unpacking", 49_800_000, 116_000_000))
        await asyncio.Event().wait()

    async def play(stage: Stage) -> None:
        await stage.until(lambda: "42 %" in str(cast("OpeningScreen", stage.app.screen).pane.status.lines))

    picture(snap_compare, Offline(halfway), size, play)


def test_cannot_be_opened(snap_compare: Snap) -> None:
    async def fails(stage: Offline, tell: Callable[[Told], None]) -> None:
        raise IrisError(
            f"checkpoint {PLACE} cannot be used: controller.sqlite3.zst is damaged: it is not what its manifest says"
        )

    async def play(stage: Stage) -> None:
        await stage.until(lambda: cast("OpeningScreen", stage.app.screen).pane.status.state is State.ERROR)

    picture(snap_compare, Offline(fails), (120, 40), play)


@sizes
def test_jobs_of_a_checkpoint(snap_compare: Snap, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iris_tui.offline.checkpoint_text", lambda *_: "checkpoint 2026-11-29 03:00 UTC (23h old)")

    async def opens(stage: Offline, tell: Callable[[Told], None]) -> Taken:
        taken = Taken(now_ms=stage.clock.now_ms())
        taken.__dict__.update(stage.client.__dict__, url=PLACE)
        return taken

    async def play(stage: Stage) -> None:
        await stage.until(
            lambda: isinstance(stage.app.session, OfflineSession) and stage.app.console_screen is not None
        )
        await stage.until(lambda: stage.app.session.link.link is Link.OFFLINE and stage.jobs.jobs.loaded)
        await stage.row("/ada/train-llama")

    picture(snap_compare, Offline(opens), size, play)
