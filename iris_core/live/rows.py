"""The row store: every row by id, and the order in which they are shown.

A store is a forest (job → child jobs and tasks → attempts). Rows are found by id and never by position, so selection, marks
and expansion survive re-sorting, filtering and a reconnect. `apply` only records values: showing new rows and re-sorting is
`reorder`, which the surface calls at most once a second, because nothing may move under the hands of the operator. The
order can be frozen (marks exist, a gate is open); what changed meanwhile is counted.

No clock, no I/O, no thread: `plan()` hands out a snapshot whose `order()` may run in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic

from iris_core.live.row_order import Match, Ordered, OrderPlan, Row, SortKey, V

__all__ = ["ChangeSet", "Changes", "Counts", "Match", "Ordered", "Row", "RowStore", "SortKey"]


@dataclass(slots=True)
class Changes(Generic[V]):
    """A batch for `RowStore.apply`: the latest value per id, and the ids that are gone."""

    upserts: list[Row[V]] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ChangeSet:
    """What a batch did. `dirty` means that the order is not what a fresh `reorder` would give."""

    changed: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)
    removed: set[str] = field(default_factory=set)
    dirty: bool = False

    def merge(self, other: ChangeSet) -> None:
        """Add what a later batch did."""
        self.changed |= other.changed
        self.added |= other.added
        self.removed |= other.removed
        self.dirty = self.dirty or other.dirty

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.removed or self.dirty)


@dataclass(frozen=True, slots=True)
class Counts:
    """`total` rows of the counted kind are known, `matched` of them pass the filter, `shown` of those are in the order
    (the others are under closed rows)."""

    shown: int
    matched: int
    total: int


class RowStore(Generic[V]):
    """All rows by id, and `order`: what is shown, top to bottom.

    `kinds` are the kinds of row in the order in which siblings are grouped; the first is the one that counts are about.
    """

    def __init__(self, kinds: tuple[str, ...]) -> None:
        self.kinds = kinds
        self.rows: dict[str, Row[V]] = {}
        self.order: list[str] = []
        self.expanded: set[str] = set()
        self.marks: set[str] = set()
        self.dirty = False
        """Whether `order` differs from what `reorder` would give."""
        self._children: dict[str, dict[str, None]] = {}
        self._match: Match[V] | None = None
        self.answered = True
        """Whether `order` and the counts are those of the filter that was set last; not until the next order was computed."""
        self._key: SortKey[V] | None = None
        self._reverse = False
        self._held = ""
        self._freezes: set[str] = set()
        self._pending: set[str] = set()
        self._matched = 0
        self._shown = 0
        self._version = 0
        self._gone: set[str] = set()
        self._counted = 0
        self._lines: dict[str, int] | None = None
        """The line of each row that is shown; made once per order, when somebody asks."""

    # --- values ----------------------------------------------------------------------------------------------------

    def apply(self, changes: Changes[V]) -> ChangeSet:
        """Take over the latest values. Removed rows that are held or frozen in place stay, marked `gone`."""
        result = ChangeSet()
        for row in changes.upserts:
            known = self.rows.get(row.id)
            self._version += 1
            if known is None:
                row.version = self._version
                self.rows[row.id] = row
                self._children.setdefault(row.parent, {})[row.id] = None
                self._counted += row.kind == self.kinds[0]
                result.added.add(row.id)
                continue
            if known.parent != row.parent:
                self._unlink(known)
                self._children.setdefault(row.parent, {})[row.id] = None
                known.parent = row.parent
                result.dirty = True
            if known.gone:
                known.gone = False
                self._gone.discard(row.id)
                self._counted += known.kind == self.kinds[0]
                result.dirty = True
            known.value = row.value
            known.natural = row.natural
            known.section = row.section
            known.expandable = row.expandable
            known.version = self._version
            result.changed.add(row.id)
        for name in changes.removed:
            self._remove(name, result)
        if result.added or result.removed or (result.changed and (self._match is not None or self._key is not None)):
            result.dirty = True
        if result.dirty:
            self.dirty = True
        if self._freezes or self.marks:
            self._pending |= result.changed | result.added | result.removed
        return result

    def _remove(self, name: str, result: ChangeSet) -> None:
        for item in [name, *self.below(name)]:
            row = self.rows.get(item)
            if row is None or row.gone:
                continue
            self._version += 1
            row.version = self._version
            row.gone = True
            self._gone.add(item)
            self._counted -= row.kind == self.kinds[0]
            result.removed.add(item)

    def below(self, name: str) -> Iterator[str]:
        """All known descendants of a row."""
        stack = list(self._children.get(name, ()))
        while stack:
            item = stack.pop()
            yield item
            stack += self._children.get(item, ())

    def children(self, name: str) -> list[str]:
        """The known rows directly below a row, in no particular order."""
        return list(self._children.get(name, ()))

    def _unlink(self, row: Row[V]) -> None:
        siblings = self._children.get(row.parent)
        if siblings is not None:
            siblings.pop(row.id, None)
            if not siblings:
                del self._children[row.parent]

    # --- order -----------------------------------------------------------------------------------------------------

    def set_filter(self, match: Match[V] | None) -> None:
        """Choose what is shown. Takes effect with the next `reorder`. The row that was held is not held for this filter, whatever holds
        it again before."""
        self._match = match
        self.answered = False
        self.dirty = True

    def set_sort(self, key: SortKey[V] | None, *, reverse: bool = False) -> None:
        """Choose the order of siblings; None = their natural one. Takes effect with the next `reorder`."""
        self._key, self._reverse = key, reverse
        self.dirty = True

    def expand(self, name: str, *, on: bool = True) -> None:
        """Show or hide what is below a row. Takes effect with the next `reorder`."""
        if on:
            self.expanded.add(name)
        else:
            self.expanded.discard(name)
        self.dirty = True

    def hold(self, name: str) -> None:
        """Keep this row in place even when it is removed or stops matching: the cursor is on it."""
        if name != self._held and (self._held in self._gone or self._match is not None):
            self.dirty = True
        self._held = name

    def plan(self) -> OrderPlan[V]:
        """A snapshot for computing the order, which may be done in a thread; give the result to `adopt`."""
        if not self.answered:
            self._held = ""
        self._purge()
        return OrderPlan(
            dict(self.rows),
            {parent: list(names) for parent, names in self._children.items()},
            frozenset(self.expanded),
            self._match,
            self._key,
            self._reverse,
            self.kinds,
            self._held,
        )

    def adopt(self, ordered: Ordered) -> None:
        """Show what `plan().order()` computed. Rows that went away since are left out."""
        order = ordered.ids
        self.order = (
            order if all(name in self.rows for name in order) else [name for name in order if name in self.rows]
        )
        self._lines = None
        self._matched, self._shown = ordered.matched, ordered.shown
        self.answered = ordered.match is self._match
        self._pending.clear()

    def reorder(self, *, force: bool = False) -> bool:
        """Compute the order afresh. While frozen nothing happens unless forced; returns whether it was done."""
        if self.frozen and not force:
            return False
        self.dirty = False
        self.adopt(self.plan().order())
        return True

    def _purge(self) -> None:
        keep: set[str] = set()
        held = self._held
        while held and held in self.rows and held not in keep:
            keep.add(held)
            held = self.rows[held].parent
        for name in self._gone - keep:
            row = self.rows.pop(name, None)
            if row is not None:
                self._unlink(row)
            self.marks.discard(name)
            self.expanded.discard(name)
        self._gone &= keep

    # --- freezing, marks -------------------------------------------------------------------------------------------

    def freeze(self, reason: str) -> None:
        """Keep the order as it is until every reason was thawed."""
        self._freezes.add(reason)

    def thaw(self, reason: str) -> None:
        """Drop a reason to keep the order."""
        self._freezes.discard(reason)
        if not self.frozen:
            self.dirty = True

    @property
    def frozen(self) -> bool:
        """Whether the order stands still: a reason was given, or rows are marked."""
        return bool(self._freezes or self.marks)

    @property
    def pending(self) -> int:
        """How many rows changed, came or went since the order was frozen."""
        return len(self._pending) if self.frozen else 0

    def mark(self, name: str, *, on: bool | None = None) -> bool:
        """Mark a row, unmark it, or (None) turn its mark over; returns whether it is marked now."""
        wanted = name not in self.marks if on is None else on
        if wanted and name in self.rows:
            self.marks.add(name)
        else:
            self.marks.discard(name)
        if not self.marks:
            self.dirty = True
        return name in self.marks

    def clear_marks(self) -> None:
        """Unmark everything."""
        self.marks.clear()
        self.dirty = True

    def hidden_marks(self) -> int:
        """How many marked rows are not shown now (filtered out, or under a closed row)."""
        return sum(1 for name in self.marks if self.index(name) < 0)

    # --- looking ---------------------------------------------------------------------------------------------------

    def get(self, name: str) -> Row[V] | None:
        """The row of that id, also one that is gone but still shown."""
        return self.rows.get(name)

    def index(self, name: str) -> int:
        """Its line in the order, -1 if it is not shown."""
        if self._lines is None:
            self._lines = {shown: line for line, shown in enumerate(self.order)}
        return self._lines.get(name, -1)

    def counts(self) -> Counts:
        """Honest counts for the title."""
        matched = self._matched if self._match is not None else self._counted
        return Counts(self._shown, matched, self._counted)

    def visible_changes(self, changed: Iterable[str], first: int, count: int) -> list[int]:
        """Lines of the window `first … first+count-1` whose rows are among `changed`."""
        wanted = changed if isinstance(changed, (set, frozenset)) else set(changed)
        return [first + n for n, name in enumerate(self.order[first : first + count]) if name in wanted]
