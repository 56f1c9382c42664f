"""Levels guessed from log lines, and names of signals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.model.errors import ModelError
from iris_core.model.levels import LogLevel, parse_level, parse_level_name, signal_name

D, I, W, E, C, U = (  # noqa: E741
    LogLevel.DEBUG, LogLevel.INFO, LogLevel.WARNING, LogLevel.ERROR, LogLevel.CRITICAL, LogLevel.UNKNOWN,
)  # fmt: skip


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("ERROR:root:it broke", E),
        ("WARNING: careful", W),
        ("2030-01-31 12:00:00,123 - my.module - ERROR - it broke", E),
        ("2030-01-31 12:00:00 INFO starting", I),
        ("[2030-01-31 12:00:00][DEBUG] x", D),
        ("[2030-01-31T00:00:00Z WARN  crate::module] x", W),
        ("2030-01-31 00:00:00.1 | CRITICAL | module:function:3 - x", C),
        ("INFO 01-31 12:00:00 engine.py:3] x", I),
        ("INFO:     Started server process", I),
        ("(EngineCore pid=123) WARNING 01-31 12:00:00 x", W),
        ("I0131 12:34:56.789012 140 file.cc:3] x", I),
        ("E0131 12:34:56.789012 140 file.cc:3] x", E),
        ("F20300131 12:34:56.789012 140 file.cc:3] x", C),
        ("[rank0]:[W131 12:00:00.1 x.cpp:3] x", U),
        ("[rank0]:[W0131 12:00:00.1 x.cpp:3] x", W),
        ('time=2030 level=error msg="x"', E),
        ('{"time": 1, "level": "warning", "message": "x"}', W),
        ('{"severity":"ERROR","message":"x"}', E),
        ('{"level":30,"message":"x"}', U),
        ("level=whatever", U),
        ("error: no such file", E),
        ("error[E0308]: mismatched types", E),
        ("git: fatal: not a repository", C),
        ("/usr/bin/ld: warning: x", W),
        ("step 1000 loss=0.12 lr=3e-4", U),
        ("no INFORMATION here", U),
        ("the word ERROR amid prose", U),
        ("ERRORS: 0", U),
        ("Traceback (most recent call last):", E),
        ("[rank5]: Traceback (most recent call last):", E),
        ("  + Exception Group Traceback (most recent call last):", E),
        ("ValueError: bad batch 1", E),
        ("torch.OutOfMemoryError: CUDA out of memory", E),
        ("KeyError", E),
        ("no ValueError: amid prose", U),
        ("ErrorBars: 3", U),
        ("    raise ValueError(text)", U),
        ("E0131 is a code", U),
        ("", U),
    ],
)
def test_levels_of_common_formats(line: str, level: LogLevel) -> None:
    assert parse_level(line) is level


@given(st.text(alphabet='INFOERAWDbug:[]|-(){}"= 0123\n\x1b', max_size=80) | st.text())
def test_any_line_has_a_level(line: str) -> None:
    assert parse_level(line) in LogLevel


@given(st.sampled_from('[ (a:/.0-="'))
def test_long_lines_cost_no_more_than_their_head(character: str) -> None:
    assert parse_level(character * 1_000_000) is U


def test_level_names() -> None:
    for level in LogLevel:
        if level:
            assert parse_level_name(level.label) is parse_level_name(level.name) is level
    with pytest.raises(ModelError, match="did you mean 'warning'"):
        parse_level_name("warnin")
    for text in ("", "unknown", "3"):
        with pytest.raises(ModelError):
            parse_level_name(text)


def test_signal_names() -> None:
    assert [signal_name(code) for code in (137, 143, 139, 130)] == ["SIGKILL", "SIGTERM", "SIGSEGV", "SIGINT"]
    assert [signal_name(code) for code in (0, 1, 128, 255, -9)] == [None] * 5
    assert signal_name(128 + 40) == "signal 40"
