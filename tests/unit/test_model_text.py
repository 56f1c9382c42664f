"""Display safety: nothing a workload prints can steer the terminal, and cutting respects cells and clusters."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import iter_graphemes

from iris_core.model.text import (
    MAX_MARKS,
    cell_width,
    counted,
    going_on,
    one_line,
    strip_to_sgr,
    truncate_cells,
    visible,
)

PIECES = [
    "\x1b[31m", "\x1b[0m", "\x1b[2J", "\x1b[?25l", "\x1b[8m", "\x1b[5;31m", "\x1b[38;5;196m", "\x1b[38;2;1;2;300m",
    "\x1b[38:2::1:2:3m", "\x1b]0;title\x07", "\x1b]52;c;AAAA\x1b\\", "\x1b]8;;http://x\x1b\\", "\x1bPq\x1b\\", "\x1bc",
    "\x1b(0", "\x9b2J", "\x9d0;t\x9c", "\x1b", "[2J", "]0;x", "\x07", "\r", "\n", "\t", "\x7f", "\u202e", "\u200b",
    "\u2066", "\ufeff", "\ud800", "e\u0301", "\u0301" * 9, "日本", "👩\u200d💻", "\U000e0041", "plain", " ", "\x00",
]  # fmt: skip
HOSTILE = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=12).map("".join)

HARMFUL_CATEGORIES = {"Cc", "Cf", "Cs", "Zl", "Zp"}
KEPT_FORMATS = frozenset(
    c for c in map(chr, range(0x110000)) if unicodedata.category(c) == "Cf" and visible(c) == c
)  # fmt: skip


def test_one_is_one_and_all_others_are_many() -> None:
    assert [counted(number, "job") for number in (0, 1, 2000)] == ["0 jobs", "1 job", "2,000 jobs"]
    assert [going_on(number) for number in (0, 1, 2)] == [
        "0 running tasks go on",
        "1 running task goes on",
        "2 running tasks go on",
    ]


def harmful(text: str) -> list[str]:
    return [c for c in text if unicodedata.category(c) in HARMFUL_CATEGORIES and c not in KEPT_FORMATS]


def test_the_format_characters_left_alone_are_only_visible_ones() -> None:
    names = {unicodedata.name(c) for c in KEPT_FORMATS}
    leading_words = {name.split()[0] for name in names}
    assert leading_words <= {"ARABIC", "SYRIAC", "KAITHI", "EGYPTIAN", "SHORTHAND", "MUSICAL"}, leading_words


@given(HOSTILE)
def test_visible_leaves_no_control_and_is_stable(text: str) -> None:
    shown = visible(text)
    assert not harmful(shown)
    assert "\n" not in shown
    shown.encode()
    assert visible(shown) == shown
    kept = visible(text, keep_newlines=True)
    assert set(harmful(kept)) <= {"\n"}
    assert kept.count("\n") == text.count("\n")
    assert visible(kept, keep_newlines=True) == kept


@given(st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)))
def test_plain_text_is_left_alone(text: str) -> None:
    assert visible(text) == strip_to_sgr(text) == text
    assert cell_width(text) == len(text)


def test_marks_are_readable() -> None:
    assert visible("a\x1b[31mb") == "a␛[31mb"
    assert visible("\x00\x07\n\x7f") == "␀␇␊␡"
    assert visible("\x9b") == "\\x9b"
    assert visible("\u202eabc\ud800") == "⟨U+202E⟩abc⟨U+D800⟩"
    assert visible("a\tb\r\n", keep_newlines=True) == "a       b\n"
    assert visible("日本語 é ñ ά") == "日本語 é ñ ά"


@given(
    st.lists(
        st.sampled_from(["a", "\ufffd", "é", "日", "\u0301", "\x1b", "\n", "\r\n", "\t", "\x9b", "\u202e", "😀"]),
        max_size=30,
    ),
    st.booleans(),
)
def test_a_long_text_is_shown_as_a_short_one(pieces: list[str], keep_newlines: bool) -> None:
    text = "".join(pieces)
    assert visible("x" * 4096 + text, keep_newlines) == "x" * 4096 + visible(text, keep_newlines)
    assert visible(text + "日" * 4096, keep_newlines) == visible(text, keep_newlines) + "日" * 4096


def test_stacks_of_marks_are_cut() -> None:
    assert visible("e" + "\u0301" * 100 + "x") == "e" + "\u0301" * MAX_MARKS + "⟨+marks⟩x"
    assert visible("ก" + "\u0e47" * 50) == "ก" + "\u0e47" * MAX_MARKS + "⟨+marks⟩"
    assert visible("e" + "\u0301" * MAX_MARKS) == "e" + "\u0301" * MAX_MARKS


SGR = re.compile(r"\x1b\[([0-9;:]+)m")


@given(HOSTILE)
def test_only_colours_survive_and_end_reset(text: str) -> None:
    shown = strip_to_sgr(text)
    codes = SGR.findall(shown)
    assert not harmful(SGR.sub("", shown))
    if codes:
        assert re.search(r"(?:^|;)0$", codes[-1]), "no colour leaks into the next line"
    for code in codes:
        parts = re.sub(r"[34]8;(?:5;[0-9]*|2;[0-9]*;[0-9]*;[0-9]*)", "", code).split(";")
        assert not {"5", "6", "8"} & set(parts), "neither blinking nor concealed"
    assert strip_to_sgr(shown) == shown
    kept = strip_to_sgr(text, keep_newlines=True)
    assert set(harmful(SGR.sub("", kept))) <= {"\n"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x1b[31mred\x1b[0m", "a\x1b[31mred\x1b[0m"),
        ("\x1b[1;31mx", "\x1b[1;31mx\x1b[0m"),
        ("\x1b[mx", "\x1b[0mx"),
        ("\x1b[38;5;196;1mx", "\x1b[38;5;196;1mx\x1b[0m"),
        ("\x1b[31;38;5mx", "\x1b[31mx\x1b[0m"),
        ("\x1b[8mx", "x"),
        ("\x1b[38;2;7;300;0;1mx", "x"),
        ("\x1b[1;48;9;1mx", "\x1b[1mx\x1b[0m"),
        ("\x1b[2Jx\x1b[?1049h", "x"),
        ("\x1b]0;title\x07x", "x"),
        ("\x1b]52;c;AAAA\x1b\\x", "x"),
        ("\x1b]8;;http://e\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x9b2Jx\x9d0;t\x9cy", "xy"),
        ("\x1bcx\x1b(0y", "xy"),
        ("\x1b]0;open", "␛]0;open"),
        ("\x1b\x1b[2J[2J", "␛[2J"),
    ],
)
def test_sequences(text: str, shown: str) -> None:
    assert strip_to_sgr(text) == shown


@pytest.mark.parametrize("piece", ["\x1b]", "\x9d", "\x1b[", "\x1b[1;", "\x1b ", "\x9b1", "\x1bP", "\u0301e", "\t"])
def test_hostile_repetition_takes_linear_time(piece: str) -> None:
    text = piece * 100_000
    assert not harmful(SGR.sub("", strip_to_sgr(text)))


@given(HOSTILE, st.integers(-1, 30))
def test_truncation_keeps_to_the_width_and_to_whole_clusters(text: str, width: int) -> None:
    shown = visible(text)
    cut = truncate_cells(text, width)
    assert cell_width(cut) <= max(width, 0)
    if cell_width(shown) <= width:
        assert cut == shown
    elif width > 0:
        assert cut.endswith("…")
        clusters, kept = list(iter_graphemes(shown)), cut[:-1]
        assert kept in {"".join(clusters[:n]) for n in range(len(clusters) + 1)}
        following = clusters[len(list(iter_graphemes(kept)))]
        assert cell_width(kept) + cell_width(following) > width - 1, "no more is cut than must be"


def test_width_is_in_cells() -> None:
    assert [cell_width(text) for text in ("", "ab", "日本", "e\u0301", "\x1b", "\x9b")] == [0, 2, 4, 1, 1, 4]
    assert truncate_cells("日本語", 5) == "日本…"
    assert truncate_cells("日本語", 4) == "日…"
    assert truncate_cells("abcdef", 4) == "abc…"
    assert truncate_cells("abc", 0) == ""


@given(HOSTILE)
def test_one_line_is_one_line(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert line == line.strip()
    assert "  " not in line
    assert one_line(line) == line
