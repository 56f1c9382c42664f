"""Leaving a procedure without ending it: at a gate that nobody answers, on request, and how the question is put to whoever goes on."""

from __future__ import annotations

import asyncio
import os
import pwd
import signal
from pathlib import Path
from typing import Any

import pytest

from iris_core.cli.driving import on_end
from iris_core.procedures import journal as journals
from iris_core.procedures.approvals import Answer, Unanswered, account
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import (
    APPROVE,
    Evidence,
    Gate,
    Grant,
    Mutation,
    Outcome,
    Procedure,
    Report,
    Status,
    Suspended,
    World,
)
from iris_core.procedures.journal import Journal
from iris_core.procedures.progress import Progress
from providers.fake.clock import FakeClock
from providers.fake.host import FakeHost
from tests.unit.procedures_world import Killed, Person, drive

pytestmark = pytest.mark.asyncio
GRANT = Grant("stop", "controller", "lab")
STARTS = Grant("start", "controller", "lab")


class Nobody(Person):
    async def ask(self, gate: Gate) -> Answer:
        raise Unanswered(f"{gate.id} waits")


async def test_a_gate_that_nobody_answers_stands_and_is_asked_by_the_next_run(tmp_path: Path) -> None:
    host = FakeHost()
    for _ in range(2):
        with pytest.raises(Unanswered, match="restart waits"):
            await drive(tmp_path, host, Nobody())
    progress = Progress.of(journals.read(tmp_path / "p.jsonl"))
    assert progress.asked is not None and not progress.status and not host.effects
    assert (await drive(tmp_path, host, Person())).status is Status.DONE
    assert host.effects == ["stop", "start r2"]


async def test_it_is_left_at_a_gate_and_nothing_is_taken_for_an_answer(tmp_path: Path) -> None:
    host, engines = FakeHost(), list[Engine]()

    class Leaving(Person):
        async def ask(self, gate: Gate) -> Answer:
            engines[0].suspend()
            await asyncio.Event().wait()
            raise AssertionError

    with pytest.raises(Suspended):
        await drive(tmp_path, host, Leaving(), engine=engines)
    kinds = [record["type"] for record in journals.read(tmp_path / "p.jsonl")]
    assert kinds[-1] == "asked" and "ended" not in kinds and "cancelled" not in kinds
    assert (await drive(tmp_path, host, Person())).status is Status.DONE


def _halves(engines: list[Engine], done: list[str], *, held: bool) -> Procedure:
    """Stops and starts; told to leave while it stops."""

    def mutation(name: str, grant: Grant, **more: Any) -> Mutation:
        async def do() -> None:
            done.append(name)
            engines[-1].suspend()

        async def look() -> World:
            return World.DONE

        return Mutation(id=name, title=name, gate="g", grant=grant, do=do, look=look, **more)

    async def gather(report: Report) -> str:
        done.append("watched")
        return "well"

    async def procedure() -> Procedure:
        yield Gate(id="g", title="?", grants=(GRANT, STARTS), name="lab")
        yield mutation("stop", GRANT)
        yield mutation("start", STARTS, held=held)
        yield Evidence(id="watch", title="watch", gather=gather)
        yield Outcome(status=Status.DONE, state="both")

    return procedure()


@pytest.mark.parametrize("held", [False, True])
async def test_what_is_held_is_seen_to_its_end_before_it_is_left(tmp_path: Path, held: bool) -> None:
    engines, done = list[Engine](), list[str]()
    first = ["stop", "start"] if held else ["stop"]
    with Journal.create(tmp_path / "p.jsonl") as journal, pytest.raises(Suspended):
        engines.append(Engine(journal, Person(), FakeClock(), account="ada"))
        await engines[-1].run("p", {}, _halves(engines, done, held=held))
    assert done == first
    rounds = 0
    while rounds < 3:
        rounds += 1
        with Journal.open(tmp_path / "p.jsonl") as journal:
            engines.append(Engine(journal, Person(), FakeClock(), account="ada"))
            try:
                outcome = await engines[-1].run("p", {}, _halves(engines, done, held=held))
            except Suspended:
                continue
            break
    assert outcome.status is Status.DONE
    assert done == ["stop", "start", "watched"], "each once, whatever it was left at"


async def test_whoever_looks_on_and_breaks_ends_nothing_that_is_half_done(tmp_path: Path) -> None:
    """As `rollout run -o jsonl | head`: the reader goes away while the controller is down."""
    engines, done, told = list[Engine](), list[str](), list[str]()

    def watch(record: journals.Record) -> None:
        told.append(record["type"])
        if record["type"] == "intent":
            raise BrokenPipeError

    with Journal.create(tmp_path / "p.jsonl") as journal:
        engines.append(Engine(journal, Person(), FakeClock(), account="ada", watch=watch))
        with pytest.raises(BrokenPipeError):
            await engines[-1].run("p", {}, _halves(engines, done, held=True))
    assert done == ["stop", "start"] and told == ["started", "asked", "answered", "intent"]
    assert not any(record["type"] == "ended" for record in journals.read(tmp_path / "p.jsonl"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
async def test_what_would_end_the_process_leaves_at_a_safe_point(number: signal.Signals) -> None:
    asked = asyncio.Event()
    before = signal.getsignal(number)
    on_end(asked.set)
    try:
        os.kill(os.getpid(), number)
        await asyncio.wait_for(asked.wait(), 60)
    finally:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(each)
        signal.signal(number, before)


async def test_under_nohup_a_terminal_that_goes_away_changes_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        on_end(lambda: None)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for each in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(each)
        signal.signal(signal.SIGHUP, before)


async def test_no_variable_makes_one_account_another(monkeypatch: pytest.MonkeyPatch) -> None:
    own = pwd.getpwuid(os.geteuid()).pw_name
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "grace")
    assert account() == own
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000_000)
    assert account() == "uid 4000000000", "and one without a name is no fault"


async def test_whoever_goes_on_is_asked_for_what_is_left_and_told_who_approved_it_before(tmp_path: Path) -> None:
    host, clock = FakeHost(), FakeClock()
    with pytest.raises(Killed):
        await drive(tmp_path, host, Person(), clock=clock, die_at=9)  # the old one is stopped
    asked: list[Gate] = []

    class Grace(Person):
        async def ask(self, gate: Gate) -> Answer:
            asked.append(gate)
            return Answer(APPROVE, token=gate.token())

    outcome = await drive(tmp_path, host, Grace(), clock=clock, account="grace")
    assert outcome.status is Status.DONE and host.effects == ["stop", "start r2"]
    (gate,) = asked
    assert gate.effects[0] == "ada approved this before; left of it: start release r2, start again release r1"
    records = journals.read(tmp_path / "p.jsonl")
    first, again = (record["token"] for record in records if record["type"] == "asked")
    assert first != again, "the approval of then cannot be given in the place of the new one"
    assert [record["by"] for record in Progress.of(records).approvals] == ["ada", "grace"]
