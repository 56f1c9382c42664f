"""An endpoint that is registered as long as its server lives: a thread renews the lease until it is closed.

A controller that does not answer is a normal event: the thread goes on trying. Must never keep the process alive.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Self

from iris_core.contracts import IrisError, RpcFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from iris_core.job.task_context import Context
    from iris_core.sdk import EndpointInfo, IrisClient

RENEWALS = 3
"""How often the lease is renewed before it would end."""
OVER = frozenset({"FAILED_PRECONDITION", "PERMISSION_DENIED", "UNAUTHENTICATED", "NOT_FOUND"})
"""Answers after which this attempt cannot serve any more."""


class Serving:
    """One registration. `info` is as the controller keeps it; `lost` says why it is over, "" while it is not."""

    def __init__(
        self, owner: Context, name: str, port: int, metadata: Mapping[str, str], lease_s: float, link: bool
    ) -> None:
        self._id = os.urandom(8).hex()
        self._words = (name, f":{port}")
        self._metadata = dict(metadata)
        self._lease_s = lease_s
        self._link = link
        self._owner = owner
        self._closed = threading.Event()
        self.lost = ""
        self.info: EndpointInfo = self._register(owner.iris)
        self._thread = threading.Thread(target=self._keep, name=f"endpoint {name}", daemon=True)
        if lease_s:
            self._thread.start()

    def _register(self, iris: IrisClient) -> EndpointInfo:
        name, address = self._words
        return iris.register_endpoint(
            name,
            address,
            endpoint_id=self._id,
            metadata=self._metadata,
            lease_s=self._lease_s,
            link=self._link,
        )

    def _keep(self) -> None:
        from iris_core.sdk import IrisClient

        # A client belongs to one thread.
        with IrisClient.connect(controller_url=self._owner.controller_url) as iris:
            while not self._closed.wait(self._lease_s / RENEWALS):
                try:
                    self._register(iris)
                except RpcFailed as error:
                    if error.status in OVER:
                        self.lost = error.message
                        return
                except IrisError:
                    continue

    def close(self) -> None:
        """Removes the endpoint; also when nobody answers: then its lease ends it."""
        if self._closed.is_set():
            return
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join(self._lease_s + 1)
        if not self.lost:
            with contextlib.suppress(IrisError):
                self._owner.iris.unregister_endpoint(self._id)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
