"""Why a profile could not be taken, as one line and its remedy, whatever the tool printed.

The tools explain themselves over several lines and in their own words ("try again with sudo"), which help nobody who asked from
another machine. Must never show more than one line of a tool's text.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PTRACE_SCOPE: Final = Path("/proc/sys/kernel/yama/ptrace_scope")
_WORDS: Final = 200

_NO_PERMISSION: Final = re.compile(
    r"permission denied|operation not permitted|do not have permission to trace|\bEPERM\b|\bEACCES\b", re.IGNORECASE
)
_GONE: Final = re.compile(
    r"no such process|no such file or directory: ['\"]?/proc|process ID does not exist|\bESRCH\b"
    r"|No such file or directory \(os error 2\)",
    re.IGNORECASE,
)
_NOT_PYTHON: Final = re.compile(
    r"failed to find (?:a )?python|not a python process|does not seem to be running Python|find.*python.*library"
    r"|Failed to get process executable name",
    re.IGNORECASE,
)
_OTHER_VERSION: Final = re.compile(r"incompatible with this version of memray", re.IGNORECASE)
_NOTHING_SEEN: Final = re.compile(r"no stack counts found", re.IGNORECASE)
_TRACED: Final = re.compile(r"already (?:being )?traced|No more than one Tracker instance", re.IGNORECASE)


class CannotProfile(Exception):
    """There is no profile. `message` is one line, `hint` says what to do, `code` is a stable word for programs."""

    def __init__(self, message: str, *, hint: str = "", code: str = "cannot_profile") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.code = code


def no_permission(what: str) -> CannotProfile:
    """The kernel does not let this user trace `what`; the remedy depends on what the kernel is set to."""
    scope = ptrace_scope()
    if scope >= 3:
        hint = f"{PTRACE_SCOPE} is {scope}: tracing is off until this host is booted with a lower value"
    elif scope >= 1:
        hint = (
            f"{PTRACE_SCOPE} is {scope}: as root run `sysctl kernel.yama.ptrace_scope=0`, "
            "or give the worker CAP_SYS_PTRACE"
        )
    else:
        hint = "give the worker CAP_SYS_PTRACE (in a container: --cap-add SYS_PTRACE), or run it as the task's user"
    return CannotProfile(f"no permission to trace {what}", hint=hint, code="no_permission")


def ptrace_scope() -> int:
    """What Yama allows: 0 everything of one's own, 1 descendants only, 2 with a capability, 3 nothing; 0 without Yama."""
    try:
        return int(PTRACE_SCOPE.read_text())
    except (OSError, ValueError):
        return 0


def exited(what: str) -> CannotProfile:
    """The process ended meanwhile."""
    return CannotProfile(
        f"{what} ended while it was being profiled", hint="profile its successor", code="target_exited"
    )


def not_python(what: str) -> CannotProfile:
    """There is no interpreter to look into."""
    return CannotProfile(
        f"{what} is not a Python process", hint="only Python processes can be profiled", code="not_python"
    )


def too_late(tool: str, what: str, seconds: float) -> CannotProfile:
    """The watchdog ended the tool."""
    return CannotProfile(
        f"{tool} did not finish with {what} within {seconds:.0f} s and was killed",
        hint="the process may hang in the kernel, or the host is overloaded; try again, or with --no-native",
        code="profiler_timeout",
    )


def explain(tool: str, what: str, text: str) -> CannotProfile:
    """What a tool that failed on `what` means by `text`."""
    if _GONE.search(text):
        return exited(what)
    if _OTHER_VERSION.search(text):
        return CannotProfile(
            f"the memray of {what} and that of the worker are of different versions",
            hint="install the same version in both",
            code="memray_version",
        )
    if _TRACED.search(text):
        return CannotProfile(
            f"{what} is being traced already",
            hint="end the other profiler or debugger (gdb, strace, memray) first",
            code="already_traced",
        )
    if _NO_PERMISSION.search(text):
        return no_permission(what)
    if _NOT_PYTHON.search(text):
        return not_python(what)
    if _NOTHING_SEEN.search(text):
        # Of a process that waits all the time a flame graph has nothing to show; the other formats are empty then.
        return CannotProfile(
            f"{tool} saw {what} use no CPU meanwhile: there is nothing to draw",
            hint="profile threads shows where it waits; or look for longer",
            code="nothing_seen",
        )
    said = " ".join((last_line(text) or "it gave no reason").split())
    said = said if len(said) <= _WORDS else said[: _WORDS - 1] + "…"
    return CannotProfile(f"{tool} failed on {what}: {said}", code="profiler_failed")


def last_line(text: str) -> str:
    """The line that says what went wrong: the one that begins with the word, else the last that says anything."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        if line.lower().startswith("error"):
            return line
    return lines[-1] if lines else ""
