"""One run of the command line: what the root options said, and the connection that is opened when a command first
needs it.

Commands reach it as `@click.pass_obj`. Must never dial before `client` is asked for.
"""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING, Any

from iris_core.cli.diagnostics import Diagnostics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType
    from typing import Self

    from google.protobuf.message import Message

    from iris_core.client.context import ClientContext
    from iris_core.connect import Target, Transport
    from iris_core.contracts import Client, R
    from iris_core.live.clock import Clock

    Opener = Callable[[Target, Transport, Callable[[str], None]], Client]
    Console = Callable[[Target], int]


class Session:
    """The root options, and what hangs on them.

    `program` is the name the operator typed, for hints, and `argv` the words behind it. `opener` replaces the
    connection, for tests. `console` opens the console on a cluster, None where there is none. `alone` is what a
    command line without a command does, None = it is a usage error. `clock` is that of a rollout's watch in tests: no
    program sets it, and without it the machine's own runs.
    """

    def __init__(
        self,
        *,
        program: str = "iris-core",
        argv: tuple[str, ...] = (),
        opener: Opener | None = None,
        console: Console | None = None,
        alone: Callable[[Session], int] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.program = program
        self.argv = argv
        self.opener = opener
        self.console = console
        self.alone = alone
        self.clock = clock
        self.cluster = ""
        self.config = ""
        self.controller_url = ""
        self.checkpoint = ""
        """Path or URL of a checkpoint that is read instead of a controller."""
        self.transport: Transport = "auto"
        self.read_only = False
        self.diagnostics = Diagnostics()
        self._target: Target | None = None
        self._client: Client | None = None
        self._closing: list[Callable[[], object]] = []

    @property
    def named(self) -> str:
        """The cluster that is meant by its name, for what is read in its file: that of --cluster, else of $IRIS_CLUSTER
        where that is what decides; "" when it is meant in another way or not at all."""
        if self.cluster or self.config or self.controller_url or self.checkpoint:
            return self.cluster
        from iris_core.connect.target import from_environment

        return from_environment(os.environ)[1]

    @property
    def target(self) -> Target:
        """The controller that is meant. Raises UsageFailed, ConnectFailed."""
        if self._target is None and self.checkpoint:
            from iris_core.connect import Target

            self._target = Target(self.client.url, "checkpoint", read_only=True)
        if self._target is None:
            from iris_core.cli.tunnels import open_tunnel
            from iris_core.connect import resolve

            self._target = resolve(
                cluster=self.cluster,
                config=self.config,
                controller_url=self.controller_url,
                read_only=self.read_only,
                tunnels=open_tunnel,
            )
            self.diagnostics.debug(f"controller {self._target.url} ({self._target.cluster})")
        return self._target

    @property
    def client(self) -> Client:
        """The connection. Raises UsageFailed, ConnectFailed."""
        if self._client is None and self.checkpoint:
            self._client = self._offline()
        if self._client is None:
            from iris_core.connect import open_client

            target, note = self.target, self.diagnostics.note
            opened = (
                self.opener(target, self.transport, note)
                if self.opener is not None
                else open_client(target, transport=self.transport, note=note, context=self.context)
            )
            if self.diagnostics.on_terminal:
                from iris_core.cli.patience import PatientClient

                opened = PatientClient(opened, self.diagnostics.progress)
            self._client = _Traced(opened, self.diagnostics) if self.diagnostics.verbose else opened
        return self._client

    def context(self) -> ClientContext:
        """What a change says of how it came about: the words that were typed, and their `--reason`."""
        import click

        from iris_core.client.context import ClientContext, command_line

        running = click.get_current_context(silent=True)
        reason = running.params.get("reason") if running is not None else None
        return ClientContext("cli", command_line(self.program, self.argv), reason or "")

    def require_live(self, what: str) -> None:
        """Raises UsageFailed when a checkpoint is read, which never changes; `what` would go on for ever."""
        if self.checkpoint:
            from iris_core.contracts import UsageFailed

            raise UsageFailed(f"a checkpoint does not change: {what}", hint="ask a running controller")

    def _offline(self) -> Client:
        from iris_core.cli import reads
        from iris_core.cli.beside import load

        opened = load("iris_controller.offline").open_checkpoint(self.checkpoint, self.diagnostics.note)
        self.at_close(lambda: reads.stand_still(0))
        reads.stand_still(opened.moment_ms)
        return _Traced(opened, self.diagnostics) if self.diagnostics.verbose else opened

    def selector(self) -> str:
        """The selector, to be repeated in a hint as a shell takes it: `--cluster=local `, or "" when none was."""
        if self.checkpoint:
            return f"--checkpoint={shlex.quote(self.checkpoint)} "
        if self.controller_url:
            return f"--controller-url={shlex.quote(self.controller_url)} "
        if self.config:
            return f"--config={shlex.quote(self.config)} "
        return f"--cluster={shlex.quote(self.cluster)} " if self.cluster else ""

    def command(self) -> str:
        """How a command line on the cluster of this run begins, quoted for a shell: `iris-core --cluster=lab`."""
        return f"{self.program} {self.selector()}".rstrip()

    def hint_unreached(self, error: Exception) -> None:
        """Names what to do about a controller that did not answer, where it is one that this program deploys and nothing is said yet."""
        if self._target is None:
            return
        from iris_core.contracts import ConnectFailed

        if isinstance(error, ConnectFailed) and not (error.hint or error.on_the_way):
            error.hint = self._target.way_out(self.command())

    def at_close(self, call: Callable[[], object]) -> None:
        """Has something else ended with this run."""
        self._closing.append(call)

    def close(self) -> None:
        """Closes the connection, and whatever was opened beside it."""
        if self._client is not None:
            self._client.close()
            self._client = None
        while self._closing:
            self._closing.pop()()


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
