"""The rows of a window that are kept while it is read: none is passed over that belongs to the answer."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.finelog.loglines import SCHEMA
from iris_controller.finelog.picked import SHOWN, Best

FILLED = {"key": "/u/j/0:0", "producer": "p", "source": "stdout", "attempt_uid": "p"}


def rows(seqs: list[int], size: int) -> pa.RecordBatch:
    columns = []
    for name in SHOWN:
        kind = SCHEMA.field(name).type
        if name == "seq":
            column = pa.array(seqs, kind)
        elif name == "data":
            column = pa.array(["x" * size] * len(seqs), kind)
        elif pa.types.is_string(kind):
            column = pa.array([FILLED.get(name)] * len(seqs), kind)
        else:
            nothing = False if pa.types.is_boolean(kind) else 0
            column = pa.array([None if SCHEMA.field(name).nullable else nothing] * len(seqs), kind)
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=list(SHOWN))


@given(
    seqs=st.permutations(range(1, 31)),
    step=st.integers(1, 8),
    wanted=st.integers(1, 15),
    newest=st.booleans(),
    size=st.sampled_from([1, 40]),
)
def test_what_lies_outside_of_the_bounds_is_never_among_the_best(
    seqs: list[int], step: int, wanted: int, newest: bool, size: int
) -> None:
    """Row groups overlap in seq, as the keys of a segment do."""
    best = Best(wanted, newest, max_bytes=1 << 20)
    for start in range(0, len(seqs), step):
        low, high = best.bounds(1, 100)
        inside = [seq for seq in seqs[start : start + step] if low <= seq < high]
        if inside:
            best.add(rows(inside, size))
    expected = sorted(seqs)[-wanted:] if newest else sorted(seqs)[:wanted]
    kept = [line.seq for line in best.lines()]
    # More than were asked for may be there; those that were asked for are.
    assert (kept[-wanted:] if newest else kept[:wanted]) == expected
    assert kept == sorted(kept)
