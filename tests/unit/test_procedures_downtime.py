"""How long a controller did not answer: from its last answer to its next one, and nothing where nobody looked."""

from __future__ import annotations

import asyncio

import pytest

from iris_core.procedures.downtime import Downtime

pytestmark = pytest.mark.asyncio


class Answers:
    """Says what is scripted, and then always the last; one second passes with every look."""

    def __init__(self, *script: bool) -> None:
        self.script = list(script)
        self.now = 0.0
        self.over = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def ask(self) -> bool:
        self.now += 1
        if len(self.script) == 1:
            self._loop.call_soon_threadsafe(self.over.set)
            return self.script[0]
        return self.script.pop(0)

    def measured(self) -> Downtime:
        return Downtime(self.ask, lambda: self.now, every_s=0.001)


async def test_it_is_measured_from_the_last_answer_to_the_next_one() -> None:
    answers = Answers(True, True, False, False, True)
    downtime = answers.measured()
    downtime.start()
    await asyncio.wait_for(answers.over.wait(), 30)
    assert await downtime.result() == 3.0


async def test_one_that_always_answered_was_never_away() -> None:
    answers = Answers(True, True)
    downtime = answers.measured()
    downtime.start()
    await asyncio.wait_for(answers.over.wait(), 30)
    assert await downtime.result() == 0.0


async def test_where_nobody_looked_nothing_is_known() -> None:
    assert await Answers(True).measured().result() is None


async def test_a_look_that_fails_is_no_answer() -> None:
    answers = Answers(True, False, True)

    def ask() -> bool:
        if not answers.ask():
            raise RuntimeError("boom")
        return True

    downtime = Downtime(ask, lambda: answers.now, every_s=0.001)
    downtime.start()
    await asyncio.wait_for(answers.over.wait(), 30)
    assert await downtime.result() == 2.0
