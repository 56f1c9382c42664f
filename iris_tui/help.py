"""The help page, made from the action table: what people come for, then what has the focus, how to get about, and everything else.

Everything on it is looked up: keys as this operator has them, the fields of the filter of the screen that is shown, the screens that
there are. `/` searches it like every page.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from iris_core.live.wording import Tone
from iris_core.model.filter import Field, FieldType
from iris_tui.actions import BY_ID, SCOPES, in_scope
from iris_tui.how_to import how_to, shown
from iris_tui.registry import SCREENS
from iris_tui.user_keys import Keymap

Lines = list[tuple[str, Tone]]

_NOTES: Final[dict[str, tuple[str, ...]]] = {
    "log": (
        "The lines of one task keep the order in which they were read from it, those of several are merged by time.",
        "& takes options before the pattern: -v PATTERN leaves lines out, -C N lines around hits, -l LEVEL, -F TEXT as it is.",
        "stdout and stderr are two pipes: which of two lines of the same moment came first is not known.",
    ),
}
"""What the keys of a scope do not tell."""

_ASKED: Final[dict[FieldType, str]] = {
    FieldType.TEXT: "field:part",
    FieldType.WORD: "field=word,word",
}
"""How each kind of field is asked."""
_COMPARED: Final = "field>=n  < > <= ="
"""How numbers, sizes, durations and times are."""


def help_lines(
    active: Iterable[str],
    *,
    read_only: bool,
    keymap: Keymap = Keymap(),  # noqa: B008 (frozen)
    fields: Mapping[str, FieldType | Field] | None = None,
    words: Sequence[str] = (),
) -> Lines:
    """All of it. In read-only mode, what changes the cluster is left out.

    Args:
        active: Scopes that answer now, what has the focus first.
        fields: What the filter of the screen knows, None if it has none.
        words: Fields in which a bare word is looked for.
    """
    first = list(dict.fromkeys(scope for scope in active if scope in SCOPES))
    first.sort(key=lambda scope: scope in ("table", "app", "go"))  # moving is what everybody guesses
    lines: Lines = []
    if read_only:
        lines += [
            ("Read-only: nothing here can change the cluster. :write allows it again.", Tone.WARN),
            ("", Tone.PLAIN),
        ]
    lines += _how_to(keymap)
    here = [scope for scope in first if scope not in ("app", "go")]
    for scope in here:
        lines += _scope(scope, keymap, read_only=read_only)
    if fields:
        lines += _filter(fields, words)
    lines += _screens(keymap)
    for scope in (scope for scope in SCOPES if scope not in here):
        lines += _scope(scope, keymap, read_only=read_only)
    return [
        *lines,
        ("The bar of a job's tasks", Tone.BUSY),
        ("  done, failed, running, starting and pending tasks, in this order; then done/all", Tone.PLAIN),
    ]


def _scope(scope: str, keymap: Keymap, *, read_only: bool) -> Lines:
    lines: Lines = [(SCOPES[scope], Tone.BUSY)]
    for action in in_scope(scope):
        if action.mutates and read_only:
            continue
        command = f":{action.command} {action.arguments}".rstrip() if action.command else ""
        lines.append((f"  {keymap.shown(action):<14} {action.title:<52} {command}".rstrip(), Tone.PLAIN))
    return [*lines, *((f"  {note}", Tone.DIM) for note in _NOTES.get(scope, ())), ("", Tone.PLAIN)]


def _filter(fields: Mapping[str, FieldType | Field], words: Sequence[str]) -> Lines:
    """The grammar, and what can be asked here."""
    asked: dict[str, list[str]] = {}
    for name, kind in fields.items():
        asked.setdefault(_ASKED.get(kind.type if isinstance(kind, Field) else kind, _COMPARED), []).append(name)
    lines: Lines = [("The filter here", Tone.BUSY)]
    lines.append((f"  {'word':<22} {', '.join(words) or 'some text'} has it; several words: all of them", Tone.PLAIN))
    lines += [(f"  {how:<22} {' '.join(names)}", Tone.PLAIN) for how, names in asked.items()]
    more = (
        ("!word  field!=a", "not; field~regex matches (RE2, (?i) for any case)"),
        ('field:a,b  "a b"', "one of them; quotes around blanks"),
    )
    lines += [(f"  {grammar:<22} {means}", Tone.PLAIN) for grammar, means in more]
    return [*lines, ("  ages and times: age>1h30m, started<2026-01-31; sizes: memory>4GiB", Tone.DIM), ("", Tone.PLAIN)]


def _how_to(keymap: Keymap) -> Lines:
    questions = how_to(keymap)
    wide = max((len(question) for question, _ in questions), default=0)
    return [
        ("How do I …", Tone.BUSY),
        *((f"  {question:<{wide}}  {answer}", Tone.PLAIN) for question, answer in questions),
        ("", Tone.PLAIN),
    ]


def _screens(keymap: Keymap) -> Lines:
    """Where one can go, in columns."""
    leader = shown("app.goto", keymap)
    places = [f"{screen.letter} {screen.title}" for screen in SCREENS.values() if screen.letter]
    wide = max((len(place) for place in places), default=0) + 3
    across = max(72 // wide, 1)
    lines: Lines = [(f"Where to go: {leader} and a letter, or : and the name", Tone.BUSY)]
    for start in range(0, len(places), across):
        lines.append(
            ("  " + "".join(f"{place:<{wide}}" for place in places[start : start + across]).rstrip(), Tone.PLAIN)
        )
    back = ", ".join(
        f"{shown(name, keymap)} {BY_ID[name].title[0].lower()}{BY_ID[name].title[1:]}"
        for name in ("app.past", "app.future", "app.last")
    )
    by_id = " ".join(f":{screen.word}" for screen in SCREENS.values() if screen.word and not screen.lists)
    return [*lines, (f"  {back}", Tone.PLAIN), (f"  of one thing, by its id: {by_id}", Tone.DIM), ("", Tone.PLAIN)]
