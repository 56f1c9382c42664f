"""Who writes into a remote state dir: one controller, the one that claimed it last (DESIGN §5.12).

`owner.json` is claimed by compare-and-set, so of two that claim at once one wins. Whoever finds the claim of somebody else there has
lost: it stops writing for good, here and there, and never deletes anything. A store that does not answer takes nothing from its owner:
that is known only when it answers again. Must never wait on the event loop.
"""

from __future__ import annotations

import json
import secrets
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import GenerationMismatch, IrisError, ObjectMissing
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from iris_controller.checkpoint.claims import OwnClaims
    from iris_core.contracts import ObjectStore

OWNER: Final = "owner.json"
CHECK_S: Final = 5.0
TRIES: Final = 8


class Fenced(IrisError):
    """Another controller has taken the remote state dir over; the text says which."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Who says so in `owner.json`."""

    claim: str
    host: str
    pid: int
    state_dir: str
    claimed_at_ms: int

    def __str__(self) -> str:
        return one_line(f"the controller of {self.host} (pid {self.pid}, state {self.state_dir})")


def read_claim(store: ObjectStore) -> Claim | None:
    """The claim that stands; None if there is none, or none that can be understood. Raises IrisError."""
    try:
        value: Any = json.loads(store.get(OWNER))
        return Claim(
            str(value["claim"]),
            str(value["host"]),
            int(value["pid"]),
            str(value["state_dir"]),
            int(value["claimed_at_ms"]),
        )
    except ObjectMissing:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def require(store: ObjectStore, claim: str) -> None:
    """Raises Fenced if somebody else's claim stands, IrisError. `claim` "" = this writer claims nothing and asks nobody."""
    if not claim:
        return
    found = read_claim(store)
    if found is not None and found.claim != claim:
        raise _fenced(store, found)


def require_takeable(store: ObjectStore, standing: Claim | None, own: OwnClaims | None) -> None:
    """Raises Fenced if the claim that stands was made by another controller after this state was served last."""
    if standing is None or own is None or own.may_take(standing.claim):
        return
    raise Fenced(
        f"{standing} took over {store.url} after this state was served last: what is here is older",
        hint="leave it stopped; or stop that one, and start this one with --checkpoint-path to go on from its last checkpoint, or"
        " with --take-over to go on with what is here",
    )


class Owner:
    """One controller's claim. Its methods block; they are for a thread, one at a time."""

    def __init__(
        self, store: ObjectStore, state_dir: str, pid: int, wall_ms: Callable[[], int], own: OwnClaims | None = None
    ) -> None:
        """`own` says which claims this state may take over from; None = from anybody's."""
        self.claim = secrets.token_hex(16)
        self.lost = ""
        """Who has taken it over, in one line; "" = nobody."""
        self.problem = "the remote state dir is not claimed yet"
        """Why it is not known to be ours, "" when it is."""
        self._store = store
        self._me = {"claim": self.claim, "host": socket.gethostname(), "pid": pid, "state_dir": state_dir}
        self._wall_ms = wall_ms
        self._own = own
        self._generation = ""
        self.claimed = False
        """Whether it was ever ours."""

    def take(self) -> Claim | None:
        """Claims the remote state dir from whoever had it, and returns that claim.

        Raises Fenced: others claim it as fast as we do, or it was taken from this state earlier. Raises IrisError: the store does not
        answer, or what this state has claimed cannot be written down.
        """
        for _ in range(TRIES):
            info = self._store.stat(OWNER)
            before = read_claim(self._store)
            if before is not None and before.claim == self.claim:
                # A write of ours whose answer was lost.
                self._is_ours(info.generation if info is not None else "")
                return None
            require_takeable(self._store, before, self._own)
            self._remember()
            mine = json.dumps({**self._me, "claimed_at_ms": self._wall_ms()}).encode() + b"\n"
            try:
                written = self._store.put(OWNER, mine, if_generation=info.generation if info is not None else "")
            except GenerationMismatch:
                continue
            self._is_ours(written.generation)
            return before
        raise Fenced(f"{OWNER} in {self._store.url} is claimed by others all the time")

    def _remember(self) -> None:
        if self._own is None:
            return
        try:
            self._own.add(self.claim)
        except OSError as error:
            raise IrisError(f"the claim cannot be written down: {error}") from error

    def _is_ours(self, generation: str) -> None:
        self._generation, self.claimed, self.problem = generation, True, ""

    def check(self) -> None:
        """Looks whether the claim still stands, or claims for the first time. Sets `lost` or `problem`; raises nothing."""
        if self.lost:
            return
        try:
            if not self.claimed:
                self.take()
                return
            info = self._store.stat(OWNER)
            if info is not None and info.generation == self._generation:
                self.problem = ""
                return
            found = read_claim(self._store)
            if found is not None and found.claim != self.claim:
                raise _fenced(self._store, found)
            # Removed by hand, or damaged: it is claimed anew, unless somebody is quicker.
            self.take()
        except Fenced as fenced:
            self.lost = fenced.message
        except IrisError as error:
            self.problem = f"whether {self._store.url} is still ours is not known: {error.message}"


def _fenced(store: ObjectStore, by: Claim) -> Fenced:
    return Fenced(
        f"{by} has taken over {store.url}",
        hint="stop this controller; what it has is older from now on",
    )
