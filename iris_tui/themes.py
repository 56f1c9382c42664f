"""Colours: our themes, and what each tone looks like in the current one.

Tones come from `iris_core.live.columns`; a tone is never the only carrier of its meaning, so every theme may be replaced by
a monochrome one. Production has a theme of its own and its word in the header besides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rich.color import Color
from rich.style import Style
from textual.theme import Theme

from iris_core.live.wording import Tone

DARK: Final = Theme(
    name="iris-dark", primary="#5fafd7", secondary="#8787af", accent="#d7af5f", foreground="#d0d0d0", background="#121212",
    surface="#1c1c1c", panel="#262626", success="#87af5f", warning="#d7af5f", error="#ff6f61", dark=True,
)  # fmt: skip
LIGHT: Final = Theme(
    name="iris-light", primary="#005f87", secondary="#5f5f87", accent="#875f00", foreground="#1c1c1c", background="#fafafa",
    surface="#f0f0f0", panel="#e0e0e0", success="#3f6f00", warning="#875f00", error="#af0000", dark=False,
)  # fmt: skip
CONTRAST: Final = Theme(
    name="iris-contrast", primary="#00ffff", secondary="#ffffff", accent="#ffff00", foreground="#ffffff", background="#000000",
    surface="#000000", panel="#202020", success="#00ff00", warning="#ffff00", error="#ff5f5f", dark=True,
)  # fmt: skip
PRODUCTION: Final = Theme(
    name="iris-production", primary="#ff8787", secondary="#af8787", accent="#ffaf5f", foreground="#d0d0d0",
    background="#161010", surface="#201616", panel="#4a1414", success="#87af5f", warning="#ffaf5f", error="#ff6f61", dark=True,
)  # fmt: skip
THEMES: Final = (DARK, LIGHT, CONTRAST, PRODUCTION)

_WORDS: Final = ("prod", "production")


def is_production(environment: str) -> bool:
    """Whether this environment is one where a mistake costs somebody else's work."""
    return environment.lower() in _WORDS


@dataclass(frozen=True, slots=True)
class Paint:
    """Styles of the current theme. `generation` changes with the theme, for caches."""

    generation: str
    base: Style
    title: Style
    cursor: Style
    idle_cursor: Style
    mark: Style
    hit: Style
    current_hit: Style
    tones: dict[Tone, Style]


def paint(theme: Theme) -> Paint:
    """The styles of a theme."""
    foreground, background = theme.foreground or "#d0d0d0", theme.background or "#121212"
    panel, accent, primary = theme.panel or background, theme.accent or foreground, theme.primary
    tones = {
        Tone.PLAIN: Style(),
        Tone.DIM: Style(color=_mixed(foreground, background, 0.45)),
        Tone.GOOD: Style(color=theme.success),
        Tone.BUSY: Style(color=primary),
        Tone.WAIT: Style(color=theme.secondary),
        Tone.WARN: Style(color=theme.warning),
        Tone.BAD: Style(color=theme.error, bold=True),
    }
    return Paint(
        theme.name,
        Style(color=foreground, bgcolor=background),
        Style(color=primary, bold=True),
        Style(bgcolor=_mixed(primary, background, 0.72), color=foreground, bold=True),
        Style(bgcolor=panel),
        Style(color=accent, bold=True),
        Style(color=background, bgcolor=accent),
        Style(color=background, bgcolor=theme.error, bold=True),
        tones,
    )


def _mixed(over: str, under: str, share: float) -> Color:
    """`over` with `share` of `under` in it."""
    first, second = Color.parse(over).get_truecolor(), Color.parse(under).get_truecolor()
    return Color.from_rgb(*(round(a + (b - a) * share) for a, b in zip(first, second, strict=True)))
