"""What is taken out of a log: one line whole, some of them copied, all of them in a file, in the pager or in the editor.

A base of `LogPane`. What takes time goes on beside the reader and says how far it is; a file appears whole or not at all.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from iris_core.contracts import IrisError
from iris_core.live.log_saving import LogFile
from iris_core.model.errors import ModelError
from iris_core.model.resources import format_size
from iris_core.model.text import counted, one_line
from iris_tui.threads import in_thread
from iris_tui.widgets.line_view import safe_text
from iris_tui.widgets.pane import Pane
from iris_tui.widgets.prompt import Question

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from iris_core.live.clock import Clock
    from iris_core.live.log_view import LogView
    from iris_tui.app import IrisApp
    from iris_tui.widgets.log_lines import LogLines
    from iris_tui.widgets.prompt import Prompt

MOST_COPIED: Final = 1000
"""Lines that are copied at once."""
PROGRESS_S: Final = 0.2


class LogTaking(Pane):
    """See the module."""

    view: LogView
    lines: LogLines
    clock: Clock
    prompt: Prompt
    saving = ""
    """How far a save is."""

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
        self.saving = "saving"
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
