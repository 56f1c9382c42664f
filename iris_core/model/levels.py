"""The level of a log line, guessed from its text.

Workloads log in every format there is, and the level only helps to filter, so
this is best effort: a line without a recognisable level is UNKNOWN, and filters
by level let UNKNOWN lines through. It runs once per line on the ingest path, so
only the head of the line is looked at and most lines leave after two cheap scans.
"""

from __future__ import annotations

import re
import signal
from enum import IntEnum
from typing import Final

from iris_core.model.errors import ModelError, did_you_mean, shown


class LogLevel(IntEnum):
    """Severity of a line; higher is worse. UNKNOWN is below all and passes every filter."""

    UNKNOWN = 0
    DEBUG = 1
    INFO = 2
    WARNING = 3
    ERROR = 4
    CRITICAL = 5

    @property
    def label(self) -> str:
        """The level as operators type it, such as ``warning``."""
        return self.name.lower()


_HEAD: Final = 256

_WORDS: Final = {
    "TRACE": LogLevel.DEBUG,
    "DEBUG": LogLevel.DEBUG,
    "INFO": LogLevel.INFO,
    "NOTICE": LogLevel.INFO,
    "WARN": LogLevel.WARNING,
    "WARNING": LogLevel.WARNING,
    "ERR": LogLevel.ERROR,
    "ERROR": LogLevel.ERROR,
    "SEVERE": LogLevel.ERROR,
    "CRIT": LogLevel.CRITICAL,
    "CRITICAL": LogLevel.CRITICAL,
    "FATAL": LogLevel.CRITICAL,
    "PANIC": LogLevel.CRITICAL,
}
_GLOG: Final = {
    "I": LogLevel.INFO,
    "W": LogLevel.WARNING,
    "E": LogLevel.ERROR,
    "F": LogLevel.CRITICAL,
    "C": LogLevel.CRITICAL,
    "D": LogLevel.DEBUG,
}
_GLOG_STARTS: Final = frozenset({*_GLOG, "["})

_WORD = "(TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERR(?:OR)?|SEVERE|CRIT(?:ICAL)?|FATAL|PANIC)"

# "I0102 03:04:05.678" (glog, klog, absl), "[rank0]:[W0102 03:04:05.678" (torch)
_GLOG_RE = re.compile(r"(?:\[[\w ]{1,20}\]:?\s?\[?)?([IWEFCD])[0-9]{4,8} [0-9:]{8}")
# The level first, or after nothing but a prefix in parentheses and a time: "ERROR:root:", "(pid=7) 2030-01-31 12:00:00 INFO "
_FIRST_RE = re.compile(rf"(?:\([^)]{{0,60}}\)\s?)?[\s0-9TZ:.,/+\[\](){{}}|<-]*{_WORD}(?![A-Za-z0-9_])")
# The level between separators: " - ERROR - ", "| INFO     |", "[rank0][WARNING]", "(DEBUG)"
_BETWEEN_RE = re.compile(rf"(?:[\[(<|]| - |:)\s*{_WORD}\s*(?:[\])>|:]| - )")
# level=error, "severity": "ERROR"
_FIELD_RE = re.compile(r"\b(?:level|lvl|levelname|severity)\"?\s{0,2}[=:]\s{0,2}\"?([A-Za-z]{3,8})\b", re.IGNORECASE)
# "error: …" as compilers and tools print it
_LOWER_RE = re.compile(
    r"(?:[\w./-]{1,60}: )?(trace|debug|info|warn(?:ing)?|error|fatal|critical)(?:\[\w+\])?: ", re.IGNORECASE
)
# What Python ends with: "Traceback (most recent call last):", "ValueError: …", "torch.OutOfMemoryError", behind a rank or a group's bar
_PYTHON_RE = re.compile(
    r"(?:\[[\w ]{1,20}\]:?\s?)?[\s|+-]{0,20}"
    r"(?:(?:[\w ]{1,30} )?Traceback \(most recent call last\)|(?:[A-Za-z_]\w{0,60}\.){0,8}\w{0,60}(?:Error|Exception)(?:: |:?$))"
)
_ANY_PYTHON_RE = re.compile(r"Traceback|Error|Exception")
_ANY_WORD_RE = re.compile(r"TRACE|DEBUG|INFO|NOTICE|WARN|ERR|SEVERE|CRIT|FATAL|PANIC")
_ANY_FIELD_RE = re.compile(r"[Ll](?:evel|EVEL|vl)|[Ss](?:everity|EVERITY)")


def parse_level(line: str) -> LogLevel:
    """Return the level that ``line`` states in a common format, else UNKNOWN."""
    head = line[:_HEAD]
    if _ANY_WORD_RE.search(head) is not None:
        found = _FIRST_RE.match(head) or _BETWEEN_RE.search(head)
        if found is not None:
            return _WORDS[found[1]]
    if head[:1] in _GLOG_STARTS:
        found = _GLOG_RE.match(head)
        if found is not None:
            return _GLOG[found[1]]
    if _ANY_FIELD_RE.search(head) is not None:
        found = _FIELD_RE.search(head)
        if found is not None:
            return _WORDS.get(found[1].upper(), LogLevel.UNKNOWN)
    if _ANY_PYTHON_RE.search(head) is not None and _PYTHON_RE.match(head) is not None:
        return LogLevel.ERROR
    found = _LOWER_RE.match(head) if ": " in head else None
    return _WORDS[found[1].upper()] if found is not None else LogLevel.UNKNOWN


def parse_level_name(text: str) -> LogLevel:
    """Parse a level as an operator names it (``warning``, in any case).

    Raises:
        ModelError: no such level; the hint has the closest one.
    """
    level = LogLevel.__members__.get(text.strip().upper())
    if level:
        return level
    words = [level.label for level in LogLevel if level]
    raise ModelError(
        f"no log level {shown(text)}", field="level", hint=did_you_mean(text, words) or f"one of {', '.join(words)}"
    )


def signal_name(exit_code: int) -> str | None:
    """Name of the signal that ended a process, by the shell's code 128+N: 137 is ``SIGKILL``.

    ``None`` for an exit code that stands for no signal.
    """
    number = exit_code - 128
    if not 0 < number <= 64:
        return None
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
