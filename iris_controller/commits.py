"""What goes into the loop and what comes out of it: commands, committed batches, and what the loop asks of writer and scheduler.

Apart from the loop, so that whoever is told of batches (watching, autoscaling, statistics) does not open what makes them. Must
never do anything by itself, nor import the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from iris_controller.state.overlay import Overlay

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Sequence

    from iris_controller.state.changes import Changes
    from iris_controller.store.writer import Statement

T = TypeVar("T")

Plan = Callable[[Overlay, int], T]
"""Plans one change into the overlay, at a time in epoch milliseconds. Raises RpcError, before it changes anything."""


class Commits(Protocol):
    """What the loop needs of the writer."""

    async def commit(self, statements: Sequence[Statement]) -> None: ...


@dataclass(slots=True)
class Command(Generic[T]):
    """One mutation. An internal one is retried after a failed commit instead of being answered."""

    name: str
    plan: Plan[T]
    done: asyncio.Future[T]
    internal: bool = False
    result: Any = None
    refused: BaseException | None = None


@dataclass(slots=True)
class LoopStats:
    """Readings for `process status` and `/metrics`."""

    batches: int = 0
    commands: int = 0
    failed_commits: int = 0
    changes: int = 0
    """Batches that changed the state."""
    last_commit_ms: float = 0.0
    last_plan_ms: float = 0.0
    store_error: str = ""
    """Why the last commit failed; "" since one succeeded."""


@dataclass(slots=True)
class Committed:
    """A batch that is now the state."""

    n: int
    changes: Changes
    now_ms: int
    reasons: set[str] = field(default_factory=set)
    """Jobs whose pending reason changed."""


class Ticker(Protocol):
    """The scheduler's side: plans a slice into the overlay at the start of a batch."""

    def wanted(self) -> bool: ...

    def slice(self, overlay: Overlay, now_ms: int) -> dict[str, str]:
        """Assigns into the overlay and returns the reasons that changed (job id → text, "" = none)."""
        ...

    def dropped(self) -> None:
        """The slice just planned was not committed."""
        ...

    def noticed(self, changes: Changes) -> None:
        """A batch was committed; decides whether there is something to plan."""
        ...
