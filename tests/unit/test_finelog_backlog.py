"""However many segments wait to be merged, the memory for it is bounded, and every row comes out."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from iris_controller.finelog.catalog import LOG
from iris_controller.finelog.loglines import LAYOUT, SCHEMA
from iris_controller.finelog.segment_writer import write_segment
from iris_controller.finelog.segments import GROUP_ROWS
from iris_controller.finelog.store import Store
from iris_controller.finelog.upkeep import Upkeep

SOAK = os.environ.get("IRIS_SOAK") == "1"
ROOT = Path(__file__).parents[2]
SEGMENTS = 1000 if SOAK else 40
KEYS = 200
MAX_RSS = 1 << 30


def rows(number: int) -> pa.Table:
    """Lines of every key with texts that hardly get smaller; two row groups and a bit at full size."""
    chance = random.Random(number)
    count = 2 * GROUP_ROWS + 100 if SOAK else 3000
    first = number * count + 1
    text = chance.randbytes(65 * count).hex()
    columns = {
        "seq": range(first, first + count),
        "key": [f"/u/j/{place % KEYS}:0" for place in range(count)],
        "producer": [f"p{place % KEYS}" for place in range(count)],
        "number": range(first, first + count),
        "epoch_ms": range(first, first + count),
        "source": ["stdout"] * count,
        "data": [text[place * 130 : place * 130 + 130] for place in range(count)],
        "raw": [None] * count,
        "level": [2] * count,
        "attempt_uid": [f"p{place % KEYS}" for place in range(count)],
        "incarnation": [1] * count,
        "partial": [False] * count,
        "gap": [0] * count,
        "part": [0] * count,
        "seam": [None] * count,
        "back": [None] * count,
        "unended": [None] * count,
    }
    return pa.table([pa.array(columns[column.name], column.type) for column in SCHEMA], schema=SCHEMA)


def work(folder: str) -> None:
    """Merges all there is to merge, in a process of its own, and says what that took."""
    sampled = [0]
    done = threading.Event()

    def sample() -> None:
        process = psutil.Process()
        while not done.wait(0.05):
            sampled[0] = max(sampled[0], process.memory_info().rss)

    thread = threading.Thread(target=sample)
    thread.start()
    store = Store(Path(folder))
    Upkeep(store).tend()
    done.set()
    thread.join()
    told = {
        "sampled": sampled[0],
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "levels": [segment.level for segment in store.catalog.segments(LOG)],
        "rows": sum(segment.rows for segment in store.catalog.segments(LOG)),
    }
    store.close()
    print(json.dumps(told))


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_a_backlog_of_segments_is_merged_within_bounded_memory(tmp_path: Path) -> None:
    store = Store(tmp_path)
    folder = store.catalog.make_folder(LOG)
    table = rows(0)
    shift = table.num_rows
    for number in range(SEGMENTS):
        # The same texts again: what they say does not matter here.
        seqs = pa.array(range(number * shift + 1, (number + 1) * shift + 1), pa.int64())
        segment = write_segment(
            folder, LAYOUT, table.set_column(0, SCHEMA.field(0), seqs), covers=(seqs[0].as_py(), seqs[-1].as_py())
        )
        store.catalog.commit(LOG, add=[segment])
    store.close()
    script = f"from tests.unit.test_finelog_backlog import work; work({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == SEGMENTS * shift
    assert len(told["levels"]) < SEGMENTS / 4
    assert max(told["levels"]) == (2 if SOAK else 1)
    assert told["peak"] < MAX_RSS and told["sampled"] < MAX_RSS, told
