"""What operators come for, in one line each: the question, and the keys that answer it.

The keys are looked up in the action table, so that own keys are shown and no line can speak of an action that does not exist.
"""

from __future__ import annotations

import re
from typing import Final

from iris_tui.actions import BY_ID
from iris_tui.user_keys import Keymap

HOW_TO: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("Why is my job pending?", ("{target.explain} on the job; {go.scheduler} shows all that waits", "{target.explain} on the job")),
    ("Which rank failed?", ("{target.page} on the job: failures and their root cause; `:tasks state:failed` lists all",)),
    ("What was the first error?", ("{target.logs} on the job, {log.top} for its first line, {log.error} for the next error",)),
    ("Preempt what runs on a slice", ("{go.capacity}, choose the slice, {capacity.preempt}",)),
    ("Compare two attempts", ("{target.compare} on a task: its last two; any two: {target.page}, {list.mark} on both, {target.compare}",)),
    ("Who used most of the budget?", ("{go.users}: whoever spent most is on top",)),
    ("Follow several logs at once", ("{go.tasks}, {list.mark} on each, {target.logs}, {log.follow}",)),
    ("Save a log", ("{target.logs}, {log.save}; where it went is said",)),
    ("What did an earlier checkpoint hold?", ("{go.checkpoints}, choose one, {checkpoints.open}", "start `iris --checkpoint PATH`")),
    ("That filter again", ("{list.filters} chooses one that was saved or typed; `:save-filter NAME` saves it",)),
)  # fmt: skip
"""Questions, and their answers: the first whose actions all exist is shown."""

_ID: Final = re.compile(r"\{([a-z_]+\.[a-z_0-9]+)\}")


def how_to(keymap: Keymap) -> list[tuple[str, str]]:
    """The questions with their answers, as this operator's keys are."""
    found: list[tuple[str, str]] = []
    for question, answers in HOW_TO:
        for answer in answers:
            if all(name in BY_ID for name in _ID.findall(answer)):
                found.append((question, _ID.sub(lambda match: shown(match[1], keymap), answer)))
                break
    return found


def shown(action_id: str, keymap: Keymap) -> str:
    """The first way to an action: its key, both keys of a menu, or its command."""
    action = BY_ID[action_id]
    if keymap.keys(action):
        return keymap.first(action_id)
    return keymap.shown(action) or f":{action.command}"
