"""From a query to a change in the console, on a real cluster: every statement that is offered runs, tasks are found by SQL, marked and
preempted, and the audit log says who did it, from where and why."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from textual.widgets import Button, Input

from iris_core.client.aio import GrpcAsyncClient
from iris_core.client.endpoint import parse_url
from iris_core.live.clock import SystemClock
from iris_core.live.query_result import ask
from iris_core.live.query_templates import TEMPLATES
from iris_tui.app import IrisApp
from iris_tui.gate import GateScreen
from iris_tui.session import Session
from tests.unit import console_waits

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from tests.integration.local_cluster import LocalCluster

pytestmark = pytest.mark.asyncio


async def test_every_statement_that_is_offered_runs_on_the_real_schema(cluster: LocalCluster) -> None:
    client = GrpcAsyncClient(parse_url(cluster.url))
    try:
        for template in TEMPLATES:
            result = await ask(client, template.database, template.sql)
            assert result.names, template.title
    finally:
        await client.close()


async def test_tasks_are_found_by_a_query_and_preempted_and_the_audit_log_tells(cluster: LocalCluster) -> None:
    words = (sys.executable, "-c", "import time; time.sleep(600)")
    started = await asyncio.to_thread(
        lambda: cluster.job("drained", *words, options=("--memory", "128MB", "--replicas", "2"), wait=False)
    )
    job = started.out.strip()

    async def connect() -> AsyncClient:
        return GrpcAsyncClient(parse_url(cluster.url))

    session = Session("query", connect, SystemClock())
    app = IrisApp(session)
    async with app.run_test(size=(160, 50)) as pilot:

        def screen() -> Any:
            return app.console_screen

        until = partial(console_waits.until, app, pilot)

        sql = (
            "SELECT t.task_id FROM tasks t JOIN workers w ON t.current_worker_id = w.worker_id"
            f" WHERE t.job_id = '{job}' AND t.state IN (2, 3, 9)"
        )
        await until(lambda: screen() is not None and session.role)
        app.run_command(f"query {sql}")
        await until(lambda: screen().place[0] == "query" and screen().result is not None and not screen().asking)
        while len(screen().store.rows) < 2:
            await asyncio.sleep(0.05)
            screen().do_run()
            await until(lambda: not screen().asking)
        await until(lambda: screen().store.order == [f"{job}/0", f"{job}/1"] and screen().focused is screen().table)
        await pilot.press("space", "space", "x")
        await until(lambda: app.screen is not screen())
        await pilot.press("p")
        await until(lambda: isinstance(app.screen, GateScreen) and app.focused is not None)
        gate = app.screen
        assert isinstance(gate, GateScreen)
        assert gate.plan.command.endswith("| iris-core --cluster=query task preempt --stdin")
        gate.query_one("#gate-reason", Input).value = "drain for a test"
        gate.query_one("#gate-read", Button).press()
        await until(lambda: not gate.query_one("#gate-confirm", Button).disabled)
        gate.query_one("#gate-confirm", Button).press()
        await until(lambda: len(app.operations) == 1 and not app.operations.running)
        app.run_command(f"audit by:console target:{job}")
        await until(lambda: screen().place[0] == "audit" and screen().store.order)
        entry = screen().store.rows[screen().store.order[0]].value
        assert (entry.get("event"), entry.get("method"), entry.get("target_count")) == (
            "operator_change",
            "KickTasks",
            "2",
        )
        assert entry.get("reason") == "drain for a test" and "query -f csv" in entry.get("command")
        assert entry.get("targets").split(",")[0].startswith(f"{job}/0")
    await asyncio.to_thread(lambda: cluster.cli("job", "cancel", job))
