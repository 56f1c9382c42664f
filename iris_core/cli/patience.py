"""What a terminal shows while a controller does not answer: after a few seconds that nothing came, and for how long.

The line is replaced each second and gone before the answer is printed; where standard error is no terminal nothing is written. Must
never decide how long is waited.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from google.protobuf.message import Message

    from iris_core.contracts import Client, R

QUIET_S: Final = 3.0
"""Seconds without a word about it."""
EACH_S: Final = 1.0
WAITS_BY_DESIGN: Final = frozenset({"LogService/FetchLogs"})
"""Answered only once there is something to say."""


class PatientClient:
    """A client that tells `show` how long a call has been waiting, and "" when that is over."""

    def __init__(
        self, client: Client, show: Callable[[str], None], *, quiet_s: float = QUIET_S, each_s: float = EACH_S
    ) -> None:
        self.url = client.url
        self._client = client
        self._show = show
        self._quiet_s = quiet_s
        self._each_s = each_s

    def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        if method in WAITS_BY_DESIGN:
            return self._client.call(method, request, response, timeout_s=timeout_s)
        over = threading.Event()
        teller = threading.Thread(target=self._tell, args=(over,), name="patience", daemon=True)
        teller.start()
        try:
            return self._client.call(method, request, response, timeout_s=timeout_s)
        finally:
            over.set()
            teller.join()

    def _tell(self, over: threading.Event) -> None:
        waited = self._quiet_s
        if over.wait(self._quiet_s):
            return
        while True:
            self._show(f"{self.url} has not answered for {waited:.0f} s")
            if over.wait(self._each_s):
                break
            waited += self._each_s
        self._show("")

    def stream(self, method: str, request: Message, response: type[R]) -> Iterator[R]:
        return self._client.stream(method, request, response)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
