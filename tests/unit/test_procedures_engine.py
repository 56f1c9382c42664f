"""The engine: nothing changes without the gate that names it, and a killed run goes on to the same end without doing anything twice."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.contracts import ConnectFailed, IrisError
from iris_core.procedures import journal as journals
from iris_core.procedures.approvals import Answer, GivenTokens
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import (
    APPROVE,
    STOP,
    Evidence,
    Gate,
    Grant,
    Mutation,
    Outcome,
    Procedure,
    Report,
    Status,
    Step,
    StepFailed,
    World,
)
from iris_core.procedures.granted import Unapproved
from iris_core.procedures.journal import Journal
from iris_core.procedures.progress import Progress, follow
from iris_core.procedures.replay import JournalMismatch
from providers.fake.clock import FakeClock
from providers.fake.host import FakeHost
from tests.unit.procedures_world import Killed, Person, drive

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio
YES = Answer(APPROVE, typed="lab")


async def test_it_restarts_behind_its_gate(tmp_path: Path) -> None:
    host, person = FakeHost(), Person()
    outcome = await drive(tmp_path, host, person)
    assert (outcome.status, outcome.exit_code, outcome.state) == (Status.DONE, 0, "r2 runs")
    assert host.effects == ["stop", "start r2"]
    assert person.asked == ["restart"]
    again = await drive(tmp_path, host, person)
    assert again == outcome
    assert host.effects == ["stop", "start r2"], "what has ended is not run again"


@pytest.mark.parametrize(
    "answer",
    [Answer(STOP), Answer(APPROVE), Answer(APPROVE, typed="LAB"), Answer(APPROVE, typed="lab "), Answer("yes", typed="lab"),
     Answer(APPROVE, token="0123456789ab")],
)  # fmt: skip
async def test_whatever_does_not_fit_the_gate_is_no_approval(tmp_path: Path, answer: Answer) -> None:
    host = FakeHost()
    outcome = await drive(tmp_path, host, Person(answer))
    assert outcome.status is Status.STOPPED
    assert host.effects == []


async def test_a_token_approves_exactly_the_question_it_was_made_for(tmp_path: Path) -> None:
    host = FakeHost()
    stopped = await drive(tmp_path, host, GivenTokens({}))  # type: ignore[arg-type]
    assert stopped.status is Status.STOPPED
    asked = next(record for record in journals.read(tmp_path / "p.jsonl") if record["type"] == "asked")
    (tmp_path / "p.jsonl").unlink()
    other = await drive(tmp_path, host, GivenTokens({"restart": asked["token"]}), release="r3")  # type: ignore[arg-type]
    assert other.status is Status.STOPPED, "the token was for r2"
    (tmp_path / "p.jsonl").unlink()
    done = await drive(tmp_path, host, GivenTokens({"restart": asked["token"]}))  # type: ignore[arg-type]
    assert done.status is Status.DONE


async def test_an_unhealthy_release_is_rolled_back_under_the_same_approval(tmp_path: Path) -> None:
    host, person = FakeHost(), Person()
    host.unhealthy.add("r2")
    outcome = await drive(tmp_path, host, person)
    assert (outcome.status, outcome.exit_code) == (Status.ROLLED_BACK, 1)
    assert host.effects == ["stop", "start r2", "stop", "start r1"]
    assert person.asked == ["restart"]


async def test_a_failure_before_anything_was_touched_changes_nothing(tmp_path: Path) -> None:
    host = FakeHost()
    host.running = False
    outcome = await drive(tmp_path, host, Person())
    assert outcome.status is Status.FAILED
    assert "nothing was changed" in outcome.state
    assert host.effects == []


async def test_an_object_that_is_not_what_was_approved_is_left_alone(tmp_path: Path) -> None:
    host = FakeHost()

    class Slow(Person):
        async def ask(self, gate: Gate) -> Answer:
            host.boot += 1  # somebody else restarted it while the question stood
            return await super().ask(gate)

    outcome = await drive(tmp_path, host, Slow())
    assert outcome.status is Status.FAILED
    assert "is not what was approved" in outcome.state
    assert host.effects == []


def _one(grant: Grant, gate: str = "g", name: str = "m") -> Mutation:
    async def do() -> None:
        raise AssertionError("must not be done")

    async def look() -> World:
        return World.UNKNOWN

    return Mutation(id=name, title="t", gate=gate, grant=grant, do=do, look=look)


GRANT = Grant("stop", "controller", "lab", "b1")


@pytest.mark.parametrize(
    "granted, wanted, gate",
    [
        ((), GRANT, "g"),
        ((GRANT,), Grant("stop", "controller", "lab", "b2"), "g"),
        ((GRANT,), Grant("stop", "controller", "other", "b1"), "g"),
        ((GRANT,), Grant("start", "controller", "lab", "b1"), "g"),
        ((GRANT,), GRANT, "another"),
    ],
)
async def test_a_mutation_that_no_approved_gate_names_is_refused(
    tmp_path: Path, granted: tuple[Grant, ...], wanted: Grant, gate: str
) -> None:
    seen: list[BaseException] = []

    async def procedure() -> Procedure:
        yield Gate(id="g", title="?", grants=granted, name="lab")
        try:
            yield _one(wanted, gate)
        except IrisError as error:
            seen.append(error)
        yield Outcome(status=Status.DONE, state="")

    with Journal.create(tmp_path / "p.jsonl") as journal:
        await Engine(journal, Person(), FakeClock(), account="ada").run("p", {}, procedure())
    assert [type(error) for error in seen] == [Unapproved]


async def test_an_approval_counts_once(tmp_path: Path) -> None:
    done: list[str] = []

    async def procedure() -> Procedure:
        yield Gate(id="g", title="?", grants=(GRANT,), name="lab")
        for name in ("first", "second"):

            async def do(name: str = name) -> None:
                done.append(name)

            async def look() -> World:
                return World.DONE

            yield Mutation(id=name, title=name, gate="g", grant=GRANT, do=do, look=look)
        yield Outcome(status=Status.DONE, state="")

    with Journal.create(tmp_path / "p.jsonl") as journal:
        outcome = await Engine(journal, Person(), FakeClock(), account="ada").run("p", {}, procedure())
    assert done == ["first"]
    assert outcome.status is Status.FAILED
    assert "has been used" in outcome.state


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("unhealthy", [False, True])
@pytest.mark.parametrize("point", range(16))
async def test_a_run_killed_at_any_line_goes_on_to_the_same_end(
    tmp_path: Path, point: int, unhealthy: bool, after: bool
) -> None:
    host = FakeHost()
    if unhealthy:
        host.unhealthy.add("r2")
    clock = FakeClock()
    try:
        outcome = await drive(tmp_path, host, Person(), clock=clock, die_at=point, after=after)
    except Killed:
        outcome = await drive(tmp_path, host, Person(), clock=clock)
    if unhealthy:
        assert outcome.status is Status.ROLLED_BACK
        assert host.effects == ["stop", "start r2", "stop", "start r1"]
    else:
        assert outcome.status is Status.DONE
        assert host.effects == ["stop", "start r2"]
    assert [record["type"] for record in journals.read(tmp_path / "p.jsonl")].count("ended") == 1


@given(st.lists(st.tuples(st.integers(0, 14), st.booleans()), max_size=4), st.booleans())
@settings(max_examples=60, deadline=None)
async def test_however_often_it_is_killed_nothing_is_done_twice(
    tmp_path_factory: pytest.TempPathFactory, deaths: list[tuple[int, bool]], unhealthy: bool
) -> None:
    folder = tmp_path_factory.mktemp("procedures")
    host, clock = FakeHost(), FakeClock()
    if unhealthy:
        host.unhealthy.add("r2")
    outcome = None
    for point, after in [*deaths, (-1, False)]:
        try:
            outcome = await drive(folder, host, Person(), clock=clock, die_at=point, after=after)
        except Killed:
            continue
    assert outcome is not None
    assert host.effects == (["stop", "start r2", "stop", "start r1"] if unhealthy else ["stop", "start r2"])


async def test_another_account_has_to_approve_what_is_left(tmp_path: Path) -> None:
    host, clock = FakeHost(), FakeClock()
    with pytest.raises(Killed):
        await drive(tmp_path, host, Person(), clock=clock, die_at=7)
    other = Person(YES)
    outcome = await drive(tmp_path, host, other, clock=clock, account="grace")
    assert outcome.status is Status.DONE
    assert other.asked == ["restart"]
    answers = Progress.of(journals.read(tmp_path / "p.jsonl")).approvals
    assert [answer["by"] for answer in answers] == ["ada", "grace"]


async def test_an_approval_that_was_not_used_for_a_quarter_of_an_hour_is_asked_for_again(tmp_path: Path) -> None:
    host, clock = FakeHost(), FakeClock()
    with pytest.raises(Killed):
        await drive(tmp_path, host, Person(), clock=clock, die_at=7)
    clock.advance(15 * 60 + 1)
    refusing = Person(Answer(STOP))
    outcome = await drive(tmp_path, host, refusing, clock=clock)
    assert refusing.asked == ["restart"]
    assert outcome.status is Status.FAILED
    assert "not approved again" in outcome.state
    assert host.effects == []


async def test_a_mutation_that_fails_after_it_took_effect_is_not_done_again(tmp_path: Path) -> None:
    host = FakeHost()
    host.fault("start", "after")
    outcome = await drive(tmp_path, host, Person())
    assert outcome.status is Status.ROLLED_BACK
    assert host.effects == ["stop", "start r2", "stop", "start r1"]


@pytest.mark.parametrize("found", [World.DONE, World.NOT_DONE, World.UNKNOWN])
async def test_when_nobody_answered_a_look_says_what_became_of_it(tmp_path: Path, found: World) -> None:
    async def do() -> None:
        raise ConnectFailed("ssh h1: the connection broke")

    async def look() -> World:
        return found

    async def procedure() -> Procedure:
        yield Gate(id="g", title="?", grants=(GRANT,), name="lab")
        try:
            yield Mutation(id="m", title="start", gate="g", grant=GRANT, do=do, look=look)
            yield Outcome(status=Status.DONE, state="went on")
        except StepFailed as error:
            yield Outcome(status=Status.FAILED, state=f"{error.untouched} {error.unknown} {error.message}")

    with Journal.create(tmp_path / "p.jsonl") as journal:
        outcome = await Engine(journal, Person(), FakeClock(), account="ada").run("p", {}, procedure())
    assert (
        outcome.state
        == {
            World.DONE: "went on",
            World.NOT_DONE: "True False ssh h1: the connection broke; it did not take effect",
            World.UNKNOWN: "False True ssh h1: the connection broke; whether it took effect is not known",
        }[found]
    )


async def test_where_nobody_knows_whether_it_took_effect_a_person_has_to_look(tmp_path: Path) -> None:
    async def do() -> None:
        raise RuntimeError("boom")

    async def look() -> World:
        raise IrisError("the host is down")

    async def procedure() -> Procedure:
        yield Gate(id="g", title="?", grants=(GRANT,), name="lab")
        yield Mutation(id="m", title="stop", gate="g", grant=GRANT, do=do, look=look)

    with Journal.create(tmp_path / "p.jsonl") as journal:
        outcome = await Engine(journal, Person(), FakeClock(), account="ada").run("p", {}, procedure())
    assert (outcome.status, outcome.exit_code) == (Status.UNKNOWN, 1)
    assert "whether it took effect is not known" in outcome.state


async def test_cancelling_leaves_a_defined_state_and_says_which(tmp_path: Path) -> None:
    host = FakeHost()
    engines: list[Engine] = []

    class Waiting(Person):
        async def ask(self, gate: Gate) -> Answer:
            engines[0].cancel()
            await asyncio.Event().wait()
            raise AssertionError

    outcome = await drive(tmp_path, host, Waiting(), engine=engines)
    assert outcome.status is Status.CANCELLED
    assert outcome.state == "cancelled; nothing was changed"
    assert host.effects == []
    again = await drive(tmp_path, host, Person())
    assert again == outcome


async def test_a_mutation_that_was_begun_is_seen_to_its_end_before_a_cancel(tmp_path: Path) -> None:
    engines: list[Engine] = []
    done: list[str] = []

    async def do() -> None:
        engines[0].cancel()
        done.append("m")

    async def look() -> World:
        return World.DONE

    async def gather(report: Report) -> None:
        raise AssertionError("not reached")

    async def procedure() -> Procedure:
        yield Gate(id="g", title="?", grants=(GRANT,), name="lab")
        yield Mutation(id="m", title="stop the controller", gate="g", grant=GRANT, do=do, look=look)
        yield Evidence(id="e", title="watch", gather=gather)

    with Journal.create(tmp_path / "p.jsonl") as journal:
        engine = Engine(journal, Person(), FakeClock(), account="ada")
        engines.append(engine)
        outcome = await engine.run("p", {}, procedure())
    assert done == ["m"]
    assert outcome.state == "cancelled; done before that: stop the controller"


async def test_evidence_that_fails_or_takes_too_long_is_said_and_ends_it(tmp_path: Path) -> None:
    async def fails(report: Report) -> None:
        raise IrisError("no such cluster")

    async def hangs(report: Report) -> None:
        await asyncio.Event().wait()

    seen: list[StepFailed] = []

    async def procedure() -> Procedure:
        for name, gather in (("fails", fails), ("hangs", hangs)):
            try:
                yield Evidence(id=name, title=name, gather=gather, timeout_s=0.01)
            except StepFailed as error:
                seen.append(error)
        yield Outcome(status=Status.DONE, state="")

    with Journal.create(tmp_path / "p.jsonl") as journal:
        await Engine(journal, Person(), FakeClock(), account="ada").run("p", {}, procedure())
    assert [(error.step, error.message) for error in seen] == [
        ("fails", "no such cluster"),
        ("hangs", "no answer within 0.01 s"),
    ]


async def test_a_journal_of_other_arguments_or_of_another_version_is_not_gone_on_with(tmp_path: Path) -> None:
    host = FakeHost()
    with pytest.raises(Killed):
        await drive(tmp_path, host, Person(), die_at=7)
    with pytest.raises(JournalMismatch, match="other arguments"):
        await drive(tmp_path, host, Person(), release="r9")

    async def newer() -> Procedure:
        yield Evidence(id="something else", title="", gather=_nothing)

    with Journal.open(tmp_path / "p.jsonl") as journal, pytest.raises(JournalMismatch, match="the journal has look"):
        await Engine(journal, Person(), FakeClock(), account="ada").run("restart", {"release": "r2"}, newer())
    assert host.effects == []


async def _nothing(report: Report) -> None:
    return None


async def test_a_fault_of_the_procedure_is_laid_on_its_journal_only_where_an_earlier_run_wrote_that(
    tmp_path: Path,
) -> None:
    async def faulty() -> Procedure:
        found: dict[str, str] = {}
        yield Step(id="look", title=found["what"])

    with Journal.create(tmp_path / "p.jsonl") as journal, pytest.raises(KeyError):
        await Engine(journal, Person(), FakeClock(), account="ada").run("p", {}, faulty())
    with Journal.open(tmp_path / "p.jsonl") as journal, pytest.raises(JournalMismatch, match="cannot be gone on from"):
        await Engine(journal, Person(), FakeClock(), account="ada").run("p", {}, faulty())


async def test_progress_reopens_at_the_open_gate_and_followers_see_every_line(tmp_path: Path) -> None:
    host = FakeHost()
    with pytest.raises(Killed):
        await drive(tmp_path, host, Person(), die_at=6)
    progress = Progress.of(journals.read(tmp_path / "p.jsonl"))
    assert progress.asked is not None
    assert (progress.asked["title"], progress.step, progress.started_by) == ("Restart lab", "Look", "ada")
    assert progress.reports == {"before": ["asked the host"]}
    await drive(tmp_path, host, Person())
    lines: list[dict[str, Any]] = [record async for record in follow(tmp_path / "p.jsonl", FakeClock())]
    assert lines == journals.read(tmp_path / "p.jsonl")
    ended = Progress.of(lines)
    assert (ended.status, ended.done, ended.asked) == ("done", ["stop the controller", "start r2"], None)
