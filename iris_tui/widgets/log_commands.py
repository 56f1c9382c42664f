"""What can be done with a log besides moving in it: filter, find, errors, times, marks, copies, one line whole, and all of it in a file.

The base of `LogPane`, which shows what these leave behind. What is typed is checked before anything is asked; what takes time goes on
beside the reader and says how far it is.
"""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from iris_core.contracts import IrisError
from iris_core.live.log_query import LogQuery, parse_log_query
from iris_core.live.log_saving import LogFile
from iris_core.model.errors import ModelError
from iris_core.model.levels import parse_level_name
from iris_core.model.regex import compile_content_regex
from iris_core.model.resources import format_size
from iris_core.model.text import one_line
from iris_tui.drawing import counted
from iris_tui.threads import in_thread
from iris_tui.widgets.line_view import safe_text
from iris_tui.widgets.log_drawing import TIMES
from iris_tui.widgets.pane import Pane
from iris_tui.widgets.prompt import Question

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from iris_core.live.clock import Clock
    from iris_core.live.log_facts import Hit
    from iris_core.live.log_view import LogView
    from iris_core.model.regex import Compiled
    from iris_tui.app import IrisApp
    from iris_tui.widgets.log_lines import LogLines
    from iris_tui.widgets.prompt import Prompt

MOST_COPIED: Final = 1000
"""Lines that are copied at once."""
ERROR_LEVEL: Final = 4
_LEVELS: Final = (0, 3, 4)
PROGRESS_S: Final = 0.2


class LogCommands(Pane):
    """See the module."""

    view: LogView
    lines: LogLines
    clock: Clock
    prompt: Prompt

    wanted = ""
    """What was asked for and is not answered yet."""
    fault = ""
    saving = ""
    """How far a save is."""
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

    def work(self, do: Coroutine[Any, Any, None], name: str) -> None:
        """Do something that takes time; of the same name the last one counts."""
        raise NotImplementedError

    @property
    def _iris(self) -> IrisApp:
        return cast("IrisApp", self.app)

    def _number(self) -> int | None:
        """The line that keys are about: the pointer, else the last one."""
        if self.lines.pointer is not None:
            return self.lines.pointer
        return self.view.count - 1 if self.view.count else None

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

    def do_detail(self) -> None:
        from iris_tui.pages import TextPage
        from iris_tui.widgets.log_entry import entry_lines

        number = self._number()
        if number is None:
            return
        view, now_ms = self.view, self.clock.now_ms()

        async def load() -> Any:
            return entry_lines(await view.entry(number), number, now_ms)

        self.app.push_screen(TextPage(self._iris.session, f"Line {number + 1:,} of {one_line(view.title)}", load))

    def do_mark(self) -> None:
        number = self._number()
        if number is None:
            return
        self.view.follow(False)
        self.lines.marks ^= {number}
        self.lines.pointer = number
        self.lines.step(1)
        self.view.follow(False)

    def do_copy(self) -> None:
        number = self._number()
        numbers = sorted(self.lines.marks) or ([number] if number is not None else [])
        if len(numbers) > MOST_COPIED:
            raise ModelError(
                f"{len(numbers):,} lines are marked", hint=f"{MOST_COPIED:,} are copied at most; ^s saves all"
            )

        async def copy() -> None:
            texts = []
            try:
                for one in numbers:
                    parts = await self.view.entry(one)
                    texts.append("".join(safe_text(part.line.data).plain for part in parts))
            except IrisError as error:
                self._iris.say(f"not copied: {one_line(error.message)}", severity="warning")
                return
            self._iris.copy_text("\n".join(texts), counted(len(texts), "line"))

        if numbers:
            self.work(copy(), "copy")

    # --- all of it ---------------------------------------------------------------------------------------------------

    def do_save(self, text: str) -> None:
        from iris_tui.handing_over import file_name, unused

        if text:
            self._save(text)
            return
        stamp = datetime.fromtimestamp(self.clock.now_ms() / 1000, UTC)
        name = file_name(f"{self.view.title[:80]}-{stamp:%Y%m%d-%H%M%S}", ".log")
        question = Question("save in", self._save, cancel=self.lines.take_focus)
        self.prompt.ask(question, str(unused(Path.cwd() / name)))

    def _save(self, name: str) -> None:
        self.lines.take_focus()
        path = Path(name.strip()).expanduser()
        file = LogFile(path)

        async def save() -> None:
            done = await self._export(file)
            if done is not None:
                lines, lost = done
                gap = f"; {counted(lost, 'line')} lost, marked in it" if lost else ""
                self._iris.say(f"saved {counted(lines, 'line')} in {path}{gap}")

        self.work(save(), "save")

    async def _export(self, file: LogFile) -> tuple[int, int] | None:
        """Lines and lost lines that were written; None if it failed, which is said then. Leaves nothing half done."""
        lines = lost = 0
        shown = 0.0
        try:
            async for answer in self.view.export():
                data = answer.data
                await in_thread(lambda data=data: file.write(data), name="save")  # type: ignore[misc]
                lines, lost = answer.lines, answer.lost_lines
                if time.monotonic() - shown > PROGRESS_S:
                    shown = time.monotonic()
                    share = answer.next_line / max(answer.state.lines, 1)
                    self.saving = f"saving {format_size(file.written)}, {min(share, 1.0):.0%}"
            await in_thread(file.finish, name="save")
        except (IrisError, ModelError) as error:
            self._iris.say(f"not saved: {one_line(str(error))}", severity="error")
            return None
        finally:
            self.saving = ""
            file.abandon()
        return lines, lost

    def do_pager(self) -> None:
        self._hand_over(editor=False)

    def do_editor(self) -> None:
        self._hand_over(editor=True)

    def _hand_over(self, *, editor: bool) -> None:
        from tempfile import TemporaryDirectory

        from iris_tui.handing_over import file_name

        async def show() -> None:
            with TemporaryDirectory(prefix="iris-log-") as folder:
                path = Path(folder) / file_name(self.view.title[:80], ".log")
                if await self._export(LogFile(path)) is None:
                    return
                try:
                    self._iris.open_file(path, editor=editor)
                except ModelError as error:
                    self._iris.say(str(error), severity="warning")

        self.work(show(), "save")


def _pattern(text: str) -> Compiled | None:
    """What is looked for: case matters where a capital is typed. Raises ModelError with the place of the fault."""
    if not text:
        return None
    compiled = compile_content_regex(text)
    return compiled if text != text.lower() else compile_content_regex(f"(?i){text}")
