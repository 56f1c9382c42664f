"""What an operator has settled for the console: `~/.config/iris/console.yaml`, or the file that `$IRIS_CONSOLE_CONFIG` names.

Nothing in that file can keep the console from opening, least of all at three in the morning: whatever cannot be used is left out
and said, with its line and the nearest word that would have been right. Whether an action has that id, and whether its keys
clash, is decided where the table of actions is. Must never write the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from iris_core.config.places import config_home
from iris_core.contracts import UsageFailed
from iris_core.model.errors import did_you_mean, shown

if TYPE_CHECKING:
    from iris_core.config.document import Value

VARIABLE: Final = "IRIS_CONSOLE_CONFIG"
THEMES: Final = ("dark", "light", "contrast", "monochrome", "ansi", "production")
GLYPHS: Final = ("auto", "unicode", "ascii")

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class KeyWish:
    """The keys that are wanted for one action, and the place in the file for messages."""

    keys: tuple[str, ...]
    where: str = ""


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """What is settled for one cluster, below `clusters: {NAME: …}`."""

    environment: str = ""
    """What it is called in the header and in every gate; `production` has a colour and the word PROD, and asks more."""
    theme: str = ""
    """Colours while it is shown."""
    read_only: bool = False
    """Opened read-only, as with `--read-only`."""


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """What an operator has settled."""

    keys: Mapping[str, KeyWish] = field(default_factory=dict)
    """Keys by action id: `list.filter: [slash, ctrl+f]`; `[]` takes all away. What changes the cluster cannot be given one."""
    theme: str = ""
    """Colours: dark, light, contrast, monochrome, ansi (the terminal's own 16) or production; without one, as the terminal and the cluster are."""
    clusters: Mapping[str, ClusterSettings] = field(default_factory=dict)
    """By cluster name: `environment`, `theme`, `read_only`."""
    glyphs: str = "auto"
    """unicode or ascii for borders and marks; auto asks the terminal and the locale."""
    mouse: bool = True
    """Whether clicks and the wheel are taken; without it the terminal's own selection works."""
    restore: bool = True
    """Whether the console opens where a cluster was left, with its filters and order."""
    write_minutes: int = 15
    """How long `:write` lasts in a console that was opened read-only, in minutes; 0 = until it is taken back."""
    source: str = ""
    """The file that was read, "" if there is none."""
    problems: tuple[str, ...] = ()
    """What in it could not be used, one line each."""

    def cluster(self, name: str) -> ClusterSettings:
        """What is settled for a cluster."""
        return self.clusters.get(name, ClusterSettings())

    def environment_of(self, name: str, found: str = "") -> str:
        """The environment of a cluster: as settled here, else as its name says, else what was found."""
        settled = self.cluster(name).environment
        words = name.lower().replace("_", "-").replace(".", "-").split("-")
        return settled or ("production" if "prod" in words or "production" in words else found)


def console_file() -> Path:
    """Where the settings are."""
    named = os.environ.get(VARIABLE, "")
    return Path(named).expanduser() if named else config_home() / "iris" / "console.yaml"


def load_settings() -> ConsoleSettings:
    """The settings of this user. Never fails: what cannot be used is in `problems`."""
    path = console_file()
    if not path.exists():
        if os.environ.get(VARIABLE):
            return ConsoleSettings(problems=(f"${VARIABLE} names {path}, which is not there",))
        return ConsoleSettings()
    from iris_core.config.document import read_document

    try:
        return _settings(read_document(path), str(path))
    except UsageFailed as error:
        return ConsoleSettings(source=str(path), problems=(_line(error),))


def parse_settings(text: str, source: str = "console.yaml") -> ConsoleSettings:
    """The settings in a text, as `load_settings` reads them."""
    from iris_core.config.document import parse_document

    try:
        return _settings(parse_document(text.encode(), source), source)
    except UsageFailed as error:
        return ConsoleSettings(source=source, problems=(_line(error),))


def _line(error: UsageFailed) -> str:
    return f"{error.message}; {error.hint}" if error.hint else error.message


class _Reader:
    """Reads values one by one and collects what is wrong with each."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def known(self, section: Value, names: tuple[str, ...]) -> dict[str, Value]:
        """The keys of a section that exist."""
        found = self.mapping(section)
        for name, value in found.items():
            if name not in names:
                where = f" in {section.path}" if section.path else ""
                hint = did_you_mean(name, names) or f"known: {', '.join(names)}"
                self.problems.append(f"{value.source}:{value.line}: unknown key {shown(name)}{where}; {hint}")
        return {name: value for name, value in found.items() if name in names}

    def mapping(self, value: Value | None) -> dict[str, Value]:
        """A mapping with any keys."""
        nothing: dict[str, Value] = {}
        return self.take(value, lambda value: value.mapping(), nothing)

    def take(self, value: Value | None, read: Callable[[Value], T], default: T) -> T:
        """What stands there, or the default."""
        if value is None or value.is_nothing:
            return default
        try:
            return read(value)
        except UsageFailed as error:
            self.problems.append(_line(error))
            return default


def _settings(document: Value, source: str) -> ConsoleSettings:
    reader = _Reader()
    names = tuple(field.name for field in fields(ConsoleSettings) if field.name not in ("source", "problems"))
    top = reader.known(document, names)
    found: dict[str, Any] = {
        "keys": _keys(reader, top.get("keys")),
        "theme": reader.take(top.get("theme"), _one_of(THEMES), ""),
        "clusters": _clusters(reader, top.get("clusters")),
        "glyphs": reader.take(top.get("glyphs"), _one_of(GLYPHS), "auto"),
        "mouse": reader.take(top.get("mouse"), lambda value: value.boolean(), True),
        "restore": reader.take(top.get("restore"), lambda value: value.boolean(), True),
        "write_minutes": reader.take(top.get("write_minutes"), lambda value: value.whole(0, 24 * 60), 15),
    }
    return ConsoleSettings(**found, source=source, problems=tuple(reader.problems))


def _one_of(words: tuple[str, ...]) -> Callable[[Value], str]:
    def read(value: Value) -> str:
        text = value.text().removeprefix("iris-")
        if text not in words:
            raise value.wrong(f"{shown(text)} is none of {', '.join(words)}", hint=did_you_mean(text, words))
        return text

    return read


def _keys(reader: _Reader, section: Value | None) -> dict[str, KeyWish]:
    found: dict[str, KeyWish] = {}
    for name, value in reader.mapping(section).items():
        keys = reader.take(value, _key_names, None)
        if keys is not None or value.is_nothing:
            found[name] = KeyWish(keys or (), f"{value.source}:{value.line}")
    return found


def _key_names(value: Value) -> tuple[str, ...] | None:
    items = [value] if isinstance(value.data, (str, int)) else value.items()
    # A bare 0 is the key 0.
    return tuple(str(item.data) if isinstance(item.data, int) else item.text() for item in items)


def _clusters(reader: _Reader, section: Value | None) -> dict[str, ClusterSettings]:
    found: dict[str, ClusterSettings] = {}
    for name, value in reader.mapping(section).items():
        keys = reader.known(value, tuple(field.name for field in fields(ClusterSettings)))
        found[name] = ClusterSettings(
            environment=reader.take(keys.get("environment"), lambda value: value.text(), ""),
            theme=reader.take(keys.get("theme"), _one_of(THEMES), ""),
            read_only=reader.take(keys.get("read_only"), lambda value: value.boolean(), False),
        )
    return found
