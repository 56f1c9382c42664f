"""The one owner of standard output: bytes out, tables, and the machine formats.

Data goes here and nothing else does. A reader that went away ends the command quietly; a full disk is an error. What
a person reads is made harmless for a terminal, what a machine reads is the original. Must never decide what a command
shows.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, Final, Literal

from iris_core.cli.diagnostics import PipeClosed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_core.contracts import IrisError

_SCREENED: Final = "[\x7f-\x9f\xad\u034f\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e007f]"
"""What could steer a terminal, or that no encoding carries: a pattern."""

Format = Literal["table", "wide", "json", "jsonl", "csv", "name"]
FORMATS: Final[tuple[Format, ...]] = ("table", "wide", "json", "jsonl", "csv", "name")
MACHINE: Final = frozenset({"json", "jsonl", "csv", "name"})


def is_terminal() -> bool:
    """Whether a person watches standard output."""
    try:
        return sys.stdout.isatty()
    except (ValueError, AttributeError):
        return False


def width() -> int | None:
    """Cells that a line may take, None for any number: the terminal's, or what $COLUMNS says where there is none."""
    named = os.environ.get("COLUMNS", "")
    if named.isascii() and named.isdigit() and 0 < int(named) < 10_000:
        return int(named)
    if not is_terminal():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or None
    except (OSError, ValueError):
        return None


def line(text: str) -> None:
    """One line of text that is harmless already."""
    write(text + "\n")


_pending = bytearray()
_FLUSH_AT: Final = 64 * 1024


def write(text: str) -> None:
    """Text as UTF-8; it may wait for `flush`. Raises PipeClosed, IrisError."""
    write_bytes(text.encode("utf-8", "surrogateescape"))


def write_bytes(data: bytes) -> None:
    """Bytes as they are; they may wait for `flush`. Raises PipeClosed, IrisError."""
    _pending.extend(data)
    if len(_pending) >= _FLUSH_AT:
        flush()


def flush() -> None:
    """Everything written so far goes out. Raises PipeClosed, IrisError."""
    data = bytes(_pending)
    _pending.clear()
    try:
        sys.stdout.flush()
        view = memoryview(data)
        while view:
            # Unbuffered Python writes as much as the pipe takes.
            view = view[sys.stdout.buffer.write(view) :]
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise PipeClosed from None
    except OSError as error:
        raise _failed(error) from None
    except (ValueError, AttributeError):
        if data:
            raise _error("standard output is closed") from None


def _failed(error: OSError) -> IrisError:
    return _error(f"cannot write to standard output: {(error.strerror or str(error)).lower()}")


def _error(message: str) -> IrisError:
    # Help and completion write too, and should not load what only failures need.
    from iris_core.contracts import IrisError

    return IrisError(message)


# --- machine formats ---------------------------------------------------------------------------------------------------


def as_json(value: object) -> str:
    """JSON of several lines, keys in their order, text as it is."""
    import json

    return _encodable(json.dumps(value, indent=2, ensure_ascii=False))


def as_json_line(value: object) -> str:
    """JSON on one line."""
    import json

    return _encodable(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def _encodable(text: str) -> str:
    """Characters that could steer a terminal, or that no encoding carries, go as JSON escapes, which mean the same."""
    if text.isascii() and "\x7f" not in text:
        return text
    import re

    return re.sub(_SCREENED, lambda match: _json_escape(match[0]), text)


def _json_escape(character: str) -> str:
    import json

    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"


def harmless(text: str) -> str:
    """The text itself, or on a terminal the text made visible: a value must not steer it, whatever the format."""
    if not is_terminal():
        return text
    from iris_core.model.text import visible

    return visible(text)


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows of CSV: RFC 4180 quoting, `\\n` at the end of a row, nothing for None; nested values as JSON."""
    import csv
    import io

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    for row in rows:
        writer.writerow([_csv_cell(value) for value in row])
    return buffer.getvalue()


def _csv_cell(value: object) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (dict, list)):
        import json

        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return harmless(value) if isinstance(value, str) else value
