"""The top line: where this is, as whom, and whether what is shown is true now.

Production is a colour and a word. LIVE, STALE with its age, RECONNECTING, DENIED and REFUSED are words, too: nothing here depends on
colour alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.style import Style

from iris_core.live.watch import Link, LinkState
from iris_core.live.wording import Tone
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_tui.drawing import Run
from iris_tui.themes import is_production
from iris_tui.widgets.line import Line

if TYPE_CHECKING:
    from iris_tui.session import Session

_TONES = {
    Link.CONNECTING: Tone.WAIT,
    Link.LIVE: Tone.GOOD,
    Link.STALE: Tone.WARN,
    Link.RECONNECTING: Tone.WARN,
    Link.DENIED: Tone.BAD,
    Link.REFUSED: Tone.BAD,
    Link.OFFLINE: Tone.WARN,
}


def link_text(state: LinkState) -> str:
    """`LIVE`, `STALE 42s`, or `OFFLINE  checkpoint 2026-11-29 03:00 UTC (23 h old)`."""
    if state.link is Link.OFFLINE:
        return f"{state.link.value}  {state.detail}"
    if state.link in (Link.LIVE, Link.CONNECTING) or state.age_s is None:
        return state.link.value
    return f"{state.link.value} {format_age(int(state.age_s * 1000))}"


class Header(Line):
    """Call `update` whenever time passes."""

    DEFAULT_CSS = """
    Header { dock: top; }
    """

    _production = False

    def update_from(self, session: Session, title: str, link: LinkState) -> None:
        """Show the session as it stands now, and how the connection stands that feeds the screen."""
        self._production = is_production(session.environment)
        left = [Run(" iris ", Tone.DIM), Run(one_line(session.title), Tone.PLAIN)]
        if self._production:
            left.append(Run("  PROD", Tone.BAD))
        elif session.environment and session.environment != session.name:
            left.append(Run(f"  {one_line(session.environment)}", Tone.DIM))
        left.append(Run(f"   {title}", Tone.DIM))
        right: list[Run] = []
        # A checkpoint is read-only by nature, and whoever reads it may read all of it.
        if session.read_only and not session.offline:
            right.append(Run("READ-ONLY  ", Tone.WARN))
        elif session.write_left_s is not None:
            right.append(Run(f"WRITE {format_age(int(max(session.write_left_s, 0) * 1000))}  ", Tone.WARN))
        if session.role and not session.offline:
            who = f"{one_line(session.user)} ({one_line(session.role)})  "
            right.append(Run(who, Tone.DIM))
        right.append(Run(f"{link_text(link)} ", _TONES[link.link]))
        self.show(left, right)

    def over(self) -> Style:
        return (self.paint.alarm if self._production else self.paint.band) + Style(bold=True)
