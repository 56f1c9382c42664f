"""Keys one after the other: a key that opens or closes something has done so before the next one is looked at.

Textual hands every key to whatever has the focus when it arrives; typed ahead over a slow line, the keys after an Escape
would go to a page that is closing, and be lost or, worse, do something else. Here a key waits until the one before it has
travelled from the focused widget up to the app, and until the screen that it opened can take it: is built, has the focus where
keys belong, and shows what they are about. A screen that cannot for long is not waited for. Keys of priority never wait.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable
from weakref import WeakKeyDictionary

from textual import events
from textual.app import App

from iris_tui.actions import BY_ID
from iris_tui.keymap import PRIORITY

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message_pump import MessagePump
    from textual.screen import Screen
    from textual.timer import Timer

LONGEST_S: Final = 1.0
"""A key that has not arrived by then (its widget was removed) holds up the next ones no longer, nor does a screen that is not ready."""
LOOK_S: Final = 0.02
"""How often a screen is asked whether it takes keys, while some wait."""
_LINE_FEED: Final = "ctrl+j"
"""What an Enter arrives as that was typed before the terminal was the console's: the terminal's own line editing made it of it."""
_AT_ONCE: Final = frozenset(key for action_id in PRIORITY for key in BY_ID[action_id].keys)


@runtime_checkable
class TakesKeys(Protocol):
    """A screen that knows whether it shows what keys are about."""

    def takes_keys(self) -> bool:
        """Whether a key can be taken now."""
        ...


class WithEscape(events.Key):
    """A key right behind an Escape: two keys, unless something is bound to Alt and that key. No widget ever sees it."""

    def keys(self, bound: Callable[[str], bool]) -> tuple[events.Key, ...]:
        """What was typed; `bound` says whether a key has something to do."""
        upper = len(self.key) == 1 and self.key.isupper()
        with_alt = f"alt+shift+{self.key.lower()}" if upper else f"alt+{self.key}"
        if bound(with_alt):
            return (events.Key(with_alt, None),)
        return events.Key("escape", "\x1b"), events.Key(self.key, self.character)


class TypeAhead(App[int]):
    """An app whose keys wait for each other."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._key_turn = 0
        self._key_busy = False
        self._keys_waiting: deque[events.Key] = deque()
        self._key_timer: Timer | None = None
        self._key_look: Timer | None = None
        self._patience: WeakKeyDictionary[Screen[Any], float] = WeakKeyDictionary()
        """Until when each screen that does not take keys is waited for."""

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, WithEscape):
            for key in event.keys(self._does_something):
                await self.on_event(key)
            return
        if isinstance(event, events.Key) and event.key == _LINE_FEED and not self.is_bound(_LINE_FEED):
            event = events.Key("enter", "\r")
        if isinstance(event, events.Key) and not event.is_forwarded and event.key not in _AT_ONCE:
            if self._key_busy or self._keys_waiting or not (self._takes_keys() or self.passes_at_once(event.key)):
                self._keys_waiting.append(event)
                self._go_on()
            else:
                await self._deliver(event)
            return
        await super().on_event(event)

    def passes_at_once(self, key: str) -> bool:
        """Whether a key is about no row or line, so that a screen that is built takes it before it shows anything."""
        return False

    def is_bound(self, key: str) -> bool:
        """Whether an operator has given this key something to do."""
        return False

    def _does_something(self, key: str) -> bool:
        """Whether the operator or what is shown has something for this key to do."""
        return self.is_bound(key) or (bool(self.screen_stack) and key in self.screen.active_bindings)

    def _takes_keys(self) -> bool:
        """Whether the screen that is shown can take a key, or has been waited for long enough."""
        if not self.screen_stack:
            return True
        screen = self.screen
        if isinstance(screen, TakesKeys):
            ready = screen.takes_keys()
        else:
            ready = screen.is_mounted and (screen.focused is not None or not screen.focus_chain)
        if ready:
            self._patience.pop(screen, None)
            return True
        now = time.monotonic()
        return now >= self._patience.setdefault(screen, now + LONGEST_S)

    def _go_on(self) -> None:
        """Deliver the key that waits longest, as soon as that may be."""
        if self._key_look is not None:
            self._key_look.stop()
            self._key_look = None
        if self._key_busy or not self._keys_waiting:
            return
        if self._takes_keys():
            self._key_busy = True
            self.call_next(self._deliver, self._keys_waiting.popleft())
        else:
            self._key_look = self.set_timer(LOOK_S, self._go_on)

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
        self._go_on()
