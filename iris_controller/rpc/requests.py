"""What makes a request a repeat; and repeats of one that is still being answered wait for its first answer.

A repeat is the same request, field for field as it came, under the same id. The answers of finished mutations are rows in the database,
written in the same transaction as the mutation; `SingleFlight` only closes the gap before that row exists, and must never remember an
answer after it was given.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any, TypeVar

from iris_core.model.text import one_line

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable

    from google.protobuf.message import Message

T = TypeVar("T")

MAX_REQUEST_ID = 128
"""Longest `request_id` in characters."""


_SUBJECTS = ("job_id", "name", "task_id", "endpoint_id", "slice_id", "scale_group", "user_id", "target")
"""Fields that say what a request, or an answer, is about; the first that is set does."""

_MOST_SUBJECT = 200


def digest_of(request: Message) -> bytes:
    """The same for the same request: its fields in their order, maps by key."""
    return hashlib.sha256(request.SerializeToString(deterministic=True)).digest()


def subject_of(message: Message) -> str:
    """What it is about, "" if it does not say."""
    fields = message.DESCRIPTOR.fields_by_name
    for name in _SUBJECTS:
        value = getattr(message, name) if name in fields else ""
        if isinstance(value, str) and value:
            return one_line(value[:_MOST_SUBJECT])
    return ""


class SingleFlight:
    """One run at a time per key (principal, request id); belongs to one event loop."""

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def run(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Runs `work`, or waits for the run of the same key that is under way and returns, or raises, what it does.

        If the first caller is cancelled, one of those who wait runs `work` itself.
        """
        while (running := self._running.get(key)) is not None:
            # A waiter that is cancelled must not cancel the run of somebody else.
            await asyncio.wait([running])
            if not running.cancelled():
                found: T = running.result()
                return found
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._running[key] = future
        try:
            result = await work()
        except asyncio.CancelledError:
            future.cancel()
            raise
        except Exception as error:
            future.set_exception(error)
            # Nobody may be waiting; then nobody retrieves it.
            future.exception()
            raise
        else:
            future.set_result(result)
            return result
        finally:
            del self._running[key]
