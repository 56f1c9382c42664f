"""A closer look at a job, a task or an attempt from every screen that shows one: its page, its logs, a command in it, a profile of it,
and two of them side by side.

A part of `screens.targets.TargetActions`. A command changes what it runs in, so it passes the gate; what it wrote is made harmless.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from iris_core.model.errors import ModelError
from iris_core.model.text import one_line
from iris_tui import registry
from iris_tui.actions import BY_ID
from iris_tui.widgets.prompt import Question
from screens.comparing import needs_task
from screens.jobs_target import Target, from_text

if TYPE_CHECKING:
    from iris_tui.pages import Lines
    from iris_tui.screen import ConsoleScreen

KINDS: Final = (
    ("t", "threads", "Threads: where every thread is right now"),
    ("c", "cpu", "CPU: where the time goes, for 10 s"),
    ("m", "memory", "Memory: what is allocated, for 10 s"),
)
_commands: Final[list[str]] = []
"""What was run before, for the arrows."""


class CloserLooks:
    """See the module. Mix into a ConsoleScreen."""

    def chosen_target(self) -> Target | None:
        """What the cursor is on, None if it is on nothing of the kind."""
        raise NotImplementedError

    def chosen_ids(self, kinds: Sequence[str]) -> list[str]:
        """The marked rows of these kinds, else the one under the cursor if it is of them."""
        raise NotImplementedError

    @property
    def _here(self) -> ConsoleScreen:
        return cast("ConsoleScreen", self)

    def _one(self, text: str, what: str) -> str:
        """The task or attempt that is meant. Raises ModelError: there is none, or it is a job."""
        target = from_text(text) if text else self.chosen_target()
        if target is None:
            raise ModelError(f"{what} works on a task", hint="choose one, or name it")
        needs_task(target.id)
        return target.id

    def open_logs(self, target: Target) -> None:
        """Show its logs."""
        self._here.console.go("logs", target.id)

    def open_profile(self, profile_id: str) -> None:
        """Show a kept profile."""
        if "profile" in registry.SCREENS:
            self._here.console.go("profile", profile_id)
            return
        at = f"iris-core {self._here.session.selector} profile get {profile_id}"
        self._here.console.say(f"fetch it with: {at}")

    def do_page(self, text: str) -> None:
        target = from_text(text) if text else self.chosen_target()
        if target is not None:
            self._here.console.go("job" if target.kind == "job" else "task", target.id)

    def do_compare(self, text: str) -> None:
        from iris_tui.pages import TextPage
        from screens import comparing

        screen = self._here
        names = text.split() or self.chosen_ids(("task", "attempt"))
        pair = comparing.pair_of(names)

        async def load() -> Lines:
            return await comparing.compare(screen.session, pair, screen.app.size.width)

        screen.app.push_screen(TextPage(screen.session, comparing.title_of(pair), load))

    # --- a command in it ---------------------------------------------------------------------------------------------

    def do_exec(self, text: str) -> None:
        first, _, command = text.partition(" ")
        name = self._one(first, "exec")
        if command.strip():
            self._run_in(name, command)
            return
        screen = self._here
        before = screen.focused

        def back() -> None:
            if before is not None and before.is_attached:
                screen.set_focus(before, scroll_visible=False)

        def submit(words: str) -> None:
            back()
            self._run_in(name, words)

        screen.prompt.ask(Question(f"run in {one_line(name)}:", submit, check=_words, cancel=back, history=_commands))

    def _run_in(self, name: str, command: str) -> None:
        words = _words(command)
        if not words:
            raise ModelError("there is no command to run")
        from iris_tui import changes

        screen = self._here
        changes.start(screen.console, screen.session, BY_ID["target.exec"], [name], command=words)

    # --- a profile of it ---------------------------------------------------------------------------------------------

    def do_profile(self, text: str) -> None:
        first, _, kind = text.partition(" ")
        name = self._one(first, "a profile")
        screen = self._here
        if screen.session.read_only:
            raise ModelError("a profile slows its program down, and this console is read-only")
        known = [word for _, word, _ in KINDS]
        if kind:
            if kind not in known:
                raise ModelError(f"no kind of profile {one_line(kind)!r}", hint=f"one of {', '.join(known)}")
            self._take_profile(name, kind)
            return
        from iris_tui.gate import MenuScreen

        note = "the program goes on; it is slower meanwhile"
        screen.app.push_screen(
            MenuScreen(f"Profile {one_line(name)}", list(KINDS), note),
            lambda chosen: self._take_profile(name, chosen) if chosen else None,
        )

    def _take_profile(self, name: str, kind: str) -> None:
        screen = self._here
        screen.console.run_worker(
            self._profile(name, kind), name=f"{kind} profile of {one_line(name)}", group="profile", exit_on_error=False
        )

    async def _profile(self, name: str, kind: str) -> None:
        from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
        from iris_tui import changes

        types = {"threads": pb.PROFILE_TYPE_THREADS, "cpu": pb.PROFILE_TYPE_CPU, "memory": pb.PROFILE_TYPE_MEMORY}
        screen = self._here
        screen.console.say(f"taking a {kind} profile of {one_line(name)} …")
        options = pb.ProfileOptions(type=types[kind])
        done = await changes.change(screen.console, screen.session, BY_ID["target.profile"], [name], options=options)
        if done is not None:
            self.profiled()

    def profiled(self) -> None:
        """A profile was taken."""


def _words(text: str) -> list[str]:
    """A command as a shell splits it. Raises ModelError with the place of an open quote."""
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ModelError(f"the command cannot be read: {error}", field="command", position=len(text)) from None
