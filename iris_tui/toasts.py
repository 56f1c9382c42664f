"""What is said in passing: a few words in a corner, that leave by themselves.

Textual 8.2 counts the time that is left of a toast by the wall clock, when it is made anew for another screen, and waits for that time by
a timer that never ends where it is not above zero: it goes round without a pause, and the console is dead. A busy machine is enough for
it. So ours are counted by a clock that nobody sets, and always have a moment left. Must never say what has to be read: a page does that.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from textual.notifications import Notification, Notify

if TYPE_CHECKING:
    from textual.app import App
    from textual.notifications import SeverityLevel

    Base = App[Any]
else:
    Base = object

SAME_TOAST_S: Final = 5.0
A_MOMENT_S: Final = 0.05


@dataclass
class Passing(Notification):
    """Words, and how long they stay. `raised_at` is of the monotonic clock."""

    raised_at: float = field(default_factory=time.monotonic)

    @property
    def time_left(self) -> float:
        """Seconds, never so few that no timer can wait for them."""
        return max(self._left(), A_MOMENT_S)

    @property
    def has_expired(self) -> bool:
        """Whether their time is over."""
        return self._left() <= 0

    def _left(self) -> float:
        return self.raised_at + self.timeout - time.monotonic()


class Toasts(Base):
    """Mix into the app, before Textual's own."""

    _toasts: dict[str, float]
    """When each was shown last, by its text."""

    def say(self, text: str, *, severity: str = "information") -> None:
        """A toast, literal; the same one is not repeated while it is shown."""
        now = time.monotonic()
        if now - self._toasts.get(text, -SAME_TOAST_S) < SAME_TOAST_S:
            return
        self._toasts = {known: at for known, at in self._toasts.items() if now - at < SAME_TOAST_S}
        self._toasts[text] = now
        self.notify(text, severity=severity, timeout=SAME_TOAST_S, markup=False)  # type: ignore[arg-type]

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """As Textual's own, and safe (see above)."""
        lasts_s = self.NOTIFICATION_TIMEOUT if timeout is None else timeout
        self.post_message(Notify(Passing(message, title, severity, lasts_s, markup=markup)))
