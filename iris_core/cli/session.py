"""One run of the command line: what the root options said, and the connection that is opened when a command first needs it.

Commands reach it as `@click.pass_obj`. Must never dial before `client` is asked for.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from iris_core.cli.diagnostics import Diagnostics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from google.protobuf.message import Message

    from iris_core.connect import Target, Transport
    from iris_core.contracts import Client, R

    Opener = Callable[[Target, Transport, Callable[[str], None]], Client]
    Console = Callable[[Target], int]


@dataclass(slots=True)
class Session:
    """The root options, and what hangs on them.

    `program` is the name the operator typed, for hints; `opener` and `console` are replaced by tests and by the console program.
    """

    program: str = "iris-core"
    cluster: str = ""
    config: str = ""
    controller_url: str = ""
    transport: Transport = "auto"
    read_only: bool = False
    argv: tuple[str, ...] = ()
    """The words of this run without the program, as typed."""
    diagnostics: Diagnostics = field(default_factory=Diagnostics)
    opener: Opener | None = None
    console: Console | None = None
    """Opens the console on a cluster; None where there is no console."""
    alone: Callable[[Session], int] | None = None
    """What a command line without a command does; None = it is a usage error."""
    _target: Target | None = None
    _client: Client | None = None

    @property
    def target(self) -> Target:
        """The controller that is meant. Raises UsageFailed, ConnectFailed."""
        if self._target is None:
            from iris_core.connect import resolve

            self._target = resolve(
                cluster=self.cluster, config=self.config, controller_url=self.controller_url, read_only=self.read_only
            )
            self.diagnostics.debug(f"controller {self._target.url} ({self._target.cluster})")
        return self._target

    @property
    def client(self) -> Client:
        """The connection. Raises UsageFailed, ConnectFailed."""
        if self._client is None:
            from iris_core.connect import open_client

            target, note = self.target, self.diagnostics.note
            opened = (
                self.opener(target, self.transport, note)
                if self.opener is not None
                else open_client(target, transport=self.transport, note=note)
            )
            self._client = _Traced(opened, self.diagnostics) if self.diagnostics.verbose else opened
        return self._client

    def selector(self) -> str:
        """The selector as typed, to be repeated in a hint: `--cluster=local `, or "" when none was."""
        if self.controller_url:
            return f"--controller-url={self.controller_url} "
        if self.config:
            return f"--config={self.config} "
        return f"--cluster={self.cluster} " if self.cluster else ""

    def close(self) -> None:
        """Closes the connection."""
        if self._client is not None:
            self._client.close()
            self._client = None


class _Traced:
    """A client that says on standard error which calls it makes and how long they take; never what is in them."""

    def __init__(self, client: Client, diagnostics: Diagnostics) -> None:
        self.url = client.url
        self._client = client
        self._diagnostics = diagnostics

    def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        began = time.monotonic()
        try:
            return self._client.call(method, request, response, timeout_s=timeout_s)
        finally:
            self._diagnostics.debug(f"{method} {(time.monotonic() - began) * 1000:.1f} ms")

    def stream(self, method: str, request: Message, response: type[R]) -> Iterator[R]:
        self._diagnostics.debug(f"{method} stream")
        return self._client.stream(method, request, response)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def session_of(ctx: Any) -> Session:
    """The session of a click context."""
    found = ctx.find_object(Session)
    assert found is not None
    return found  # type: ignore[no-any-return]
