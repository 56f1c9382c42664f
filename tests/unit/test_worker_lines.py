"""Line splitting against an oracle that sees the whole stream at once (field case C24, targets S9)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.worker.batches import Line, entries
from iris_controller.worker.lines import PART_BYTES, LineSplitter, Parts, Piece, as_line, own_line
from iris_core.wire.gen.iris.v1 import logs_pb2


def split(chunks: list[bytes]) -> list[Piece]:
    splitter = LineSplitter()
    out = [piece for chunk in chunks for piece in splitter.feed(chunk)]
    return out + splitter.finish()


def joined(pieces: list[Piece]) -> list[bytes]:
    """Lines with their parts put together."""
    lines: list[bytes] = []
    open_line = b""
    for piece in pieces:
        open_line += piece.data
        if not piece.partial:
            lines.append(open_line)
            open_line = b""
    assert open_line == b"", "a part was never closed"
    return lines


def oracle(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines if lines[-1] else lines[:-1]


chunked = st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\r", b"")), max_size=12)


@given(chunked)
def test_lines_do_not_depend_on_how_the_pipe_cuts_them(chunks: list[bytes]) -> None:
    assert joined(split(chunks)) == oracle(b"".join(chunks))


@given(chunked, st.lists(st.booleans(), min_size=12, max_size=12))
def test_flushing_in_between_changes_only_the_parts(chunks: list[bytes], flushes: list[bool]) -> None:
    splitter = LineSplitter()
    out: list[Piece] = []
    for chunk, flush in zip(chunks, flushes, strict=False):
        out += splitter.feed(chunk)
        out += splitter.flush() if flush else []
    out += splitter.finish()
    assert joined(out) == oracle(b"".join(chunks[: len(flushes)]))


@given(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), max_size=60), st.integers(1, 5))
def test_a_flush_never_splits_a_character(text: str, size: int) -> None:
    splitter = LineSplitter()
    data = text.encode()
    out: list[Piece] = []
    for at in range(0, len(data), size):
        out += splitter.feed(data[at : at + size])
        out += splitter.flush()
    out += splitter.finish()
    assert "".join(as_line("stdout", piece).data for piece in out) == text
    assert not any(as_line("stdout", piece).raw for piece in out)


@given(chunked, st.lists(st.booleans(), min_size=12, max_size=12))
def test_only_the_last_line_of_a_stream_can_have_no_line_end(chunks: list[bytes], flushes: list[bool]) -> None:
    splitter = LineSplitter()
    out: list[Piece] = []
    for chunk, flush in zip(chunks, flushes, strict=False):
        out += splitter.feed(chunk)
        out += splitter.flush() if flush else []
    out += splitter.finish()
    assert b"".join(piece.data + b"\n" * (not piece.partial and not piece.unended) for piece in out) == b"".join(chunks)
    assert not any(piece.unended for piece in out[:-1])


def test_parts_tell_how_far_back_their_line_begins_whatever_other_streams_write() -> None:
    out, err = Parts("stdout"), Parts("stderr")
    lines = out.lines([Piece(b"a", True)], 7) + err.lines([Piece(b"x", False), Piece(b"y", False)], 8)
    lines += out.lines([Piece(b"b", True), Piece(b"c", False), Piece(b"d", False, unended=True)], 10)
    assert [(line.data, line.part, line.back) for line in lines] == [
        ("a", 0, 0), ("x", 0, 0), ("y", 0, 0), ("b", 1, 3), ("c", 2, 4), ("d", 0, 0),
    ]  # fmt: skip
    stored = logs_pb2.LogBatch.FromString(entries(lines, 7, 1)).entries
    assert [entry.number - (entry.back or entry.part) for entry in stored] == [7, 8, 9, 7, 7, 12]
    assert [entry.unended for entry in stored] == [False] * 5 + [True]


def test_a_long_line_comes_in_parts_and_memory_stays_bounded() -> None:
    splitter = LineSplitter()
    pieces: list[Piece] = []
    line = b"x" * (3 * PART_BYTES + 5)
    for at in range(0, len(line), 65536):
        pieces += splitter.feed(line[at : at + 65536])
        assert len(splitter._buffer) < PART_BYTES
    pieces += splitter.feed(b"\nnext\n")
    assert [len(piece.data) for piece in pieces] == [PART_BYTES] * 3 + [5, 4]
    assert [piece.partial for piece in pieces] == [True, True, True, False, False]


def test_parts_of_a_long_line_end_at_whole_characters() -> None:
    text = "é" * PART_BYTES
    pieces = split([b"a", text.encode(), b"\n"])
    assert len(pieces) > 2
    lines = [as_line("stdout", piece) for piece in pieces]
    assert "".join(line.data for line in lines) == "a" + text
    assert not any(line.raw for line in lines)


def test_a_progress_bar_keeps_one_frame_a_flush_and_the_last_one() -> None:
    splitter = LineSplitter()
    out: list[Piece] = []
    for step in range(100):
        out += splitter.feed(b"\r%3d%%|" % step + b"#" * step)
        if step % 10 == 9:
            out += splitter.flush()
    out += splitter.feed(b"\r" + b"z" * 200 + b"\rdone\n")
    shown = [piece.data for piece in out]
    assert not any(piece.partial for piece in out)
    assert len(shown) == 11
    assert shown[0].startswith(b"  8%") and shown[9].startswith(b" 98%") and shown[-1] == b"done"


def test_two_million_frames_take_no_memory_and_leave_the_last() -> None:
    splitter = LineSplitter()
    out: list[Piece] = []
    frames = b"".join(b"\r%d " % step + b"x" * 80 for step in range(2000))
    for _ in range(1000):
        out += splitter.feed(frames)
        assert len(splitter._buffer) < PART_BYTES
    assert out == []
    assert [piece.data for piece in splitter.finish()] == [b"1999 " + b"x" * 80]


def test_a_bar_that_stands_still_is_shown_once() -> None:
    splitter = LineSplitter()
    splitter.feed(b"\r10%\r20%")
    assert splitter.flush() == [Piece(b"10%", False)]
    assert splitter.flush() == [Piece(b"20%", False)]
    assert not splitter.pending and splitter.flush() == []
    assert splitter.feed(b"\rend\n") == [Piece(b"end", False)]


def test_a_short_line_with_carriage_returns_stays_as_it_is() -> None:
    assert split([b"one\rtwo\n"]) == [Piece(b"one\rtwo", False)]


def test_a_prompt_that_turns_into_a_bar_is_closed() -> None:
    splitter = LineSplitter()
    splitter.feed(b"working")
    out = splitter.flush() + splitter.feed(b"\r50%\r100%\n")
    assert joined(out) == [b"working", b"100%"]


def test_windows_line_ends_are_dropped_from_the_text_and_kept_in_raw() -> None:
    line = as_line("stdout", split([b"text\r\n"])[0])
    assert (line.data, line.raw) == ("text", b"text\r")
    splitter = LineSplitter()
    splitter.feed(b"late\r")
    assert joined(splitter.flush() + splitter.feed(b"\nnext\r\n")) == [b"late", b"next\r"]


def test_bytes_that_are_not_utf8_are_replaced_and_kept() -> None:
    line = as_line("stderr", Piece(b"a\xff\0b", False))
    assert (line.data, line.raw, line.source) == ("a�\0b", b"a\xff\0b", "stderr")


def test_a_level_is_read_from_the_text() -> None:
    assert as_line("stdout", Piece(b"ERROR: it broke", False)).level == 4


@given(st.lists(st.sampled_from([b"a", b"\r", b"\n", b"bc", b"\r\n", b"\r\r"]), max_size=60), st.integers(1, 9))
def test_the_last_frame_of_every_line_is_kept_in_order(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    pieces = split([data[at : at + size] for at in range(0, len(data), size)])
    shown = iter([piece.data.rstrip(b"\r").rpartition(b"\r")[2] for piece in pieces])
    for line in oracle(data):
        last = line.rstrip(b"\r").rpartition(b"\r")[2]
        assert any(text == last for text in shown)


@pytest.mark.parametrize("byte", [b"\xff", b"\xe2\x82", b"\x00", "€".encode(), b"ab\xc0"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_no_part_has_more_bytes_or_text_than_the_store_takes(byte: bytes, end: bytes) -> None:
    data = byte * (2 * PART_BYTES // len(byte) + 7) + end
    splitter, parts = LineSplitter(), Parts("stdout")
    lines: list[Line] = []
    for at in range(0, len(data), 64 << 10):
        lines += parts.lines(splitter.feed(data[at : at + (64 << 10)]), len(lines))
    lines += parts.lines(splitter.finish(), len(lines))
    assert max(max(len(line.data.encode()), len(line.raw)) for line in lines) <= PART_BYTES
    assert b"".join(line.raw or line.data.encode() for line in lines) + b"\n" * (not lines[-1].unended) == data
    assert [line.part for line in lines] == list(range(len(lines)))
    assert [line.partial for line in lines] == [True] * (len(lines) - 1) + [False]


def test_a_line_of_ours_can_be_stored_whatever_it_quotes() -> None:
    odd = own_line("iris", "cannot read \udcff.txt", 4)
    assert (odd.data, odd.level) == ("cannot read ?.txt", 4)
    long = own_line("iris", "€" * PART_BYTES)
    assert len(long.data.encode()) <= PART_BYTES
    assert long.data.endswith("… (524,388 bytes more)")
    assert logs_pb2.LogBatch.FromString(entries([odd, long], 0, 5)).entries[1].data == long.data
