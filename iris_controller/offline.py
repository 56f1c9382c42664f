"""A checkpoint as if a controller served it: one more implementation of the client's protocol (`contracts.Client`).

The checkpoint is unpacked into this user's cache, or a private temporary folder, and the controller's own services answer from it in
this process, so that every command reads and prints as it does against a controller. The console's client is `offline_client`. Must
never write to where the checkpoint lies.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Self, TypeVar

from iris_controller.checkpoint.opening import Phase, Progress, Unpacked, unpacked
from iris_core.contracts import UsageFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from google.protobuf.message import Message

    from iris_controller.offline_state import OfflineState

R = TypeVar("R", bound="Message")


class OfflineClient:
    """One checkpoint, opened (`contracts.Client`). `url` is where it lies, `moment_ms` what time it is in it."""

    def __init__(self, place: str, note: Callable[[str], None] = lambda _: None) -> None:
        """Unpacks and loads it. Raises UsageFailed, BadCheckpoint, IrisError; nothing is left behind then."""
        self._unpacked, self._state = opened(place, note=note)
        self.url = self._unpacked.label
        self.moment_ms = self._state.moment_ms
        self._closed = False
        self._runner = asyncio.Runner()
        if self._unpacked.epoch_ms:
            note(f"read from the checkpoint of {moment(self._state.moment_ms)}; its workers are taken as healthy")

    def call(self, method_name: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        """Raises UsageFailed: only a controller can do that; RpcFailed: the answer is an error."""
        return response.FromString(self._runner.run(self._state.call(method_name, request.SerializeToString())))

    def stream(self, method_name: str, request: Message, response: type[R]) -> Iterator[R]:
        self._state.check(method_name)
        raise UsageFailed("a checkpoint does not change: there is nothing to watch", hint="ask a running controller")

    def close(self) -> None:
        """Lets go of what was unpacked. A second time is no error."""
        if not self._closed:
            self._closed = True
            self._runner.close()
            self._state.close()
            self._unpacked.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def moment(epoch_ms: int) -> str:
    """`2026-11-29 03:00:00 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(epoch_ms / 1000))


def opened(
    place: str,
    tell: Callable[[Progress], None] = lambda _: None,
    note: Callable[[str], None] = lambda _: None,
) -> tuple[Unpacked, OfflineState]:
    """Unpacks and loads a checkpoint; the caller closes both, the state first. As `opening.unpacked`."""
    # What answers takes half a second to import, and unpacking leaves the interpreter alone meanwhile.
    loading = threading.Thread(target=_state_type, name="import", daemon=True)
    loading.start()
    found = unpacked(place, tell, note)
    try:
        loading.join()
        tell(Progress(Phase.LOADING))
        return found, _state_type()(found)
    except BaseException:
        found.close()
        raise


def _state_type() -> type[OfflineState]:
    from iris_controller.offline_state import OfflineState

    return OfflineState


def open_checkpoint(place: str, note: Callable[[str], None]) -> OfflineClient:
    """The client of a checkpoint's path or URL. Raises IrisError."""
    return OfflineClient(place, note)
