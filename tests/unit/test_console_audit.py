"""The audit log in the console: lines taken apart, columns and filter, the whole entry, and what is followed."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.audit import format_line
from iris_core.live.audit_entries import AUDIT, SOURCE, audit_row, entry_lines, parse
from iris_core.model.errors import ModelError
from iris_core.model.filter import parse_filter
from iris_tui.pages import TextPage
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.samples import sample
from screens.audit import AuditScreen
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEAD = "2026-01-31T12:00:00.000Z INFO iris.audit "
PREEMPTED = HEAD + format_line(
    "operator_change",
    "/ada/train/0",
    "ada",
    {
        "method": "KickTasks",
        "interface": "console",
        "command": "iris-core --cluster=lab task preempt /ada/train/0 /ada/train/1",
        "reason": "make room = now",
        "pasted": False,
        "targets": "/ada/train/0,/ada/train/1",
        "target_count": 2,
        "task_ids": 2,
        "planned": True,
    },
)
SCHEDULED = HEAD + format_line("assignment_queued", "/ada/train", "scheduler", {"tasks": 2})


# --- the lines -------------------------------------------------------------------------------------------------------


def test_an_entry_says_who_did_what_to_what_and_why() -> None:
    entry = parse(PREEMPTED, 7, 1000)
    assert entry is not None
    shown = {name: column.text(entry, 61_000) for name, column in AUDIT.items()}
    assert (shown["who"], shown["interface"], shown["action"]) == ("ada", "console", "KickTasks")
    assert (shown["targets"], shown["outcome"]) == ("/ada/train/0 and 1 more", "2 tasks")
    assert (shown["reason"], shown["age"]) == ("make room = now", "1m")
    assert shown["command"] == "iris-core --cluster=lab task preempt /ada/train/0 /ada/train/1"
    text = "\n".join(line for line, _ in entry_lines(entry))
    assert "/ada/train/1" in text and "Command line" in text and "Under a plan    true" in text


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True), st.text(max_size=40), max_size=5))
def test_what_was_written_is_read(fields: dict[str, str]) -> None:
    fields = {name: value for name, value in fields.items() if name not in ("event", "entity", "trigger")}
    line = format_line("job_submitted", "a b=c", 'w"x', dict(fields))
    entry = parse(HEAD + line)
    assert entry is not None
    assert entry.fields == {"event": "job_submitted", "entity": "a b=c", "trigger": 'w"x', **fields}


@pytest.mark.parametrize("line", ["", "nothing", "event= entity=x", "event=a entity=b"])
def test_what_is_none_is_none(line: str) -> None:
    assert parse(line) is None


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("who:ada", True),
        ("by:cli", False),
        ("preempt", True),
        ("count>=2", True),
        ("event:assign", False),
        ("age<30", False),
    ],
)
def test_a_filter_asks_by_field(text: str, hit: bool) -> None:
    from iris_core.live.audit_entries import AUDIT_FIELDS, AUDIT_WORDS

    entry = parse(PREEMPTED, 7, 1000)
    assert entry is not None
    assert parse_filter(text, AUDIT_FIELDS, default=AUDIT_WORDS).matches(audit_row(entry, 61_000)) is hit


# --- the screen ------------------------------------------------------------------------------------------------------


class Audits(Rig):
    @property
    def audit(self) -> AuditScreen:
        screen = self.app.console_screen
        assert isinstance(screen, AuditScreen)
        return screen


@asynccontextmanager
async def audits(*lines: str, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Audits]:
    clock = FakeClock()
    client = sample(clock)
    client.log(SOURCE, "the loop is late", *lines)
    async with console(client, size=size) as rig:
        rig.app.go("audit")
        found = Audits(rig.app, rig.pilot, client, rig.clock)
        await found.until(lambda: isinstance(rig.app.screen, AuditScreen) and found.audit.source.loaded)
        yield found


@pytest.mark.asyncio
async def test_entries_are_listed_newest_first_and_followed() -> None:
    async with audits(PREEMPTED, SCHEDULED) as rig:
        await rig.until(lambda: len(rig.audit.store.order) == 2)
        assert [rig.audit.store.rows[name].value.action for name in rig.audit.store.order] == [
            "assignment_queued",
            "KickTasks",
        ]
        assert "2 entries" in rig.screen_text() and "the loop is late" not in rig.screen_text()
        rig.client.log(SOURCE, SCHEDULED)
        await rig.until(lambda: len(rig.audit.store.rows) == 3)
        rig.clock.advance(2)
        await rig.until(lambda: len(rig.audit.store.order) == 3)


@pytest.mark.asyncio
async def test_enter_shows_the_whole_entry_also_when_its_line_is_long() -> None:
    reason = "because " * 900
    line = HEAD + f"event=operator_change entity=/gone/job trigger=ada reason={json.dumps(reason + 'END')} peer=1.2.3.4"
    async with audits(line) as rig:
        await rig.until(lambda: rig.audit.store.order)
        await rig.keys("enter")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and "1.2.3.4" in rig.screen_text())
        assert "/gone/job" in rig.screen_text()


@pytest.mark.asyncio
async def test_only_what_operators_did_is_shown_when_asked_and_back() -> None:
    async with audits(PREEMPTED, SCHEDULED) as rig:
        await rig.until(lambda: len(rig.audit.store.order) == 2)
        await rig.keys("O")
        await rig.until(lambda: len(rig.audit.store.order) == 1 and "what operators changed" in rig.screen_text())
        assert rig.audit.view_state()["operators"] is True
        await rig.keys("O")
        await rig.until(lambda: len(rig.audit.store.order) == 2)


@pytest.mark.asyncio
async def test_an_empty_one_says_so_and_has_no_entry_to_open() -> None:
    async with audits() as rig:
        await rig.until(lambda: rig.audit.pane.status.state is State.EMPTY)
        assert "Nothing was written into the audit log yet." in rig.screen_text()
        with pytest.raises(ModelError, match="no entry"):
            rig.audit.do_open()
