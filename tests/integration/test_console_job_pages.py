"""The pages of a job and a task over a real cluster: the failing rank is found at once, its attempts are compared, a command runs in a task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from textual.widgets import Button

from iris_core.client.endpoint import parse_url
from iris_core.live.clock import SystemClock
from iris_tui.app import IrisApp
from iris_tui.gate import GateScreen
from iris_tui.pages import TextPage
from iris_tui.session import Session
from tests.unit.console_waits import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_core.contracts import AsyncClient
    from tests.integration.local_cluster import LocalCluster

RANK = """
import os, pathlib, sys, time
task, _, attempt = os.environ["IRIS_TASK_ID"].rpartition("/")[2].partition(":")
print("rank", task, "begins", flush=True)
if task == "5":
    print("step 7", flush=True)
    raise RuntimeError("NCCL error: link down on ib3")
time.sleep(600)
"""


def drive(cluster: LocalCluster, work: Callable[[Any], Awaitable[None]]) -> None:
    """Runs a console on the cluster, and `work` with a hand on it."""

    async def main() -> None:
        async def connect() -> AsyncClient:
            from iris_core.client.aio import GrpcAsyncClient

            return GrpcAsyncClient(parse_url(cluster.url))

        app = IrisApp(Session("local", connect, SystemClock()))
        async with app.run_test(size=(140, 40)) as pilot:
            hand = Hand(app, pilot)
            await hand.until(lambda: app.session.role and app.session.tree.loaded)
            await work(hand)

    asyncio.run(main())


class Hand:
    """Keys, and what is on the screen."""

    def __init__(self, app: IrisApp, pilot: Any) -> None:
        self.app = app
        self.pilot = pilot

    @property
    def screen(self) -> Any:
        return self.app.console_screen

    def text(self) -> str:
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    async def until(self, condition: Callable[[], object]) -> None:
        await until(self.app, self.pilot, condition)

    async def at(self, name: str, subject: str) -> None:
        """Go there by command, and wait until it is shown."""
        self.app.run_command(f"{name} {subject}")
        await self.until(
            lambda: self.screen.place == (name, subject) and self.screen.is_mounted and self.screen.is_current
        )


def test_the_failing_rank_of_eight_is_the_first_line_and_its_attempts_are_compared(cluster: LocalCluster) -> None:
    job = "/t/page-gang"
    cluster.job(
        "page-gang", "python3", "-c", RANK, wait=False,
        options=("--replicas", "8", "--max-retries-failure", "1", "--memory", "100MB", "--group-by", "none"),
    )  # fmt: skip
    cluster.until("job", "list", "--state", "failed", has=job)

    async def work(hand: Hand) -> None:
        await hand.at("job", job)
        await hand.until(lambda: len(hand.screen.store.order) == 8)
        assert hand.screen.store.order[0] == f"{job}/5"
        await hand.until(lambda: "its log RuntimeError: NCCL error: link down on ib3" in hand.text())
        assert "rank 5, attempt 1 on" in hand.text() and "failed, exit 1" in hand.text()
        await hand.pilot.press("6")
        await hand.until(lambda: "RetryScheduled" in hand.text())
        await hand.pilot.press("1", "enter")
        await hand.until(lambda: hand.screen.place == ("task", f"{job}/5") and hand.screen.feed.known)
        await hand.until(lambda: hand.screen.store.order == [f"{job}/5:1", f"{job}/5:0"])
        await hand.until(lambda: "CHARGED" in hand.text() and hand.text().count(" failure ") == 2)
        await hand.pilot.press("space", "space", "C")
        await hand.until(lambda: isinstance(hand.app.screen, TextPage) and hand.app.screen.text.count())
        page = hand.app.screen
        assert isinstance(page, TextPage)
        lines = page.text.text.splitlines()
        assert f"{job}/5:0" in lines[0] and f"{job}/5:1" in lines[0]
        assert next(line for line in lines if line.startswith("Exit")).split() == ["Exit", "1", "1"]
        assert sum("link down on ib3" in line for line in lines) == 2
        assert any(line.startswith("  both: ") and "Failed" in line for line in lines)

    drive(cluster, work)


def test_a_command_runs_in_a_task_and_what_it_wrote_is_shown_harmless(cluster: LocalCluster) -> None:
    job = "/t/page-exec"
    cluster.job("page-exec", "sleep", "600", wait=False, options=("--memory", "50MB"))
    cluster.until("task", "list", job, has="running")

    async def work(hand: Hand) -> None:
        await hand.at("task", f"{job}/0")
        await hand.until(lambda: hand.screen.feed.known and hand.screen.link.fresh)
        hand.app.run_command(f"exec {job}/0 sh -c 'printf \"\\033]0;owned\\007[red]out[/red]\\n\"; exit 3'")
        await hand.until(lambda: isinstance(hand.app.screen, GateScreen) and hand.app.focused is not None)
        hand.app.screen.query_one("#gate-confirm", Button).press()
        await hand.until(lambda: isinstance(hand.app.screen, TextPage) and "exit code 3" in hand.text())
        assert "[red]out[/red]" in hand.text() and "took " in hand.text() and "\x1b" not in hand.text()

    drive(cluster, work)
    assert cluster.cli("job", "cancel", job).code == 0


def test_the_tasks_of_a_job_that_ends_stay_as_history(cluster: LocalCluster) -> None:
    job = "/t/page-ending"
    cluster.job("page-ending", "sleep", "600", wait=False, options=("--memory", "50MB"))
    cluster.until("task", "list", job, has="running")

    async def work(hand: Hand) -> None:
        hand.app.run_command(f"tasks job={job}")
        await hand.until(lambda: hand.screen.place[0] == "tasks" and hand.screen.feed.loaded)
        await hand.until(lambda: hand.screen.store.order == [f"{job}/0"])
        done = await asyncio.to_thread(cluster.cli, "job", "cancel", job)
        assert done.code == 0
        await hand.until(lambda: "1 older" in hand.text() and "killed" in hand.text())

    drive(cluster, work)
