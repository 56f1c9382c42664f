"""A screen with a subscription of its own that is no list: it runs while the screen is shown and rests while it is not.

Resting keeps the rows and the revision, so that coming back shows them at once, with their age. What a screen makes of its rows is
its own business.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_tui.screen import ConsoleScreen

if TYPE_CHECKING:
    from iris_core.live.feed import Feed
    from iris_core.live.watch import LinkState
    from iris_tui.session import Session


class LiveScreen(ConsoleScreen):
    """Subclasses give `make_feed()`, and what a ConsoleScreen gives."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.feed = self.make_feed()

    def make_feed(self) -> Feed[Any]:
        """What is watched."""
        raise NotImplementedError

    @property
    def link(self) -> LinkState:
        return self.feed.watch.state

    def value(self, row_id: str) -> Any:
        """The latest value of a row that has not gone, None without one."""
        row = self.feed.store.get(row_id)
        return row.value if row is not None and not row.gone else None

    def on_mount(self) -> None:
        name = f"{self.title_text()} subscription"
        self.run_worker(self.feed.watch.run(), name=name, group="watch", exit_on_error=False)

    def on_screen_suspend(self) -> None:
        if self not in self.app.screen_stack:
            self.feed.watch.rest()

    def on_screen_resume(self) -> None:
        self.feed.watch.rest(on=False)

    def reload(self) -> None:
        """Try again what failed."""
        self.feed.watch.retry_now()
