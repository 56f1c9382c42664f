"""All keys as a page: `iris --keys`, and docs/keys.md, which `python -m iris_tui.keys_page` writes anew.

What an action is called, where it works and what does the same on the command line is read from the action table, with the
operator's own keys laid over it. Must never know an action by name.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import UsageFailed
from iris_core.model.errors import did_you_mean, shown
from iris_tui.actions import ALIASES, SCOPES, in_scope
from iris_tui.user_keys import Keymap, lay

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "keys.md"
FORMATS: Final = ("table", "json", "markdown")
HEAD: Final = """\
# Keys and commands of the console

Written by `python -m iris_tui.keys_page`; do not edit. `iris --keys` prints the same with your own keys in it, and says which of
them could not be used; `-o json` is for programs, `-o markdown` is this page.

Every action has an id. Keys are changed by id in `~/.config/iris/console.yaml` (or the file that `$IRIS_CONSOLE_CONFIG` names):

```yaml
keys:
  list.filter: [slash, f6]       # these keys instead of the ones below
  app.suspend: []                # none
theme: contrast
clusters:
  lab-prod: {environment: production, theme: production, read_only: true}
```

A key that means something else at the same time, an id that does not exist, a setting that is unknown: each is said when the
console opens, and everything else applies. What changes the cluster cannot be given a key: it is in the menu of a row, which is
two deliberate steps, and a command. `^c` and `^q` quit whatever is unbound.
"""


def rows(keymap: Keymap) -> list[dict[str, Any]]:
    """Every action in the order of the help."""
    words: dict[str, list[str]] = {}
    for alias, word in ALIASES.items():
        words.setdefault(word, []).append(alias)
    return [
        {
            "id": action.id,
            "scope": scope,
            "title": action.title,
            "keys": list(keymap.keys(action)),
            "shown": keymap.shown(action),
            "menu": action.menu,
            "tier": action.tier,
            "changes": action.mutates,
            "command": action.command,
            "aliases": sorted(words.get(action.command, ())) if action.command else [],
            "arguments": action.arguments,
            "cli": action.command_line(),
        }
        for scope in SCOPES
        for action in in_scope(scope)
    ]


def as_json(keymap: Keymap) -> str:
    """For programs: the actions, and what is wrong with the operator's own keys."""
    page = {"actions": rows(keymap), "problems": list(keymap.problems), "notes": list(keymap.notes)}
    return json.dumps(page, indent=2, ensure_ascii=False)


def as_table(keymap: Keymap) -> str:
    """For a terminal."""
    lines: list[str] = []
    for scope, heading in SCOPES.items():
        lines += ["", heading] if lines else [heading]
        for row in rows(keymap):
            if row["scope"] == scope:
                command = f":{row['command']} {row['arguments']}".rstrip() if row["command"] else ""
                lines.append(f"  {row['id']:<22} {row['shown']:<16} {row['title']:<54} {command}".rstrip())
    return "\n".join(lines)


def as_markdown(keymap: Keymap) -> str:
    """The page."""
    parts = [HEAD]
    for scope, heading in SCOPES.items():
        parts += [f"## {heading}", "", "| id | keys | does | command | on the command line |", "|---|---|---|---|---|"]
        parts += [_row(row) for row in rows(keymap) if row["scope"] == scope]
        parts.append("")
    parts += ["## Settings", "", "| setting | |", "|---|---|", *_settings(), ""]
    return "\n".join(parts)


def _row(row: dict[str, Any]) -> str:
    does = _cell(row["title"])
    if row["changes"]:
        does += f" (changes the cluster, tier {row['tier']})"
    command = f"`:{_cell(row['command'])}{' ' + _cell(row['arguments']) if row['arguments'] else ''}`"
    if row["aliases"]:
        command += ", " + ", ".join(f"`:{alias}`" for alias in row["aliases"])
    cells = [
        f"`{row['id']}`",
        f"`{_cell(row['shown'])}`" if row["shown"] else "",
        does,
        command if row["command"] else "",
        f"`{_cell(row['cli'])}`" if row["cli"] else "",
    ]
    return f"| {' | '.join(cells)} |"


def _settings() -> Iterator[str]:
    """The settings with what stands below each of them in the source."""
    from iris_core.config import console

    source = Path(console.__file__).read_text()
    for model, prefix in (("ConsoleSettings", ""), ("ClusterSettings", "clusters.NAME.")):
        body = source.partition(f"class {model}:")[2].partition("\nclass ")[0]
        for name, text in re.findall(r'^    (\w+): [^\n]*\n    """(.*?)"""', body, flags=re.M | re.S):
            if name not in ("source", "problems"):
                yield f"| `{prefix}{name}` | {_cell(' '.join(text.split()))} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def run_keys(words: Sequence[str]) -> int:
    """Print all keys as this operator has them; `words` is what stands behind `--keys`. Returns the exit code: 1 = some wish
    could not be granted. Raises UsageFailed for words that mean nothing.
    """
    from iris_core.config.console import load_settings

    chosen = _format(list(words))
    settings = load_settings()
    keymap = lay(settings.keys)
    keymap = Keymap(keymap.changed, (*settings.problems, *keymap.problems), keymap.notes)
    text = {"json": as_json, "markdown": as_markdown, "table": as_table}[chosen](keymap)
    sys.stdout.write(text.rstrip("\n") + "\n")
    sys.stdout.flush()
    for problem in (*keymap.problems, *keymap.notes):
        sys.stderr.write(f"iris: {problem}\n")
    return 1 if keymap.problems else 0


def _format(words: list[str]) -> str:
    chosen = "table"
    while words:
        word = words.pop(0)
        flag, _, value = word.partition("=")
        if flag not in ("-o", "--output"):
            raise UsageFailed(f"--keys takes no {shown(word)}", hint=f"write --keys -o {'|'.join(FORMATS)}")
        chosen = value or (words.pop(0) if words else "")
    if chosen not in FORMATS:
        near = did_you_mean(chosen, FORMATS) or f"one of {', '.join(FORMATS)}"
        raise UsageFailed(f"no format {shown(chosen)} for the keys", hint=near)
    return chosen


def main(argv: list[str]) -> int:
    """Writes the page; with `--check` returns 1 when the one on disk differs."""
    text = as_markdown(Keymap())
    if "--check" in argv:
        same = PAGE.exists() and PAGE.read_text() == text
        if not same:
            sys.stderr.write("docs/keys.md is out of date (run: python -m iris_tui.keys_page)\n")
        return 0 if same else 1
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
