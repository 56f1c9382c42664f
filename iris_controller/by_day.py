"""Objects that lie below the day of their making, and the removal of days that are over for long enough.

The day is in the name (`20260131/…` or `2026-01-31/…`), so that old ones are found without a list of what was ever kept. Must never
touch an object that does not lie under a day.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.contracts import ObjectStore
    from iris_core.live.clock import Clock

log = logging.getLogger("iris.expiry")

INTERVAL_S: Final = 3_600.0
_DIGITS: Final = 8


def remove_expired(store: ObjectStore, keep_ms: int, now_ms: int) -> int:
    """Removes what lies under a day that ended more than `keep_ms` ago; blocking. How many objects went. Raises IrisError."""
    last = datetime.fromtimestamp((now_ms - keep_ms) / 1000, UTC) - timedelta(days=1)
    expired = []
    for info in store.list(""):
        day, _, rest = info.name.partition("/")
        digits = day.replace("-", "")
        if not rest or len(digits) != _DIGITS or not digits.isdecimal():
            continue
        # Names come in order: the look ends with the first day that is not over.
        if digits > f"{last:%Y%m%d}":
            break
        expired.append(info.name)
    for name in expired:
        store.delete(name)
    return len(expired)


async def keep_removing(remove: Callable[[], int], what: str, clock: Clock, first_s: float) -> None:
    """Calls `remove` in a thread, every hour from `first_s` seconds on, for ever; `what` names the objects in the log."""
    await clock.sleep(first_s)
    while True:
        try:
            removed = await asyncio.to_thread(remove)
            if removed:
                log.info("removed %d %s that were older than they are kept", removed, what)
        except IrisError as error:
            log.warning("old %s were not removed, and will be later: %s", what, error.message)
        await clock.sleep(INTERVAL_S)
