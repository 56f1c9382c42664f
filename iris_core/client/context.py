"""What a call says besides its request: of which plan it is a part, the name that was typed, and how the change came about.

These travel as headers, so that they are the same for every method and for both transports. They are laid around calls with
`sending`, not handed through every signature: a context variable follows the code that runs within, awaits and all, and nothing else.
Secrets are taken out here, before anything leaves; what is too long is cut and says so. Must never import a transport.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

CONTEXT_HEADER: Final = "iris-client-context"
PLAN_HEADER: Final = "iris-plan-token"
CONFIRM_HEADER: Final = "iris-confirm"
MOST_BYTES: Final = 2048
"""Of the header `iris-client-context`; the server leaves out one that is larger."""
MOST_REASON: Final = 500
"""Characters of a reason."""


@dataclass(frozen=True, slots=True)
class ClientContext:
    """How a change came about, for the audit line.

    Attributes:
        interface: cli, console or sdk.
        command: The command line, or the one that does the same.
        reason: Why, in the operator's words.
        pasted: Whether the confirmation was pasted and not typed.
    """

    interface: str
    command: str = ""
    reason: str = ""
    pasted: bool = False

    def header(self) -> str:
        """JSON in ASCII of at most MOST_BYTES, without secrets."""
        from iris_core.model.redact import redact_text

        said: dict[str, str | bool] = {"interface": self.interface, "pasted": self.pasted}
        reason = redact_text(self.reason)
        if reason:
            said["reason"] = _cut(reason, MOST_REASON)
        command = _without_secrets(self.command)
        if command:
            said["command"] = command
            room = len(command)
            while len(_dump(said)) > MOST_BYTES and room:
                room -= max(1, (len(_dump(said)) - MOST_BYTES) // 6)
                said["command"] = _cut(command, max(room, 0))
        if len(_dump(said)) > MOST_BYTES:
            said["reason"] = _cut(reason, 100)
        return _dump(said)


def _without_secrets(command: str) -> str:
    """Word by word where the words can be told apart, so that its quotes stay what they are."""
    import shlex

    from iris_core.model.redact import redact_argv, redact_text

    try:
        words = shlex.split(command)
    except ValueError:
        return redact_text(command)
    shown = redact_argv(words)
    return command if shown == words else shlex.join(shown)


def command_line(program: str, argv: Sequence[str]) -> str:
    """The words as they were typed, quoted for a shell, without secrets."""
    import shlex

    from iris_core.model.redact import redact_argv

    return shlex.join([program, *redact_argv(argv)])


def of_this_program() -> ClientContext:
    """Of a program that uses the SDK."""
    import sys

    return ClientContext("sdk", command_line(sys.argv[0] or "python", sys.argv[1:]))


def _dump(said: dict[str, str | bool]) -> str:
    return json.dumps(said, separators=(",", ":"))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


@dataclass(frozen=True, slots=True)
class _Sending:
    plan_token: str = ""
    confirm: str = ""
    context: ClientContext | None = None
    read_only: bool = False


_NOTHING: Final = _Sending()
_NOW: ContextVar[_Sending | None] = ContextVar("iris_sending", default=None)


@contextmanager
def sending(
    *, plan_token: str = "", confirm: str = "", context: ClientContext | None = None, read_only: bool = False
) -> Iterator[None]:
    """The calls made within carry these; what is left out stays as it was around it."""
    before = _NOW.get() or _NOTHING
    now = replace(
        before,
        plan_token=plan_token or before.plan_token,
        confirm=confirm or before.confirm,
        context=context or before.context,
        read_only=read_only or before.read_only,
    )
    token = _NOW.set(now)
    try:
        yield
    finally:
        _NOW.reset(token)


def headers_now(
    default: Callable[[], ClientContext] | None = None, *, read_only: bool = False, change: bool = True
) -> list[tuple[str, str]]:
    """The headers of a call that is sent now, of which the server learns more if it is a `change`.

    `default` gives the connection's own context, and `read_only` says that its other headers ask for that already.
    """
    now = _NOW.get() or _NOTHING
    found = [("iris-read-only", "1")] if now.read_only and not read_only else []
    if not change:
        return found
    context = now.context or (default() if default is not None else None)
    if context is not None:
        found.append((CONTEXT_HEADER, context.header()))
    if now.plan_token:
        found.append((PLAN_HEADER, now.plan_token))
    if now.confirm and now.confirm.isascii() and now.confirm.isprintable():
        found.append((CONFIRM_HEADER, now.confirm))
    return found
