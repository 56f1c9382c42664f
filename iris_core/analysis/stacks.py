"""Sampled stacks as values: frames, what they are called once everything accidental is gone, and the folded form.

Two captures of one program differ in process ids, temporary folders, addresses and hashes; only without those do equal stacks meet.
Pure: text and numbers in, text and numbers out. Broken input is a ValueError that says what is wrong with it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_SCRUBS: Final = (
    (re.compile(r"::h[0-9a-f]{16}\b"), ""),
    # The directory that a worker made for one attempt: what is in it has the same name in all of them.
    (re.compile(r"/[^\s;()]*/work/[A-Za-z0-9_-]{1,64}/workdir/"), ""),
    (re.compile(r"/(?:var/)?tmp/[^/\s:;)\"']+"), "/tmp/*"),
    (re.compile(r"\b(process|thread|tid|pid)([ :=]+)\d+", re.IGNORECASE), r"\1\2*"),
    (re.compile(r"\b0x[0-9a-fA-F]+"), "0x*"),
    (re.compile(r"\b[0-9a-f]{32,64}\b"), "*"),
)
_SPACES: Final = re.compile(r"[\s;]+")
_FOLDED: Final = re.compile(r"^(?P<stack>.*) (?P<weight>\d+(?:\.\d+)?)$", re.DOTALL)
_RECORD: Final = re.compile(r'(?<=\d)\n(?=process \d+:")')
_COMMANDS: Final = re.compile(r'process (?P<pid>\d+):"(?P<commands>.*)"(?=;| \d+(?:\n|$))', re.DOTALL)
_NEXT: Final = re.compile(r'";process (\d+):"')
_UNSEEN: Final = re.compile(r"[\s\x00-\x1f\x7f]+")
_LABEL: Final = re.compile(r"^(?P<name>.*) \((?P<file>[^()]*?)(?::(?P<line>\d+))?\)$", re.DOTALL)
_ADDRESS: Final = re.compile(r"^(?:0x[0-9a-fA-F*]+|\?\?|\[unknown\]|<unknown>)?$")
_PACKAGES: Final = re.compile(r".*/(?:site|dist)-packages/([^/]+)")
_STANDARD: Final = re.compile(r".*/lib(?:64)?/python\d[\d.]*/")
_LIBRARY: Final = re.compile(
    r"^(lib)?([\w+-]+?)(?:[.-]\d[\w.]*)?\.so(?:\.[\d.]+)?$|^([\w+-]+)\.(?:cpython|abi3)[\w.-]*\.so$"
)


class Frame(NamedTuple):
    """One frame: a function and the file it is in, as far as known."""

    name: str
    file: str = ""

    @property
    def label(self) -> str:
        """`name (file)`."""
        return f"{self.name} ({self.file})" if self.file else self.name

    @property
    def python(self) -> bool:
        """Whether it is a frame of Python code."""
        return self.file.endswith((".py", ".pyx")) or (self.file.startswith("<") and self.file.endswith(">"))

    @property
    def named(self) -> bool:
        """Whether it is more than an address."""
        return not _ADDRESS.match(self.name)


COMMAND_CHARS: Final = 200
"""Of the command line of a process at the root of its stacks: a whole program may be in it."""

Stack = tuple[Frame, ...]
"""The outermost frame first."""
Stacks = dict[Stack, float]
"""How much was seen of each."""


def clean(text: str) -> str:
    """Without process and thread ids, addresses, temporary folders and hashes (cli-auth-logs §4.5)."""
    for pattern, instead in _SCRUBS:
        text = pattern.sub(instead, text)
    return text


def normalised(frame: Frame) -> Frame:
    """The frame as it is called in every capture."""
    return Frame(clean(frame.name), clean(frame.file))


def merge(parts: Iterable[Mapping[Stack, float]]) -> Stacks:
    """The sum of several."""
    whole: Stacks = {}
    for part in parts:
        for stack, weight in part.items():
            whole[stack] = whole.get(stack, 0.0) + weight
    return whole


def leaf(stack: Stack) -> Frame:
    """Where the time went, in words one can look for: the innermost Python frame, else the innermost that has a name."""
    for wanted in ("python", "named"):
        for frame in reversed(stack):
            if getattr(frame, wanted):
                return frame
    return stack[-1]


def library(frame: Frame) -> str:
    """The package or shared library that a frame belongs to."""
    packaged = _PACKAGES.match(frame.file)
    if packaged is not None:
        found = _LIBRARY.match(packaged[1])
        name = found[2] or found[3] if found else packaged[1].removesuffix(".py")
        return name or packaged[1]
    base = frame.file.rpartition("/")[2]
    if _STANDARD.match(frame.file) and frame.file.endswith(".py"):
        return "python standard library"
    found = _LIBRARY.match(base)
    if found is not None:
        return base.partition(".so")[0] + ".so"
    return base or ("(no file)" if frame.named else "(unknown)")


def folded(stacks: Mapping[Stack, float]) -> str:
    """One line per stack, `a;b;c weight`, heaviest first: what flame graph tools read."""
    lines = sorted(stacks.items(), key=lambda item: (-item[1], item[0]))
    return "".join(
        f"{';'.join(_SPACES.sub(' ', frame.label) for frame in stack)} {f'{weight:.4f}'.rstrip('0').rstrip('.')}\n"
        for stack, weight in lines
    )


def on_one_line(text: str) -> str:
    """py-spy's raw stacks as other tools read them, a line each. It puts the command line of each process at their root as it is,
    which may have lines, semicolons and quotation marks of its own: it becomes one line without a semicolon, and is cut."""
    return "\n".join(_COMMANDS.sub(_named, record, count=1) for record in _RECORD.split(text))


def _named(match: re.Match[str]) -> str:
    """The processes of a stack, the outermost first."""
    first, *others = _NEXT.split(match["commands"])
    named = [(match["pid"], first), *zip(others[::2], others[1::2], strict=True)]
    return ";".join(f'process {pid}:"{_command(command)}"' for pid, command in named)


def _command(text: str) -> str:
    shown = _UNSEEN.sub(" ", text.replace(";", ",")).strip()
    return shown if len(shown) <= COMMAND_CHARS else f"{shown[: COMMAND_CHARS - 1]}…"


def from_folded(text: str) -> Stacks:
    """Reads the folded form. A line that does not end in a number goes on in the next: a command line can have several."""
    found: Stacks = {}
    pending = ""
    for line in on_one_line(text).split("\n"):
        pending = f"{pending}\n{line}" if pending else line
        match = _FOLDED.match(pending)
        if match is None:
            continue
        stack = tuple(frame_of(label) for label in match["stack"].split(";") if label)
        pending = ""
        if stack:
            found[stack] = found.get(stack, 0.0) + float(match["weight"])
    return found


def frame_of(label: str) -> Frame:
    """`name (file:line)` as py-spy writes it; the line is left out."""
    match = _LABEL.match(label)
    return Frame(match["name"], match["file"]) if match is not None else Frame(label)
