"""A procedure of which some events are seen through, whoever asks for an end meanwhile.

Told to end, a procedure is to leave the world in a state that it names. Where a controller has been told to start, or is to be put back,
there is no such state before it was seen to serve: to end there would say of one that comes up in a moment that it did not. So these events
are done all the same, under another name: the one that was cancelled has its end in the journal. Must never hold back an end anywhere else.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeVar

from iris_core.contracts import IrisError
from iris_core.procedures.events import Cancelled, Evidence, Mutation, Outcome

if TYPE_CHECKING:
    from iris_core.procedures.events import Procedure, Value

E = TypeVar("E", bound="Evidence | Mutation")

TOO_LATE: Final = "told to end while it could not be left: what was begun was seen to its end"


THROUGH: Final = "-through"
"""How the id of an event ends that is seen through, after that of the one that was cancelled."""


def through(event: E) -> E:
    """The event once more, for one that was cancelled and has its end in the journal."""
    return replace(event, id=f"{event.id}{THROUGH}", title=f"{event.title}, seen to its end first")


async def seen_through(procedure: Procedure, ids: Collection[str]) -> Procedure:
    """The procedure, which is never told of an end at the events of these ids; its outcome says that one was asked for."""
    answer: Value = None
    error: IrisError | None = None
    held = False
    try:
        while True:
            try:
                event = await (procedure.athrow(error) if error is not None else procedure.asend(answer))
            except StopAsyncIteration:
                return
            answer, error = None, None
            if held and isinstance(event, Outcome):
                event = replace(event, details=(*event.details, TOO_LATE))
            try:
                answer = yield event
                continue
            except Cancelled as raised:
                if not isinstance(event, Evidence | Mutation) or event.id not in ids:
                    error = raised
                    continue
            except IrisError as raised:
                error = raised
                continue
            held = True
            try:
                answer = yield through(event)
            except IrisError as raised:
                error = raised
    finally:
        await procedure.aclose()
