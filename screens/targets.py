"""Jobs, tasks and attempts as what an action is about, on every screen that shows some: which one is meant, and what opens.

A screen mixes this in and says which one is chosen (`chosen_target`) and which ones a change is about (`chosen_ids`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from iris_core.model.errors import ModelError
from iris_core.model.ids import JobId, parse_target
from iris_core.model.text import one_line
from iris_tui.actions import BY_ID, Action
from iris_tui.scope import ActionHost
from screens.closer import CloserLooks
from screens.jobs_target import Target, from_text

if TYPE_CHECKING:
    from iris_tui.screen import ConsoleScreen


class TargetActions(CloserLooks):
    """Answers the scope "target". Mix into a ConsoleScreen."""

    @property
    def _screen(self) -> ConsoleScreen:
        return self._here

    def _target(self, text: str) -> Target | None:
        """What was typed, else what is chosen. Raises ModelError for what is no id."""
        return from_text(text) if text else self.chosen_target()

    def do_logs(self, text: str) -> None:
        names = text.split() or self.chosen_ids(("job", "task", "attempt"))
        if len(names) > 1:
            self._screen.console.go("logs", " ".join(names))
            return
        target = self._target(names[0] if names else "")
        if target is not None:
            self.open_logs(target)

    def do_describe(self, text: str) -> None:
        self._page(self._target(text), "describe")

    def do_explain(self, text: str) -> None:
        target = self._target(text)
        if target is not None:
            # An attempt does not wait: its task is explained.
            self._screen.console.go("explain", target.task or target.id)

    def do_spec(self, text: str) -> None:
        self._page(self._target(text), "spec")

    def do_copy(self, text: str) -> None:
        target = self._target(text)
        names = [text] if text else self.chosen_ids(("job", "task", "attempt"))
        if not names and target is not None:
            names = [target.id]
        if names:
            self._screen.console.copy_text("\n".join(names), names[0] if len(names) == 1 else f"{len(names)} ids")

    def do_hang(self, text: str) -> None:
        from iris_tui.pages import TextPage
        from screens import hang

        target = self._target(text)
        if target is None:
            raise ModelError("hang works on a job", hint="choose a job, or name one")
        job_id = target.id if target.kind == "job" else (target.task or target.id).rpartition("/")[0]
        session = self._screen.session
        command = f"iris-core {session.selector} job hang {job_id}"
        page = TextPage(session, f"Hang {one_line(job_id)}", lambda: hang.load(session, job_id), command=command)
        self._screen.app.push_screen(page)

    def _page(self, target: Target | None, what: str) -> None:
        from iris_tui.pages import TextPage
        from screens import jobs_pages

        if target is None:
            return
        screen = self._screen
        pages = {"spec": jobs_pages.spec, "describe": jobs_pages.describe}
        page = pages[what](screen.session, target)
        screen.app.push_screen(TextPage(screen.session, page.title, page.load, command=page.command))

    # --- changing ----------------------------------------------------------------------------------------------------

    def do_cancel(self, text: str) -> None:
        self._change(BY_ID["target.cancel"], text)

    def do_complete(self, text: str) -> None:
        self._change(BY_ID["target.complete"], text)

    def do_rerun(self, text: str) -> None:
        names = [text] if text else self.chosen_ids(("job",))
        if len(names) > 1:
            raise ModelError("one job is run again at a time", hint="unmark the others with u, or name one")
        target = self._target(names[0] if names else "")
        if target is None:
            raise ModelError("rerun works on jobs", hint="choose a job, or name one")
        from screens.rerun import rerun

        screen, action = self._screen, BY_ID["target.rerun"]
        work = rerun(screen.console, screen.session, action, target.job)
        screen.console.run_worker(work, name=action.title, group="change", exit_on_error=False)

    def do_preempt(self, text: str) -> None:
        self._kick(BY_ID["target.preempt"], text)

    def do_fail(self, text: str) -> None:
        self._kick(BY_ID["target.fail"], text)

    def _kick(self, action: Action, text: str) -> None:
        names = text.split() or self.chosen_ids(action.kinds)
        if not names:
            raise ModelError(f"{action.command} works on tasks and attempts", hint="choose one, or name it")
        for name in names:
            if isinstance(parse_target(name), JobId):
                raise ModelError(f"{name} is a job", hint=f"name a task of it, such as {name}/0")
        self._make_change(action, names)

    def _change(self, action: Action, text: str) -> None:
        names = text.split() or self.chosen_ids(action.kinds)
        if not names:
            raise ModelError(f"{action.command} works on jobs", hint="choose a job, or name one")
        for name in names:
            JobId.parse(name)
        self._make_change(action, names)

    def _make_change(self, action: Action, names: Sequence[str]) -> None:
        from iris_tui import changes

        changes.start(self._screen.console, self._screen.session, action, names)


class ByName(TargetActions, ActionHost):
    """What is named on a screen that shows no jobs, tasks or attempts: nothing is chosen there, and pages open above it."""

    SCOPES: ClassVar[tuple[str, ...]] = ("target",)

    def __init__(self, screen: ConsoleScreen) -> None:
        self._shown = screen
        self.app = screen.app
        """Where refusals are asked for and said."""

    @property
    def _here(self) -> ConsoleScreen:
        return self._shown

    def chosen_target(self) -> Target | None:
        return None

    def chosen_ids(self, kinds: Sequence[str]) -> list[str]:
        return []
