"""The live rows of one screen: a subscription of its own with a row store behind it.

A feed runs while its screen is shown and rests while it is not: resting keeps the rows and the revision, so that coming back
shows them at once, with their age, and only the difference is sent. What the rows mean is the caller's: it says how a message
becomes rows. No screen, no clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Generic

from iris_core.live.row_order import Row, V
from iris_core.live.rows import Changes, ChangeSet, RowStore
from iris_core.live.watch import Selector, Watch
from iris_core.live.watch_keys import each

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from iris_core.live.backoff import Backoff
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1.controller_pb2 import WatchRows

ToRows = Callable[[str, "WatchRows"], Iterable[Row[V]]]
"""The rows that a message of a selector brings (selector's id, message)."""


class Feed(Generic[V]):
    """`kinds` as for RowStore; `to_rows` gives the rows of a message. Rows of different selectors must have different ids."""

    def __init__(
        self,
        client: AsyncClient,
        clock: Clock,
        selectors: Sequence[Selector],
        to_rows: ToRows[V],
        *,
        kinds: tuple[str, ...],
        backoff: Backoff | None = None,
    ) -> None:
        self.store: RowStore[V] = RowStore(kinds)
        self.watch = Watch(client, self, clock, backoff=backoff)
        self._to_rows = to_rows
        self._wanted = {selector.id for selector in selectors}
        self._complete: set[str] = set()
        self._of: dict[str, set[str]] = {}
        self._changes = ChangeSet()
        self.watch.select(selectors)

    @property
    def loaded(self) -> bool:
        """Whether the first snapshot of every selector is complete."""
        return self._wanted <= self._complete

    def select(self, selectors: Sequence[Selector]) -> None:
        """Watch something else. Rows of selectors that are left go away; those of new ones come with their snapshot."""
        self._wanted = {selector.id for selector in selectors}
        for left in [name for name in self._of if name not in self._wanted]:
            self._complete.discard(left)
            self._take(Changes(removed=list(self._of.pop(left))))
        self.watch.select(selectors)

    def take_changes(self) -> ChangeSet:
        """What changed since the last call."""
        changes, self._changes = self._changes, ChangeSet()
        return changes

    def row_id(self, selector: str, name: str) -> str:
        """The id of the row for what a selector's messages call `name`; another one where two kinds share their names."""
        return name

    def apply(self, selector: str, rows: WatchRows) -> None:
        """Latest values and removed ids of a message."""
        known = self._of.setdefault(selector, set())
        known.update(self.row_id(selector, name) for _, name, _ in each(rows))
        removed = [self.row_id(selector, name) for name in rows.removed]
        known.difference_update(removed)
        self._take(Changes(list(self._to_rows(selector, rows)), removed))

    def complete(self, selector: str, present: set[str], total: int) -> None:
        """A snapshot is complete: what it did not name is gone, with the rows below it."""
        self._complete.add(selector)
        known = self._of.setdefault(selector, set())
        gone = known.difference(self.row_id(selector, name) for name in present)
        known.difference_update(gone)
        self._take(Changes(removed=list(gone)))
        self.store.dirty = True

    def _take(self, changes: Changes[V]) -> None:
        self._changes.merge(self.store.apply(changes))
