"""What a line of a journal says to somebody who watches: the same words on a terminal and in the console.

Whatever was printed by a job or a host is made harmless here. Must never say more than the line does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from iris_core.model.resources import format_age
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_core.procedures.journal import Record

NOTICEABLE_MS: Final = 1_000


def words(record: Record) -> Iterator[str]:
    """The lines to show for one line of the journal; none for what is only kept."""
    match record["type"]:
        case "step":
            yield one_line(str(record["title"]))
        case "gathering" | "intent":
            yield "  " + one_line(f"{record['title']} …")
        case "failed":
            yield "  " + one_line(f"failed: {record['message']}")
        case "refused":
            yield "  " + one_line(f"refused: {record['message']}")
        case "not_done":
            yield "  " + one_line(f"{record['event']}: it had not taken effect")
        case "answered" | "answered_again":
            why = f" ({record['reason']})" if record.get("reason") else ""
            yield "  " + one_line(f"{record['by']} answered {record['event']}: {record['choice']}{why}")
        case "cancelled":
            yield "  ended on request; what was begun is put right"
        case "progress":
            for line in _progress(record["value"]):
                yield "    " + one_line(line)
        case "gathered":
            yield from ("    " + one_line(line) for line in _gathered(record))
        case _:
            pass


def _progress(value: Any) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    if "after_s" in value:
        yield sample_words(value)
    elif "what" in value:
        yield f"{'PASS' if value['ok'] else 'FAIL'} {value['what']}: {value['detail']}"
        if not value["ok"]:
            yield f"needed because {value['why']}"
    yield from (str(line) for line in value.get("lines", ()))


def _gathered(record: Record) -> Iterator[str]:
    value = record["value"]
    part = str(record["event"]).rpartition("/")[2]
    if not isinstance(value, dict):
        return
    if part == "downtime" and value["seconds"] is not None:
        yield f"without an answer for {value['seconds']:.1f} s"
    elif part == "smoke-end":
        yield f"{value['job']} is {value['state']}"
        yield from (f"> {line}" for line in value["lines"])
    elif part == "verdict":
        yield "passed" if value["passed"] else "FAILED"
        yield from (f"concern: {concern}" for concern in value["concerns"])
        yield from (f"note: {note}" for note in value["notes"])
    elif part == "snapshot":
        yield sample_words({**value, "after_s": None})


def sample_words(sample: dict[str, Any]) -> str:
    """One look at a cluster in a line."""
    after = "before" if sample["after_s"] is None else f"{sample['after_s']:.0f} s"
    failed = f"; this watch has failed: {', '.join(sample['failed'])}" if sample.get("failed") else ""
    if not sample["reachable"]:
        return f"{after}: no answer, {sample['error']}{failed}"
    tasks = sample["tasks"]
    said = [
        f"{sample['workers_healthy']}/{sample['workers_total']} workers healthy",
        f"{tasks.get('running', 0)} running, {tasks.get('pending', 0)} pending",
        f"{sample['failures']} failed attempts",
        f"loop {sample['lag_ms']:.1f} ms late",
        f"log store {format_age(sample['store_lag_ms'])} behind"
        if sample["store_lag_ms"] >= NOTICEABLE_MS
        else "log store up to date",
    ]
    if not sample["ready"]:
        said.insert(0, "not ready")
    if sample.get("again"):
        said.insert(0, "started again")
    return f"{after}: {', '.join(said)}{failed}"
