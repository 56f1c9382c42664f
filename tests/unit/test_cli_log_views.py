"""Following a log with context, from the views of a real log store: none is the last one, and what is lost meanwhile is said."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.finelog import query, views
from iris_controller.finelog.reader import Scan
from iris_controller.finelog.store import Store
from iris_controller.finelog.view_service import ViewService
from iris_controller.finelog.waiters import Waiters
from iris_core.cli import follow
from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.unit.cli_world import T0, World
from tests.unit.finelog_world import batch, put
from tests.unit.test_cli_log_losses import with_gaps

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

    from providers.fake.client import Call

KEY = "/u/j/0:0"


class Behind:
    """A log store that answers a client which has none, on a loop of its own."""

    def __init__(self, folder: Path) -> None:
        self.store = Store(folder)
        self._waiters = Waiters()
        self._pool = ThreadPoolExecutor(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self.views = self.run(self._made())

    async def _made(self) -> ViewService:
        return ViewService(self.store, self._waiters, self._pool, nullcontext)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def put(self, *made: logs_pb2.LogBatch) -> None:
        async def stored() -> None:
            self._waiters.notify(put(self.store, *made))

        self.run(stored())

    def serve(self, world: World) -> None:
        answer = world.client.answer
        answer("FetchLogs", lambda request: self.run(self._fetch(request)))
        answer(
            "OpenLogView", lambda request: self._asked(self.views.open_log_view, request, logs_pb2.OpenLogViewResponse)
        )
        answer("ReadLines", lambda request: self._asked(self.views.read_lines, request, logs_pb2.ReadLinesResponse))
        answer(
            "CloseLogView",
            lambda request: self._asked(self.views.close_log_view, request, logs_pb2.CloseLogViewResponse),
        )

    def _asked(self, method: Any, request: Any, kind: Any) -> Any:
        return kind.FromString(self.run(method(request.SerializeToString())))

    async def _fetch(self, request: logs_pb2.FetchLogsRequest) -> logs_pb2.FetchLogsResponse:
        scan = Scan(self.store, query.parse(request), max_bytes=1_000_000, max_seconds=60.0)
        while not scan.step(1.0):
            pass
        return scan.answer()

    def close(self) -> None:
        self.run(self.views.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._pool.shutdown()
        self.store.close()


@pytest.fixture
def behind(tmp_path: Path) -> Iterator[Behind]:
    made = Behind(tmp_path / "store")
    yield made
    made.close()


@pytest.fixture
def world(behind: Behind) -> World:
    world = World()
    world.job("/u/j", "running", num_tasks=1)
    world.task("/u/j/0", "running")
    behind.serve(world)
    return world


def writing(world: World, behind: Behind, *rounds: logs_pb2.LogBatch) -> None:
    """Each is written before one look at the job, the first before anything is read; after them it has ended."""
    left = list(rounds)

    def before(call: Call) -> None:
        if not call.method.endswith("GetJobStatus") or call.request.job_id != "/u/j":
            return
        if left:
            behind.put(left.pop(0))
        else:
            world.job("/u/j", "succeeded")
            world.task("/u/j/0", "succeeded", log_lines=0)

    world.client.before = before


def lines(first: int, count: int) -> logs_pb2.LogBatch:
    """Every third of them is a hit."""
    texts = [f"{'hit' if number % 3 == 0 else 'line'} {number}" for number in range(first, first + count)]
    return batch(texts, key=KEY, first=first, at_ms=T0 + first, incarnation=T0, attempt_uid="a")


@pytest.mark.parametrize("words", ["--no-tail --max-lines 2", "--no-tail", "--max-lines 2"])
@pytest.mark.parametrize("context", [0, 1])
def test_whoever_follows_reads_on_behind_a_view_that_is_full(
    world: World, behind: Behind, words: str, context: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(views, "MAX_CONTEXT_HITS", 4)
    behind.put(lines(0, 30))
    writing(world, behind, *(lines(number, 6) for number in range(30, 60, 6)))
    done = world.cli("job", "logs", "/u/j", "--substring", "hit", "-C", str(context), *words.split(), "-f")
    assert done.code == 0
    shown = [line for line in done.out.splitlines() if line != "--"]
    hits = [int(line.rpartition(" ")[2]) for line in shown if "| hit" in line]
    assert hits == list(range(0 if "no-tail" in words else 30, 60, 3))
    numbers = [int(line.rpartition(" ")[2]) for line in shown]
    assert numbers == sorted(set(numbers))
    if context:
        assert numbers == list(range(max(hits[0] - 1, 0), 59))
    assert "may be missing" not in done.err and "no more of its lines" not in done.err
    assert ("asked for" in done.err) == (words == "--max-lines 2"), done.err


def test_a_view_that_begins_with_lines_that_were_shown_is_read_to_its_end(
    world: World, behind: Behind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The context before its first hits can be more than a page."""
    monkeypatch.setattr(views, "MAX_CONTEXT_HITS", 20)
    monkeypatch.setattr(follow, "ROUND_LINES", 4)
    for task in range(2):
        texts = [f"hit {number}" for number in range(100)]
        behind.put(
            batch(
                texts,
                key=f"/u/j/{task}:0",
                producer=f"p{task}",
                at_ms=T0 + task,
                incarnation=T0,
                attempt_uid=f"a{task}",
            )
        )
    writing(world, behind)
    done = world.cli("job", "logs", "/u/j", "--substring", "hit", "-C", "5", "--no-tail", "-f")
    assert (done.code, done.out.count("hit ")) == (0, 200), done.err


def test_a_store_that_gets_its_first_lines_meanwhile_is_followed(world: World, behind: Behind) -> None:
    """The question for what is there was answered with nothing, the one for the lines finds some that are held."""
    first = [True]

    def before(call: Call) -> None:
        if call.method.endswith("ReadLines") and world.client.called("FetchLogs") and first:
            first.clear()
            behind.put(lines(0, 6))
        elif call.method.endswith("GetJobStatus") and not first:
            world.job("/u/j", "succeeded")
            world.task("/u/j/0", "succeeded", log_lines=0)

    world.client.before = before
    done = world.cli("job", "logs", "/u/j", "--substring", "hit", "-C", "1", "-f")
    assert done.code == 0 and done.out.count("| hit") == 2, done.err


def test_what_is_lost_while_a_log_is_followed_with_context_is_said_once(world: World, behind: Behind) -> None:
    batches = list(with_gaps(KEY, range(4)))
    behind.put(batches[0])
    writing(world, behind, *batches[1:])
    done = world.cli("job", "logs", "/u/j", "--substring", "line", "-C", "1", "-f")
    assert (done.code, done.out.count("| line")) == (0, 36)
    said = [line for line in done.err.splitlines() if "in between" in line]
    assert said[0].startswith("18 lines are shown (4 lines in between were lost")
    sums = [f"{lines} lines in between were lost before they were stored" for lines in (2, 4)]
    assert [line.rpartition(": ")[2] for line in said[1:]] == sums, done.err
