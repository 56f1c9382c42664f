"""Audit lines cannot be forged (S10), and strangers cannot flood the log."""

from __future__ import annotations

import json
import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.audit import audit, format_line
from iris_controller.quiet import QuietLog, Repeats

FIELD = re.compile(r'(?:^| )([a-z][a-z0-9_]*)=("(?:[^"\\]|\\.)*"|[^ "=]+)')


def fields(line: str) -> list[tuple[str, str]]:
    """A reader that knows nothing of how lines are made: the whole line must be fields."""
    found: list[tuple[str, str]] = []
    position = 0
    while position < len(line):
        match = FIELD.match(line, position)
        assert match, (line, position)
        value = match[2]
        found.append((match[1], json.loads(value) if value.startswith('"') else value))
        position = match.end()
    return found


def test_a_line_as_operators_know_it() -> None:
    line = format_line("job_cancelled", "/ann/train/0:2", "ann", {"tasks": 3, "via": "token", "peer": "[::1]:4000"})
    assert line == "event=job_cancelled entity=/ann/train/0:2 trigger=ann tasks=3 via=token peer=[::1]:4000"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("two words", '"two words"'),
        ("a=b", '"a\\u003db"'),
        ('say "x"', '"say \\"x\\""'),
        ("line\nevent=job_removed entity=/a/b", '"line\\nevent\\u003djob_removed entity\\u003d/a/b"'),
        ("\x1b]0;title\x07", '"\\u001b]0;title\\u0007"'),
        ("\u2028\u202e", '"\\u2028\\u202e"'),
        ("\ud800", '"\\ud800"'),
        ("", '""'),
        ("-", '"-"'),
        (None, "-"),
        (True, "true"),
        (False, "false"),
        (0, "0"),
        (1.5, "1.5"),
    ],
)
def test_values(value: str | float | None, shown: str) -> None:
    assert format_line("x", "e", "t", {"k": value}) == f"event=x entity=e trigger=t k={shown}"


@given(st.text(), st.text(), st.text())
def test_no_value_can_forge_a_field_or_a_line(entity: str, trigger: str, value: str) -> None:
    line = format_line("job_submitted", entity, trigger, {"reason": value})
    assert line.isprintable()
    assert line.isascii()
    assert [name for name, _ in fields(line)] == ["event", "entity", "trigger", "reason"]
    # What `process logs --substring` finds.
    assert line.count("event=") == 1
    for name, said in zip(("entity", "trigger", "reason"), (entity, trigger, value), strict=True):
        shown = dict(fields(line))[name]
        assert shown == said or (len(said) > 1000 and shown.startswith(said[:1000]))


def test_a_long_value_is_cut_and_says_so() -> None:
    line = format_line("x", "e" * 10_000_000, "t")
    assert len(line) < 8000
    assert "(10000000 characters)" in line


@pytest.mark.parametrize("name", ["", "a b", "a=b", "A", "1a", "event", "entity", "trigger", "ä"])
def test_names_are_ours(name: str) -> None:
    with pytest.raises(ValueError, match="audit"):
        format_line("x", "e", "t", {name: 1})


def test_a_line_goes_to_the_log_once_and_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "iris.audit"):
        audit("job_cancelled", "/a/b", "100%s\n", tasks=1)
    assert [record.getMessage() for record in caplog.records] == [
        'event=job_cancelled entity=/a/b trigger="100%s\\n" tasks=1'
    ]


def test_a_quiet_log_counts_what_it_leaves_out(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    quiet = QuietLog(logging.getLogger("iris.test"), 1.0, lambda: now[0])
    with caplog.at_level(logging.WARNING, "iris.test"):
        for number in range(5):
            quiet.warning("refused %s", number)
        now[0] = 1.0
        quiet.warning("refused %s", 5)
        now[0] = 2.0
        quiet.warning("refused %s", 6)
    assert [record.getMessage() for record in caplog.records] == [
        "refused 0",
        "refused 5 (4 more like it since the last such line)",
        "refused 6",
    ]


def test_what_repeats_is_said_once_a_minute_with_what_was_left_out() -> None:
    now = [0.0]
    repeats = Repeats(60.0, lambda: now[0])
    assert [repeats.take(("worker_attached", "w1")) for _ in range(4)] == [0, None, None, None]
    assert repeats.take(("worker_attached", "w2")) == 0, "each worker has its own"
    assert repeats.take(("worker_healthy", "w1")) == 0, "and so has each kind"
    now[0] += 59.9
    assert repeats.take(("worker_attached", "w1")) is None
    now[0] += 0.2
    assert repeats.take(("worker_attached", "w1")) == 4
    now[0] += 61
    assert repeats.take(("worker_attached", "w1")) == 0


def test_what_repeats_is_not_remembered_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Repeats, "KEPT", 10)
    now = [0.0]
    repeats = Repeats(60.0, lambda: now[0])
    for number in range(200):
        now[0] += 10
        assert repeats.take(number) == 0
    assert len(repeats._said) <= 10
