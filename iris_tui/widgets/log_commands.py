"""What can be done with a log besides moving in it: filter, find, errors, times, marks.

The base of `LogPane`, which shows what these leave behind. What is typed is checked before anything is asked; the lines that are shown
stay until others are there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.live.log_query import LogQuery, parse_log_query
from iris_core.model.errors import ModelError
from iris_core.model.levels import parse_level_name
from iris_core.model.regex import compile_content_regex
from iris_core.model.text import counted, one_line
from iris_tui.widgets.log_drawing import TIMES
from iris_tui.widgets.log_taking import LogTaking
from iris_tui.widgets.prompt import Question

if TYPE_CHECKING:
    from iris_core.live.log_facts import Hit
    from iris_core.model.regex import Compiled

ERROR_LEVEL: Final = 4
_LEVELS: Final = (0, 3, 4)


class LogCommands(LogTaking):
    """See the module."""

    wanted = ""
    """What was asked for and is not answered yet."""
    fault = ""
    sought = ""
    seeking = False
    hit: Hit | None = None
    back: tuple[LogQuery, int] | None = None
    """Where Esc returns from the lines around a hit: the filter, and the seq of the hit."""

    _filters: list[str]
    _finds: list[str]

    def __init__(self, *content: Any, id: str | None = None) -> None:
        super().__init__(*content, id=id)
        self._filters = []
        self._finds = []

    def follow(self) -> None:
        """Go to the end and stay there."""
        raise NotImplementedError

    def go_to(self, number: int) -> None:
        """Go to a line and stay there."""
        raise NotImplementedError

    def flush(self) -> None:
        """Show what is known now."""
        raise NotImplementedError

    def show_query(self, query: LogQuery, *, at_seq: int = 0, words: str = "", back: bool = False) -> None:
        """Show other lines."""
        raise NotImplementedError

    # --- where -------------------------------------------------------------------------------------------------------

    def do_follow(self) -> None:
        self.follow()

    def do_bottom(self) -> None:
        self.follow()

    def do_top(self) -> None:
        self.view.follow(False)

        async def head() -> None:
            await self.view.whole()
            self.go_to(0)

        self.work(head(), "move")

    def do_times(self) -> None:
        self.lines.times = TIMES[(TIMES.index(self.lines.times) + 1) % len(TIMES)]
        self.lines.renew()

    def do_at(self, text: str) -> None:
        self._ask_moment("go to", text, self._go_to_time)

    def _go_to_time(self, ms: int) -> None:
        async def go() -> None:
            try:
                number = await self.view.number_at(ms=ms)
            except IrisError as error:
                self._iris.say(f"not found: {one_line(error.message)}", severity="warning")
                return
            if number is not None:
                self.go_to(number)

        self.view.follow(False)
        self.work(go(), "move")

    # --- filter ------------------------------------------------------------------------------------------------------

    def do_filter(self, text: str) -> None:
        def submit(words: str) -> None:
            query = parse_log_query(words, self.view.query)
            if query != self.view.query or self.wanted:
                self.show_query(query)
            else:
                self.lines.take_focus()

        if text:
            submit(text)
            return
        question = Question(
            "& regex",
            submit,
            check=lambda words: parse_log_query(words, self.view.query),
            cancel=self.lines.take_focus,
            history=self._filters,
        )
        self.prompt.ask(question, self.view.query.words())

    def do_level(self, text: str) -> None:
        if text:
            level = 0 if text == "all" else int(parse_level_name(text))
        else:
            at = _LEVELS.index(self.view.query.min_level) if self.view.query.min_level in _LEVELS else 0
            level = _LEVELS[(at + 1) % len(_LEVELS)]
        self.show_query(replace(self.view.query, min_level=level))

    def _since(self, ms: int, words: str) -> None:
        self.show_query(replace(self.view.query, since_ms=self.clock.now_ms() - ms if ms else 0), words=words)

    def do_since_all(self) -> None:
        if self.view.query.since_ms:
            self._since(0, "all lines")
        self.follow()

    def do_since_head(self) -> None:
        if self.view.query.since_ms:
            self._since(0, "all lines")
        self.do_top()

    def do_since_1m(self) -> None:
        self._since(60_000, "the last minute")

    def do_since_5m(self) -> None:
        self._since(300_000, "the last 5 minutes")

    def do_since_15m(self) -> None:
        self._since(900_000, "the last 15 minutes")

    def do_since_30m(self) -> None:
        self._since(1_800_000, "the last 30 minutes")

    def do_since_1h(self) -> None:
        self._since(3_600_000, "the last hour")

    def do_since(self, text: str) -> None:
        self._ask_moment(
            "since",
            text,
            lambda ms: self.show_query(replace(self.view.query, since_ms=ms), words=f"lines since {text}"),
        )

    def _ask_moment(self, label: str, text: str, take: Any) -> None:
        def moment(words: str) -> int:
            from iris_core.cli.moments import EXAMPLES, parse_moment

            try:
                return parse_moment(words, self.clock.now_ms())
            except (ValueError, OverflowError) as error:
                raise ModelError(str(error), position=0, hint=f"write {EXAMPLES}") from None

        def submit(words: str) -> None:
            found = moment(words)
            self.lines.take_focus()
            take(found)

        if text:
            submit(text)
            return
        self.prompt.ask(
            Question(label, submit, check=lambda words: moment(words) if words else None, cancel=self.lines.take_focus)
        )

    # --- find --------------------------------------------------------------------------------------------------------

    def do_find(self, text: str) -> None:
        if text:
            self._find(text)
            return
        question = Question(
            "/ find",
            self._find,
            check=_pattern,
            change=self._highlight,
            cancel=self.stop_finding,
            history=self._finds,
        )
        self.prompt.ask(question, self.sought)

    def _highlight(self, text: str) -> None:
        self.lines.needle = _pattern(text)
        self.sought = text if self.lines.needle is not None else ""
        self.hit = None
        self.lines.renew()

    def _find(self, text: str) -> None:
        self.lines.take_focus()
        self._highlight(text)
        if self.lines.needle is None:
            return
        if self.view.following:
            # Who reads the end wants the newest hit.
            self._seek(self.view.count - 1, backward=True)
        else:
            self._seek(self._number() or 0)

    def stop_finding(self) -> None:
        """Nothing is looked for any more."""
        self.lines.needle, self.sought, self.hit, self.seeking = None, "", None, False
        self.lines.renew()
        self.lines.take_focus()

    def do_next(self) -> None:
        self._seek_from(1)

    def do_previous(self) -> None:
        self._seek_from(-1)

    def _seek_from(self, step: int) -> None:
        if self.lines.needle is None:
            raise ModelError("nothing is looked for", hint="/ finds")
        number = self._number()
        if number is not None:
            self._seek(number + step, backward=step < 0)

    def _seek(self, start: int, *, backward: bool = False) -> None:
        needle = self.lines.needle
        assert needle is not None
        self.seeking = True
        self.view.follow(False)
        # Before the first line there is nothing: begin anew at the end.
        start = self.view.count - 1 if start < 0 else start

        async def seek() -> None:
            hit = await self._look(start, regex=needle.pattern, backward=backward)
            if self.lines.needle is needle:
                self.hit, self.seeking = hit, False
                self.flush()

        self.work(seek(), "find")

    async def _look(self, start: int, *, regex: str = "", min_level: int = 0, backward: bool = False) -> Hit | None:
        """Find and go there; says what there is to say."""
        what = "hit" if regex else "error"
        try:
            hit = await self.view.find(start, regex=regex, min_level=min_level, backward=backward)
        except IrisError as error:
            self._iris.say(f"not found: {one_line(error.message)}", severity="warning")
            return None
        if hit is None:
            self._iris.say(f"there is no {what} in {counted(self.view.count, 'line')}")
            return None
        if hit.wrapped:
            self._iris.say("from the end again" if backward else "from the first line again")
        self.go_to(hit.number)
        return hit

    def do_error(self) -> None:
        self._error(1)

    def do_error_back(self) -> None:
        self._error(-1)

    def _error(self, step: int) -> None:
        number = self._number()
        if number is None:
            return
        if self.view.following:
            # At the end the next error is the first one, and the one before is the last.
            number += 1 if step < 0 else 0
        start = number + step
        start = self.view.count - 1 if start < 0 else start
        self.view.follow(False)

        async def seek() -> None:
            hit = await self._look(start, min_level=ERROR_LEVEL, backward=step < 0)
            if hit is not None:
                self._iris.say(f"error {hit.ordinal:,} of {hit.total:,}")

        self.work(seek(), "find")

    # --- one line ----------------------------------------------------------------------------------------------------

    def do_open(self) -> None:
        number = self._number()
        line = self.view.line(number) if number is not None else None
        if line is None:
            return
        if self.view.query.filters:
            self.lines.pointer = number
            self.show_query(self.view.query.unfiltered, at_seq=line.seq, words="the lines around it", back=True)
        else:
            self.do_detail()

    def do_mark(self) -> None:
        number = self._number()
        if number is None:
            return
        self.view.follow(False)
        self.lines.marks ^= {number}
        self.lines.pointer = number
        self.lines.step(1)
        self.view.follow(False)


def _pattern(text: str) -> Compiled | None:
    """What is looked for: case matters where a capital is typed. Raises ModelError with the place of the fault."""
    if not text:
        return None
    compiled = compile_content_regex(text)
    return compiled if text != text.lower() else compile_content_regex(f"(?i){text}")
