"""The rollout record as the controller reads it at boot: whether a rollback asks for an older checkpoint (control-plane §6.4).

A deployment writes it; the controller only consumes a rollback, once, after it has restored what the record names. Keys that it does not
know stay as they are. Must never write a record that it could not read.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import ObjectMissing

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

log = logging.getLogger("iris.checkpoint")

RECORD: Final = "rollout-record.json"
REQUESTED: Final = "rollback_requested"
ROLLED_BACK: Final = "rolled_back"
_PHASES: Final = frozenset({"pending", "committed", REQUESTED, ROLLED_BACK})


@dataclass(frozen=True, slots=True)
class RolloutRecord:
    """One record as it was read."""

    phase: str
    rollback_checkpoint: str
    values: dict[str, Any]
    generation: str


def read_record(store: ObjectStore) -> RolloutRecord | None:
    """The record; None if there is none, or none that can be understood, which is logged. Raises IrisError."""
    info = store.stat(RECORD)
    if info is None:
        return None
    try:
        raw = store.get(RECORD)
    except ObjectMissing:
        return None
    try:
        values = json.loads(raw)
        phase, checkpoint = values["phase"], values.get("rollback_checkpoint") or ""
        if phase not in _PHASES or not isinstance(checkpoint, str):
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        log.warning("%s in %s cannot be understood; it is taken as absent", RECORD, store.url)
        return None
    return RolloutRecord(phase, checkpoint, values, info.generation)


def consume(store: ObjectStore, record: RolloutRecord, now_ms: int) -> None:
    """Marks the rollback as done. Raises GenerationMismatch if somebody wrote the record meanwhile, IrisError."""
    values = {
        **record.values,
        "phase": ROLLED_BACK,
        "previous_image": None,
        "rollback_checkpoint": None,
        "updated_at_ms": now_ms,
    }
    store.put(RECORD, json.dumps(values, indent=1).encode() + b"\n", if_generation=record.generation)
