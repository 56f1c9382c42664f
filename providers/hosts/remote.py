"""Requests to `iris-controller host` and commands of `iris-controller store` on a host, and their answers as values and errors.

The program is carried along (`carried.py`). An error of the host's side comes back as the error that it was, with the host's name before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from iris_core.contracts import ControllerUnhealthy, IrisError
from providers.hosts import carried
from providers.hosts.ssh import Done, Ssh
from providers.said import as_error

ANSWER_S: Final = 60.0
"""For a request that only looks."""
MARGIN_S: Final = 60.0
"""Beside what a request itself may take: to connect, to load."""


class Remote:
    """One host's side of a deployment: `state_dir` is the cluster's local state there."""

    def __init__(self, ssh: Ssh, cluster: str, state_dir: str) -> None:
        self.ssh = ssh
        self.cluster = cluster
        self.state_dir = state_dir

    def ask(
        self,
        name: str,
        *,
        timeout_s: float = ANSWER_S,
        data: Callable[[], Iterable[bytes]] = lambda: (),
        **values: object,
    ) -> Any:
        """One request; its value. Raises IrisError in the host's words, ControllerUnhealthy, HostUnreachable."""
        request = {"cluster": self.cluster, "state_dir": self.state_dir, "again": False, **values}
        attempts = 0

        def feed() -> Iterable[bytes]:
            nonlocal attempts
            attempts += 1
            yield carried.package()
            yield json.dumps({**request, "again": attempts > 1}).encode() + b"\n"
            yield from data()

        done = self.ssh.run(lambda _: carried.command("host", name), timeout_s=timeout_s, feed=feed)
        try:
            answer = json.loads(done.out.splitlines()[-1])
            if "value" in answer:
                return answer["value"]
            error = answer["error"]
            message, hint, lines = f"{self.ssh.label}: {error['message']}", str(error["hint"]), error["lines"]
        except (ValueError, KeyError, TypeError, IndexError):
            raise self.failed(done) from None
        if lines is not None:
            raise ControllerUnhealthy(message, hint=hint, lines=lines)
        raise IrisError(message, hint=hint)

    def failed(self, done: Done) -> IrisError:
        """The error of a command that ended without an answer."""
        error = as_error(done.err, f"the command ended with exit code {done.code}")
        return IrisError(f"{self.ssh.label}: {error.message}", hint=error.hint)

    def store(
        self,
        words: Callable[[int], Sequence[str]],
        *,
        timeout_s: float,
        data: Callable[[], Iterable[bytes]] = lambda: (),
        sink: Callable[[bytes], None] | None = None,
    ) -> Done:
        """One `store` command, its words made for each attempt. Raises HostUnreachable."""

        def feed() -> Iterable[bytes]:
            yield carried.package()
            yield from data()

        return self.ssh.run(
            lambda attempt: carried.command("store", *words(attempt)), timeout_s=timeout_s, feed=feed, sink=sink
        )
