"""What went wrong with a call, in one line for a screen: the same words wherever something could not be had.

A controller of an earlier release does not know every call and every kind of row. That is no fault of the connection, nothing is tried
in vain because of it but what was asked, and it is said in those words. Must never name anything that was not in the error.
"""

from __future__ import annotations

from typing import Final

from iris_core.contracts import IrisError, RpcFailed
from iris_core.model.text import one_line

EARLIER: Final = "this controller is of an earlier release and does not know it"
_REFUSALS: Final = frozenset({"UNIMPLEMENTED", "INVALID_ARGUMENT", "FAILED_PRECONDITION", "NOT_FOUND", "OUT_OF_RANGE"})


def is_refused(error: IrisError) -> bool:
    """Whether somebody answered there, and will not do what was asked: the connection is as good as ever."""
    return isinstance(error, RpcFailed) and error.status in _REFUSALS


def is_unknown(error: IrisError) -> bool:
    """Whether whoever answered does not know the call, or the kind of row, that was asked for."""
    if not isinstance(error, RpcFailed):
        return False
    kind = error.status == "INVALID_ARGUMENT" and error.field.startswith("selectors") and error.field.endswith("kind")
    return error.status == "UNIMPLEMENTED" or kind


def fault_text(error: IrisError) -> str:
    """What went wrong, and what to do about it, if that is known."""
    hint = error.hint or (EARLIER if is_unknown(error) else "")
    return one_line(error.message) + (f"; {one_line(hint)}" if hint else "")
