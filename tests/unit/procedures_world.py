"""A small procedure with everything a real one has, on the fake host; and a journal that dies where a test says."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_core.contracts import IrisError
from iris_core.procedures.approvals import Answer
from iris_core.procedures.engine import Engine
from iris_core.procedures.events import (
    APPROVE,
    Evidence,
    Gate,
    Grant,
    Mutation,
    NotStarted,
    Outcome,
    Procedure,
    Report,
    Status,
    Step,
    StepFailed,
    World,
)
from iris_core.procedures.journal import Journal
from providers.fake.clock import FakeClock
from providers.fake.host import FakeHost

if TYPE_CHECKING:
    from iris_core.procedures.journal import Record


class Killed(BaseException):
    """The driving process is gone."""


class DyingJournal:
    """Counts appends and dies before or after the n-th."""

    def __init__(self, journal: Journal, *, die_at: int = -1, after: bool = False) -> None:
        self._journal = journal
        self._left = die_at
        self._after = after
        self.path = journal.path
        self.records = journal.records

    def append(self, record: Record) -> None:
        if self._left == 0 and not self._after:
            raise Killed
        self._journal.append(record)
        if self._left == 0:
            raise Killed
        self._left -= 1

    def reserve(self) -> None:
        self._journal.reserve()

    def close(self) -> None:
        self._journal.close()


class Person:
    """Answers gates by a list; the last answer goes on for ever. Notes what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers) or [Answer(APPROVE, typed="lab")]
        self.asked: list[str] = []

    async def ask(self, gate: Gate) -> Answer:
        self.asked.append(gate.id)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def restart(host: FakeHost, release: str) -> Procedure:
    """Restart into a release; roll back by itself when it does not become healthy."""
    yield Step(id="look", title="Look")

    async def look(report: Report) -> dict[str, Any]:
        status = host.status()
        report("asked the host")
        return {"release": status.detail, "boot": host.boot_id}

    before = yield Evidence(id="before", title="What runs", gather=look)
    stop = Grant("stop", "controller", "lab", before["boot"])
    start = Grant("start", "release", release)
    back = Grant("start again", "release", before["release"])
    choice = yield Gate(
        id="restart", title="Restart lab", grants=(stop, start, back), name="lab", effects=("some seconds without a controller",),
    )  # fmt: skip
    if choice != APPROVE:
        yield Outcome(status=Status.STOPPED, state="nothing was changed")
        return

    async def do_stop() -> None:
        if not host.running:
            raise NotStarted("the controller does not run")
        host.stop()

    async def stopped() -> World:
        return World.NOT_DONE if host.status().running else World.DONE

    async def boot() -> str:
        return host.boot_id

    def starting(wanted: str) -> tuple[Any, Any]:
        async def do() -> str:
            host.start(wanted)
            return host.boot_id

        async def seen() -> World:
            status = host.status()
            return World.DONE if status.running and status.detail == wanted else World.NOT_DONE

        return do, seen

    async def result() -> str:
        return host.boot_id

    async def health(report: Report) -> bool:
        return host.healthy()

    try:
        yield Mutation(
            id="stop",
            title="stop the controller",
            gate="restart",
            grant=stop,
            do=do_stop,
            look=stopped,
            generation=boot,
        )
        do, seen = starting(release)
        yield Mutation(
            id="start", title=f"start {release}", gate="restart", grant=start, do=do, look=seen, result=result
        )
        healthy = yield Evidence(id="health", title="Health", gather=health)
        if healthy:
            yield Outcome(status=Status.DONE, state=f"{release} runs")
            return
        raise IrisError(f"{release} is not healthy")
    except IrisError as error:
        if isinstance(error, StepFailed) and error.step == "stop" and error.untouched:
            yield Outcome(status=Status.FAILED, state=f"nothing was changed: {error.message}")
            return

        async def stop_new() -> None:
            if host.running:
                host.stop()

        async def stop_seen() -> World:
            return World.NOT_DONE if host.status().running and host.release == release else World.DONE

        async def do_back() -> str:
            await stop_new()
            host.start(before["release"])
            return host.boot_id

        _, seen = starting(before["release"])
        yield Mutation(
            id="back",
            title=f"go back to {before['release']}",
            gate="restart",
            grant=back,
            do=do_back,
            look=seen,
            result=result,
        )
        yield Outcome(status=Status.ROLLED_BACK, state=f"{before['release']} runs again: {error.message}")


async def drive(
    folder: Path,
    host: FakeHost,
    person: Person,
    *,
    release: str = "r2",
    account: str = "ada",
    clock: FakeClock | None = None,
    die_at: int = -1,
    after: bool = False,
    engine: list[Engine] | None = None,
) -> Outcome:
    """Run or go on with the procedure "p" in a folder. Raises Killed where it was to die."""
    path = folder / "p.jsonl"
    journal = Journal.open(path) if path.exists() else Journal.create(path)
    dying = DyingJournal(journal, die_at=die_at, after=after)
    made = Engine(dying, person, clock or FakeClock(), account=account)  # type: ignore[arg-type]
    if engine is not None:
        engine.append(made)
    try:
        return await made.run("restart", {"release": release}, restart(host, release))
    finally:
        dying.close()
