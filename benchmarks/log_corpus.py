"""A store with 8 million lines (1 GB) of 500 logs, made from a seed, and the same lines as one zstd file: what T1 to T3 search.

The store is filled through its own write path, turned into segments and merged, once per run of the benchmarks. `BENCH_SCALE` shrinks
it: 0.1 is a tenth of the lines. Knows nothing of reports.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measure import Sample, process
from benchmarks.yardsticks import Unavailable
from iris_controller.finelog import batches
from iris_controller.finelog.query import parse
from iris_controller.finelog.reader import Scan
from iris_controller.finelog.store import FILE_LIMIT, Store
from iris_controller.finelog.trigrams import FilterFiles
from iris_controller.finelog.upkeep import Upkeep
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from iris_controller.finelog.segment import Segment
    from iris_controller.finelog.trigrams import Needles

SEED = 4
LINES = 8_000_000
KEYS = 500
PER_BATCH = 400
PER_COMMIT = 12
START_MS = 1_700_000_000_000

RARE = "Xid 79: GPU has fallen off the bus, serial 1562220934017"
"""Stands in one line of all."""
ABSENT = "Xid 48: double bit ECC error on serial 1562220934017"

_WORDS = re.findall(
    r"[a-z]+",
    """
    gradient checkpoint restored saved shard worker process barrier timeout collective reduce gather scatter device memory buffer
    allocated released queue dataset tokenizer sequence length batch epoch evaluation metric accuracy perplexity learning rate
    schedule warmup decay optimizer momentum state partition replica host slice topology mesh axis compile cache miss hit kernel
    launch stream event profile trace upload download object bucket retry backoff connection refused reset closed heartbeat
    lease renewed expired leader follower election config loaded override default environment variable path directory file
    open read write flush sync compact merge segment index scan filter query result rows columns schema version migration
""",
)


def scale() -> float:
    """What share of the full size is wanted."""
    return float(os.environ.get("BENCH_SCALE", "1"))


def texts(r: random.Random, step: int, count: int) -> list[str]:
    """`count` lines of one log from `step` on: metrics, messages, requests, warnings."""
    made = []
    for number in range(step, step + count):
        kind = number % 20
        if kind < 9:
            made.append(
                f"I1129 17:{number // 60 % 60:02d}:{number % 60:02d}.{number % 997:03d} train.py:412] step={number} "
                f"loss={r.random() * 9:.6f} grad_norm={r.random():.4f} lr={r.random() / 1000:.3e} "
                f"tokens_per_second={r.randrange(10**6)} mfu={r.random():.3f}"
            )
        elif kind < 16:
            made.append(
                f"I1129 17:{number // 60 % 60:02d}:{number % 60:02d}.{number % 997:03d} runtime.cc:{number % 2000}] "
                f"{' '.join(r.choices(_WORDS, k=10))} id={r.getrandbits(48):012x}"
            )
        elif kind < 19:
            made.append(
                f"GET /v1/shards/{r.randrange(5000)}/{r.choice(_WORDS)} 200 {r.randrange(90_000)}us "
                f"from 10.{number % 200}.{r.randrange(256)}.{r.randrange(256)} agent={' '.join(r.choices(_WORDS, k=7))}"
            )
        else:
            slow = "took" if r.random() > 0.02 else "timed out after"
            made.append(
                f"WARNING slow {r.choice(_WORDS)} of rank {number % 64} {slow} {r.random() * 100:.2f} s "
                f"on host-{r.randrange(3000)}: {' '.join(r.choices(_WORDS, k=8))}"
            )
    return made


@dataclass(slots=True)
class Corpus:
    """`plain` is all of it as one zstd file."""

    store: Store
    plain: Path
    lines: int
    bytes: int

    def search(self, pattern: str, *, is_indexed: bool = True) -> tuple[Sample, int]:
        """Every line that matches, page by page, as FetchLogs answers but for its two seconds; and how many there are."""
        index = self.store.filters
        self.store.filters = index if is_indexed else _NoIndex(self.store.folder)
        wall, cpu = time.perf_counter(), time.process_time()
        cursor = found = 0
        try:
            while cursor < self.store.last_seq:
                answer = self._page(pattern, cursor)
                cursor = answer.cursor
                found += answer.shown
        finally:
            self.store.filters = index
        return Sample(time.perf_counter() - wall, time.process_time() - cpu), found

    def _page(self, pattern: str, cursor: int) -> logs_pb2.FetchLogsResponse:
        query = parse(
            logs_pb2.FetchLogsRequest(
                source="/bench",
                match_scope=common_pb2.MATCH_SCOPE_PREFIX,
                regex=pattern,
                max_lines=100_000,
                cursor=cursor,
            )
        )
        scan = Scan(self.store, query, max_seconds=600)
        while not scan.step(0.1):
            pass
        return scan.answer()

    def pipe(self, pattern: str, ripgrep: Path, found: int) -> Sample:
        """The same by `zstdcat` and `rg`, which must count as many. Raises RuntimeError: it does not."""
        script = 'test "$(zstdcat "$0" | "$1" -c -e "$2")" = "$3"'
        return process(["sh", "-c", script, self.plain, ripgrep, pattern, str(found)])


class _NoIndex(FilterFiles):
    """For searching as if there were no index."""

    def groups(self, segment: Segment, path: Path, needles: Needles | None) -> None:
        """Any row group may match."""


@cache
def corpus() -> Corpus:
    """Made at the first call, gone at the end of the process. Raises Unavailable: there is no zstd here."""
    if not (shutil.which("zstd") and shutil.which("zstdcat")):
        raise Unavailable("zstd is not installed")
    folder = tempfile.TemporaryDirectory(prefix="finelog-bench")
    _KEEP.append(folder)
    return _made(Path(folder.name), int(LINES * scale()))


_KEEP: list[tempfile.TemporaryDirectory[str]] = []
"""Removed when the process ends."""


def _made(folder: Path, lines: int) -> Corpus:
    print(f"      making {lines:,} lines of {KEYS} logs", flush=True)
    # As many files, and so segments, at every scale.
    store = Store(folder / "store", file_limit=max(1 << 20, int(FILE_LIMIT * lines / LINES)))
    upkeep = Upkeep(store)
    plain = folder / "lines.zst"
    size = 0
    with subprocess.Popen(["zstd", "-q", "-3", "-o", plain], stdin=subprocess.PIPE) as packer:
        assert packer.stdin is not None
        group: list[batches.Batch] = []
        for made in _batches(lines):
            text = "".join(f"{entry.data}\n" for entry in made.entries).encode()
            size += len(text)
            packer.stdin.write(text)
            group.append(batches.check(made, START_MS))
            if len(group) == PER_COMMIT:
                store.commit(group, START_MS)
                group = []
                while len(store.files) > 4:
                    store.sealed.wait(1)
                    upkeep.convert()
        store.commit(group, START_MS)
    while len(store.files) > 1:
        store.sealed.wait(1)
        upkeep.tend()
    upkeep.tend()
    if packer.returncode:
        raise RuntimeError(f"zstd ended with {packer.returncode}")
    return Corpus(store, plain, lines, size)


def _batches(lines: int) -> Iterator[logs_pb2.LogBatch]:
    r = random.Random(SEED)
    steps = dict.fromkeys(range(KEYS), 0)
    done = 0
    while done < lines:
        task = r.randrange(KEYS)
        count = min(PER_BATCH, lines - done)
        step = steps[task]
        made = logs_pb2.LogBatch(
            producer=f"p{task}", key=f"/bench/job-{task // 50}/{task % 50}:0", attempt_uid=f"p{task}", incarnation=1
        )
        for place, text in enumerate(texts(r, step, count)):
            made.entries.add(
                number=step + place,
                epoch_ms=START_MS + (done + place) // 20,
                source="stderr",
                data=text,
                level=3 if text.startswith("W") else 2,
            )
        if done <= lines // 3 < done + count:
            made.entries[count // 2].data = f"{made.entries[count // 2].data} {RARE}"
        steps[task] = step + count
        done += count
        yield made
