"""What a program of ours wrote when it failed, as the error that it was: its line, its hint, and nothing of its log."""

from __future__ import annotations

from iris_core.contracts import IrisError
from iris_core.model.text import one_line

ERROR = "Error: "
HINT = "Hint: "


def as_error(written: str, otherwise: str) -> IrisError:
    """The error in what was written to standard error; its last line, or `otherwise`, where none is marked as such."""
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    errors = [line.removeprefix(ERROR) for line in lines if line.startswith(ERROR)] or lines[-1:] or [otherwise]
    hints = [line.removeprefix(HINT) for line in lines if line.startswith(HINT)]
    return IrisError(one_line(errors[-1]), hint=one_line(hints[-1]) if hints else "")
