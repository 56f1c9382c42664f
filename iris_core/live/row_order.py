"""Rows of a forest, and the order in which a snapshot of them is shown: filter, sort, open rows.

Computing an order touches nothing but the rows' `depth` and `context`, so that it may be done in a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

V = TypeVar("V")


@dataclass(slots=True)
class Row(Generic[V]):
    """One row. `version` changes with every value; `gone` means it was removed but must keep its place for now.

    Attributes:
        kind: What it is ("job", "task", "attempt"): siblings are grouped by kind.
        parent: Id of the row above it in the tree, "" for a root. A row whose parent is absent is shown as a root.
        natural: Order among siblings where the sort leaves a tie; smaller first.
        section: Roots are grouped by it; smaller first.
        expandable: Whether it may have rows below it, loaded or not.
    """

    id: str
    kind: str
    value: V
    parent: str = ""
    natural: Any = 0
    section: int = 0
    expandable: bool = False
    version: int = 0
    gone: bool = False
    depth: int = 0
    context: bool = False
    """Shown only because a row below it matches the filter."""


Match = Callable[[Row[V]], bool | None]
"""Whether a row passes the filter; None = it follows the row above it."""


class Ordered(NamedTuple):
    """What is to be shown: the ids in order, how many counted rows match, how many of those are among the ids, and which filter
    that was asked of (by identity)."""

    ids: list[str]
    matched: int
    shown: int
    match: Match[Any] | None


SortKey = Callable[[Row[V]], Any]


@dataclass(slots=True)
class OrderPlan(Generic[V]):
    """A snapshot from which `order()` computes what is shown. Touches no state of the store but `depth` and `context` of rows."""

    rows: dict[str, Row[V]]
    children: dict[str, list[str]]
    expanded: frozenset[str]
    match: Match[V] | None
    key: SortKey[V] | None
    reverse: bool
    kinds: tuple[str, ...]
    held: str

    def order(self) -> Ordered:
        """Compute what is to be shown."""
        rows = self.rows
        roots = [row for name in self.children.get("", ()) if (row := rows.get(name)) is not None]
        for parent, names in self.children.items():
            if parent and parent not in rows:
                roots += [row for name in names if (row := rows.get(name)) is not None]
        passing, above, matched = self._passing()
        kept = self._kept() if passing is not None else frozenset()
        result: list[str] = []
        shown = 0
        stack = self._sorted(roots)
        depths = [0] * len(stack)
        stack.reverse()
        while stack:
            row, depth = stack.pop(), depths.pop()
            name = row.id
            own = passing is None or name in passing
            if not own and name not in above and name not in kept:
                continue
            row.depth = depth
            row.context = not own
            result.append(name)
            shown += own and row.kind == self.kinds[0]
            if name in self.expanded or (row.context and name in above):
                below = [child for item in self.children.get(name, ()) if (child := rows.get(item)) is not None]
                ordered = self._sorted(below)
                ordered.reverse()
                stack += ordered
                depths += [depth + 1] * len(ordered)
        return Ordered(result, matched, shown, self.match)

    def _kept(self) -> frozenset[str]:
        """The row under the cursor and those above it: they stay though they do not match (any more)."""
        kept: set[str] = set()
        name = self.held
        while name and name not in kept and (row := self.rows.get(name)) is not None:
            kept.add(name)
            name = row.parent
        return frozenset(kept)

    def _passing(self) -> tuple[set[str] | None, set[str], int]:
        """The ids that pass (None = all), and those above one that passes by itself."""
        if self.match is None:
            return None, set(), 0
        passing: set[str] = set()
        following: list[Row[V]] = []
        for row in self.rows.values():
            verdict = self.match(row)
            if verdict:
                passing.add(row.id)
            elif verdict is None:
                following.append(row)
        matched = sum(self.rows[name].kind == self.kinds[0] for name in passing)
        above: set[str] = set()
        for name in passing:
            parent = self.rows[name].parent
            while parent and parent not in above and parent in self.rows:
                above.add(parent)
                parent = self.rows[parent].parent
        for row in sorted(following, key=lambda row: self.kinds.index(row.kind)):
            if row.parent in passing or row.parent in above:
                passing.add(row.id)
        return passing, above, matched

    def _sorted(self, rows: list[Row[V]]) -> list[Row[V]]:
        """Siblings by section, then kind, then the sort key, then their natural order. Keys of different kinds never meet."""
        if len(rows) < 2:
            return rows
        groups: dict[tuple[int, int], list[Row[V]]] = {}
        rank = {kind: place for place, kind in enumerate(self.kinds)}
        for row in rows:
            groups.setdefault((row.section, rank[row.kind]), []).append(row)
        result: list[Row[V]] = []
        for _, group in sorted(groups.items()):
            group.sort(key=lambda row: row.natural)
            if self.key is not None:
                group.sort(key=self.key, reverse=self.reverse)
            result += group
        return result
