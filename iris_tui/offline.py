"""The console on a checkpoint: it is unpacked beside the screen, with word of how far it is, and then shown as a cluster that never changes.

Nothing of it can be changed: the session is read-only and says OFFLINE and of when it is; ages are those of that moment. Opening never
holds up the loop, and is given up with a key. Must never load the controller's packages before a checkpoint is asked for.
"""

from __future__ import annotations

import shlex
import time
from threading import Event
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import ConnectFailed, IrisError
from iris_core.live.clock import ClockAt
from iris_core.live.watch import Link, LinkState
from iris_core.model.quantities import format_size
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_tui.pages import TextPage
from iris_tui.session import Session
from iris_tui.threads import in_thread
from iris_tui.widgets.pane import State, Status

if TYPE_CHECKING:
    from iris_controller.checkpoint.opening import Progress
    from iris_controller.offline import AsyncOfflineClient
    from iris_core.contracts import AsyncClient

PREFIX: Final = "checkpoint:"
"""Before a path or URL, in the place of a cluster's name."""
BAR: Final = 30
_MINUTE_MS: Final = 60_000


class GivenUp(IrisError):
    """The operator did not want to wait."""


class OfflineSession(Session):
    """A checkpoint in the place of a cluster. Its client answers once it was opened by an `OpeningScreen`."""

    def __init__(self, place: str) -> None:
        self.place = place
        self._clock = ClockAt()
        super().__init__(
            f"{PREFIX}{place}",
            self._opened_client,
            self._clock,
            read_only=True,
            selector=f"--checkpoint={shlex.quote(place)}",
        )
        self.offline = True
        self.title = place.rstrip("/").rpartition("/")[2] or place
        self.role = "admin"
        """As on the command line: whoever can read the file can read all of it."""
        self.entrance = lambda: OpeningScreen(self)
        self.opened: AsyncOfflineClient | None = None

    async def _opened_client(self) -> AsyncClient:
        if self.opened is None:
            raise ConnectFailed(f"{self.place} is not open")
        return self.opened

    def take(self, opened: AsyncOfflineClient) -> None:
        """It is open: from now on it can be entered."""
        self.opened = opened
        self.entrance = None
        self.title = opened.url.rstrip("/").rpartition("/")[2]
        self._clock.moment_ms = opened.moment_ms
        self.client.offline = lambda: checkpoint_text(opened.moment_ms, time.time_ns() // 1_000_000, opened.taken)

    async def run(self) -> None:
        """Keep the subscription, which brings what there is and then nothing more."""
        await self.watch.run()


def checkpoint_text(moment_ms: int, now_ms: int, taken: bool) -> str:
    """`checkpoint 2026-11-29 03:00 UTC (23 h old)`; of one that does not say when it was taken, the last moment that it knows of."""
    moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment_ms / 1000))
    age_ms = max(now_ms - moment_ms, 0)
    age = f"{format_age(age_ms)} old" if age_ms >= _MINUTE_MS else "new"
    return f"checkpoint {'' if taken else 'of about '}{moment} ({age})"


def offline_session(place: str) -> OfflineSession:
    """The console's session on a checkpoint: path or URL of its folder, of a file in it, or of a state dir. Nothing is opened yet."""
    return OfflineSession(place)


class Opening:
    """The work in its thread, and what is known of it."""

    def __init__(self, place: str) -> None:
        self.place = place
        self.progress: Progress | None = None
        self.notes: list[str] = []
        self._given_up = Event()

    async def run(self) -> AsyncOfflineClient:
        """Raises IrisError, GivenUp."""
        return await in_thread(self._work, name="open checkpoint")

    def _work(self) -> AsyncOfflineClient:
        from iris_core.cli.beside import load

        offline: Any = load("iris_controller.offline")
        opened: AsyncOfflineClient = offline.open_for_console(self.place, self._tell, self.notes.append)
        return opened

    def _tell(self, progress: Progress) -> None:
        if self._given_up.is_set():
            raise GivenUp("given up")
        self.progress = progress

    def give_up(self) -> None:
        """At the next step; nothing is left behind."""
        self._given_up.set()


class OpeningScreen(TextPage):
    """What is shown until the checkpoint is open: which, how far, and what is wrong with it."""

    def __init__(self, session: OfflineSession) -> None:
        super().__init__(session, "Opening a checkpoint", self._nothing, dated=False)
        self._session = session
        self._opening = Opening(session.place)
        self._wrong: IrisError | None = None

    @staticmethod
    async def _nothing() -> tuple[()]:
        return ()

    @property
    def link(self) -> LinkState:
        return LinkState(Link.OFFLINE, detail="cannot be opened" if self._wrong else "opening a checkpoint")

    def reload(self) -> None:
        """Try (again)."""
        self._opening.give_up()
        self._opening = Opening(self._session.place)
        self._wrong = None
        # The app's: this screen is gone before the work is done.
        self.app.run_worker(self._open(self._opening), name="open checkpoint", group="opening", exit_on_error=False)

    async def _open(self, opening: Opening) -> None:
        try:
            opened = await opening.run()
        except IrisError as error:
            if opening is self._opening:
                self._wrong = error
                self.flush_now()
            return
        if opening is not self._opening or self.app._exit:
            await opened.close()
            return
        self._session.take(opened)
        for note in opening.notes:
            self.console.say(one_line(note), severity="warning")
        app = self.console
        self.dismiss()
        app.enter(self._session)

    def flush(self) -> None:
        self.pane.set_status(self._status())
        self.pane.update_title([])

    def _status(self) -> Status:
        place = one_line(self._session.place)
        if self._wrong is not None:
            hint = (one_line(self._wrong.hint),) if self._wrong.hint else ()
            return Status(
                State.ERROR, "", (one_line(self._wrong.message), *hint, "^r tries again, Esc leaves it.")
            )  # fmt: skip
        return Status(
            State.LOADING, "", (f"Opening {place}", progress_text(self._opening.progress), "Esc gives it up.")
        )

    def close_page(self) -> None:
        """Give it up: back to where the console was, or out of it."""
        self._opening.give_up()
        if self._session.opened is not None:
            return
        if self.console.sessions:
            self.dismiss()
        else:
            self.app.exit(0)

    def on_unmount(self) -> None:
        self._opening.give_up()


def progress_text(progress: Progress | None) -> str:
    """`unpacking  [######........]  43 %   49.8 MB of 116 MB`."""
    if progress is None:
        return "starting …"
    if not progress.total_bytes:
        return f"{progress.phase} …"
    share = min(progress.done_bytes / progress.total_bytes, 1.0)
    done = int(share * BAR)
    return (
        f"{progress.phase}  [{'#' * done}{'.' * (BAR - done)}]  {int(share * 100)} %   "
        f"{format_size(progress.done_bytes)} of {format_size(progress.total_bytes)}"
    )
