"""What is said below a log: how late its lines are, what is missing, what a lost disk would take. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.live.wording import Tone
from iris_core.model.resources import format_age, format_duration
from iris_core.model.text import counted

if TYPE_CHECKING:
    from iris_core.live.log_view import LogView

LATE_MS = 5_000
"""A line that waits longer than that on its worker is worth a colour."""
UNSHIPPED_MS = 900_000
"""The store ships every few minutes; older rows on its disk alone are worth a colour."""

Words = list[tuple[str, Tone]]


def pipeline_strip(view: LogView, now_ms: int) -> Words:
    """The words of the strip, most important first."""
    words: Words = []
    facts, account = view.facts, view.pipeline.account
    if view.fault:
        words.append((view.fault, Tone.BAD))
    if view.numbering is not None:
        what = "numbering the older lines" if not view.query.filters else "searching"
        words.append((f"{what}, {view.numbering:.0%}", Tone.WAIT))
    elif not facts.complete and view.loaded:
        words.append((f"searched {facts.searched:.0%} of the log, {facts.hits:,} hits so far", Tone.WAIT))
    if facts.capped and view.is_whole:
        words.append((facts.capped, Tone.WARN))
    if account.problem:
        words.append((account.problem, Tone.WARN))
    if account.lost_lines:
        words.append((f"{counted(account.lost_lines, 'line')} lost on the way", Tone.WARN))
    if account.known:
        late = Tone.WARN if account.lag_ms > LATE_MS else Tone.DIM
        words.append((f"lag {format_duration(account.lag_ms)}", late))
    elif account.fault:
        words.append((f"pipeline not known: {account.fault}", Tone.DIM))
    last = view.line(view.count - 1) if view.count else None
    if last is not None and last.epoch_ms:
        words.append((f"last line {format_age(max(now_ms - last.epoch_ms, 0))} ago", Tone.DIM))
    since = facts.unshipped_since_ms or account.unshipped_since_ms
    if since:
        age = max(now_ms - since, 0)
        tone = Tone.WARN if age > UNSHIPPED_MS else Tone.DIM
        words.append((f"a lost disk of the log store would take the last {format_age(age)}", tone))
    words += [(note, Tone.DIM) for note in facts.notes]
    return words
