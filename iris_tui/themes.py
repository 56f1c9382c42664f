"""Colours: our themes, and what each tone looks like in the current one.

Tones come from `iris_core.live.wording`; a tone is never the only carrier of its meaning, so every theme may be replaced by
a monochrome one. Production has a theme of its own and its word in the header besides. Two themes have no colours of their own:
`ansi` uses the 16 of the terminal, `monochrome` none at all, only bold, dim, underlined and reversed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from rich.color import Color
from rich.style import Style
from textual.theme import BUILTIN_THEMES, Theme

from iris_core.live.wording import Tone

if TYPE_CHECKING:
    from iris_core.config.console import ConsoleSettings

PREFIX: Final = "iris-"

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
ANSI: Final = replace(BUILTIN_THEMES["ansi-dark"], name="iris-ansi")
MONOCHROME: Final = replace(
    ANSI, name="iris-monochrome", primary="ansi_default", error="ansi_default", warning="ansi_default"
)
THEMES: Final = (DARK, LIGHT, CONTRAST, MONOCHROME, ANSI, PRODUCTION)

_WORDS: Final = ("prod", "production")


def is_production(environment: str) -> bool:
    """Whether this environment is one where a mistake costs somebody else's work."""
    return environment.lower() in _WORDS


def theme_for(
    settings: ConsoleSettings, cluster: str, environment: str, *, colours: str | None, chosen: str = ""
) -> str:
    """The theme for a cluster.

    Args:
        colours: What the terminal can show: `truecolor`, `256` or `standard`; None = nothing (`NO_COLOR`).
        chosen: What the operator asked for while the console is open, "" = nothing.
    """
    if colours is None:
        return MONOCHROME.name
    settled = settings.cluster(cluster).theme or settings.theme
    if chosen or settled:
        return chosen or f"{PREFIX}{settled}"
    if colours == "standard":
        return ANSI.name
    return PRODUCTION.name if is_production(environment) else DARK.name


@dataclass(frozen=True, slots=True)
class Paint:
    """Styles of the current theme. `generation` changes with the theme, for caches.

    `band` lies over the first and the last line, `alarm` over the first line of a production cluster, `surface` over the title of
    a pane.
    """

    generation: str
    base: Style
    title: Style
    cursor: Style
    idle_cursor: Style
    mark: Style
    hit: Style
    current_hit: Style
    band: Style
    alarm: Style
    surface: Style
    tones: dict[Tone, Style]


def paint(theme: Theme) -> Paint:
    """The styles of a theme."""
    if theme.ansi:
        return _without_rgb(theme)
    foreground, background = theme.foreground or "#d0d0d0", theme.background or "#121212"
    panel, accent, primary = theme.panel or background, theme.accent or foreground, theme.primary
    faint = 0.2 if theme is CONTRAST else 0.45
    tones = {
        Tone.PLAIN: Style(),
        Tone.DIM: Style(color=mixed(foreground, background, faint)),
        Tone.GOOD: Style(color=theme.success),
        Tone.BUSY: Style(color=primary),
        Tone.WAIT: Style(color=theme.secondary),
        Tone.WARN: Style(color=theme.warning),
        Tone.BAD: Style(color=theme.error, bold=True),
    }
    return Paint(
        theme.name,
        base=Style(color=foreground, bgcolor=background),
        title=Style(color=primary, bold=True),
        cursor=Style(bgcolor=mixed(primary, background, 0.72), color=foreground, bold=True),
        idle_cursor=Style(bgcolor=panel),
        mark=Style(color=accent, bold=True),
        hit=Style(color=background, bgcolor=accent),
        current_hit=Style(color=background, bgcolor=theme.error, bold=True),
        band=Style(bgcolor=panel),
        alarm=Style(bgcolor=panel, bold=True),
        surface=Style(bgcolor=theme.surface),
        tones=tones,
    )


def _without_rgb(theme: Theme) -> Paint:
    """With the terminal's own colours, or with none."""
    colours = theme.name != MONOCHROME.name

    def tone(colour: str, *, bold: bool = False, dim: bool = False) -> Style:
        return Style(color=colour if colours else None, bold=bold or None, dim=dim or None)

    return Paint(
        theme.name,
        base=Style(color="default", bgcolor="default"),
        title=Style(bold=True),
        cursor=Style(reverse=True, bold=True),
        idle_cursor=Style(underline=True),
        mark=Style(bold=True),
        hit=Style(reverse=True),
        current_hit=Style(reverse=True, bold=True, underline=True),
        band=Style(underline=True),
        alarm=Style(reverse=True),
        surface=Style(bold=True),
        tones={
            Tone.PLAIN: Style(),
            Tone.DIM: Style(dim=True),
            Tone.GOOD: tone("green"),
            Tone.BUSY: tone("cyan"),
            Tone.WAIT: tone("magenta"),
            Tone.WARN: tone("yellow", bold=not colours),
            Tone.BAD: tone("red", bold=True),
        },
    )


def mixed(over: str, under: str, share: float) -> Color:
    """`over` with `share` of `under` in it."""
    first, second = Color.parse(over).get_truecolor(), Color.parse(under).get_truecolor()
    return Color.from_rgb(*(round(a + (b - a) * share) for a, b in zip(first, second, strict=True)))
