"""Following a log until whoever writes it is over and every line has arrived.

The store is asked with a wait that ends as soon as there is a line, the controller in between; both more slowly the
quieter it is. When the subject has ended, its attempts say how many lines they wrote, and following goes on until the
store has them all and all of them are shown, or none came for DRAIN_S, and BEHIND_S where the store has more than was shown; what is
still missing then is said. With a time until which lines are wanted it ends once that is past. Whose the lines are is asked after they
were read, so that none of a later job of the name is shown. Neither a reader who takes his time nor a controller that is away counts as
silence of the store. A silent log store never hides the end of a job. Must never cancel anything, nor end before the end of a log
without a word.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from iris_core.cli.log_lines import Joiner, Line, TimeOrder
from iris_core.cli.losses import Losses
from iris_core.cli.reads import Patience, now_ms
from iris_core.cli.submission import Replaced
from iris_core.contracts import ConnectFailed, RpcFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from iris_core.cli.diagnostics import Diagnostics
    from iris_core.cli.log_context import ContextReader
    from iris_core.cli.log_reader import LogReader
    from iris_core.cli.log_subject import Standing, Subject
    from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsResponse

DRAIN_S: Final = 10.0
BEHIND_S: Final = 20.0
"""How long a store may be silent that has, or may have, lines which were not shown yet."""
LATE_S: Final = 5.0
"""How long after `until` lines from before it may still arrive."""
FIRST_WAIT_MS: Final = 50
LONGEST_WAIT_MS: Final = 1_000
ROUND_S: Final = 0.05
"""No faster than this, however much is written."""
HELD_S: Final = 2.0
"""How long lines are waited for that the log store has found and holds for their place between others."""
ROUND_LINES: Final = 2_000
"""Lines of one answer: as many as still travel as JSON."""
ORDER_S: Final = 0.5
"""How long a line waits for earlier ones of other tasks."""
UNFINISHED_S: Final = 1.0
"""How long an unfinished line waits for its end."""
PENDING_WORD_S: Final = 1.5
"""After so long a reader is told what the job waits for."""
SILENT_WORD_S: Final = 10.0
"""After so long, and again and again, a reader is told why something that runs has no line yet."""


class Follower:
    """Prints the lines of one subject through `emit` until it is over."""

    def __init__(
        self,
        diagnostics: Diagnostics,
        subject: Subject,
        reader: LogReader | ContextReader,
        emit: Callable[[Iterable[Line]], None],
        *,
        several: bool,
        until_ms: int = 0,
        explain: Callable[[Standing], str] = lambda _: "",
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._diagnostics = diagnostics
        self._subject = subject
        self._reader = reader
        self._emit = emit
        self._order_s = ORDER_S if several else 0.0
        self._explain = explain
        self._spoke = False
        self._clock = clock
        self._sleep = sleep
        self._joiner = Joiner()
        self._order = TimeOrder()
        self._patience = Patience(diagnostics, f"{subject.id} goes on", clock=clock, sleep=sleep)
        self._store_silent = False
        self._unreached = False
        """The last answer was not to be had because the controller could not be reached."""
        self._said = ""
        self._losses = Losses(diagnostics, str(subject.id))
        self._is_under_way = False
        self._began = clock()
        self._explain_at = self._began + SILENT_WORD_S
        self._until = self._began + (until_ms - now_ms()) / 1000 + LATE_S if until_ms else None
        self._later = 0
        """The incarnation of the job that has taken the name over."""
        self.cursor = 0

    def run(self, cursor: int = 0) -> Standing:
        """Follows from behind `cursor` to the end, and returns how the subject stands then, which goes on if its time was over first.
        Raises IrisError: Replaced when a later job takes the name before it has ended.
        """
        self.cursor = cursor
        self._is_under_way = cursor > 0
        wait_ms = FIRST_WAIT_MS
        while True:
            began = self._clock()
            answer = self._fetch(wait_ms)
            try:
                standing = self._patience.ask(self._subject.standing)
            except Replaced as replaced:
                self._later = replaced.later
                self._show_own_rest(answer)
                raise
            except BaseException:
                # They were read while nothing spoke against them.
                self._take(answer)
                self._show()
                raise
            self._take(answer)
            self._show()
            if standing.ended:
                break
            if self._is_past(answer):
                self._show_held()
                return standing
            self._tell(standing)
            wait_ms = FIRST_WAIT_MS if answer is not None and answer.entries else min(wait_ms * 2, LONGEST_WAIT_MS)
            if answer is None:
                self._sleep(wait_ms / 1000)
            self._sleep(max(0.0, ROUND_S - (self._clock() - began)))
        self._drain()
        return standing

    def _fetch(self, wait_ms: int, producers: Iterable[str] = ()) -> FetchLogsResponse | None:
        """One answer, None while the log store does not answer."""
        # A held line must come out in time, and waiting for new ones must not keep it.
        if self._order.waiting or self._joiner.waiting:
            wait_ms = min(wait_ms, 100)
        try:
            answer = self._reader.fetch(
                cursor=self.cursor, max_lines=ROUND_LINES, wait_ms=wait_ms, producers=list(producers)
            )
        except (ConnectFailed, RpcFailed) as error:
            if isinstance(error, RpcFailed) and error.status not in ("UNAVAILABLE", "DEADLINE_EXCEEDED"):
                raise
            if not self._store_silent and isinstance(error, RpcFailed):
                self._diagnostics.note(f"the log store does not answer: {error.message}; lines come when it does")
            self._store_silent, self._unreached = True, isinstance(error, ConnectFailed)
            return None
        self._store_silent = self._unreached = False
        self.cursor = answer.cursor
        # Who begins without a cursor follows what has just begun: what the store lost before then was not its own.
        self._losses.take(answer, is_said=self._is_under_way)
        self._is_under_way = True
        return answer

    def _take(self, answer: FetchLogsResponse | None, others: Collection[int] = ()) -> None:
        """Takes in what an answer brought, without the lines of others."""
        now = self._clock()
        for entry in sorted(answer.entries, key=lambda entry: entry.seq) if answer is not None else ():
            if entry.seq in others:
                continue
            self._spoke = True
            line = self._joiner.push(entry, now)
            if line is not None:
                self._order.push(line, now)

    def _others(self, answer: FetchLogsResponse | None) -> set[int]:
        """Which lines of the answer the later job wrote."""
        seqs = [entry.seq for entry in answer.entries] if answer is not None and self._later else []
        return self._subject.later_lines(self._later, seqs) if seqs else set()

    def _show_own_rest(self, answer: FetchLogsResponse | None) -> None:
        """What is left of its own lines, once the name is another's."""
        last, before = answer.last_seq if answer is not None else 0, -1
        until = self._clock() + HELD_S
        while answer is not None:
            self._take(answer, self._others(answer))
            self._show()
            stands = answer.cursor <= before
            if answer.cursor >= last or (stands and self._clock() >= until):
                break
            if stands:
                self._sleep(0.1)
            before = answer.cursor
            answer = self._fetch(0)
        self._show_held()

    def _is_past(self, answer: FetchLogsResponse | None) -> bool:
        """Whether no line is wanted any more, and all that are there were given."""
        if self._until is None or answer is None or answer.cursor < answer.last_seq:
            return False
        return self._clock() >= self._until

    def _show(self) -> None:
        now = self._clock()
        for line in self._joiner.overdue(now - UNFINISHED_S):
            self._order.push(line, now)
        self._emit(self._order.take_arrived(now - self._order_s))

    def _tell(self, standing: Standing) -> None:
        """Says what a job waits for, or why something that runs is silent, when that lasts and whenever it changes."""
        if standing.started:
            self._tell_silence(standing)
            return
        self._explain_at = self._clock() + SILENT_WORD_S
        if not standing.reason or self._clock() - self._began < PENDING_WORD_S:
            return
        word = f"{self._subject.id} is {standing.label}: {standing.reason}"
        if word != self._said:
            self._said = word
            self._diagnostics.note(word)

    def _tell_silence(self, standing: Standing) -> None:
        if self._spoke or self._clock() < self._explain_at:
            return
        self._explain_at = self._clock() + SILENT_WORD_S
        why = self._explain(standing)
        if why and why != self._said:
            self._said = why
            self._diagnostics.note(f"{self._subject.id} is {standing.label}; no logs yet: {why}")

    def _drain(self) -> None:
        try:
            missing = self._patience.ask(self._subject.written)
        except Replaced as replaced:
            self._later, missing = replaced.later, {}
            self._diagnostics.note(
                f"{self._subject.id} has ended, and another job has its name: lines that arrive from now on are not shown"
            )
        marks: dict[str, int] = {}
        # Until the first answer nobody knows what the store has.
        is_behind = True
        since = self._clock()
        while True:
            before, began = self.cursor, self._clock()
            answer = self._fetch(200 if missing else 0, producers=missing)
            asked = self._clock()
            if answer is None:
                if self._unreached:
                    self._patience.ask(self._subject.standing)
                    since += self._clock() - began
                self._sleep(0.2)
            else:
                others = self._taken_over(answer)
                self._take(answer, others)
                is_fresh = len(answer.entries) > len(others)
                now = {mark.producer: mark.next_number for mark in answer.marks}
                if (
                    is_fresh
                    or (is_behind and self.cursor > before)
                    or any(number > marks.get(uid, 0) for uid, number in now.items())
                ):
                    # As long as lines arrive they are waited for, however many there are.
                    since = asked
                marks.update(now)
                for mark in answer.marks:
                    if mark.next_number >= missing.get(mark.producer, 0):
                        missing.pop(mark.producer, None)
                is_behind = answer.cursor < answer.last_seq
                self._emit(self._order.take_arrived(self._clock() - self._order_s))
                since += self._clock() - asked
                if not is_behind and not is_fresh and not any(missing.values()):
                    break
            if self._clock() - since >= (BEHIND_S if is_behind else DRAIN_S):
                self._say_missing(missing, self._clock() - since)
                break
        self._show_held()

    def _taken_over(self, answer: FetchLogsResponse) -> set[int]:
        """Which lines of an answer are of a later job: the name is free for one as soon as this one has ended."""
        if answer.entries and not self._later:
            try:
                self._patience.ask(self._subject.standing)
            except Replaced as replaced:
                self._later = replaced.later
            except RpcFailed:
                # It was removed, and nobody came after it.
                pass
        return self._others(answer)

    def _show_held(self) -> None:
        for line in self._joiner.overdue():
            self._order.push(line)
        self._emit(self._order.take_all())

    def _say_missing(self, missing: dict[str, int], waited_s: float) -> None:
        uids = [uid for uid, lines in missing.items() if lines]
        answer = self._fetch(0, producers=uids)
        if answer is not None:
            self._take(answer, self._taken_over(answer))
        if answer is None or answer.cursor < answer.last_seq:
            does = "does not answer" if answer is None else "gives no more of its lines"
            self._diagnostics.warn(
                f"the log store {does} for {waited_s:.0f} s: what it has of {self._subject.id} behind these lines is not shown; ask again later"
            )
            return
        if not uids:
            return
        marks = {mark.producer: mark.next_number for mark in answer.marks}
        lines = sum(max(missing[uid] - marks.get(uid, 0), 0) for uid in uids)
        self._diagnostics.warn(
            f"{lines} line{'s' * (lines != 1)} of {len(uids)} attempt{'s' * (len(uids) != 1)} did not reach the log store within {waited_s:.0f} s"
            " and are not shown; ask again later"
        )
