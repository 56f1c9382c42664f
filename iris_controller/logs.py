"""The controller's own log: one line a record on stderr, and the same lines shipped to finelog as `/system/controller`.

Every record is one line whatever is in it, so that no value can forge another (targets S10). Must never block: shipping is bounded
and in the background.
"""

from __future__ import annotations

import logging
import sys
import time
from functools import lru_cache

from iris_core.model.text import visible

_LINE = "iris_line"


class OneLine(logging.Formatter):
    """`2026-01-31T12:00:00.000Z INFO iris.loop text`; a traceback is folded into the line.

    A record keeps its line: every handler writes the same.
    """

    def format(self, record: logging.LogRecord) -> str:
        kept = record.__dict__
        line: str | None = kept.get(_LINE)
        if line is None:
            text = record.getMessage()
            if record.exc_info:
                text += " | " + self.formatException(record.exc_info).replace("\n", " | ")
            stamp = _stamp(int(record.created))
            line = f"{stamp}.{int(record.msecs):03d}Z {record.levelname} {record.name} {visible(text)}"
            kept[_LINE] = line
        return line


@lru_cache(maxsize=4)
def _stamp(second: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))


def configure(level: int = logging.INFO, shipping: logging.Handler | None = None) -> None:
    """Sets up the root logger once; a second call adds the handler that ships to finelog."""
    root = logging.getLogger()
    root.setLevel(level)
    formatter = OneLine()
    if not any(isinstance(h, logging.StreamHandler) and h.stream is sys.stderr for h in root.handlers):
        stream = logging.StreamHandler(sys.stderr)
        stream.setFormatter(formatter)
        root.addHandler(stream)
    if shipping is not None:
        shipping.setFormatter(formatter)
        root.addHandler(shipping)
    # What no line of ours says is not looked up: the calling function alone is a third of what a record costs.
    logging._srcfile = None
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    for noisy in ("grpc", "uvicorn", "asyncio", "httpx"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
