"""What was changed from this console: every operation with what became of each target, kept until the console ends.

An operation goes on when the screen that began it is left or its page is closed; `:results` shows it again, running or done. Newest
first; the oldest go when there are many, and it is said how many went.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Final, cast

from iris_core.live.wording import Tone
from iris_core.model.text import counted, one_line

if TYPE_CHECKING:
    from iris_tui.app import IrisApp
    from iris_tui.change_requests import Result
    from iris_tui.pages import Lines

KEPT: Final = 100
SHOWN_RESULTS: Final = 1_000
"""Of one operation; what was not done comes first."""


@dataclass(slots=True)
class Operation:
    """One change of one or many targets. `requests` are to be sent, `sent` of them have been decided."""

    title: str
    cluster: str
    command: str
    began_ms: int
    requests: int
    sent: int = 0
    results: list[Result] = field(default_factory=list)
    finished: bool = False
    note: str = ""

    @property
    def failed(self) -> int:
        """Targets for which it was not done, or not known to be."""
        return sum(not result.done for result in self.results)

    def state(self) -> str:
        """In one line."""
        done = len(self.results) - self.failed
        if not self.finished:
            return f"running, {self.sent:,} of {self.requests:,} sent, {done:,} done, {self.failed:,} failed"
        return f"{done:,} done, {self.failed:,} failed" if self.failed else f"{done:,} done"


class Operations:
    """Those of one console."""

    def __init__(self) -> None:
        self._kept: deque[Operation] = deque(maxlen=KEPT)
        self._dropped = 0

    def __len__(self) -> int:
        return len(self._kept)

    def begin(self, operation: Operation) -> Operation:
        """Keep one."""
        self._dropped += len(self._kept) == KEPT
        self._kept.appendleft(operation)
        return operation

    @property
    def running(self) -> int:
        """How many are under way."""
        return sum(not operation.finished for operation in self._kept)

    @property
    def version(self) -> tuple[int, int, int]:
        """Changes whenever there is something else to show."""
        sent = sum(operation.sent for operation in self._kept)
        return self._dropped + len(self._kept), sent, self.running

    def lines(self) -> Lines:
        """All of them as text."""
        if not self._kept:
            return [("Nothing was changed from this console yet.", Tone.DIM)]
        found: list[tuple[str, Tone]] = []
        for operation in self._kept:
            found.extend(_lines(operation))
            found.append(("", Tone.PLAIN))
        if self._dropped:
            found.append((f"{self._dropped:,} earlier ones are not kept; the audit log has them", Tone.DIM))
        return found


def _lines(operation: Operation) -> Iterable[tuple[str, Tone]]:
    moment = datetime.fromtimestamp(operation.began_ms / 1000, UTC)
    tone = Tone.WARN if not operation.finished else Tone.BAD if operation.failed else Tone.GOOD
    yield f"{moment:%H:%M:%S}  {operation.title} on {operation.cluster}: {operation.state()}", tone
    yield f"  same as: {operation.command}", Tone.DIM
    if operation.note:
        yield f"  {operation.note}", Tone.WARN
    results = sorted(operation.results, key=lambda result: result.done)
    for result in results[:SHOWN_RESULTS]:
        yield f"  {one_line(result.id)}  {result.words}", Tone.GOOD if result.done else Tone.BAD
    if len(results) > SHOWN_RESULTS:
        yield f"  and {counted(len(results) - SHOWN_RESULTS, 'more result')}, all done", Tone.DIM


class Operating:
    """The part of the app that keeps its operations. Mix into an App."""

    @cached_property
    def operations(self) -> Operations:
        """What was changed from this console."""
        return Operations()

    def show_results(self) -> None:
        """The page of all operations, unless it is shown."""
        from iris_tui.results_page import ResultsPage

        console = cast("IrisApp", self)
        if not isinstance(console.screen, ResultsPage):
            console.push_screen(ResultsPage(console.session, self.operations))

    def do_results(self) -> None:
        self.show_results()
