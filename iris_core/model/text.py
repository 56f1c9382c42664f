"""Text from workloads made safe to show, and measured in terminal cells.

Anything a job can name or print may carry control sequences that move the
cursor, set the title or the clipboard, or reverse the reading direction. What goes to a
terminal passes through here: ``visible`` shows every such character as a harmless mark,
``strip_to_sgr`` keeps colours and nothing else. The store keeps the original; this is
done where text is shown, on the few lines shown (targets S9).

Both are total: any ``str``, lone surrogates included, comes out printable and encodable.
Lengths here are cells, not characters: a wide character takes two, and text is
cut between whole grapheme clusters.
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TAB_WIDTH: Final = 8
MAX_MARKS: Final = 4
"""Most combining marks shown on one character; more are counted instead of drawn."""

ELLIPSIS: Final = "…"

_HARMFUL: Final = (
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    "\xad\u034f\u061c\u180e"  # soft hyphen, grapheme joiner, Arabic letter mark, Mongolian separator
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f"  # zero width, separators, direction overrides and isolates
    "\ufeff\ufff9-\ufffb\ufffe\uffff"  # byte order mark, annotations, noncharacters
    "\ud800-\udfff"  # lone surrogates, which no terminal encoding can carry
    "\U000e0000-\U000e007f"  # invisible tags
)
_HARMFUL_RE = re.compile(f"[{_HARMFUL}]")
_HARMFUL_BUT_NEWLINE_RE = re.compile(f"(?!\n)[{_HARMFUL}]")
_MAYBE_MARKS_RE = re.compile(f"[\u0300-\U0010ffff]{{{MAX_MARKS + 1},}}")

# A sequence that lacks its end is no match: its introducer is then shown like any other control.
_SEQUENCE_RE = re.compile(
    r"(?:\x1b\[|\x9b)(?P<csi>[0-?]*[ -/]*[@-~])"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x1b\x07\n\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]+[0-~]"
    r"|\x1b[0-OQ-WYZ\\`-~]"
)
_INTRODUCER_RE = re.compile("[\x1b\x80-\x9f]")
_LONG: Final = 4096
_SGR_RE = re.compile(r"[0-9;:]{0,64}m")
_COLOUR_PARTS_RE = re.compile(r"[34]8(?::[0-9]{0,3}){1,6}")
_PLAIN_CODES: Final = frozenset(
    {
        0,
        1,
        2,
        3,
        4,
        7,
        9,
        21,
        22,
        23,
        24,
        27,
        29,
        *range(30, 38),
        39,
        *range(40, 48),
        49,
        *range(90, 98),
        *range(100, 108),
    }
)
"""Attributes and colours that are kept. Blinking and concealed text are not."""
_COLOUR_ARGUMENTS: Final = {"5": 1, "2": 3}
RESET: Final = "\x1b[0m"


def visible(text: str, keep_newlines: bool = False) -> str:
    """Show every character that could steer a terminal or hide as a mark instead.

    C0 controls and DEL become their control pictures (ESC is ``␛``), C1 controls ``\\x9b``, the rest
    ``⟨U+202E⟩``. Tabs become blanks up to the next multiple of ``TAB_WIDTH``. With
    ``keep_newlines`` line feeds stay (and CR LF becomes one). Applying it twice changes nothing.
    """
    if keep_newlines and "\r" in text:
        text = text.replace("\r\n", "\n")
    if "\t" in text:
        text = text.expandtabs(TAB_WIDTH)
    # Of a long text first its different characters: they are few, and megabytes would be looked at one by one.
    sample = text if len(text) < _LONG else "".join(set(text))
    pattern = _HARMFUL_BUT_NEWLINE_RE if keep_newlines else _HARMFUL_RE
    if pattern.search(sample) is not None:
        text = pattern.sub(_mark, text)
    if not text.isascii() and (sample is text or any(map(_is_mark, sample))):
        text = _MAYBE_MARKS_RE.sub(_limit_marks, text)
    return text


def strip_to_sgr(text: str, keep_newlines: bool = False) -> str:
    """Keep colours, drop all other control sequences whole, show stray controls as ``visible`` does.

    Colours and attributes are re-written from an allow list. When they are left on at the end
    a reset is added, so that one line cannot colour the next.
    """
    if _INTRODUCER_RE.search(text) is None:
        return visible(text, keep_newlines)
    pieces: list[str] = []
    position, is_coloured = 0, False
    for match in _SEQUENCE_RE.finditer(text):
        pieces.append(visible(text[position : match.start()], keep_newlines))
        position = match.end()
        csi = match["csi"]
        if csi is None or not _SGR_RE.fullmatch(csi):
            continue
        codes = list(_allowed_codes(csi[:-1]))
        if codes:
            is_coloured = codes[-1] != "0"
            pieces.append(f"\x1b[{';'.join(codes)}m")
    pieces.append(visible(text[position:], keep_newlines))
    if is_coloured:
        pieces.append(RESET)
    return "".join(pieces)


def one_line(text: str) -> str:
    """Join all blanks and line ends to single blanks, trim, and make the rest ``visible``."""
    return visible(" ".join(text.split()))


def counted(number: int, what: str) -> str:
    """`1 job`, `2,000 jobs`."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def counted_are(number: int, what: str) -> str:
    """`1 job is`, `2,000 jobs are`."""
    return f"{counted(number, what)} {'is' if number == 1 else 'are'}"


def yes_or_no(value: bool) -> str:
    """A truth as people are told it."""
    return "yes" if value else "no"


def going_on(running: int) -> str:
    """What does without its controller for a while: `1 running task goes on`."""
    return f"{counted(running, 'running task')} {'goes' if running == 1 else 'go'} on"


def cell_width(text: str) -> int:
    """Terminal cells that ``text`` takes once made ``visible``."""
    if text.isascii() and text.isprintable():
        return len(text)
    from wcwidth import wcswidth  # only text beyond ASCII needs its tables

    return max(wcswidth(visible(text)), 0)


def truncate_cells(text: str, width: int) -> str:
    """Cut ``visible(text)`` to at most ``width`` cells, by whole grapheme clusters, ending in ``…``."""
    shown = visible(text)
    if cell_width(shown) <= width:
        return shown
    if width <= 0:
        return ""
    if shown.isascii():
        return shown[: width - 1] + ELLIPSIS
    from wcwidth import iter_graphemes

    kept: list[str] = []
    used = 0
    for cluster in iter_graphemes(shown):
        used += cell_width(cluster)
        if used > width - 1:
            break
        kept.append(cluster)
    return "".join(kept) + ELLIPSIS


def _mark(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if code < 0xA0:
        return f"\\x{code:02x}"
    return f"⟨U+{code:04X}⟩"


def _is_mark(character: str) -> bool:
    return unicodedata.category(character)[0] == "M"


def _limit_marks(match: re.Match[str]) -> str:
    """Cut long stacks of combining marks in a run of characters beyond Latin letters."""
    kept: list[str] = []
    stacked = 0
    for character in match[0]:
        stacked = stacked + 1 if _is_mark(character) else 0
        if stacked == MAX_MARKS + 1:
            kept.append("⟨+marks⟩")
        if stacked <= MAX_MARKS:
            kept.append(character)
    return "".join(kept)


def _allowed_codes(params: str) -> Iterator[str]:
    codes = params.split(";")
    position = 0
    while position < len(codes):
        code = codes[position] or "0"
        position += 1
        if ":" in code:
            if _COLOUR_PARTS_RE.fullmatch(code):
                yield code
        elif code in ("38", "48"):
            kind = codes[position] if position < len(codes) else ""
            count = _COLOUR_ARGUMENTS.get(kind)
            arguments = codes[position + 1 : position + 1 + (count or 0)]
            if count is None or len(arguments) < count or not all(_is_byte(part) for part in arguments):
                return  # what follows would be read as something else
            yield ";".join((code, kind, *arguments))
            position += 1 + count
        elif len(code) <= 3 and int(code) in _PLAIN_CODES:
            yield str(int(code))


def _is_byte(text: str) -> bool:
    return len(text) <= 3 and (not text or int(text) < 256)
