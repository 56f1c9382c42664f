"""Lines of a view as the bytes that were written, each with its line end, parts of a long line joined.

A line that ended without one gets one only if another line stands behind it. What is lost stands there as one line in brackets: a file
must not look whole where it is not. An export can be taken up again at any `next_line`, if it is told which line stands before that.
Pure: lines in, bytes out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.model.text import counted
from iris_core.wire.gen.iris.v1 import logs_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence


class Exporter:
    """From line `first` on; `before` is the line in front of that, if there is one."""

    def __init__(self, first: int, before: logs_pb2.ViewLine | None = None) -> None:
        self.next_line = first
        self._open: tuple[str, str, str] | None = None
        self._lines = 0
        self._lost = 0
        self._is_unended = False
        if before is not None:
            self._take_note(before)

    def take(self, lines: Sequence[logs_pb2.ViewLine]) -> logs_pb2.ExportLogsResponse:
        """The bytes of the next lines."""
        pieces: list[bytes] = []
        for found in lines:
            line = found.line
            stream = (line.key, line.attempt_uid, line.source)
            if self._is_unended:
                pieces.append(b"\n")
            elif self._open is not None and (not line.part or stream != self._open):
                # Whoever wrote that line never came to its end.
                pieces.append(b"\n")
                self._lines += 1
            self._take_note(found)
            if found.gone:
                self._lost += 1
                pieces.append(f"[line {found.number} is not kept any more]\n".encode())
            elif line.gap:
                self._lost += line.gap
                pieces.append(f"[{counted(line.gap, 'line')} lost: {line.data}]\n".encode())
            else:
                pieces.append(line.raw or line.data.encode())
                if not line.partial:
                    pieces.append(b"" if line.unended else b"\n")
                    self._lines += 1
        self.next_line += len(lines)
        return self._answer(b"".join(pieces))

    def _take_note(self, found: logs_pb2.ViewLine) -> None:
        """What has to be known of a line when the next one comes."""
        line = found.line
        is_text = not (line.gap or found.gone)
        self._open = (line.key, line.attempt_uid, line.source) if line.partial and is_text else None
        self._is_unended = line.unended and is_text

    def last(self) -> logs_pb2.ExportLogsResponse:
        """The end."""
        answer = self._answer(b"")
        answer.done = True
        return answer

    def _answer(self, data: bytes) -> logs_pb2.ExportLogsResponse:
        return logs_pb2.ExportLogsResponse(
            data=data, next_line=self.next_line, lines=self._lines, lost_lines=self._lost
        )
