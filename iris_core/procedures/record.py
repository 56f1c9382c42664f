"""The rollout record of a cluster: which release is deployed, what it replaced, and whether a rollback is asked for (rollout §2.4).

One small object in the remote state dir. Every writer changes it by compare-and-set on what it read, and only along the transitions
here, so that driver and controller cannot overwrite each other: whoever loses obeys what stands. Keys that are not known stay as
they are. A record that cannot be understood is never taken for an absent one by a writer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError, ObjectMissing

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

PROGRAM: Final = "iris-core"
"""How a command line begins where nobody knows the selector of the cluster; else it is handed over, quoted for a shell."""
RECORD: Final = "rollout-record.json"
WHOLE: Final = "checkpoint_is_last"
REPLACES: Final = "rolled_back_from"
WITHDRAW: Final = "cluster controller withdraw-rollback"
"""What leads out of a rollback that is asked for and whose checkpoint is lost."""
_OURS: Final = ("phase", "image", "previous_image", "rollback_checkpoint", "updated_at_ms", WHOLE, REPLACES)


def go_on(program: str = PROGRAM) -> str:
    """What is said where a rollback is asked for and did not happen yet; `program` begins its command lines."""
    controller = f"{program} cluster controller"
    return f"{controller} stop, then {controller} start: that goes on with it; without its checkpoint: {program} {WITHDRAW}"


class Phase(StrEnum):
    """How far a deployment is."""

    PENDING = "pending"
    """The new release is being started; its controller is on probation."""
    COMMITTED = "committed"
    ROLLBACK_REQUESTED = "rollback_requested"
    """The next boot restores `rollback_checkpoint`, once."""
    ROLLED_BACK = "rolled_back"


class RecordUnreadable(IrisError):
    """There is a record, and it says nothing that can be understood."""


class NotAllowed(IrisError):
    """The record does not stand where this change starts from."""


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """What the record says. `image` is a container's reference, or the hash of a release.

    Attributes:
        previous_image: What `--rollback` goes back to, "" = there is nothing to go back to.
        rollback_checkpoint: The checkpoint it goes back with, "" = it keeps the database.
        updated_at_ms: Epoch ms.
        others: Keys of other versions.
        replaces: Only while a rollback is asked for: the release that it takes the place of, "" = an older version asked for it.
        whole: Only while pending: the release before wrote that checkpoint when it ended, so that it holds all that was ever acknowledged.
    """

    phase: Phase
    image: str
    previous_image: str = ""
    rollback_checkpoint: str = ""
    updated_at_ms: int = 0
    others: dict[str, Any] = field(default_factory=dict)
    whole: bool = False
    replaces: str = ""

    def to_json(self) -> bytes:
        """As it is stored."""
        values = {
            **self.others,
            "phase": str(self.phase),
            "image": self.image,
            "previous_image": self.previous_image or None,
            "rollback_checkpoint": self.rollback_checkpoint or None,
            "updated_at_ms": self.updated_at_ms,
            **({WHOLE: True} if self.whole else {}),
            **({REPLACES: self.replaces} if self.replaces else {}),
        }
        return json.dumps(values, indent=1).encode() + b"\n"


@dataclass(frozen=True, slots=True)
class Standing:
    """What stands in the store: the record, None if there is none, and the generation to write over ("" = only if absent)."""

    record: RolloutRecord | None
    generation: str


def parse(raw: bytes) -> RolloutRecord:
    """The record of these bytes. Raises RecordUnreadable."""
    try:
        values = json.loads(raw)
        record = RolloutRecord(
            Phase(values["phase"]),
            _text(values.get("image") or ""),
            _text(values.get("previous_image") or ""),
            _text(values.get("rollback_checkpoint") or ""),
            int(values.get("updated_at_ms") or 0),
            {key: value for key, value in values.items() if key not in _OURS},
            values.get(WHOLE) is True,
            _text(values.get(REPLACES) or ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise RecordUnreadable(
            f"{RECORD} cannot be understood",
            hint="look at it, and move it away if it is nothing that a deployment wrote",
        ) from None
    return record


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def read(store: ObjectStore) -> Standing:
    """What stands. Raises RecordUnreadable, IrisError."""
    info = store.stat(RECORD)
    if info is None:
        return Standing(None, "")
    try:
        return Standing(parse(store.get(RECORD)), info.generation)
    except ObjectMissing:
        return Standing(None, "")


def write(store: ObjectStore, record: RolloutRecord, standing: Standing) -> Standing:
    """Put a record in the place of what was read. Raises GenerationMismatch if somebody wrote meanwhile, IrisError."""
    info = store.put(RECORD, record.to_json(), if_generation=standing.generation)
    return Standing(record, info.generation)


# --- transitions -----------------------------------------------------------------------------------------------------


def pending(standing: Standing, image: str, checkpoint: str, now_ms: int, program: str = PROGRAM) -> RolloutRecord:
    """Before a restart: the new release, what it replaces, and the checkpoint to go back with.

    Raises NotAllowed while a rollback is asked for or another deployment is pending.
    """
    before = standing.record
    if before is not None and before.phase in (Phase.PENDING, Phase.ROLLBACK_REQUESTED):
        raise NotAllowed(
            f"the record is {before.phase}, written at {before.updated_at_ms}",
            hint=f"that deployment has to end first; how it stands: {program} cluster controller status",
        )
    return RolloutRecord(
        Phase.PENDING, image, before.image if before else "", checkpoint, now_ms, dict(before.others) if before else {}
    )


def committed(standing: Standing, image: str, now_ms: int) -> RolloutRecord:
    """The new release is healthy. Raises NotAllowed if the record does not say that this one is pending."""
    before = standing.record
    if before is None or before.phase is not Phase.PENDING or before.image != image:
        raise NotAllowed(f"the record is not pending for {image}: {_words(before)}")
    return replace(before, phase=Phase.COMMITTED, updated_at_ms=now_ms, whole=False)


def first_committed(standing: Standing, image: str, now_ms: int) -> RolloutRecord:
    """A first deployment, with nothing to go back to. Raises NotAllowed if there is a record."""
    if standing.record is not None:
        raise NotAllowed(f"there is a record already: {_words(standing.record)}")
    return RolloutRecord(Phase.COMMITTED, image, updated_at_ms=now_ms)


def rollback_requested(standing: Standing, now_ms: int, program: str = PROGRAM) -> RolloutRecord:
    """Go back to what the deployment replaced. Raises NotAllowed if there is nothing to go back to."""
    before = standing.record
    if before is None or not before.previous_image:
        raise NotAllowed(
            "there is no deployment to roll back to: nothing was deployed before, or it was rolled back already",
            hint=f"deploy the release that is wanted: {program} cluster controller restart",
        )
    if before.phase is Phase.ROLLBACK_REQUESTED:
        raise NotAllowed("a rollback is asked for already")
    return RolloutRecord(
        Phase.ROLLBACK_REQUESTED,
        before.previous_image,
        "",
        before.rollback_checkpoint,
        now_ms,
        dict(before.others),
        replaces=before.image,
    )


def rolled_back(standing: Standing, now_ms: int) -> RolloutRecord:
    """The rollback has happened and must not happen again. Raises NotAllowed if none is asked for."""
    before = _requested(standing)
    return replace(
        before, phase=Phase.ROLLED_BACK, previous_image="", rollback_checkpoint="", updated_at_ms=now_ms, replaces=""
    )


def withdrawn(standing: Standing, image: str, now_ms: int) -> RolloutRecord:
    """The rollback is taken back, and this release goes on; the one before can be gone back to without a checkpoint alone.

    Raises NotAllowed if none is asked for.
    """
    before = _requested(standing)
    previous = before.image if before.image != image else ""
    return RolloutRecord(Phase.COMMITTED, image, previous, "", now_ms, dict(before.others))


def without_checkpoint(standing: Standing, now_ms: int) -> RolloutRecord:
    """The rollback that is asked for keeps the database. Raises NotAllowed if none is asked for."""
    return replace(_requested(standing), rollback_checkpoint="", updated_at_ms=now_ms)


def _requested(standing: Standing) -> RolloutRecord:
    before = standing.record
    if before is None or before.phase is not Phase.ROLLBACK_REQUESTED:
        raise NotAllowed(f"no rollback is asked for: {_words(before)}")
    return before


def mark_of(record: RolloutRecord) -> str:
    """Names one request for a rollback, in the state that was put in place for it; another one to the same checkpoint is not the same."""
    return f"{record.rollback_checkpoint} {record.updated_at_ms}"


def _words(record: RolloutRecord | None) -> str:
    return f"it is {record.phase} for {record.image}" if record is not None else "there is none"
