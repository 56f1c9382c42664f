"""The console on a checkpoint: opened beside the screen, with word of how far it is, and then shown as a cluster that never changes.

Nothing of it can be changed: the session is read-only and says OFFLINE and of when it is; ages are those of that moment. Another process
opens and reads it, so that no key waits for that, and it is given up with a key. Must never load the controller's packages here.
"""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Final

from iris_core.contracts import ConnectFailed, IrisError
from iris_core.live.clock import ClockAt
from iris_core.live.watch import Link, LinkState
from iris_core.model.quantities import format_size
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_tui.pages import TextPage
from iris_tui.session import Session
from iris_tui.widgets.pane import State, Status

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Awaitable, Callable

    from textual.worker import Worker

    from iris_controller.offline_client import OfflineAsyncClient, Told
    from iris_core.contracts import AsyncClient

    Opener = Callable[[str, Callable[[Told], None]], Awaitable[OfflineAsyncClient]]

PREFIX: Final = "checkpoint:"
"""Before a path or URL, in the place of a cluster's name."""
BAR: Final = 30
_MINUTE_MS: Final = 60_000


class OfflineSession(Session):
    """A checkpoint in the place of a cluster. Its client answers once it was opened by an `OpeningScreen`, with `opener`."""

    def __init__(self, place: str, opener: Opener) -> None:
        self.place = place
        self.opener = opener
        self._clock = ClockAt()
        super().__init__(
            f"{PREFIX}{place}",
            self._opened_client,
            self._clock,
            read_only=True,
            selector=f"--checkpoint={shlex.quote(place)}",
            where=self._where,
        )
        self.offline = True
        self.title = place.rstrip("/").rpartition("/")[2] or place
        self.role = "admin"
        """As on the command line: whoever can read the file can read all of it."""
        self.entrance = lambda: OpeningScreen(self)
        self.opened: OfflineAsyncClient | None = None

    async def _opened_client(self) -> AsyncClient:
        if self.opened is None:
            raise ConnectFailed(f"{self.place} is not open")
        if self.opened.ended:
            self.opened = await self.opener(self.place, lambda _: None)
        return self.opened

    async def _where(self) -> str:
        """Nowhere, once the process that reads it was ended by somebody: then another one is asked."""
        return self.opened.url if self.opened is not None and not self.opened.ended else ""

    def take(self, opened: OfflineAsyncClient) -> None:
        """It is open: from now on it can be entered."""
        self.opened = opened
        self.entrance = None
        self.title = title_of(opened.cluster, opened.url)
        self._clock.moment_ms = opened.moment_ms
        self.client.offline = lambda: checkpoint_text(opened.moment_ms, time.time_ns() // 1_000_000, opened.taken)

    async def run(self) -> None:
        """Keep the subscription, which brings what there is and then nothing more."""
        await self.watch.run()


def title_of(cluster: str, url: str) -> str:
    """Whose checkpoint it is; of one that does not say, where it lies: its folder's name is a number, which says nothing to anybody."""
    if cluster:
        return f"{cluster} (checkpoint)"
    parts = [part for part in url.rstrip("/").partition("://")[2 if "://" in url else 0].split("/") if part]
    while len(parts) > 1 and (parts[-1].isdecimal() or parts[-1] == "controller-state"):
        parts.pop()
    return f"{'/'.join(parts[-2:])} (checkpoint)" if parts else url


def checkpoint_text(moment_ms: int, now_ms: int, taken: bool) -> str:
    """`checkpoint 2026-11-29 03:00 UTC (23 h old)`; of one that does not say when it was taken, the last moment that it knows of."""
    moment = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(moment_ms / 1000))
    age_ms = max(now_ms - moment_ms, 0)
    age = f"{format_age(age_ms)} old" if age_ms >= _MINUTE_MS else "new"
    return f"checkpoint {'' if taken else 'of about '}{moment} ({age})"


def offline_session(
    place: str, *, opener: Opener | None = None, started: subprocess.Popen[bytes] | None = None
) -> OfflineSession:
    """The console's session on a checkpoint: path or URL of its folder, of a file in it, or of a state dir. Nothing is opened yet.

    `started` is a process that opens it already (`offline_client.spawn`); `opener` is asked in the place of any.
    """

    async def open_checkpoint(place: str, tell: Callable[[Told], None]) -> OfflineAsyncClient:
        from iris_controller import offline_client

        nonlocal started
        first, started = started, None
        return await offline_client.open_checkpoint(place, tell, first)

    return OfflineSession(place, opener or open_checkpoint)


class OpeningScreen(TextPage):
    """What is shown until the checkpoint is open: which, how far, and what is wrong with it."""

    def __init__(self, session: OfflineSession) -> None:
        super().__init__(session, "Opening a checkpoint", self._nothing, dated=False)
        self._session = session
        self._wrong: IrisError | None = None
        self._told: Told | None = None
        self._opening: Worker[None] | None = None

    @staticmethod
    async def _nothing() -> tuple[()]:
        return ()

    @property
    def link(self) -> LinkState:
        return LinkState(Link.OFFLINE, detail="cannot be opened" if self._wrong else "opening a checkpoint")

    def reload(self) -> None:
        """Try (again)."""
        self._give_up()
        self._wrong, self._told = None, None
        # The app's: this screen is gone before the work is done.
        self._opening = self.app.run_worker(
            self._open(), name="open checkpoint", group="opening", exclusive=True, exit_on_error=False
        )

    async def _open(self) -> None:
        try:
            opened = await self._session.opener(self._session.place, self._tell)
        except IrisError as error:
            self._wrong = error
            self.flush_now()
            return
        self._session.take(opened)
        for note in opened.notes:
            self.console.say(one_line(note), severity="warning")
        app = self.console
        before = app.session if app.sessions else None
        self.dismiss()
        app.enter(self._session)
        if before is not None:
            back = app.keymap.first("app.past")
            app.say(
                f"{back} goes back to {one_line(before.title)}, :cluster goes between what is open",
                severity="information",
            )

    def shows_content(self) -> bool:
        """It is about how far it is."""
        return True

    def _tell(self, told: Told) -> None:
        self._told = told

    def _give_up(self) -> None:
        if self._opening is not None and self._session.opened is None:
            self._opening.cancel()

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
        return Status(State.LOADING, "", (f"Opening {place}", progress_text(self._told), "Esc gives it up."))

    def close_page(self) -> None:
        """Give it up: back to where the console was, or out of it."""
        if self._session.opened is not None:
            return
        self._give_up()
        if self.console.sessions:
            self.dismiss()
        else:
            self.app.exit(0)


def progress_text(told: Told | None) -> str:
    """`unpacking  [######........]  43 %   49.8MB of 116MB`."""
    if told is None:
        return "starting …"
    phase, done, total = told
    if not total:
        return f"{phase} …"
    share = min(done / total, 1.0)
    cells = int(share * BAR)
    bar = "#" * cells + "." * (BAR - cells)
    return f"{phase}  [{bar}]  {int(share * 100)} %   {format_size(done)} of {format_size(total)}"
