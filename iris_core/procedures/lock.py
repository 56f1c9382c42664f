"""The fleet lock of a cluster: one procedure at a time may change its controller.

One small object in the remote state dir, taken by compare-and-set and given back by overwriting it with "free", never by deleting it:
a deletion could remove somebody else's. It does not expire by itself, because a clock cannot know whether a restart is half done;
a lock whose procedure is dead is broken by a person, through a gate that names its owner and age.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import GenerationMismatch, IrisError, ObjectMissing
from iris_core.model.redact import redact_text
from iris_core.model.resources import format_age
from iris_core.model.text import one_line
from iris_core.procedures.record import PROGRAM

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

LOCK: Final = "rollout-lock.json"
BREAK: Final = "cluster controller break-lock"
TRIES: Final = 4
MOST_BYTES: Final = 16 << 10
"""No lock of ours is longer."""
SHOWN_BYTES: Final = 200


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds it: the procedure, the account and machine that drive it, since when (epoch ms)."""

    procedure: str
    account: str
    host: str
    taken_at_ms: int

    def words(self, now_ms: int) -> str:
        """One line for whoever is kept out."""
        age = format_age(max(now_ms - self.taken_at_ms, 0))
        return one_line(f"{self.account} on {self.host} holds it for {age} (procedure {self.procedure})")


@dataclass(frozen=True, slots=True)
class LockState:
    """What stands: the holder, None if it is free, and the generation it was read at."""

    holder: Holder | None
    generation: str


class LockUnreadable(IrisError):
    """What stands there is no lock that this version understands: it is never taken for a free one, and a person decides about it.

    Attributes:
        generation: What stands, exactly, to be overwritten by `break_`.
        shown: The first bytes of it, escaped, and how many there are.
    """

    def __init__(self, store: ObjectStore, generation: str, raw: bytes, size: int, program: str = PROGRAM) -> None:
        super().__init__(
            f"{LOCK} in {store.url} cannot be understood",
            hint=f"{program} {BREAK} shows what stands there, and frees it once a person has decided that",
        )
        self.generation = generation
        more = f" and {size - SHOWN_BYTES:,} bytes more" if size > SHOWN_BYTES else ""
        self.shown = f"{redact_text(one_line(repr(raw[:SHOWN_BYTES])[1:]))}{more}" if size else "nothing, it is empty"


class LockHeld(IrisError):
    """Somebody else holds the lock; `state` says who, and is what a gate for breaking it names."""

    def __init__(self, state: LockState, now_ms: int, program: str = PROGRAM) -> None:
        assert state.holder is not None
        super().__init__(
            f"this cluster is being changed: {state.holder.words(now_ms)}",
            hint=f"wait for it; if that procedure is dead, resume it, or break the lock, as of one that has ended: {program} {BREAK}",
        )
        self.state = state


def read(store: ObjectStore, program: str = PROGRAM) -> LockState:
    """What stands; `program` begins the command lines of a hint, here and below. Raises LockUnreadable, which is never taken for a free one; IrisError."""
    info = store.stat(LOCK)
    if info is None:
        return LockState(None, "")
    raw = b""
    try:
        raw = store.get(LOCK) if info.size_bytes <= MOST_BYTES else _beginning(store)
        if info.size_bytes > MOST_BYTES:
            raise ValueError
        values: Any = json.loads(raw)
        if values["state"] == "free":
            return LockState(None, info.generation)
        if values["state"] != "held":
            raise ValueError
        holder = Holder(
            str(values["procedure"]), str(values["account"]), str(values["host"]), int(values["taken_at_ms"])
        )
    except ObjectMissing:
        return LockState(None, "")
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        raise LockUnreadable(store, info.generation, raw, info.size_bytes, program) from None
    return LockState(holder, info.generation)


def require_free(store: ObjectStore, now_ms: int, procedure: str = "", program: str = PROGRAM) -> None:
    """Raises LockHeld: another procedure than that one is changing this cluster; LockUnreadable, IrisError."""
    state = read(store, program)
    if state.holder is not None and state.holder.procedure != procedure:
        raise LockHeld(state, now_ms, program)


def _beginning(store: ObjectStore) -> bytes:
    """The first bytes of something that is far too long. Raises ObjectMissing, IrisError."""
    return next(store.chunks(LOCK), b"")[:SHOWN_BYTES]


def acquire(store: ObjectStore, holder: Holder, program: str = PROGRAM) -> LockState:
    """Take it; the procedure that holds it already takes it again, also from another machine.

    Raises LockHeld, IrisError.
    """
    for _ in range(TRIES):
        state = read(store, program)
        if state.holder is not None and state.holder.procedure != holder.procedure:
            raise LockHeld(state, holder.taken_at_ms, program)
        try:
            return _write(store, holder, state.generation)
        except GenerationMismatch:
            continue  # somebody was faster: look who
    raise IrisError(f"{LOCK} in {store.url} changes all the time", hint="try again")


def release(store: ObjectStore, procedure: str, program: str = PROGRAM) -> None:
    """Give it back, if this procedure holds it; whoever lost it meanwhile gives nothing back. Raises IrisError."""
    for _ in range(TRIES):
        state = read(store, program)
        if state.holder is None or state.holder.procedure != procedure:
            return
        try:
            _free(store, state.generation)
        except GenerationMismatch:
            continue
        return
    raise IrisError(f"{LOCK} in {store.url} changes all the time", hint="try again")


def break_(store: ObjectStore, generation: str) -> None:
    """Free what was read, exactly that, whatever it says. Raises GenerationMismatch if it has changed hands since, IrisError."""
    _free(store, generation)


def kept(why: str, program: str = PROGRAM) -> str:
    """What an end says of a lock that could not be given back: its procedure has ended, so that only a person frees it."""
    return f"the lock was not given back: {why}; once that is mended: {program} {BREAK}, then try again"


def _write(store: ObjectStore, holder: Holder, generation: str) -> LockState:
    values = {
        "state": "held",
        "procedure": holder.procedure,
        "account": holder.account,
        "host": holder.host,
        "taken_at_ms": holder.taken_at_ms,
    }
    info = store.put(LOCK, json.dumps(values).encode() + b"\n", if_generation=generation)
    return LockState(holder, info.generation)


def _free(store: ObjectStore, generation: str) -> None:
    store.put(LOCK, json.dumps({"state": "free"}).encode() + b"\n", if_generation=generation)
