"""Filters with a name, one set per kind of list and cluster, kept from one day to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from iris_core.model.errors import ModelError, did_you_mean
from iris_core.model.text import one_line
from iris_tui.saved import MOST_LINE, MOST_NAMED

if TYPE_CHECKING:
    from iris_core.model.filter import Filter
    from iris_tui.screen import ConsoleScreen

    Base = ConsoleScreen
else:
    Base = object


class NamedFilters(Base):
    """Mix into a list, before the screen class."""

    NOUN: ClassVar[str]
    filter: Filter | None

    def set_filter(self, text: str) -> None:
        """Show only what matches."""
        raise NotImplementedError

    def do_save_filter(self, name: str) -> None:
        named = self.session.saved.named(self.NOUN)
        if self.filter is None:
            raise ModelError("no filter is on that could be saved", hint=f"{self._key('list.filter')} sets one")
        if len(name) > MOST_LINE or len(self.filter.text) > MOST_LINE:
            raise ModelError(f"name and filter have at most {MOST_LINE} characters each")
        if name not in named and len(named) >= MOST_NAMED:
            raise ModelError(f"there are {MOST_NAMED} named filters already", hint=":forget-filter NAME takes one away")
        named[name] = self.filter.text
        self._write(f"saved as {one_line(name)}; :filters chooses it again")

    def do_forget_filter(self, name: str) -> None:
        named = self.session.saved.named(self.NOUN)
        if name not in named:
            raise ModelError(f"no filter is called {one_line(name)!r}", hint=did_you_mean(name, named))
        del named[name]
        self._write(f"the filter {one_line(name)} is forgotten")

    def do_filters(self, name: str) -> None:
        from iris_tui.gate import MenuScreen

        named = self.session.saved.named(self.NOUN)
        recent = [
            text for text in reversed(self.session.saved.history(f"filter {self.NOUN}")) if text not in named.values()
        ]
        if name:
            if name not in named:
                raise ModelError(f"no filter is called {one_line(name)!r}", hint=did_you_mean(name, named))
            self.set_filter(named[name])
            return
        shown = [(f"{one_line(known)}:  {one_line(text)}", text) for known, text in named.items()]
        shown += [(f"typed before:  {one_line(text)}", text) for text in recent[: max(9 - len(shown), 0)]]
        if not shown:
            self.console.say("no filter was saved or typed yet; :save-filter NAME saves the one that is on")
            return
        entries: list[Any] = [(str(at) if at < 10 else "", text, title) for at, (title, text) in enumerate(shown, 1)]

        def chosen(text: str | None) -> None:
            if text:
                self.set_filter(text)

        self.app.push_screen(
            MenuScreen(f"Filters of {self.NOUN}s", entries, ":save-filter NAME keeps the one that is on"), chosen
        )

    def _key(self, action_id: str) -> str:
        return self.console.keymap.first(action_id)

    def _write(self, done: str) -> None:
        async def write() -> None:
            from iris_tui.threads import in_thread

            wrong = await in_thread(self.session.saved.write, name="save")
            self.console.say(wrong or done, severity="warning" if wrong else "information")

        self.run_worker(write(), name="save the filters", group="saved", exit_on_error=False)
