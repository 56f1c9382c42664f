"""What the console and the process that reads a checkpoint for it say to each other: frames over a pair of pipes.

A frame is a length, the number of the call it belongs to, a kind and a payload; protobuf messages travel as they are, everything else as
JSON. Both ends are of one installation, so nothing here has a version. Must stay light: the console imports it before its first screen.
"""

from __future__ import annotations

import json
import struct
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import Denied, IrisError, RpcFailed, UsageFailed

if TYPE_CHECKING:
    import asyncio

_HEAD: Final = struct.Struct("!IIB")


class Kind(IntEnum):
    """What a frame is."""

    CALL = 1
    """To the process: one answer is wanted. Its payload is the method's name, a NUL, and the request."""
    STREAM = 2
    """The same, where many may come."""
    STOP = 3
    """Nobody waits for this call any more."""
    PROGRESS = 4
    """From the process: phase, bytes done, bytes in all."""
    OPEN = 5
    """It is loaded: where it lies, and of when it is."""
    ANSWER = 6
    END = 7
    """There are no more answers."""
    ERROR = 8
    """The call failed; of number 0: the checkpoint cannot be opened."""


def frame(kind: Kind, number: int = 0, payload: bytes = b"") -> bytes:
    return _HEAD.pack(len(payload), number, kind) + payload


async def read_frame(reader: asyncio.StreamReader) -> tuple[Kind, int, bytes]:
    """The next one. Raises asyncio.IncompleteReadError, OSError: the other side has ended."""
    size, number, kind = _HEAD.unpack(await reader.readexactly(_HEAD.size))
    return Kind(kind), number, await reader.readexactly(size)


_ANSWERS: Final[dict[str, type[RpcFailed]]] = {"RpcFailed": RpcFailed, "Denied": Denied}
_DETAILS: Final = ("code", "subject", "field", "position", "hint", "retry_after_ms")


def from_error(error: IrisError) -> bytes:
    """Its kind, as far as callers tell kinds apart, and its words."""
    said: dict[str, Any] = {"kind": type(error).__name__, "message": error.message, "hint": error.hint}
    if isinstance(error, RpcFailed):
        said |= {"status": error.status, **{name: getattr(error, name) for name in _DETAILS}}
    return json.dumps(said).encode()


def to_error(payload: bytes) -> IrisError:
    """What `from_error` was given."""
    said = json.loads(payload)
    answer = _ANSWERS.get(said["kind"])
    if answer is not None:
        return answer(said["status"], said["message"], **{name: said[name] for name in _DETAILS})
    kind = UsageFailed if said["kind"] == "UsageFailed" else IrisError
    return kind(said["message"], hint=said["hint"])
