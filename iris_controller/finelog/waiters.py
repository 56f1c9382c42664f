"""Readers that wait for new lines, and who of them is woken by which key.

Belongs to one event loop. A waiter is woken for keys in its scope only, so a thousand followers of quiet logs cost nothing while
another log is busy. Must never hold lines.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from iris_controller.finelog.query import Scope


class Waiters:
    """See the module."""

    def __init__(self) -> None:
        self._by_source: dict[str, set[Waiter]] = {}
        self._is_closed = False

    def join(self, scope: Scope) -> Waiter:
        """A new waiter: use it in a `with` statement. Lines stored from now on wake it."""
        waiter = Waiter(self, scope)
        for source in scope.sources:
            self._by_source.setdefault(source, set()).add(waiter)
        if self._is_closed:
            waiter.end()
        return waiter

    def notify(self, keys: Iterable[str]) -> None:
        """Lines under these keys were stored."""
        for key in keys:
            for source in _sources(key):
                for waiter in self._by_source.get(source, ()):
                    if waiter.scope.matches(key):
                        waiter.wake()

    def close(self) -> None:
        """Ends the waiting of all, now and from now on."""
        self._is_closed = True
        for waiters in self._by_source.values():
            for waiter in waiters:
                waiter.end()

    def leave(self, waiter: Waiter) -> None:
        """`waiter` is done."""
        for source in dict.fromkeys(waiter.scope.sources):
            waiters = self._by_source[source]
            waiters.discard(waiter)
            if not waiters:
                del self._by_source[source]

    def __len__(self) -> int:
        return len({waiter for waiters in self._by_source.values() for waiter in waiters})


class Waiter:
    """One reader's wait."""

    def __init__(self, waiters: Waiters, scope: Scope) -> None:
        self.scope = scope
        self.is_ended = False
        """Nothing more will come: the process stops."""
        self._waiters = waiters
        self._event = asyncio.Event()

    def wake(self) -> None:
        """Something new may match."""
        self._event.set()

    def end(self) -> None:
        """Wakes it for good."""
        self.is_ended = True
        self._event.set()

    async def wait(self, seconds: float) -> bool:
        """Waits for news since the last call; False if the time ran out before."""
        if seconds <= 0:
            return False
        try:
            async with asyncio.timeout(seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True

    def __enter__(self) -> Waiter:
        return self

    def __exit__(self, *_: object) -> None:
        self._waiters.leave(self)


def _sources(key: str) -> Iterator[str]:
    """The sources of all scopes that can cover `key`: itself, and what stands before each `/` and `:`."""
    yield key
    for place in range(1, len(key)):
        if key[place] in "/:":
            yield key[:place]
