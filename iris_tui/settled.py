"""What the operator has settled, applied to the running console: keys, colours, characters; and what could not be applied, said once.

The file is read before the console opens (`iris_core.config.console`); here nothing is read. Must never keep the console from
opening.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_core.config.console import ConsoleSettings
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError, did_you_mean
from iris_core.model.text import one_line
from iris_tui.glyphs import ASCII, Glyphs, chosen
from iris_tui.no_colours import NoColours
from iris_tui.themes import MONOCHROME, PREFIX, THEMES, theme_for
from iris_tui.user_keys import Keymap, lay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from textual.app import App
    from textual.filter import LineFilter

    from iris_tui.session import Session

    Base = App[Any]
else:
    Base = object


class Settled(Base):
    """Mix into the app; call `settle` when it is made, and `settled_theme` whenever another session is shown."""

    settings: ConsoleSettings
    keymap: Keymap
    glyphs: Glyphs
    session: Session

    def settle(self, settings: ConsoleSettings | None, glyphs: Glyphs | None) -> None:
        """Take the settings. Before the app runs."""
        self.settings = settings or ConsoleSettings()
        self.glyphs = glyphs or chosen(self.settings.glyphs)
        self.keymap = lay(self.settings.keys)
        self._chosen_themes: dict[str, str] = {}
        self._no_colours = NoColours()
        self._line_filters: list[LineFilter] = []
        if self.glyphs is ASCII:
            from iris_tui.ascii_only import AsciiOnly

            self._line_filters.append(AsciiOnly())
        for theme in THEMES:
            self.register_theme(theme)
        if self.keymap.changed:
            self.set_keymap(self.keymap.textual())

    # --- colours -----------------------------------------------------------------------------------------------------

    @property
    def colours(self) -> str | None:
        """What the terminal can show, None = no colours are wanted."""
        return None if self.no_color else self.console.color_system

    def settled_theme(self) -> None:
        """The colours of the session that is shown."""
        session = self.session
        self.theme = theme_for(
            self.settings,
            session.name,
            session.environment,
            colours=self.colours,
            chosen=self._chosen_themes.get(session.name, ""),
        )

    def get_line_filters(self) -> Sequence[LineFilter]:
        if self.theme != MONOCHROME.name:
            return [*super().get_line_filters(), *self._line_filters]
        # Textual's own way without colours is shades of grey, which are colours still.
        return [self._no_colours, *self._line_filters]

    def do_theme(self, name: str) -> None:
        names = [theme.name for theme in THEMES]
        wanted = name if name in names or not name else f"{PREFIX}{name}"
        if wanted and wanted not in names:
            short = [known.removeprefix(PREFIX) for known in names]
            raise ModelError(
                f"no theme {one_line(name)!r}", hint=did_you_mean(name, short) or f"one of {', '.join(short)}"
            )
        if self.no_color and (wanted or MONOCHROME.name) != MONOCHROME.name:
            raise ModelError("$NO_COLOR is set, so there are no colours", hint="start the console without it")
        self._chosen_themes[self.session.name] = wanted or names[(names.index(self.theme) + 1) % len(names)]
        self.settled_theme()

    # --- what could not be applied -----------------------------------------------------------------------------------

    @property
    def settings_problems(self) -> tuple[str, ...]:
        """What of the operator's settings could not be applied, one line each."""
        return (*self.settings.problems, *self.keymap.problems)

    def report_settings(self) -> None:
        """Say at the start what could not be applied, on a page of its own."""
        problems = self.settings_problems
        if not problems:
            return
        from iris_tui.pages import TextPage

        async def load() -> list[tuple[str, Tone]]:
            lines = [
                ("Some settings could not be applied; everything else is.", Tone.WARN),
                ("", Tone.PLAIN),
                *((one_line(problem), Tone.PLAIN) for problem in problems),
                *((one_line(note), Tone.DIM) for note in self.keymap.notes),
                ("", Tone.PLAIN),
                ("`iris --keys` checks the keys without opening the console, and lists every action's id.", Tone.DIM),
                (f"{self.keymap.first('text.close')} closes this page.", Tone.DIM),
            ]
            return lines

        self.push_screen(TextPage(self.session, "Settings", load, command="iris --keys", dated=False))
