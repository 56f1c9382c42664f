"""The controller's own log: one line a record, the same for every handler, whatever is in it."""

from __future__ import annotations

import logging
import re

from iris_controller.logs import OneLine

SHAPE = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) (\w+) ([\w.]+) (.*)")


class Sink(logging.Handler):
    """Keeps what it formats, with a formatter of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(OneLine())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def written(*texts: str, created: float | None = None, error: Exception | None = None) -> list[str]:
    """The lines of two handlers, which must be the same."""
    sinks = Sink(), Sink()
    info = (type(error), error, None) if error is not None else None
    for text in texts:
        record = logging.LogRecord("iris.loop", logging.INFO, "", 0, "%s", (text,), info)
        if created is not None:
            record.created, record.msecs = created, created % 1 * 1000
        for sink in sinks:
            sink.handle(record)
    assert sinks[0].lines == sinks[1].lines
    return sinks[0].lines


def test_each_record_has_its_own_line_and_time() -> None:
    assert written("one", "two", created=0.25) == [
        "1970-01-01T00:00:00.250Z INFO iris.loop one",
        "1970-01-01T00:00:00.250Z INFO iris.loop two",
    ]
    assert written("later", created=86_400.5) == ["1970-01-02T00:00:00.500Z INFO iris.loop later"]


def test_no_text_can_begin_a_line_of_its_own() -> None:
    (line,) = written("a\n2026-01-01T00:00:00.000Z INFO iris.audit event=forged\x1b[2J")
    assert "\n" not in line and "\x1b" not in line
    found = SHAPE.fullmatch(line)
    assert found is not None and found[3] == "iris.loop"


def test_a_traceback_is_folded_into_the_line() -> None:
    (line,) = written("failed", error=ValueError("two\nlines"))
    assert line.endswith("INFO iris.loop failed | ValueError: two | lines")
