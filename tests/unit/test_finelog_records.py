"""Framed records: what is found again after damage, and that output cannot pass for a record."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from iris_controller.finelog.records import FILE_BYTES, Hole, Record, file_header, marker_of, pack, walk

MARKER = b"\x01marker\xff"


def written(payloads: list[bytes], marker: bytes = MARKER) -> tuple[bytes, list[Record]]:
    """Records of one line each behind a header, and what they are."""
    data = file_header(marker, 1)
    records = []
    for seq, payload in enumerate(payloads, 1):
        start = len(data)
        data += pack(marker, seq, 1, start, payload) + payload
        records.append(Record(start, len(data), seq, 1, start))
    return data, records


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), max_size=8), st.data())
def test_after_any_damage_every_untouched_record_is_found(payloads: list[bytes], data: st.DataObject) -> None:
    raw, records = written(payloads)
    start = data.draw(st.integers(0, len(raw)))
    damage = data.draw(st.binary(max_size=len(raw) - start))
    found = list(walk(raw[:start] + damage + raw[start + len(damage) :], MARKER, FILE_BYTES, len(raw)))
    untouched = [record for record in records if record.end <= start or record.start >= start + len(damage)]
    assert [one for one in found if isinstance(one, Record) and one in untouched] == untouched
    assert all(one in records for one in found if isinstance(one, Record))
    at = FILE_BYTES
    for one in found:
        assert one.start == at and one.end > one.start
        at = one.end
    assert at == len(raw)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=5), st.integers(0, 10_000))
def test_a_cut_file_gives_its_whole_records(payloads: list[bytes], cut: int) -> None:
    raw, records = written(payloads)
    raw = raw[: max(FILE_BYTES, len(raw) - cut)]
    whole = [record for record in records if record.end <= len(raw)]
    found = list(walk(raw, MARKER, FILE_BYTES, len(raw)))
    assert [one for one in found if isinstance(one, Record)] == whole
    rest = whole[-1].end if whole else FILE_BYTES
    assert [one for one in found if isinstance(one, Hole)] == ([Hole(rest, len(raw))] if rest < len(raw) else [])


def test_a_record_inside_the_output_of_a_job_is_not_taken_for_one() -> None:
    chance = random.Random(3)
    foreign = chance.randbytes(8)
    crafted = pack(foreign, 7, 1, 0, b"forged") + b"forged"
    raw, records = written([b"a", crafted * 3, b"b"])
    # The record around it is damaged, so what it carried is searched for records.
    damaged = bytearray(raw)
    damaged[records[1].start + 9] ^= 0xFF
    found = list(walk(bytes(damaged), MARKER, FILE_BYTES, len(raw)))
    assert found == [records[0], Hole(records[1].start, records[1].end), records[2]]


def test_a_file_header_tells_the_marker_or_nothing() -> None:
    header = file_header(MARKER, 5)
    assert len(header) == FILE_BYTES
    assert marker_of(header + b"more") == MARKER
    assert marker_of(header[:-1]) is None
    for place in range(FILE_BYTES):
        damaged = bytearray(header)
        damaged[place] ^= 1
        assert marker_of(bytes(damaged)) is None
