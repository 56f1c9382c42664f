"""Requests to `iris-controller host` and commands of `iris-controller store` on a host, and their answers as values and errors.

The program is carried along (`carried.py`). An error of the host's side comes back as the error that it was, with the host's name before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from iris_core.contracts import ControllerUnhealthy, IrisError
from providers.hosts import carried
from providers.hosts.relay import Relay
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
        self._relay = Relay(ssh)

    def ask(
        self,
        name: str,
        *,
        timeout_s: float = ANSWER_S,
        data: Callable[[], Iterable[bytes]] | None = None,
        **values: object,
    ) -> Any:
        """One request; its value. Raises IrisError in the host's words, ControllerUnhealthy, HostUnreachable."""
        request = {"cluster": self.cluster, "state_dir": self.state_dir, **values}
        begun = False
        if data is None:
            note = json.dumps({**request, "again": False}).encode() + b"\n"
            done = self._relay.run(("host", name), note, timeout_s)
            begun = done is None
        else:
            done = None
        if done is None:
            done = self._ask(name, {**request, "again": begun}, timeout_s, data or (lambda: ()), begun)
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

    def _ask(
        self,
        name: str,
        request: dict[str, object],
        timeout_s: float,
        data: Callable[[], Iterable[bytes]],
        tried: bool,
    ) -> Done:
        attempts = 0

        def feed() -> Iterable[bytes]:
            nonlocal attempts
            attempts += 1
            yield carried.package()
            yield json.dumps({**request, "again": request["again"] or attempts > 1}).encode() + b"\n"
            yield from data()

        return self.ssh.run(lambda _: carried.command("host", name), timeout_s=timeout_s, feed=feed, tried=tried)

    def close(self) -> None:
        """Ends the connection; the next request makes another one."""
        self._relay.close()
        self.ssh.close()

    def failed(self, done: Done) -> IrisError:
        """The error of a command that ended without an answer."""
        error = as_error(done.err, f"the command ended with exit code {done.code}")
        return IrisError(f"{self.ssh.label}: {error.message}", hint=error.hint)

    def small(self, words: Callable[[int], Sequence[str]], *, timeout_s: float, data: bytes = b"") -> Done:
        """One `store` command with little to send and to answer. Raises HostUnreachable."""
        done = self._relay.run(("store", *words(1)), data, timeout_s)
        if done is not None:
            return done
        return self.store(words, timeout_s=timeout_s, data=lambda: (data,), tried=True)

    def store(
        self,
        words: Callable[[int], Sequence[str]],
        *,
        timeout_s: float,
        data: Callable[[], Iterable[bytes]] = lambda: (),
        sink: Callable[[bytes], None] | None = None,
        tried: bool = False,
    ) -> Done:
        """One `store` command of any size, its words made for each attempt. Raises HostUnreachable."""

        def feed() -> Iterable[bytes]:
            yield carried.package()
            yield from data()

        return self.ssh.run(
            lambda attempt: carried.command("store", *words(attempt)),
            timeout_s=timeout_s,
            feed=feed,
            sink=sink,
            tried=tried,
        )
