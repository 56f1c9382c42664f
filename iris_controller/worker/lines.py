"""From the bytes of a pipe to lines: a pure state machine per stream, with bounded memory whatever is written.

A newline ends a line. A line over 256 KiB comes in parts flagged `partial`, and so does one that stays unfinished for a second.
A lone carriage return ends a frame of a progress bar: a bar keeps the latest frame of each second and the last one, because a
reader wants the state and not two million redraws (field case C24). A short line that merely contains carriage returns is kept
as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from iris_controller.worker.batches import Line
from iris_core.model.levels import parse_level

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PART_BYTES = 256 * 1024
"""The store takes no part that is longer, neither its bytes nor its text."""
_UNDECODED_BYTES = PART_BYTES // len("\N{REPLACEMENT CHARACTER}".encode())
"""So many bytes that are no UTF-8 still have a text that fits."""
_OWN_BYTES = PART_BYTES - 100
"""What is kept of a line of ours that is too long, with room for a word on the rest."""
SEAM_CHARACTERS = 4096
"""On either side of where two parts of a line are joined, what the later one carries for whoever searches."""
_WHOLE_BYTES = 4096
_WHOLE_FRAMES = 8


class Piece(NamedTuple):
    """A line without its newline, or a part of one."""

    data: bytes
    partial: bool
    unended: bool = False
    """The stream ended here, without a newline."""


class LineSplitter:
    """Feed it what a pipe gives; it answers with finished pieces. Holds at most one part of an unfinished line."""

    def __init__(self) -> None:
        self._buffer = b""
        self._continues = False  # parts of this line went out already
        self._bar = False  # frames of this line went out, or were dropped
        self._frame = b""  # the latest complete frame that did not go out

    @property
    def pending(self) -> bool:
        """Something waits for its end; `flush` would give it out."""
        return bool(self._buffer or self._frame)

    def feed(self, chunk: bytes) -> list[Piece]:
        """What the chunk completes."""
        out: list[Piece] = []
        first, *rest = chunk.split(b"\n")
        self._buffer += first
        if rest:
            self._end_line(self._buffer, out)
            last = rest.pop()
            for line in rest:
                self._end_line(line, out)
            self._buffer = last
        if len(self._buffer) >= PART_BYTES:
            self._shrink(out)
        return out

    def flush(self) -> list[Piece]:
        """Gives out what waits: the latest frame, or the unfinished line as a part. A split UTF-8 character stays."""
        out: list[Piece] = []
        if self._continues and b"\r" in self._buffer:
            self._close_part(out)
        if self._bar or b"\r" in self._buffer:
            self._keep_last_frame()
            shown = self._frame or self._buffer
            if not self._frame:
                self._buffer = b""
            self._frame = b""
            if shown:
                out.append(Piece(shown, False))
        elif self._buffer:
            cut = _whole_characters(self._buffer)
            if cut:
                out.append(Piece(self._buffer[:cut], True))
                self._continues = True
                self._buffer = self._buffer[cut:]
        return out

    def finish(self) -> list[Piece]:
        """Gives out what is left at the end of the stream."""
        out: list[Piece] = []
        if self._buffer or self._continues or self._frame:
            self._end_line(self._buffer, out, unended=True)
        self._buffer = b""
        return out

    def _end_line(self, line: bytes, out: list[Piece], *, unended: bool = False) -> None:
        if b"\r" in line or self._bar:
            line, shown = self._end_bar(line, out)
            if not shown:
                return
        while len(line) > PART_BYTES:
            cut = _whole_characters(line[:PART_BYTES])
            out.append(Piece(line[:cut], True))
            line = line[cut:]
        out.append(Piece(line, False, unended))
        self._continues = self._bar = False
        self._frame = b""

    def _end_bar(self, line: bytes, out: list[Piece]) -> tuple[bytes, bool]:
        """The line that stands at the end of a bar, and whether there is one."""
        body = line.removesuffix(b"\r")
        if self._continues and b"\r" in body:
            self._buffer = line
            self._close_part(out)
            line = self._buffer
            body = line.removesuffix(b"\r")
        frames = body.split(b"\r")
        if not self._bar and len(frames) <= _WHOLE_FRAMES and (len(frames) == 1 or len(line) <= _WHOLE_BYTES):
            return line, True
        shown = next((frame for frame in reversed(frames) if frame), self._frame)
        again = self._bar
        self._bar, self._frame = False, b""
        return shown, bool(shown) or not again

    def _close_part(self, out: list[Piece]) -> None:
        """The unfinished line of which parts went out turns into a bar: its first frame ends it."""
        first, _, rest = self._buffer.partition(b"\r")
        out.append(Piece(first, False))
        self._continues, self._bar, self._buffer = False, True, rest

    def _keep_last_frame(self) -> None:
        *frames, tail = self._buffer.split(b"\r")
        self._frame = next((frame for frame in reversed(frames) if frame), self._frame)
        self._buffer = tail
        self._bar = True

    def _shrink(self, out: list[Piece]) -> None:
        if b"\r" in self._buffer:
            if self._continues:
                self._close_part(out)
            self._keep_last_frame()
        while len(self._buffer) >= PART_BYTES:
            self._bar, self._frame = False, b""
            cut = _whole_characters(self._buffer[:PART_BYTES])
            out.append(Piece(self._buffer[:cut], True))
            self._continues = True
            self._buffer = self._buffer[cut:]


def _whole_characters(data: bytes) -> int:
    """How many bytes of `data` end with a whole UTF-8 character; all of them where the end is not UTF-8 anyway."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte < 0x80:
            break
        if byte >= 0xC0:
            need = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(data) - back if need > back and byte < 0xF8 else len(data)
    return len(data)


class Parts:
    """Makes lines of the pieces of one stream, and tells each part of a long line where it belongs.

    A part carries the text around its beginning, so that a search of single parts still finds what lies across two, how far back the first
    part is, so that parts of one line are known for that, and has the level of the first.
    """

    def __init__(self, source: str) -> None:
        self._source = source
        self._part = 0
        self._head = 0
        self._tail = ""
        self._level = 0

    def lines(self, pieces: Sequence[Piece], first: int) -> list[Line]:
        """The next pieces as lines, which are numbered from `first`; a piece whose text would be too long is more than one."""
        fitting = (part for piece in pieces for part in _fitting(piece))
        return [self._line(piece, number) for number, piece in enumerate(fitting, first)]

    def _line(self, piece: Piece, number: int) -> Line:
        line = as_line(self._source, piece)
        if self._part:
            seam = self._tail + line.data[:SEAM_CHARACTERS]
            line = line._replace(part=self._part, seam=seam, level=self._level, back=number - self._head)
        else:
            self._head = number
        if piece.partial:
            self._level = line.level
            self._part += 1
            self._tail = (self._tail + line.data)[-SEAM_CHARACTERS:]
        else:
            self._part, self._tail = 0, ""
        return line


def _fitting(piece: Piece) -> Iterator[Piece]:
    """The piece in parts whose text fits: each byte that is no UTF-8 is shown by a character of three."""
    data = piece.data
    if len(data) > _UNDECODED_BYTES and not _is_text(data):
        while len(data) > _UNDECODED_BYTES:
            cut = _whole_characters(data[:_UNDECODED_BYTES])
            yield Piece(data[:cut], True)
            data = data[cut:]
        piece = piece._replace(data=data)
    yield piece


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def own_line(source: str, text: str, level: int = 0) -> Line:
    """A line of ours, whatever is in it: a name of a file may be no Unicode, and an error may quote all of a file."""
    data = text.encode(errors="replace")
    if len(data) > PART_BYTES:
        kept = data[:_OWN_BYTES].decode(errors="ignore")
        data = f"{kept}… ({len(data) - len(kept.encode()):,} bytes more)".encode()
    return Line(source, data.decode(), b"", level)


def as_line(source: str, piece: Piece) -> Line:
    """Decodes a piece. A carriage return at the end belongs to the newline: it is kept in `raw` alone."""
    data, raw = piece.data, b""
    if not piece.partial and data.endswith(b"\r"):
        data, raw = data[:-1], data
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text, raw = data.decode("utf-8", "replace"), piece.data
    return Line(source, text, raw, int(parse_level(text)), piece.partial, unended=piece.unended)
