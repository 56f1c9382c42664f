"""A gate that opens again, because what was confirmed had changed: the reason stands there, the name is typed anew."""

from __future__ import annotations

import json

import pytest
from textual import events
from textual.widgets import Button

from iris_core.contracts import RpcFailed
from iris_tui import changes
from iris_tui.gate import Decision, GatePlan, GateScreen, GateTarget
from iris_tui.widgets.line_input import LineInput
from tests.unit.test_console_app import Rig, console
from tests.unit.test_console_changes import DELETE, gate, script_delete

pytestmark = pytest.mark.asyncio


async def _to(rig: Rig, name: str) -> None:
    rig.app.screen.query_one(f"#{name}").focus()
    await rig.until(lambda: rig.app.focused is not None and rig.app.focused.id == name)


async def test_what_was_given_as_the_reason_stands_in_the_gate_that_opens_again_and_the_name_does_not() -> None:
    async with console(environment="production") as rig:
        script_delete(rig)
        changes.start(rig.app, rig.app.session, DELETE, ["tpu-1"])
        first = await gate(rig)
        await _to(rig, "gate-reason")
        rig.app.post_message(events.Paste("disk is "))
        await rig.until(lambda: first.query_one("#gate-reason", LineInput).value == "disk is ")
        await rig.type("full")
        rig.client.fail("DeleteSlice", RpcFailed("FAILED_PRECONDITION", "this plan is not known here", code="replan"))
        await _to(rig, "gate-name")
        await rig.type("lab")
        await rig.keys("enter", "enter")
        await rig.until(lambda: "Look again: this plan is not known here" in rig.screen_text())
        again = await gate(rig)
        assert again is not first and again.query_one("#gate-name", LineInput).value == ""
        assert again.query_one("#gate-reason", LineInput).value == "disk is full"
        assert "pasted, which the audit log will say" in rig.screen_text()
        confirm = again.query_one("#gate-confirm", Button)
        assert confirm.disabled
        await _to(rig, "gate-name")
        await rig.type("lab")
        await rig.until(lambda: not confirm.disabled)
        await rig.keys("enter", "enter")
        await rig.until(lambda: "Delete tpu-1: 1 task stopped" in rig.screen_text())
        last = [call for call in rig.client.calls if call.method.endswith("/DeleteSlice")][-1]
        said = json.loads(last.headers["iris-client-context"])
        assert (said["reason"], said["pasted"], last.headers["iris-confirm"]) == ("disk is full", True, "lab")


async def test_a_gate_that_opens_again_asks_for_nothing_that_it_was_given_and_marks_only_what_was_pasted() -> None:
    async with console(environment="production") as rig:
        before = Decision("disk is full", pasted=True, typed="lab")
        plan = GatePlan("Cancel", "1 job", 1, "lab", "production", (GateTarget("/u/a", "1"),), (), "x", before=before)
        rig.app.push_screen(GateScreen(plan))
        screen = await gate(rig)
        assert not screen.query_one("#gate-confirm", Button).disabled
        assert not screen.query_one("#gate-pasted").display, "it was the name"
