"""A segment is read back whole before what it was made of goes: every page, the order, the number of rows, and which they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from iris_controller.finelog.segments import SegmentDamaged, SegmentFile

if TYPE_CHECKING:
    from pathlib import Path


def verify(path: Path, rows: int, seqs: int) -> None:
    """Raises SegmentDamaged unless it can be read, is in the order of (key, seq), and has `rows` rows whose seqs add up to `seqs`."""
    opened = SegmentFile.open(path)
    try:
        key = opened.footer.key
        found_rows = found_seqs = 0
        last = None
        for batch in opened.batches():
            found_rows += batch.num_rows
            found_seqs += pc.sum(batch.column("seq")).as_py()
            pair = pa.table({"key": batch.column(key), "seq": batch.column("seq")})
            whole = pair if last is None else pa.concat_tables([last, pair]).combine_chunks()
            if not _is_in_order(whole["key"], whole["seq"]):
                raise SegmentDamaged(f"{path.name} is not in the order of its keys")
            last = pair.slice(batch.num_rows - 1)
        if (found_rows, found_seqs) != (rows, seqs):
            raise SegmentDamaged(f"{path.name} does not hold the {rows:,} rows that were written")
    finally:
        opened.close()


def _is_in_order(keys: Any, seqs: Any) -> bool:
    if len(keys) < 2:
        return True
    earlier, later = keys.slice(0, len(keys) - 1), keys.slice(1)
    rises = pc.greater(seqs.slice(1), seqs.slice(0, len(seqs) - 1))
    in_order = pc.or_(pc.greater(later, earlier), pc.and_(pc.equal(later, earlier), rises))
    return bool(pc.all(in_order, min_count=0).as_py())
