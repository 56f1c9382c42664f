"""Who answers a gate: a person at a terminal or in the console, or tokens that were given beforehand.

An answer says who gave it. The name that has to be typed at tier 3 is compared exactly, by the engine; a token stands for exactly
one question, so that it can't approve another cluster, another tree or other effects.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from iris_core.contracts import IrisError
from iris_core.procedures.events import APPROVE, STOP, Gate


@dataclass(frozen=True, slots=True)
class Answer:
    """What was chosen; `typed` is the name as typed, `token` the token that was given in its place."""

    choice: str
    typed: str = ""
    token: str = ""
    reason: str = ""


class Approver(Protocol):
    """Asks somebody."""

    async def ask(self, gate: Gate) -> Answer:
        """The answer; waits as long as it takes. May be cancelled."""
        ...


class Unanswered(IrisError):
    """Raised by an approver where nobody can be asked now: the procedure stays at the gate, and a later run asks again."""


class Refused(IrisError):
    """An answer does not fit its gate."""


def check(gate: Gate, answer: Answer) -> None:
    """Raises Refused if the answer approves without what the gate asks for."""
    if answer.choice not in gate.choices:
        raise Refused(f"{gate.id}: {answer.choice!r} is no choice", hint=f"one of {', '.join(gate.choices)}")
    if answer.choice not in gate.approving:
        return
    if answer.token:
        if answer.token != gate.token():
            raise Refused(
                f"{gate.id}: the approval {answer.token} was given for something else",
                hint=f"look again; what is asked now is {gate.token()}",
            )
    elif gate.tier >= 3 and answer.typed != gate.name:
        raise Refused(f"{gate.id}: the name typed is not {gate.name!r}")


def account() -> str:
    """Who drives: the login name of this process's user. It is taken from its number, so that no variable makes one account another."""
    user = os.geteuid()
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"uid {user}"


class GivenTokens:
    """Approvals given on the command line, `--approve STEP=TOKEN`; a gate without one stops. Each is used once."""

    def __init__(self, tokens: Mapping[str, str]) -> None:
        self._tokens = dict(tokens)

    async def ask(self, gate: Gate) -> Answer:
        token = self._tokens.pop(gate.id, "")
        if not token:
            return Answer(STOP, reason=f"no --approve {gate.id}=TOKEN was given; this gate's token is {gate.token()}")
        return Answer(APPROVE, token=token)
