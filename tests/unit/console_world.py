"""A console over the whole sample cluster, on any screen of the registry, and controllers that are not what it was written for.

`every_screen` is the parametrisation: a screen that is added to the registry is taken by itself, and fails until `SUBJECTS` says what
it can be about. The clients here stand between the console and the sample: one gives hostile names, one is of an older release, one of
a newer one.
"""

from __future__ import annotations

import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, cast
from unittest import mock

import pytest
from google.protobuf.descriptor import FieldDescriptor

from iris_core.contracts import RpcFailed
from iris_core.live.checkpoint_columns import CheckpointRow
from iris_tui.app import IrisApp
from iris_tui.glyphs import UNICODE
from iris_tui.registry import SCREENS
from iris_tui.session import Session
from iris_tui.widgets.pane import Pane, State
from providers.fake.clock import FakeClock
from providers.fake.query_samples import KEPT_IN, kept_checkpoints
from providers.fake.whole_sample import SUBJECTS as SUBJECTS
from providers.fake.whole_sample import whole
from tests.unit.console_waits import press, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from google.protobuf.message import Message
    from textual.pilot import Pilot
    from textual.strip import Strip

    from iris_core.contracts import AsyncClient, R
    from providers.fake.client import FakeClient

every_screen = pytest.mark.parametrize("name", SCREENS)


class Rig:
    """A running console, on one screen after the other."""

    def __init__(self, app: IrisApp, pilot: Pilot[int], client: FakeClient, clock: FakeClock) -> None:
        self.app = app
        self.pilot = pilot
        self.client = client
        self.clock = clock

    @property
    def screen(self) -> Any:
        """The topmost that is no dialog."""
        return self.app.console_screen

    def strips(self) -> list[Strip]:
        """What is on the screen."""
        return self.app.screen._compositor.render_strips()

    def lines(self) -> list[str]:
        """The same as texts."""
        return [strip.text.rstrip() for strip in self.strips()]

    def text(self) -> str:
        """The same as one."""
        return "\n".join(self.lines())

    def panes(self) -> list[Pane]:
        """The panes that take part of the screen."""
        return [pane for pane in self.screen.query(Pane) if pane.display and pane.region.area]

    def states(self) -> set[State]:
        """Their states."""
        return {pane.status.state for pane in self.panes()}

    async def until(self, condition: Callable[[], object]) -> None:
        await until(self.app, self.pilot, condition)

    async def passing(self, condition: Callable[[], object]) -> None:
        """The same, where time has to pass for it: a second of the scripted clock for each look."""

        def look() -> object:
            found = condition()
            if not found:
                self.clock.advance(1)
                self.client.heartbeat()
            return found

        await self.until(look)

    async def keys(self, *keys: str) -> None:
        """Press them, one after the other."""
        await press(self.app, self.pilot, *keys)

    async def go(self, name: str, subject: str) -> Any:
        """Show a screen, and wait until none of its panes loads."""
        await self.until(lambda: self.screen is not None and self.app.session.role)
        if (name, subject) != self.screen.place:
            self.app.go(name, subject)
        spec = SCREENS[name]
        await self.until(lambda: self.screen.place == (name, "" if spec.lists else subject) and self.screen.is_current)
        await self.until(self.is_shown)
        return self.screen

    def is_shown(self) -> bool:
        """Whether everything that the screen has to show now is there."""
        store = getattr(self.screen, "store", None)
        if store is not None and store.dirty and self.screen.is_mounted:
            self.screen.soon()  # the clock stands still, and an order waits for its second to pass
        return (
            self.screen.is_mounted
            and bool(self.panes())
            and State.LOADING not in self.states()
            and not (store is not None and store.dirty)
        )


@asynccontextmanager
async def console(
    stand_in: Callable[[FakeClient], Any] = lambda client: client,
    *,
    size: tuple[int, int] = (120, 40),
    rows: Callable[[list[CheckpointRow]], list[CheckpointRow]] = lambda rows: rows,
    **options: Any,
) -> AsyncIterator[Rig]:
    """A console; `stand_in` makes of the sample's client the one that it is given, `rows` other checkpoints."""
    clock = FakeClock()
    client = whole(clock)
    given = stand_in(client)

    async def connect() -> AsyncClient:
        return cast("AsyncClient", given)

    names = ("environment", "read_only")
    session = Session("lab", connect, clock, **{name: options.pop(name) for name in names if name in options})
    session.saved = options.pop("saved", session.saved)
    app = IrisApp(session, **{"glyphs": UNICODE, **options})
    app.animation_level = "none"
    listed = (KEPT_IN, rows(kept_checkpoints(clock.now_ms())), "")
    with mock.patch("screens.checkpoints.read", lambda _: listed):
        async with app.run_test(size=size, notifications=True) as pilot:
            yield Rig(app, pilot, client, clock)


# --- hostile names ---------------------------------------------------------------------------------------------------

EVIL: Final = "[red]x[/red] 名前\x1b[2J\x1b]0;owned\x07\n\t\r\x00\u202e\u200b[@click=app.quit]y[/]" + "w" * 240
"""About 300 characters that mark up, move, break, reverse and widen a line."""


LONG: Final = "_" + "n" * 90
"""What makes a part of an id, or a worker's id, as long as it may be: pages are about ids that are valid."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def spoil(text: str, *, keep_ids: bool = False) -> str:
    """A text with the hostile name in it: behind each part of an id, behind anything else. With `keep_ids` ids are long and valid."""
    if not text or EVIL in text or LONG in text or text.isdecimal():
        return text
    if keep_ids and _TOKEN.fullmatch(text):
        return text + LONG
    if text[0] in "[{":
        try:
            return json.dumps(_spoil_json(json.loads(text), keep_ids=keep_ids))
        except ValueError:
            pass
    if text[0] == "/":
        name, colon, attempt = text.partition(":")
        suffix = LONG if keep_ids else EVIL
        parts = [part + suffix if part and not part.isdecimal() else part for part in name.split("/")]
        return "/".join(parts) + colon + attempt
    return text + EVIL


def _spoil_json(value: Any, *, keep_ids: bool) -> Any:
    if isinstance(value, str):
        return spoil(value, keep_ids=keep_ids)
    if isinstance(value, list):
        return [_spoil_json(one, keep_ids=keep_ids) for one in value]
    if isinstance(value, dict):
        return {name: _spoil_json(one, keep_ids=keep_ids) for name, one in value.items()}
    return value


def mend(text: str) -> str:
    """The text that was spoilt."""
    return text.replace(EVIL, "").replace(LONG, "")


FIXED: Final = frozenset({"selector_id", "fleet_id", "controller_id"})
"""Fields whose texts are no names: the console gave them itself, or the protocol does."""


def each_text(message: Message, change: Callable[[str], str]) -> None:
    """Change every text of a message and of those in it, but for FIXED."""
    holder: Any = message
    for field, value in message.ListFields():
        if field.name in FIXED:
            continue
        many = field.is_repeated
        if _is_map(field):
            _each_of_map(value, field, change)
        elif field.type == FieldDescriptor.TYPE_MESSAGE:
            for one in value if many else [value]:
                each_text(one, change)
        elif field.type == FieldDescriptor.TYPE_STRING and many:
            value[:] = [change(text) for text in value]
        elif field.type == FieldDescriptor.TYPE_STRING:
            setattr(holder, field.name, change(value))


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _each_of_map(value: Any, field: FieldDescriptor, change: Callable[[str], str]) -> None:
    assert field.message_type is not None
    kinds = field.message_type.fields_by_name
    for key, held in list(value.items()):
        if kinds["value"].type == FieldDescriptor.TYPE_MESSAGE:
            each_text(held, change)
        elif kinds["key"].type == FieldDescriptor.TYPE_STRING:
            text = kinds["value"].type == FieldDescriptor.TYPE_STRING
            del value[key]
            value[change(key)] = change(held) if text else held


class StandIn:
    """A client in front of the sample's: `ask` changes requests, `tell` answers, both on copies."""

    def __init__(self, client: FakeClient) -> None:
        self._client = client
        self.url = client.url

    def ask(self, method: str, request: Message) -> None:
        """Change what the console asks. May raise RpcFailed instead."""

    def tell(self, answer: Message) -> Message:
        """Change what it is answered."""
        return answer

    def _asked(self, method: str, request: Message) -> Any:
        copy = type(request)()
        copy.CopyFrom(request)
        self.ask(method, copy)
        return copy

    def _told(self, answer: R) -> R:
        message = cast("Message", answer)
        copy = type(message)()
        copy.CopyFrom(message)
        return cast("R", self.tell(copy))

    async def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        return self._told(await self._client.call(method, self._asked(method, request), response, timeout_s=timeout_s))

    async def stream(self, method: str, request: Message, response: type[R]) -> AsyncIterator[R]:
        async for answer in self._client.stream(method, self._asked(method, request), response):
            yield self._told(answer)

    async def close(self) -> None:
        await self._client.close()


class Hostile(StandIn):
    """Every text of every answer has the hostile name in it, and is known again when it is asked for."""

    keep_ids = False

    def ask(self, method: str, request: Message) -> None:
        each_text(request, mend)

    def tell(self, answer: Message) -> Message:
        each_text(answer, lambda text: spoil(text, keep_ids=self.keep_ids))
        return answer


class LongIds(Hostile):
    """The same with ids that are long and valid, as a page is about one."""

    keep_ids = True


# --- controllers of other releases -----------------------------------------------------------------------------------

FIRST_RELEASE: Final = frozenset(
    {
        "GetCurrentUser", "GetClusterStatus", "Watch", "ListJobs", "ListTasks", "GetJobStatus", "GetTaskStatus", "TerminateJob",
        "FetchLogs",
    }
)  # fmt: skip
"""What a controller has always answered."""
FIRST_KINDS: Final = (1, 2, 3)
"""What could always be watched: jobs, tasks, workers."""
NOT_YET: Final = 99
"""An enum's value that this release does not know."""


class Older(StandIn):
    """A controller of an earlier release: few calls, few kinds of rows, and of each row little more than its id and state."""

    def ask(self, method: str, request: Message) -> None:
        name = method.rpartition("/")[2]
        if name not in FIRST_RELEASE:
            raise RpcFailed("UNIMPLEMENTED", f"no method {method}", code="unknown_method")
        for place, selector in enumerate(getattr(request, "selectors", ())):
            if selector.kind not in FIRST_KINDS:
                words = f"selector {selector.id!r} names no kind of rows"
                field = f"selectors[{place}].kind"
                raise RpcFailed("INVALID_ARGUMENT", words, code="invalid_argument", field=field)

    def tell(self, answer: Message) -> Message:
        _leave_out(answer)
        return answer


def _leave_out(message: Message) -> None:
    for field, value in message.ListFields():
        if field.name in ("labels", "resources", "error", "reason", "attempts", "priority_band", "tasks_by_state"):
            message.ClearField(field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not _is_map(field):
            for one in value if field.is_repeated else [value]:
                _leave_out(one)


class Newer(StandIn):
    """A controller of a later release: every enum has a value that is not known here, every message fields that are not."""

    UNKNOWN: Final = b"\xfa\xff\x7f\x03new"  # field 262143, a text

    def tell(self, answer: Message) -> Message:
        _renew(answer)
        return answer


def _renew(message: Message) -> None:
    holder: Any = message
    for field, value in message.ListFields():
        many = field.is_repeated
        if field.type == FieldDescriptor.TYPE_ENUM:
            if many:
                value[:] = [NOT_YET for _ in value]
            else:
                setattr(holder, field.name, NOT_YET)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and not _is_map(field):
            for one in value if many else [value]:
                _renew(one)
    message.MergeFromString(Newer.UNKNOWN)
