"""Rows that no batch names: looked at as a whole while somebody watches, and told by what differs from the last time.

One source serves everybody who watches the same. It looks at most once a second and never takes more than a twentieth of the time;
when nobody watches it does nothing at all. What it saw last is kept for a minute after the last watcher left, so that one who comes
back is sent the difference. Must never look at anything by itself: how is the `Look`'s business.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from iris_controller.rpc.errors import RpcError, unavailable

if TYPE_CHECKING:
    from iris_controller.commits import Committed
    from iris_controller.watching.kinds import Kind
    from iris_controller.watching.selection import Selection

log = logging.getLogger("iris.watch")

EVERY_S = 1.0
"""Least time between two looks."""
SHARE = 20.0
"""A look that took a second is followed by so many without one."""
LINGER_S = 60.0
KEPT_GONE = 50_000
LARGE = 200
"""More than so many rows, jobs or workers are gone through in a thread."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look:
    """How the rows of a kind come about. `rows` is given the tasks that are asked for, where the kind has such.

    `idle_s` is how often it is looked without a commit; `touched` whether a commit asks for it.
    """

    rows: Callable[[frozenset[str]], Awaitable[Iterable[Any]]]
    idle_s: float = 5.0
    touched: Callable[[Committed, frozenset[str]], bool] = lambda batch, task_ids: True


class Source:
    """See the module. `n` is that of the latest batch; `left` is told once nobody has watched for a while.

    `again` says that there may have been another before it, whose watchers know rows that this one has never seen.
    """

    def __init__(
        self,
        kind: Kind,
        look: Look,
        task_ids: frozenset[str],
        n: Callable[[], int],
        left: Callable[[Source], None],
        *,
        again: bool = False,
    ) -> None:
        self.kind = kind
        self.task_ids = task_ids
        self.rows: dict[str, Any] = {}
        self.looks = 0
        """How often it looked."""
        self._look = look
        self._n = n
        self._left = left
        self._again = again
        self._since = 0
        """Revisions from this one on can be resumed."""
        self._stamps: dict[str, int] = {}
        self._gone: dict[str, int] = {}
        """At which revision a row came to be what it is, or went."""
        self._watchers: dict[Selection, Callable[[], None]] = {}
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._first: asyncio.Future[None] | None = None
        self._drop: asyncio.TimerHandle | None = None

    @property
    def watchers(self) -> int:
        return len(self._watchers)

    async def join(self, selection: Selection, wake: Callable[[], None]) -> None:
        """Watches from now on; returns once `rows` is of now, or at most as old as a look. Raises RpcError."""
        if self._drop is not None:
            self._drop.cancel()
            self._drop = None
        self._watchers[selection] = wake
        if self._task is None:
            self._first = asyncio.get_running_loop().create_future()
            self._task = asyncio.create_task(self._run(self._first), name=f"watch {self.kind.plural}")
        if self._first is not None:
            await asyncio.shield(self._first)

    def leave(self, selection: Selection) -> None:
        """Watches no longer."""
        self._watchers.pop(selection, None)
        if self._watchers:
            return
        self.close()
        self._drop = asyncio.get_running_loop().call_later(LINGER_S, self._left, self)

    def close(self) -> None:
        """Looks no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._first is not None and not self._first.done():
            self._first.set_exception(unavailable("the watch was ended", code="shutting_down", retry_after_ms=2_000))
            self._first.exception()
        if self._drop is not None:
            self._drop.cancel()

    def note(self, batch: Committed) -> None:
        """A batch was committed."""
        if self._task is not None and self._look.touched(batch, self.task_ids):
            self._due.set()

    def since(self, n: int) -> list[str] | None:
        """The rows that may have changed, or gone, after revision `n`; None when that is not known any more."""
        if n < self._since:
            return None
        # One that was seen to differ at the same revision may have been seen after it was told.
        return [name for stamps in (self._stamps, self._gone) for name, at in stamps.items() if at >= n]

    async def _run(self, first: asyncio.Future[None]) -> None:
        while True:
            self._due.clear()
            began = time.monotonic()
            try:
                await self._once()
            except Exception as fault:
                if not isinstance(fault, RpcError):
                    log.exception("%s cannot be looked at", self.kind.plural)
                if not first.done():
                    self._fail(first, fault)
                    return
            if not first.done():
                first.set_result(None)
                self._first = None
            await asyncio.sleep(max(EVERY_S, SHARE * (time.monotonic() - began)))
            try:
                async with asyncio.timeout(self._look.idle_s):
                    await self._due.wait()
            except TimeoutError:
                continue

    def _fail(self, first: asyncio.Future[None], fault: Exception) -> None:
        self._task = None
        known = isinstance(fault, RpcError)
        first.set_exception(
            fault if known else RpcError("INTERNAL", f"{self.kind.plural} cannot be looked at", code="internal")
        )
        # Those who wait have it; nobody may.
        first.exception()

    async def _once(self) -> None:
        rows = list(await self._look.rows(self.task_ids))
        fresh, changed, gone = await apart(len(rows) + len(self.rows), _differences, self.rows, rows, self.kind.row_id)
        self.looks += 1
        n = self._n()
        if self.looks == 1:
            self._since = n + self._again
        self.rows = fresh
        for name in changed:
            self._stamps[name] = n
            self._gone.pop(name, None)
        for name in gone:
            self._stamps.pop(name, None)
            self._gone[name] = n
        if len(self._gone) > KEPT_GONE:
            self._gone.clear()
            self._since = n + 1
        touched = dict.fromkeys((*changed, *gone))
        if touched:
            for selection, wake in self._watchers.items():
                selection.dirty.rows.update(touched)
                wake()


async def apart(size: int, work: Callable[..., T], *values: Any) -> T:
    """What `work(*values)` gives: at once when it goes through little, else beside the loop."""
    return await asyncio.to_thread(work, *values) if size > LARGE else work(*values)


def _differences(
    before: dict[str, Any], rows: list[Any], row_id: Callable[[Any], str]
) -> tuple[dict[str, Any], list[str], list[str]]:
    """The rows by id, the ids of those that are new or say something else, and of those that are gone."""
    after = {row_id(row): row for row in rows}
    changed = [name for name, row in after.items() if (known := before.get(name)) is not row and known != row]
    return after, changed, [name for name in before if name not in after]
