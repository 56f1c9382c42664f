"""Keys one after the other: a key that opens or closes something has done so before the next one is looked at.

Textual hands every key to whatever has the focus when it arrives; typed ahead over a slow line, the keys after an Escape
would go to a page that is closing, and be lost or, worse, do something else. Here a key waits until the one before it has
travelled from the focused widget up to the app. Keys of priority never wait.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from textual import events
from textual.app import App

from iris_tui.actions import BY_ID
from iris_tui.keymap import PRIORITY

if TYPE_CHECKING:
    from textual.message_pump import MessagePump
    from textual.timer import Timer

LONGEST_S: Final = 1.0
"""A key that has not arrived by then (its widget was removed) holds up the next ones no longer."""
_AT_ONCE: Final = frozenset(key for action_id in PRIORITY for key in BY_ID[action_id].keys)


class TypeAhead(App[int]):
    """An app whose keys wait for each other."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._key_turn = 0
        self._key_busy = False
        self._keys_waiting: deque[events.Key] = deque()
        self._key_timer: Timer | None = None

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key) and not event.is_forwarded and event.key not in _AT_ONCE:
            if self._key_busy:
                self._keys_waiting.append(event)
            else:
                await self._deliver(event)
            return
        await super().on_event(event)

    async def _deliver(self, event: events.Key) -> None:
        self._key_busy = True
        self._key_turn += 1
        turn = self._key_turn
        target = self.focused or self.screen
        await super().on_event(event)
        if event.is_forwarded:
            self._key_timer = self.set_timer(LONGEST_S, partial(self._arrived, turn))
            self._follow_up(target, turn)
        else:
            self._arrived(turn)

    def _follow_up(self, node: MessagePump | None, turn: int) -> None:
        """Go behind the key through the queues of the focused widget and those above it."""
        while node is not None and node is not self:
            if node.is_running and node.call_later(self._follow_up, node._parent, turn):
                return
            node = node._parent
        self.call_later(self._arrived, turn)

    def _arrived(self, turn: int) -> None:
        if turn != self._key_turn or not self._key_busy:
            return
        if self._key_timer is not None:
            self._key_timer.stop()
            self._key_timer = None
        self._key_busy = False
        if self._keys_waiting:
            self.call_next(self._deliver, self._keys_waiting.popleft())
            self._key_busy = True
