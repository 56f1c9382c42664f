"""A watch that was left in the middle: it begins anew, and what had failed it is not made good by that, for nobody who looks at it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from iris_core.procedures import journal as journals
from iris_core.procedures import rollout_report, telling
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import Status, Suspended
from tests.unit.procedures_world import Killed
from tests.unit.rollout_world import PROCEDURE, WATCHED, FakeCluster, Operator, RolloutWorld

pytestmark = pytest.mark.asyncio

LOOKS = 4
"""Before a watch of these tests is left, between two looks."""


class LeftWatch:
    """A rollout whose first watch of h1 is left after some looks; `then` happens right before each look, the first one = 1."""

    def __init__(self, folder: Path, then: Callable[[int, FakeCluster], None], *names: str) -> None:
        self.world, self._engines, self._looks = RolloutWorld(folder, *names), list[Engine](), 0
        self._h1 = self.world["h1"]
        self._sample, self._sleep, self._then = self._h1.sample, self.world.clock.sleep, then
        self._h1.sample = self.sample  # type: ignore[method-assign]
        self.world.clock.sleep = self.sleep  # type: ignore[method-assign]

    def sample(self) -> dict[str, Any]:
        if self._h1.shipped:
            self._looks += 1
            self._then(self._looks, self._h1)
        return self._sample()

    async def sleep(self, seconds: float) -> None:
        if self._looks == LOOKS:
            self._engines[-1].suspend()
            await asyncio.Event().wait()
        await self._sleep(seconds)

    async def leave(self) -> None:
        with pytest.raises(Suspended):
            await self.world.run(engine=self._engines)

    @property
    def records(self) -> list[journals.Record]:
        return journals.read(self.world.path)


def crashes(look: int, cluster: FakeCluster) -> None:
    cluster.host.boot += look == 3


def crashes_while_it_is_left(look: int, cluster: FakeCluster) -> None:
    cluster.host.boot += look == LOOKS + 1


def crashes_at_once(look: int, cluster: FakeCluster) -> None:
    cluster.host.boot += look == 1


def does_not_answer(look: int, cluster: FakeCluster) -> None:
    cluster.refuse_sample = "connection refused" if look == 2 else ""


def mends_itself(look: int, cluster: FakeCluster) -> None:
    cluster.changes = {"workers_healthy": 1} if look <= LOOKS else {}


@pytest.mark.parametrize(
    ("then", "concern"),
    [
        (crashes, "the controller was started again during the watch"),
        (crashes_while_it_is_left, "the controller was started again while nobody watched"),
        (crashes_at_once, "the controller was started again between its restart and the watch"),
        (does_not_answer, f"1 of {LOOKS + WATCHED} looks at the controller failed: connection refused"),
    ],
)
async def test_a_watch_that_has_failed_is_not_made_good_by_leaving_it(
    tmp_path: Path, then: Callable[[int, FakeCluster], None], concern: str
) -> None:
    left = LeftWatch(tmp_path, then)
    await left.leave()
    world, operator = left.world, Operator("h1/failed")
    outcome = await world.run(operator, account="grace")
    assert operator.ids[0] == "h1/failed" and concern in operator.asked[0].effects
    assert outcome.status is Status.FAILED and f"its watch failed: {concern}" in outcome.state
    assert world["h1"].shipped and world["h1"].free and world["h2"].untouched
    found = rollout_report.facts(left.records, "h1")
    assert found.watched[0]["after_s"] == 0 and len(found.watched) == WATCHED, "it was watched anew, and the whole time"


async def test_what_mends_itself_before_the_end_of_a_watch_fails_none_that_was_left_either(tmp_path: Path) -> None:
    left = LeftWatch(tmp_path, mends_itself)
    await left.leave()
    assert (await left.world.run()).status is Status.DONE


async def test_a_failure_of_a_watch_that_was_left_is_kept_by_a_run_that_dies_after_the_next_one(tmp_path: Path) -> None:
    async def made(name: str) -> LeftWatch:
        (tmp_path / name).mkdir()
        left = LeftWatch(tmp_path / name, crashes, "h1")
        await left.leave()
        return left

    whole = await made("whole")
    end = await whole.world.run()
    gathered = [(line["type"], line.get("event")) for line in whole.records].index(("gathered", "h1/watch"))
    for number in (gathered - 1, gathered, gathered + 1):
        left = await made(str(number))
        with pytest.raises(Killed):
            await left.world.run(die_at=number - left.world.lines, after=True)
        outcome = await left.world.run()
        assert (outcome.status, outcome.state) == (end.status, end.state), number


async def test_the_report_has_every_sample_of_a_watch_that_was_left_and_who_went_on_with_it(tmp_path: Path) -> None:
    left = LeftWatch(tmp_path, crashes, "h1")
    await left.leave()
    assert rollout_report.standing(left.records, "h1") == "in its watch, which has failed"
    assert "- Left after" not in rollout_report.markdown(PROCEDURE, left.records)
    await left.world.run(Operator("h1/failed"), account="grace")
    text = rollout_report.markdown(PROCEDURE, left.records)
    rows = [
        line.strip("| ").split(" | ")
        for line in text.splitlines()
        if re.match(r"\| (\d+ s|before|\*\*anew\*\*) ", line)
    ]
    assert [row[0] for row in rows] == [
        "before", *(f"{15 * n} s" for n in range(LOOKS)), "**anew**", *(f"{15 * n} s" for n in range(WATCHED)),
    ]  # fmt: skip
    assert [n for n, row in enumerate(rows) if row[1] == "yes, **started again**"] == [3], (
        "the third look, and no other"
    )
    assert re.fullmatch(r"begun .* UTC by grace", rows[LOOKS + 1][1].strip("| "))
    assert re.search(r"^- Watch: cut off after 45 s, .* UTC; begun anew .* UTC by grace; ", text, re.M)
    assert re.search(r"^- Left after its line of .* UTC, gone on with .* UTC by grace$", text, re.M)
    assert "- Verdict: **failed**" in text


async def test_each_look_says_at_once_that_the_watch_has_failed_and_why(tmp_path: Path) -> None:
    def fails(look: int, cluster: FakeCluster) -> None:
        cluster.host.boot += look == 2
        cluster.refuse_sample = "connection refused" if look == 4 else ""

    left = LeftWatch(tmp_path, fails, "h1")
    await left.leave()
    await left.world.run()
    seen = [line for line in left.records if (line["type"], line.get("event")) == ("progress", "h1/watch")]
    first, second, third, fourth, anew = (next(telling.words(line)).strip() for line in seen[: LOOKS + 1])
    assert first.startswith("0 s: 2/2 workers healthy") and "failed:" not in first
    assert second.startswith("15 s: started again, 2/2 workers")
    assert second.endswith("; this watch has failed: started again")
    assert third.startswith("30 s: 2/2 workers healthy") and third.endswith("; this watch has failed: started again")
    assert fourth == "45 s: no answer, connection refused; this watch has failed: 1 look failed, started again"
    assert anew.startswith("0 s: 2/2 workers") and anew.endswith(
        "; this watch has failed: 1 look failed, started again"
    )
