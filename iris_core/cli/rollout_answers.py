"""Who answers the gates of a rollout on a command line: what was given with the command, else a person at the terminal, else nobody.

What was given answers the one question that it names, once. Where nobody can be asked, or what was given fits another question, the rollout
stays at the gate with the token that would answer it: it is neither approved nor ended by silence. Only the words themselves stop it.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from iris_core.cli.terminal_line import typed_line
from iris_core.model.text import one_line
from iris_core.procedures.approvals import Answer, Refused, Unanswered, check
from iris_core.procedures.events import STOP

if TYPE_CHECKING:
    from iris_core.procedures.events import Gate

YES: Final = "yes"


class LineApprover:
    """Implements Approver.

    Args:
        tokens: By gate, from `--approve GATE=TOKEN`.
        names: From `--confirm NAME`: each answers one gate that asks for exactly this to be typed.
        resume: The command line that goes on with this rollout.
        say: Shows a line.
        ask: Reads a line of the terminal, "" at its end; None where there is no terminal.
    """

    def __init__(
        self,
        tokens: Mapping[str, str],
        names: Sequence[str],
        resume: str,
        say: Callable[[str], None],
        ask: Callable[[str], asyncio.Future[str]] | None,
    ) -> None:
        self._tokens = dict(tokens)
        self._names = Counter(names)
        self._resume = resume
        self._say = say
        self._ask = ask

    async def ask(self, gate: Gate) -> Answer:
        """See Approver. Raises Unanswered."""
        self._show(gate)
        given = self._given(gate)
        if given is not None:
            return given
        if self._ask is None:
            raise Unanswered(
                f"{gate.id} waits for an answer: {gate.title}",
                hint=f"approve exactly this: {self.command(gate)}",
            )
        return await self._typed(gate, self._ask)

    def command(self, gate: Gate) -> str:
        """The command line that approves exactly this question."""
        return f"{self._resume} --approve {gate.id}={gate.token()}"

    def _show(self, gate: Gate) -> None:
        self._say("")
        self._say(one_line(gate.title))
        for line in gate.effects:
            self._say(f"  {one_line(line)}")
        for line in gate.undo:
            self._say(f"  undo: {one_line(line)}")
        self._say(f"  same as: {one_line(self.command(gate))}")

    def _given(self, gate: Gate) -> Answer | None:
        token = self._tokens.pop(gate.id, "")
        if token:
            answer = Answer(gate.approving[0], token=token)
        elif gate.tier >= 3 and self._names[gate.name]:
            self._names[gate.name] -= 1
            answer = Answer(gate.approving[0], typed=gate.name)
        else:
            return None
        try:
            check(gate, answer)
        except Refused as error:
            raise Unanswered(error.message, hint=f"approve exactly this: {self.command(gate)}") from error
        return answer

    async def _typed(self, gate: Gate, ask: Callable[[str], asyncio.Future[str]]) -> Answer:
        yes = (
            gate.name if gate.tier >= 3 else YES if len(gate.approving) == 1 and gate.approving[0] == "approve" else ""
        )
        others = [choice for choice in gate.choices if choice not in gate.approving or not yes]
        wanted = [*([yes] if yes else []), *others]
        while True:
            text = await ask(f"Type {', '.join(wanted[:-1])} or {wanted[-1]}: ")
            if text == "":
                raise Unanswered(f"{gate.id} waits for an answer: {gate.title}", hint=f"go on with it: {self._resume}")
            word = text.strip()
            if yes and word == yes:
                return Answer(gate.approving[0], typed=word)
            if word in others:
                return Answer(word, typed=word, reason="typed at the terminal" if word == STOP else "")
            self._say(f"that is none of {', '.join(wanted)}")


def terminal_reader() -> Callable[[str], asyncio.Future[str]] | None:
    """Reads lines of the terminal without a thread, which Ctrl-C could not end; None where there is no terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        return None

    def ask(question: str) -> asyncio.Future[str]:
        return asyncio.ensure_future(typed_line(question))

    return ask
