"""A journal that a hand or another version has changed: one clear line, nothing is done, and the file stays as it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.contracts import IrisError
from iris_core.procedures import grammar
from iris_core.procedures.approvals import Answer
from iris_core.procedures.events import APPROVE
from iris_core.procedures.journal import JournalBroken, read
from providers.fake.host import FakeHost
from tests.unit.procedures_world import Killed, Person, drive

pytestmark = pytest.mark.asyncio


async def left(folder: Path, die_at: int = 9) -> bytes:
    """The journal of a restart whose driver was killed: it has every kind of line up to a mutation that was begun."""
    with pytest.raises(Killed):
        await drive(folder, FakeHost(), Person(Answer(APPROVE, typed="lab")), die_at=die_at)
    return (folder / "p.jsonl").read_bytes()


def plain(data: bytes) -> bytes:
    """The same as an older version wrote it: without digests and format."""
    return re.sub(rb',"chain":"[0-9a-f]{16}"', b"", data).replace(b'"format":2,', b"")


async def refused(folder: Path, data: bytes) -> IrisError:
    """The error with which going on from these bytes ends; nothing was done then, nor written."""
    path = folder / "p.jsonl"
    path.write_bytes(data)
    host, person = FakeHost(), Person()
    with pytest.raises(IrisError) as caught:
        await drive(folder, host, person)
    assert not host.effects and not person.asked
    assert path.read_bytes() == data
    assert "\n" not in caught.value.message and caught.value.hint
    return caught.value


async def test_what_was_left_is_gone_on_with_as_it_is_and_as_an_older_version_wrote_it(tmp_path: Path) -> None:
    data = await left(tmp_path)
    for raw in (data, plain(data)):
        (tmp_path / "p.jsonl").write_bytes(raw)
        host = FakeHost()
        host.running = False  # it was stopped
        assert (await drive(tmp_path, host, Person(Answer(APPROVE, typed="lab")))).state == "r2 runs"
        whole = (tmp_path / "p.jsonl").read_bytes()
        assert whole.startswith(raw) and (whole.count(b'"chain":') == whole.count(b"\n")) is (raw is data)


@given(st.data())
@settings(max_examples=60, deadline=None)
async def test_whatever_is_changed_in_it_is_seen(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("j")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda descriptor: None)
        written = await left(folder)
    lines = written.splitlines(keepends=True)
    number = data.draw(st.integers(0, len(lines) - 2), label="line")
    how = data.draw(st.sampled_from(["out", "twice", "swap", "value", "digest"]))
    if how == "out":
        del lines[number]
    elif how == "twice":
        lines.insert(number, lines[number])
    elif how == "swap":
        lines[number], lines[number + 1] = lines[number + 1], lines[number]
    elif how == "digest":
        lines[number] = plain(lines[number])
    else:
        record = json.loads(lines[number])
        record[data.draw(st.sampled_from(sorted(set(record) - {"chain"})))] = "other"
        lines[number] = json.dumps(record, separators=(",", ":")).encode() + b"\n"
    error = await refused(folder, b"".join(lines))
    assert isinstance(error, JournalBroken) and "p.jsonl, line " in error.message


def edit(number: int, **changes: Any) -> Callable[[list[dict[str, Any]]], None]:
    def change(records: list[dict[str, Any]]) -> None:
        for name, value in changes.items():
            if value is None:
                del records[number][name]
            else:
                records[number][name] = value

    return change


def swap(records: list[dict[str, Any]]) -> None:
    names = [record["type"] for record in records]
    at = names.index("asked")
    records[at], records[at + 1] = records[at + 1], records[at]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (edit(1, type="leap"), "line 2: a line of type 'leap', which this version does not know"),
        (edit(0, format=3), "line 1: it is of format 3, and this version knows 2"),
        (edit(0, format="x"), "line 1: it is of format 'x'"),
        (edit(0, arguments=[]), "line 1: 'arguments' of a line of type 'started' is missing, or is none"),
        (edit(0, type="resumed"), "line 1: a line of type 'resumed', and it has to be 'started'"),
        (edit(1, at_ms="soon"), "line 2: 'at_ms' of a line"),
        (edit(1, at_ms=True), "line 2: 'at_ms' of a line"),
        (edit(1, event=None), "line 2: 'event' of a line"),
        (edit(1, event=""), "cannot come after"),
        (edit(1, type="done", value=1), "line 2: 'done' of 'look' cannot come after 'nothing'"),
        (swap, "'answered' of 'restart' cannot come after 'nothing'"),
        (lambda records: records.insert(2, records[0]), "line 3: it is begun twice"),
        (
            lambda records: records.insert(
                1, {**records[0], "type": "ended", "status": "done", "state": "", "next": "", "details": []}
            ),
            "line 3: a line after the end",
        ),
        (
            lambda records: records.append(
                {**records[0], "type": "ended", "status": "well", "state": "", "next": "", "details": []}
            ),
            "ended with 'well', which this version does not know",
        ),
    ],
)
async def test_one_without_digests_is_held_against_what_a_procedure_writes(
    tmp_path: Path, change: Callable[[list[dict[str, Any]]], None], words: str
) -> None:
    records = [json.loads(line) for line in plain(await left(tmp_path)).splitlines()]
    change(records)
    raw = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    error = await refused(tmp_path, raw)
    assert words in error.message


async def test_values_that_no_longer_fit_are_one_line_and_no_traceback(tmp_path: Path) -> None:
    records = [json.loads(line) for line in plain(await left(tmp_path)).splitlines()]
    at = next(number for number, record in enumerate(records) if record["type"] == "gathered")
    del records[at]["value"]["boot"]
    (tmp_path / "p.jsonl").write_bytes(b"".join(json.dumps(record).encode() + b"\n" for record in records))
    host = FakeHost()
    with pytest.raises(IrisError, match="p holds what cannot be gone on from: KeyError") as caught:
        await drive(tmp_path, host, Person())
    assert not host.effects and "the version that wrote it" in caught.value.hint


async def test_every_line_that_a_procedure_writes_is_known(tmp_path: Path) -> None:
    source = (Path(grammar.__file__).parent / "engine.py").read_text()
    written = set(re.findall(r'_write\(\s*"(\w+)"', source)) | {"answered", "answered_again"}
    assert written == set(grammar._FIELDS)
    await left(tmp_path)
    grammar.check(tmp_path / "p.jsonl", read(tmp_path / "p.jsonl"))
