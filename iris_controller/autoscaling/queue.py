"""What the autoscaler needs of the controller's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from iris_controller.commits import Committed
    from iris_controller.state.model import Model
    from iris_controller.state.overlay import Overlay

T = TypeVar("T")


class Queue(Protocol):
    """Implemented by `ControllerLoop`."""

    model: Model

    def post(self, name: str, plan: Callable[[Overlay, int], T]) -> asyncio.Future[T]: ...

    def on_commit(self, listener: Callable[[Committed], None]) -> None: ...

    def now_ms(self) -> int: ...
