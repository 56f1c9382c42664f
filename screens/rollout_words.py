"""What a rollout's journal comes to on the screen: its lines, where each cluster stands, and the samples of its watch.

Pure: records in, lines and numbers out. The words of single lines are those of the command line (`iris_core.procedures.telling`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.wording import Tone
from iris_core.model.text import one_line
from iris_core.procedures import rollout_report, telling
from iris_core.procedures.progress import Progress
from iris_core.procedures.rollout_watch import DURATION_S
from iris_tui.drawing import Run

if TYPE_CHECKING:
    from iris_core.procedures.journal import Record
    from iris_tui.pages import Lines
    from screens.rollout_reads import Landing

_TONES: Final = {
    "passed": Tone.GOOD,
    "failed its watch": Tone.BAD,
    "failed": Tone.BAD,
    "in its restart": Tone.BUSY,
    rollout_report.WATCHING: Tone.BUSY,
    rollout_report.DOOMED: Tone.BAD,
    "skipped": Tone.WARN,
    "stopped at its gate": Tone.WARN,
}


def lines(records: Sequence[Record]) -> Lines:
    """The whole way so far."""
    found: list[tuple[str, Tone]] = []
    for record in records:
        kind = record["type"]
        for text in telling.words(record):
            found.append((text, _tone(record, text)))
        if kind == "asked":
            again = " once more" if record["again"] else ""
            found.append(("  " + one_line(f"asked{again}: {record['title']}"), Tone.WAIT))
        elif kind == "resumed":
            found.append((one_line(f"{record['by']} goes on"), Tone.DIM))
        elif kind == "ended":
            good = record["status"] == "done"
            found.append((one_line(f"{record['status']}: {record['state']}"), Tone.GOOD if good else Tone.BAD))
            found += [("  " + one_line(f"{detail}"), Tone.PLAIN) for detail in record["details"]]
            if record["next"]:
                found.append(("  " + one_line(f"next: {record['next']}"), Tone.WARN))
    return found


def _tone(record: Record, text: str) -> Tone:
    kind = record["type"]
    if kind == "step":
        return Tone.BUSY
    if kind == "progress" and isinstance(record["value"], dict) and record["value"].get("failed"):
        return Tone.BAD
    if kind in ("failed", "refused") or text.lstrip().startswith(("FAIL", "concern")):
        return Tone.BAD
    if text.lstrip().startswith("note"):
        return Tone.WARN
    return Tone.DIM if kind in ("gathering", "intent") else Tone.PLAIN


def standings(records: Sequence[Record]) -> list[Run]:
    """Where each cluster stands, in order."""
    runs: list[Run] = []
    for name in rollout_report.clusters(records):
        said = rollout_report.standing(records, name)
        runs += [Run(f"{one_line(name)} ", Tone.PLAIN), Run(said, _TONES.get(said, Tone.DIM)), Run("   ")]
    return runs


def state(progress: Progress, *, ours: bool, driven: bool, leaving: bool) -> Run:
    """How the whole stands, in a few words."""
    if progress.status:
        return Run(progress.status, Tone.GOOD if progress.status == "done" else Tone.BAD)
    if leaving:
        return Run("is left at the next safe point", Tone.WARN)
    if progress.asked is not None and ours:
        return Run("waits for your answer", Tone.WAIT)
    if driven:
        who = "waits for whoever drives it" if progress.asked is not None else "driven by another process"
        return Run("goes on" if ours else f"{who}: you look on", Tone.BUSY)
    return Run("was left, and waits to be gone on with", Tone.WARN)


def watched(records: Sequence[Record]) -> tuple[str, list[dict[str, Any]]]:
    """The cluster whose watch is the newest, and all samples of it with that from before the restart; ("", []) without one."""
    name = ""
    for record in records:
        event = str(record.get("event", ""))
        if event.endswith("/watch") and record["type"] == "gathering":
            name = event.removesuffix("/watch")
    if not name:
        return "", []
    found = rollout_report.facts(records, name)
    before = [found.before] if found.before is not None else []
    return name, [*before, *found.samples]


def countdown(records: Sequence[Record], name: str, *, driven: bool) -> list[Run]:
    """How far the watch of a cluster is, and whether it can still pass."""
    found = rollout_report.facts(records, name)
    passed = max((sample["after_s"] for sample in found.watched), default=0.0)
    left = max(DURATION_S - passed, 0.0)
    runs = [Run(f"the watch of {one_line(name)}")]
    if found.doomed:  # first, where a narrow terminal does not cut it off
        runs.append(Run(f" has failed ({', '.join(found.doomed)})", Tone.BAD))
    runs.append(Run(f": {passed:.0f} of {DURATION_S:.0f} s, "))
    if not left:
        runs.append(Run("is over", Tone.DIM))
    elif driven:
        runs.append(Run(f"{left:.0f} s are left, and nothing shortens them", Tone.DIM))
    else:
        runs.append(Run("nobody watches it now, and it begins anew when the rollout is gone on with", Tone.WARN))
    return runs


SERIES: Final = ("workers", "running", "pending", "failures", "lag", "store")


def numbers(sample: dict[str, Any]) -> dict[str, float | None]:
    """One sample as the charts have it, by SERIES; None = it was not had."""
    if not sample["reachable"]:
        return dict.fromkeys(SERIES)
    tasks = sample["tasks"]
    return {
        "workers": float(sample["workers_healthy"]),
        "running": float(tasks.get("running", 0)),
        "pending": float(tasks.get("pending", 0)),
        "failures": float(sample["failures"]),
        "lag": float(sample["lag_ms"]),
        "store": float(sample["store_lag_ms"]),
    }


# --- before there is one -------------------------------------------------------------------------------------------------


def landing(found: Landing, fault: str, keys: tuple[str, str] | None) -> Iterator[tuple[str, Tone]]:
    """What could be taken, what was begun, and what to do. `fault` is why it is not read anew.

    `keys` begin one and go on with one, None = this console is read-only.
    """
    yield (
        "A rollout ships the tree around the console's folder to clusters, one after the other, each approved on its own.",
        Tone.PLAIN,
    )
    yield "", Tone.PLAIN
    if fault := fault or found.fault:
        yield one_line(fault), Tone.BAD
        yield "", Tone.PLAIN
    yield "Clusters, in the order of a rollout that names none:", Tone.BUSY
    for number, candidate in enumerate(found.candidates, 1):
        yield "  " + one_line(f"{number}. {candidate.words()}"), Tone.PLAIN
        if candidate.refusal:
            yield f"     {one_line(candidate.refusal)}", Tone.WARN
    if not found.candidates:
        yield "  none is known: name one by a file in ~/.config/iris/clusters", Tone.DIM
    yield "", Tone.PLAIN
    yield "Rollouts, the newest first:", Tone.BUSY
    for one in found.known:
        tone = Tone.PLAIN if one.ended else Tone.WAIT
        yield one_line(f"{one.id}  {one.state()}  {','.join(one.clusters)}  by {one.progress.started_by}"), tone
    for bad in found.unreadable:
        yield one_line(f"{bad.id}  cannot be read: {bad.why}"), Tone.BAD
    if not found.known and not found.unreadable:
        yield "  none yet", Tone.DIM
    yield "", Tone.PLAIN
    if keys is None:
        yield "This console is read-only: it can only look on. :rollout ID shows one, :write allows changes.", Tone.DIM
        return
    yield f"{keys[0]} begins one, {keys[1]} goes on with one that was left, :rollout ID shows one.", Tone.DIM
