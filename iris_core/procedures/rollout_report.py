"""The report of a rollout, as Markdown, made from its journal and from nothing else: so it says the same to everybody, also years later.

What is evidence is in it whole: the tree's hash, who approved what and when, each sample of each watch, also of one that was cut off, the
seconds that a cluster did not answer. What was not measured is said to be an upper bound, and what did not happen is said not to have
happened. Lines that a job or a check printed are made harmless and stand in fences. Must never look at a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from iris_core.model.redact import redact_text
from iris_core.model.text import one_line
from iris_core.procedures.progress import Progress
from iris_core.procedures.rollout_watch import Seen
from iris_core.procedures.seen_through import THROUGH

if TYPE_CHECKING:
    from iris_core.procedures.journal import Record

_RESTART: Final = "restart"


WATCHING: Final = "in its watch"
DOOMED: Final = "in its watch, which has failed"


@dataclass(slots=True)
class Watch:
    """One run's looks at a cluster after its restart, whole or cut off.

    Attributes:
        by, at_ms: Who began it, and when.
        samples: What was seen.
        last_ms: When the last one was taken; as `at_ms` without any.
    """

    by: str
    at_ms: int
    samples: list[dict[str, Any]] = field(default_factory=list)
    last_ms: int = 0


@dataclass(slots=True)
class ClusterFacts:
    """What a journal says of one cluster; what is absent has not happened.

    Attributes:
        before: The sample from before the restart.
        watches: Each run's watch, also one that goes on; all but the last were cut off.
        boot: That of the controller as its restart saw it, "" = not known.
        verdict, smoke, record: As they were gathered.
        gate: The answer to the question before the restart: approve, skip, stop, "" = not answered.
        checkpoint: The last one that was taken.
        downtime_s: Seconds that it did not answer, as measured; None = they were not.
        bound_s: Seconds from the order to stop until the next controller was healthy.
        failed: What went wrong there, one line each.
        unlocked: Whether the lock was given back.
        shipped: The tree's release was seen to be healthy there, and its record is committed.
    """

    before: dict[str, Any] | None = None
    watches: list[Watch] = field(default_factory=list)
    boot: str = ""
    verdict: dict[str, Any] | None = None
    smoke: dict[str, Any] | None = None
    record: dict[str, Any] | None = None
    gate: str = ""
    checkpoint: str = ""
    downtime_s: float | None = None
    bound_s: float | None = None
    failed: list[str] = field(default_factory=list)
    unlocked: bool = False
    shipped: bool = False

    @property
    def watched(self) -> list[dict[str, Any]]:
        """The samples of the watch, without those of one that was cut off."""
        return self.watches[-1].samples if self.watches else []

    @property
    def samples(self) -> list[dict[str, Any]]:
        """Those of every watch."""
        return [sample for watch in self.watches for sample in watch.samples]

    @property
    def again(self) -> list[dict[str, Any]]:
        """The samples before which the controller was started again."""
        return self._seen()[1]

    @property
    def doomed(self) -> list[str]:
        """What fails the watch for certain, however it goes on, in a few words each."""
        unsent = ["no smoke job"] if any(line.startswith("smoke: ") for line in self.failed) else []
        return self._seen()[0].words + unsent

    def _seen(self) -> tuple[Seen, list[dict[str, Any]]]:
        seen, again = Seen(self.boot), []
        for watch in self.watches:
            seen.begin()
            again += [sample for sample in watch.samples if seen.take(sample)]
        return seen, again


def clusters(records: Sequence[Record]) -> list[str]:
    """The clusters of a rollout's journal, in order."""
    first = records[0] if records else {}
    return [str(name) for name in (first.get("arguments") or {}).get("clusters", ())]


def facts(records: Sequence[Record], name: str) -> ClusterFacts:
    """What the journal says of a cluster."""
    found = ClusterFacts()
    stop_ms = 0
    prefix = f"{name}/"
    for record in records:
        event = str(record.get("event", ""))
        if not event.startswith(prefix):
            continue
        part, kind = event.removeprefix(prefix), record["type"]
        if kind in ("failed", "refused"):
            found.failed.append(f"{part}: {record['message']}")
        elif kind in ("answered", "answered_again") and part == _RESTART:
            found.gate = str(record["choice"])
        elif kind == "gathering" and part == "watch":
            found.watches.append(Watch(str(record["by"]), int(record["at_ms"]), last_ms=int(record["at_ms"])))
        elif kind == "progress" and part == "watch":
            found.watches[-1].samples.append(record["value"])
            found.watches[-1].last_ms = int(record["at_ms"])
        elif kind == "intent" and part == "stop":
            stop_ms = int(record["at_ms"])
        elif kind == "done" and part in ("checkpoint", "stop") and record["value"]:
            found.checkpoint = str(record["value"])
        elif kind == "done" and part == "commit":
            found.shipped = True
        elif kind == "done" and part in ("unlock", f"unlock{THROUGH}"):
            found.unlocked = True
        elif kind == "gathered":
            _gathered(found, part, record, stop_ms)
    return found


def _gathered(found: ClusterFacts, part: str, record: Record, stop_ms: int) -> None:
    value = record["value"]
    match part:
        case "snapshot":
            found.before = value
        case "health":
            found.boot = str(value.get("boot_id", ""))
            found.bound_s = (int(record["at_ms"]) - stop_ms) / 1000 if stop_ms else None
        case "downtime":
            found.downtime_s = value["seconds"]
        case "record":
            found.record = value
        case "smoke-end":
            found.smoke = value
        case "verdict":
            found.verdict = value
        case _:
            pass


def downtime_words(found: ClusterFacts) -> str:
    """How long a cluster did not answer, as far as it is known."""
    if found.downtime_s is not None:
        within = f", {found.bound_s:.1f} s from the order to stop until it was healthy" if found.bound_s else ""
        return f"{found.downtime_s:.1f} s without an answer{within}"
    if found.bound_s is not None:
        return f"at most {found.bound_s:.1f} s, from the order to stop until it was healthy; nobody watched the whole of it"
    return "not stopped"


def standing(records: Sequence[Record], name: str) -> str:
    """How far a cluster is, in a word or two."""
    found = facts(records, name)
    if found.gate == "skip":
        return "skipped"
    if found.verdict is not None:
        return "passed" if found.verdict["passed"] else "failed its watch"
    if found.record is not None:
        return DOOMED if found.doomed else WATCHING
    if found.failed:
        return "failed"
    if found.gate == "approve":
        return "in its restart"
    if found.gate:
        return "stopped at its gate"
    return "looked at" if found.before is not None else "not reached"


def runs(records: Sequence[Record], name: str) -> str:
    """The tree that a cluster runs, as far as the journal says; "" = not known."""
    found = facts(records, name)
    seen = next((str(sample["tree"]) for sample in reversed(found.samples) if sample["reachable"]), "")
    frozen = (Progress.of(list(records)).evidence.get("tree-state") or {}) if found.shipped else {}
    said = (found.record or {}).get("image") or frozen.get("id") or (found.before or {}).get("tree") or ""
    return seen or str(said)


def under_way(records: Sequence[Record]) -> str:
    """The cluster that a rollout is at, "" before the first."""
    begun = [str(record["event"]) for record in records if record["type"] == "step"]
    return next((name.removesuffix("/begin") for name in reversed(begun) if name.endswith("/begin")), "")


def held_locks(records: Sequence[Record]) -> list[str]:
    """The clusters whose lock a rollout has taken, or has begun to take, and has not given back."""
    held: list[str] = []
    for record in records:
        name, _, part = str(record.get("event", "")).partition("/")
        if record["type"] == "done" and part.endswith(("unlock", f"unlock{THROUGH}")) and name in held:
            held.remove(name)
        elif record["type"] == "intent" and part.endswith("lock") and not part.endswith("unlock") and name not in held:
            held.append(name)
    return held


# --- the text --------------------------------------------------------------------------------------------------------


def markdown(procedure: str, records: Sequence[Record]) -> str:
    """The report of the journal of that id."""
    return "\n".join(_lines(procedure, records)) + "\n"


def _at(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _clean(text: object) -> str:
    """One harmless line that no Markdown is read from where it would matter: in tables and lists."""
    return one_line(redact_text(str(text))).replace("|", "\\|")


def _fence(lines: Sequence[str]) -> Iterator[str]:
    yield "```text"
    yield from (one_line(redact_text(line)).replace("```", "'''") for line in lines)
    yield "```"


def _lines(procedure: str, records: Sequence[Record]) -> Iterator[str]:
    progress = Progress.of(list(records))
    names = clusters(records)
    yield f"# Rollout {procedure}"
    yield ""
    yield f"- Begun {_at(progress.started_ms)} by {_clean(progress.started_by)}"
    if progress.status:
        yield f"- Ended {_at(progress.changed_ms)}: **{progress.status}**, {_clean(progress.state)}"
        if progress.next:
            yield f"- Next: {_clean(progress.next)}"
    else:
        waits = f"waits for an answer at {progress.asked['event']}" if progress.asked else "goes on, or was left"
        yield f"- Not ended: {_clean(waits)}, last line {_at(progress.changed_ms)}"
    drivers = sorted({str(record["by"]) for record in records})
    yield f"- Driven by {_clean(', '.join(drivers))}"
    for before, record in pairwise(records):
        if record["type"] == "resumed":
            last, on = _at(int(before["at_ms"])), _at(int(record["at_ms"]))
            yield f"- Left after its line of {last}, gone on with {on} by {_clean(record['by'])}"
    yield f"- Clusters, in order: {_clean(', '.join(names))}"
    yield ""
    yield from _tree(progress)
    yield from _preflight(progress, names)
    yield from _approvals(progress)
    for name in names:
        yield from _cluster(name, records)


def _tree(progress: Progress) -> Iterator[str]:
    tree = progress.evidence.get("tree-state")
    yield "## Tree"
    yield ""
    if tree is None:
        yield "None was frozen."
        yield ""
        return
    yield f"- Hash `{tree['id']}`"
    yield f"- {_clean(tree['branch'])}, {_clean(tree['base'] or 'no commit')} {_clean(tree['subject'])}"
    if tree["upstream"]:
        compared = (
            "not known" if tree["ahead"] is None else f"{tree['ahead']} commits ahead, {tree['behind']} commits behind"
        )
        yield f"- Against {_clean(tree['upstream'])}: {compared}"
    yield f"- Files that differ from the commit: {_clean(', '.join(tree['dirty'])) or 'none'}"
    checks = progress.evidence.get("checks")
    if checks is None:
        yield "- Checks: none were run"
    else:
        yield f"- Checks: `{_clean(checks['command'])}` ended with {checks['exit']} after {checks['seconds']:g} s"
        yield ""
        yield from _fence(checks["lines"])
    yield ""


def _preflight(progress: Progress, names: Sequence[str]) -> Iterator[str]:
    """Journals of an older version have the cluster's name behind `preflight/`."""
    yield "## Preflight"
    yield ""
    rows = [
        f"| {_clean(name)} | {'pass' if check['ok'] else '**FAIL**'} | {_clean(check['what'])} | {_clean(check['detail'])} |"
        for name in names
        for check in progress.evidence.get(f"{name}/needs", progress.evidence.get(f"preflight/{name}", ()))
    ]
    if rows:
        yield "| cluster | | what | how it is |"
        yield "|---|---|---|---|"
        yield from rows
    else:
        yield "None was made."
    yield ""


def _approvals(progress: Progress) -> Iterator[str]:
    yield "## Answers"
    yield ""
    if not progress.approvals:
        yield "Nothing was answered."
    else:
        yield "| when | who | gate | answer | token |"
        yield "|---|---|---|---|---|"
    for answer in progress.approvals:
        why = f" ({_clean(answer['reason'])})" if answer.get("reason") else ""
        yield (
            f"| {_at(int(answer['at_ms']))} | {_clean(answer['by'])} | {_clean(answer['event'])}"
            f" | {_clean(answer['choice'])}{why} | `{answer['token']}` |"
        )
    yield ""


def _cluster(name: str, records: Sequence[Record]) -> Iterator[str]:
    found = facts(records, name)
    yield f"## {_clean(name)}: {standing(records, name)}"
    yield ""
    if found.before is None and not found.failed:
        yield "It was left as it was."
        yield ""
        return
    if found.before is not None:
        last = next((sample for sample in reversed(found.samples) if sample["reachable"]), None)
        yield f"- Tree before `{found.before['tree'] or 'not known'}`" + (f", after `{last['tree']}`" if last else "")
    yield f"- Downtime: {downtime_words(found)}"
    if found.checkpoint:
        yield f"- Checkpoint {_clean(found.checkpoint)}"
    if found.record:
        yield f"- Record: {found.record['phase']}, `{found.record['image']}` after `{found.record['previous_image'] or 'nothing'}`"
    if found.gate == "approve":
        yield f"- Lock: {'given back' if found.unlocked else '**not given back**'}"
    yield from (f"- Failed: {_clean(failure)}" for failure in found.failed)
    for cut, following in pairwise(found.watches):
        seen = f"after {cut.samples[-1]['after_s']:.0f} s" if cut.samples else "before its first look"
        since, began = _at(cut.last_ms), _at(following.at_ms)
        yield f"- Watch: cut off {seen}, {since}; begun anew {began} by {_clean(following.by)}; a failure that was seen stays one"
    if found.verdict is not None:
        yield f"- Verdict: {'passed' if found.verdict['passed'] else '**failed**'}"
        yield from (f"  - concern: {_clean(concern)}" for concern in found.verdict["concerns"])
        yield from (f"  - note: {_clean(note)}" for note in found.verdict["notes"])
    if found.smoke is not None:
        yield f"- Smoke job {_clean(found.smoke['job'])}: {_clean(found.smoke['state'])}"
        if found.smoke["lines"]:
            yield ""
            yield from _fence(found.smoke["lines"])
    yield ""
    if found.before is not None:
        yield from _samples(found)


def _samples(found: ClusterFacts) -> Iterator[str]:
    assert found.before is not None
    yield "| after | answers | healthy workers | running | pending | failures | loop late | log store behind |"
    yield "|---:|---|---:|---:|---:|---:|---:|---:|"
    yield _row("before", found.before, again=False)
    again = {id(sample) for sample in found.again}
    for number, watch in enumerate(found.watches):
        if number:
            yield f"| **anew** | begun {_at(watch.at_ms)} by {_clean(watch.by)} | | | | | | |"
        for sample in watch.samples:
            yield _row(f"{sample['after_s']:.0f} s", sample, again=id(sample) in again)
    yield ""


def _row(after: str, sample: dict[str, Any], *, again: bool) -> str:
    if not sample["reachable"]:
        return f"| {after} | **no**: {_clean(sample['error'])} | | | | | | |"
    answers = ["yes", *(["not ready"] if not sample["ready"] else []), *(["**started again**"] if again else [])]
    return (
        f"| {after} | {', '.join(answers)} | {sample['workers_healthy']}/{sample['workers_total']} | {sample['tasks'].get('running', 0)}"
        f" | {sample['tasks'].get('pending', 0)} | {sample['failures']} | {sample['lag_ms']:.1f} ms | {sample['store_lag_ms']} ms |"
    )
