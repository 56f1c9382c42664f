"""One thing that an operator can do in the console, as a value; the package's docstring says what the table of them is for."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One thing to do.

    Attributes:
        id: `scope.name`: the scope is where it works ("app", "jobs", "table", "log", "text"), the name its handler `do_<name>` there.
        title: What it does, as an imperative.
        keys: Textual key names; none = reachable by menu, palette and command only.
        tier: 0 harmless or reversible, 1 one workload, 2 many, 3 the cluster (console §2.3d).
        mutates: Whether it changes anything on the cluster; then read-only mode offers it nowhere.
        command: Word after `:`; none for moves.
        arguments: What may follow the word.
        cli: Equivalent command line; `{at}` is the cluster selector, `{id}` the row's id. "" = it concerns the screen alone.
        menu: Its key in the action menu of a row.
        footer: Place in the key bar, from 1; 0 = not there.
        moves: It moves the cursor or the view: in the help, not in palette or commands.
        kinds: Kinds of row it works on; empty = no row needed.
        many: It can be done to several marked rows, though it changes nothing.
        alive: It works only on what has not ended: the menu of what has does not offer it.
        anywhere: Asked for elsewhere, the screen that is called as its scope is shown first, else the first screen.
    """

    id: str
    title: str
    keys: tuple[str, ...] = ()
    tier: int = 0
    mutates: bool = False
    command: str = ""
    arguments: str = ""
    cli: str = ""
    menu: str = ""
    footer: int = 0
    moves: bool = False
    kinds: tuple[str, ...] = ()
    many: bool = False
    alive: bool = False
    anywhere: bool = False

    @property
    def scope(self) -> str:
        """Where it works."""
        return self.id.partition(".")[0]

    @property
    def needs_argument(self) -> bool:
        """Whether nothing can be done without what follows its word."""
        return bool(self.arguments) and not self.arguments.startswith("[")

    def command_line(self, at: str = "") -> str:
        """The equivalent command line as a pattern: `iris-core --cluster=lab job cancel ID`; `at` selects the cluster."""
        noun = "job" if not self.kinds or "job" in self.kinds else self.kinds[0]
        said = {"at": at, "noun": noun, "id": "ID", "job": "ID", "what": "threads"}
        words = re.sub(r"\{([a-z_]+)\}", lambda match: said.get(match[1], match[1].upper()), self.cli)
        return " ".join(words.split())

    @property
    def name(self) -> str:
        """Its handler is `do_<name>`."""
        return self.id.partition(".")[2]
