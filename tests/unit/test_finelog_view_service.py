"""The RPCs of log views: refused when they make no sense, followed as lines come, bounded together, forgotten when idle."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from iris_controller.finelog import service as finelog_service
from iris_controller.finelog import view_service, views
from iris_controller.finelog.service import LogService
from iris_controller.finelog.store import Store
from iris_controller.finelog.upkeep import Upkeep
from iris_controller.finelog.view_service import IDLE_S, ViewService
from iris_controller.finelog.waiters import Waiters
from iris_controller.rpc.errors import RpcError
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import logs_pb2
from tests.unit.finelog_world import EXACT, NOW_MS, PREFIX, batch, numbered, put

T = TypeVar("T")
DEADLINE = 60.0


class Served:
    """View RPCs over a store, with a clock that is set by hand."""

    def __init__(self, folder: Path) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.store = Store(folder)
        self.waiters = Waiters()
        self.pool = ThreadPoolExecutor(2)
        self.now = 1000.0
        self.service = ViewService(self.store, self.waiters, self.pool, nullcontext, clock=lambda: self.now)

    def put(self, *made: logs_pb2.LogBatch) -> None:
        self.waiters.notify(put(self.store, *made))

    async def open(self, source: str, *, context: int | None = None, **fields: Any) -> logs_pb2.OpenLogViewResponse:
        fields.setdefault("match_scope", EXACT)
        request = logs_pb2.OpenLogViewRequest(query=logs_pb2.FetchLogsRequest(source=source, **fields), context=context)
        return logs_pb2.OpenLogViewResponse.FromString(await self.service.open_log_view(request.SerializeToString()))

    async def read(self, view_id: str, first: int = 0, count: int = 0) -> logs_pb2.ReadLinesResponse:
        request = logs_pb2.ReadLinesRequest(view_id=view_id, first=first, count=count)
        return logs_pb2.ReadLinesResponse.FromString(await self.service.read_lines(request.SerializeToString()))

    async def find(self, view_id: str, **fields: Any) -> logs_pb2.FindNextResponse:
        request = logs_pb2.FindNextRequest(view_id=view_id, **fields)
        return logs_pb2.FindNextResponse.FromString(await self.service.find_next(request.SerializeToString()))

    async def tail(self, view_id: str, first: int) -> AsyncIterator[logs_pb2.TailResponse]:
        request = logs_pb2.TailRequest(view_id=view_id, first=first)
        async with aclosing(cast("Any", self.service.tail(request.SerializeToString()))) as answers:
            async for answer in answers:
                yield logs_pb2.TailResponse.FromString(answer)

    async def close(self) -> None:
        self.waiters.close()
        await self.service.close()
        self.pool.shutdown()
        self.store.close()


def served(folder: Path, body: Callable[[Served], Awaitable[T]]) -> T:
    """Runs `body` on a loop of its own."""

    async def run() -> T:
        async with asyncio.timeout(DEADLINE):
            made = Served(folder)
            try:
                return await body(made)
            finally:
                await made.close()

    return asyncio.run(run())


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("open_log_view", {"query": {"source": "/u/j", "match_scope": EXACT, "max_lines": -1}}, "max_lines -1 is negative"),
    ("open_log_view", {"query": {"source": "/u/j", "match_scope": EXACT}, "context": -1}, "the context is 0 to 1,000"),
    (
        "open_log_view",
        {"query": {"source": "/u/j", "match_scope": EXACT}, "context": 5000},
        "the context is 0 to 1,000",
    ),
    ("open_log_view", {"query": {"source": "", "match_scope": PREFIX}}, "an empty prefix would read every log"),
    ("open_log_view", {"query": {"source": "/u/j"}}, "the match scope is not given"),
    (
        "open_log_view",
        {"query": {"source": "/u/j", "match_scope": EXACT}, "also": [{"source": "/u/j", "match_scope": EXACT}] * 64},
        "a view has at most 64 logs, not 65",
    ),
    ("read_lines", {"view_id": "x", "first": -1}, "lines are numbered from 0"),
    ("read_lines", {"view_id": "x", "count": 1_000_000}, "a page has 1 to 20,000 lines"),
    ("read_lines", {"view_id": "x", "count": -5}, "a page has 1 to 20,000 lines"),
    ("read_lines", {"view_id": "nobody's"}, "there is no such log view"),
    ("find_next", {"view_id": "x"}, "there is nothing to look for"),
    ("find_next", {"view_id": "x", "substring": "y" * 5000}, "it has 5000 characters, more than 4096"),
]


@pytest.mark.parametrize(("name", "fields", "message"), BAD)
def test_a_request_that_makes_no_sense_is_refused_with_the_reason(
    tmp_path: Path, name: str, fields: dict[str, Any], message: str
) -> None:
    kinds = {"open_log_view": logs_pb2.OpenLogViewRequest, "read_lines": logs_pb2.ReadLinesRequest}
    kind: Any = kinds.get(name, logs_pb2.FindNextRequest)

    async def body(made: Served) -> None:
        with pytest.raises(RpcError, match=message):
            await getattr(made.service, name)(kind(**fields).SerializeToString())
        with pytest.raises(RpcError, match="this is no"):
            await getattr(made.service, name)(b"\xff\xff\xff")

    served(tmp_path, body)


def test_a_pattern_is_refused_with_its_place(tmp_path: Path) -> None:
    async def body(made: Served) -> None:
        with pytest.raises(ModelError, match="missing ]"):
            await made.open("/u/j/0:0", regex="train/[loss")
        opened = await made.open("/u/j/0:0")
        with pytest.raises(ModelError) as caught:
            await made.find(opened.view_id, regex="a(b")
        assert caught.value.position == 1

    served(tmp_path, body)


def test_a_view_is_read_by_number_and_closed(tmp_path: Path) -> None:
    async def body(made: Served) -> None:
        made.put(numbered(600))
        opened = await made.open("/u/j/0:0")
        assert (opened.state.lines, opened.state.hits, opened.state.complete) == (600, 600, True)
        page = await made.read(opened.view_id, 590)
        assert [line.line.data for line in page.lines] == [f"line {number}" for number in range(590, 600)]
        assert len((await made.read(opened.view_id)).lines) == 256
        assert not (await made.read(opened.view_id, 10**9)).lines
        hit = await made.find(opened.view_id, substring="99", from_line=100)
        assert (hit.found, hit.number, hit.ordinal, hit.total, hit.complete) == (True, 199, 2, 6, True)
        back = await made.find(opened.view_id, substring="99", from_line=100, backward=True)
        assert (back.number, back.ordinal) == (99, 1)
        assert not (await made.find(opened.view_id, regex="^$")).found
        await made.service.close_log_view(logs_pb2.CloseLogViewRequest(view_id=opened.view_id).SerializeToString())
        with pytest.raises(RpcError) as caught:
            await made.read(opened.view_id)
        assert caught.value.code == "view_gone"

    served(tmp_path, body)


def test_a_view_is_followed_over_several_tasks(tmp_path: Path) -> None:
    async def body(made: Served) -> None:
        made.put(numbered(5, key="/u/j/0:0", producer="p0"))
        opened = await made.open("/u/j", match_scope=PREFIX)
        found: list[logs_pb2.ViewLine] = []
        numbers = [5, 0]
        sent = 5
        async for answer in made.tail(opened.view_id, 3):
            found += answer.lines
            if len(found) == 2 + 8:
                break
            if sent < 13:
                rank = sent % 2
                made.put(
                    batch(
                        [f"new {sent}"],
                        first=numbers[rank],
                        key=f"/u/j/{rank}:0",
                        producer=f"p{rank}",
                        at_ms=NOW_MS + sent,
                    )
                )
                numbers[rank] += 1
                sent += 1
            made.now += 1.0
        assert [line.number for line in found] == list(range(3, 13))
        assert [line.line.data for line in found[2:]] == [f"new {number}" for number in range(5, 13)]
        assert (await made.read(opened.view_id, 0, 13)).lines[3:] == found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(view_service, "ROUND_S", 0.0)
        patch.setattr(view_service, "BEAT_S", 0.0)
        served(tmp_path, body)


def test_following_ends_with_a_view_that_takes_no_more(tmp_path: Path) -> None:
    async def body(made: Served) -> None:
        made.put(numbered(9))
        opened = await made.open("/u/j/0:0", max_lines=4)
        answers = [answer async for answer in made.tail(opened.view_id, 0)]
        assert sum(len(answer.lines) for answer in answers) == 4
        assert "4 lines were asked for" in answers[-1].state.capped_reason
        ended = await made.open("/u/j/0:0", before=6)
        assert sum([len(answer.lines) async for answer in made.tail(ended.view_id, 0)]) == 5

    served(tmp_path, body)


def test_an_export_goes_on_where_it_broke_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_service, "PAGE_LINES", 100)

    async def body(made: Served) -> None:
        made.put(numbered(450))
        opened = await made.open("/u/j/0:0")
        data, at = b"", 0
        for _ in range(10):
            request = logs_pb2.ExportLogsRequest(view_id=opened.view_id, first=at)
            stream = made.service.export_logs(request.SerializeToString())
            answer = logs_pb2.ExportLogsResponse.FromString(await anext(stream))
            await stream.aclose()  # type: ignore[attr-defined]
            data, at = data + answer.data, answer.next_line
            if answer.done:
                break
        assert data == "".join(f"line {number}\n" for number in range(450)).encode()

    served(tmp_path, body)


def test_idle_views_are_forgotten_and_those_in_use_are_not(tmp_path: Path) -> None:
    async def body(made: Served) -> None:
        made.put(numbered(3))
        idle, used = await made.open("/u/j/0:0"), await made.open("/u/j/0:0")
        stream = made.tail(used.view_id, 0)
        await anext(stream)
        made.now += IDLE_S + 1
        made.service._expire()
        with pytest.raises(RpcError, match="there is no such log view"):
            await made.read(idle.view_id)
        assert (await made.read(used.view_id)).state.lines == 3
        await stream.aclose()  # type: ignore[attr-defined]

    served(tmp_path, body)


def test_the_one_idle_longest_makes_room_and_a_used_one_never_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view_service, "MAX_VIEWS", 2)

    async def body(made: Served) -> None:
        made.put(numbered(3))
        opened = []
        for _ in range(3):
            opened.append(await made.open("/u/j/0:0"))
            made.now += 1
        with pytest.raises(RpcError, match="there is no such log view"):
            await made.read(opened[0].view_id)
        streams = [made.tail(one.view_id, 0) for one in opened[1:]]
        for stream in streams:
            await anext(stream)
        with pytest.raises(RpcError) as caught:
            await made.open("/u/j/0:0")
        assert (caught.value.status, caught.value.code) == ("RESOURCE_EXHAUSTED", "too_many_views")
        for stream in streams:
            await stream.aclose()  # type: ignore[attr-defined]
        assert (await made.open("/u/j/0:0")).view_id

    served(tmp_path, body)


def test_many_views_of_a_large_log_take_turns_with_a_small_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the end of somebody else's search: the small read is answered while large ones are under way."""
    steps: list[object] = []
    step = view_service.one_step

    def noted(work: Any) -> Any:
        steps.append(work)
        return step(work)

    monkeypatch.setattr(view_service, "one_step", noted)
    # However fast the machine is, each large search takes many turns.
    monkeypatch.setattr(views, "STEP_S", 0.0)

    async def body(made: Served) -> None:
        for first in range(0, 20_000, 2_000):
            made.put(numbered(2_000, first=first))
        made.put(numbered(3, key="/u/small/0:0", producer="small"))
        large = [asyncio.create_task(made.open("/u/j/0:0", regex=f"no{place}|[0-9]x")) for place in range(8)]
        while len(set(map(id, steps))) < 8:  # noqa: ASYNC110 (steps tell nobody)
            await asyncio.sleep(0)
        begun = set(map(id, steps))
        small = await made.open("/u/small/0:0")
        assert small.state.lines == 3
        states = [(await task).state for task in large]
        assert all(state.lines == 0 for state in states)
        # Whoever came last was done before the others, who had begun before it.
        last = max(place for place, work in enumerate(steps) if id(work) not in begun)
        assert len({id(work) for work in steps[last:]} & begun) >= 4

    served(tmp_path, body)


def test_a_reader_that_left_keeps_no_file_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, gate = threading.Event(), threading.Event()

    def held(work: Any) -> tuple[bool, Any]:
        found = view_service.one_step(work)
        begun.set()
        assert gate.wait(60)
        return found

    monkeypatch.setattr(finelog_service, "one_step", held)
    monkeypatch.setattr(finelog_service, "SLICE_SECONDS", 0.0)

    async def leave(store: Store) -> None:
        service = LogService(store)
        try:
            request = logs_pb2.FetchLogsRequest(source="/u/j", match_scope=PREFIX)
            reading = asyncio.create_task(service.fetch_logs(request.SerializeToString()))
            assert await asyncio.to_thread(begun.wait, 60)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            gate.set()
        finally:
            await service.close()

    store = Store(tmp_path)
    for task in range(3):
        put(store, numbered(2, key=f"/u/j/{task}:0", producer=f"p{task}"))
    (file,) = store.files
    gc.disable()  # what it alone finds may wait for hours
    try:
        asyncio.run(leave(store))
        store.roll()
        assert store.sealed.wait(60)
        Upkeep(store).tend()
        assert not file.path.exists(), "it became a segment"
    finally:
        gc.enable()
        store.close()


class Gate:
    """Holds back every slice of the views once it is shut, behind what the slice did."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.held, self._open = threading.Event(), threading.Event()
        self._open.set()
        self._step = view_service.one_step
        monkeypatch.setattr(view_service, "one_step", self)
        monkeypatch.setattr(views, "STEP_S", 0.0)

    def __call__(self, work: Any) -> tuple[bool, Any]:
        found = self._step(work)
        if not self._open.is_set():
            self.held.set()
            assert self._open.wait(60)
        return found

    def shut(self) -> None:
        self._open.clear()

    def open(self) -> None:
        self._open.set()


def tasks_of_one_job(made: Served, first: int = 0) -> None:
    made.put(*(numbered(2, first=first, key=f"/u/j/{task}:0", producer=f"p{task}") for task in range(3)))


def test_a_view_that_is_being_opened_is_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_service, "MAX_VIEWS", 1)
    monkeypatch.setattr(view_service, "OPEN_S", 60.0)
    gate = Gate(monkeypatch)

    async def body(made: Served) -> None:
        made.put(numbered(3))
        gate.shut()
        try:
            opening = asyncio.create_task(made.open("/u/j/0:0", substring="line"))
            assert await asyncio.to_thread(gate.held.wait, 60)
            with pytest.raises(RpcError) as caught:
                await made.open("/u/j/0:0")
        finally:
            gate.open()
        assert caught.value.code == "too_many_views"
        assert (await opening).state.lines == 3

    served(tmp_path, body)


@pytest.mark.parametrize("leaves", [True, False], ids=["the opener leaves", "it is closed"])
def test_a_view_that_nobody_can_use_is_searched_no_further_and_keeps_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    monkeypatch.setattr(view_service, "OPEN_S", 60.0 if leaves else 0.0)
    gate = Gate(monkeypatch)

    async def body(made: Served) -> None:
        tasks_of_one_job(made)
        (file,) = made.store.files
        gate.shut()
        try:
            opening = asyncio.create_task(made.open("/u/j", match_scope=PREFIX, substring="line"))
            assert await asyncio.to_thread(gate.held.wait, 60)
            if leaves:
                opening.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await opening
            else:
                close = logs_pb2.CloseLogViewRequest(view_id=(await opening).view_id)
                await made.service.close_log_view(close.SerializeToString())
            assert len(made.service) == 0
            del opening
            await asyncio.sleep(0)  # what was cancelled hears of it
        finally:
            gate.open()
        await asyncio.to_thread(made.pool.shutdown)
        made.store.roll()
        assert await asyncio.to_thread(made.store.sealed.wait, 60)
        await asyncio.to_thread(Upkeep(made.store).tend)
        assert not file.path.exists(), "it became a segment"

    gc.disable()  # what it alone finds may wait for hours
    try:
        served(tmp_path, body)
    finally:
        gc.enable()


def test_what_changes_a_view_is_done_once_although_who_asked_first_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)

    async def body(made: Served) -> None:
        tasks_of_one_job(made)
        opened = await made.open("/u/j", match_scope=PREFIX)
        slices: list[object] = []
        submit = made.pool.submit

        def counted(*what: Any) -> Any:
            slices.append(what)
            return submit(*what)

        monkeypatch.setattr(made.pool, "submit", counted)

        async def twice(ask: Callable[[], Awaitable[T]]) -> T:
            """Asks again while a slice for somebody who left is still under way."""
            gate.held.clear()
            gate.shut()
            first = asyncio.ensure_future(ask())
            try:
                assert await asyncio.to_thread(gate.held.wait, 60)
                first.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await first
                before = len(slices)
                second = asyncio.ensure_future(ask())
                for _ in range(20):
                    await asyncio.sleep(0)
                assert len(slices) == before, "two would work at the same place of one view"
            finally:
                gate.open()
            return await second

        hit = await twice(lambda: made.find(opened.view_id, substring="line"))
        assert (hit.total, hit.complete) == (6, True)
        tasks_of_one_job(made, first=2)
        await twice(lambda: made.read(opened.view_id, 0, 100))
        made.now += 1.0
        await made.read(opened.view_id, 0, 100)
        page = await made.read(opened.view_id, 0, 100)
        assert sorted((line.line.key, line.line.data) for line in page.lines) == [
            (f"/u/j/{task}:0", f"line {number}") for task in range(3) for number in range(4)
        ]

    served(tmp_path, body)


def test_a_search_that_nobody_waits_for_any_more_ends_with_its_slice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch)

    async def body(made: Served) -> None:
        for first in range(0, 400, 10):
            made.put(numbered(10, first=first))
        opened = await made.open("/u/j/0:0")
        searches: list[object] = []
        submit = made.pool.submit

        def noted(*what: Any) -> Any:
            searches.append(what[1])
            return submit(*what)

        monkeypatch.setattr(made.pool, "submit", noted)
        gate.shut()
        left = [asyncio.ensure_future(made.find(opened.view_id, substring=text)) for text in ("line 1", "line 2")]
        try:
            assert await asyncio.to_thread(gate.held.wait, 60)
            for one in left:
                one.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            asked = asyncio.ensure_future(made.find(opened.view_id, substring="line 39"))
        finally:
            gate.open()
        hit = await asked
        assert (hit.complete, hit.number, hit.total) == (True, 39, 11)
        assert searches.count(searches[0]) == 1, "it went on for nobody"
        assert len({id(search) for search in searches}) == 2, "one was begun that nobody waited for"

    served(tmp_path, body)


def test_the_store_says_how_it_is(tmp_path: Path) -> None:
    async def run() -> logs_pb2.GetStoreHealthResponse:
        store = Store(tmp_path)
        service = LogService(store, release="abc")
        try:
            push = logs_pb2.PushLogsRequest(batches=[numbered(7)])
            await service.push_logs(push.SerializeToString())
            return logs_pb2.GetStoreHealthResponse.FromString(await service.get_store_health(b""))
        finally:
            await service.close()
            store.close()

    health = asyncio.run(run()).store
    assert (health.state, health.problem, health.release, health.last_seq) == ("serving", "", "abc", 7)
    assert health.disk_bytes > 0 and health.disk_free_bytes > 0 and health.max_bytes > 0 and health.last_line_at_ms > 0


def test_the_last_lines_come_with_the_answer_that_opens_a_view(tmp_path: Path) -> None:
    async def body(made: Served) -> None:
        made.put(numbered(700))

        async def opened(last_lines: int, **fields: Any) -> logs_pb2.OpenLogViewResponse:
            query = logs_pb2.FetchLogsRequest(source="/u/j/0:0", match_scope=EXACT, **fields)
            request = logs_pb2.OpenLogViewRequest(query=query, last_lines=last_lines)
            return logs_pb2.OpenLogViewResponse.FromString(
                await made.service.open_log_view(request.SerializeToString())
            )

        for fields in ({}, {"tail": True, "max_lines": 512}, {"substring": "7"}):
            answer = await opened(512, **fields)
            lines = answer.state.lines
            page = await made.read(answer.view_id, max(lines - 512, 0), 512)
            assert answer.lines and list(answer.lines) == list(page.lines)
            assert answer.lines[-1].number == lines - 1
            assert not (await opened(0, **fields)).lines
        with pytest.raises(RpcError, match="at most 20,000 lines, not 20001"):
            await opened(20_001)

    served(tmp_path, body)


def test_a_page_is_read_by_seq_and_a_view_of_several_logs_is_followed(tmp_path: Path) -> None:
    async def body(made: Served) -> None:
        put(made.store, numbered(50), numbered(50, key="/u/k/0:0", producer="k", at_ms=NOW_MS + 100))
        request = logs_pb2.OpenLogViewRequest(
            query=logs_pb2.FetchLogsRequest(source="/u/j/0:0", match_scope=EXACT),
            also=[logs_pb2.LogViewSource(source="/u/k/0:0", match_scope=EXACT)],
        )
        opened = logs_pb2.OpenLogViewResponse.FromString(await made.service.open_log_view(request.SerializeToString()))
        assert (opened.sources, opened.state.lines, opened.state.complete) == (2, 100, True)
        ask = logs_pb2.ReadLinesRequest(view_id=opened.view_id, count=20, at_seq=77)
        page = logs_pb2.ReadLinesResponse.FromString(await made.service.read_lines(ask.SerializeToString()))
        assert (page.at, page.lines[0].number, len(page.lines), page.lines[16].line.seq) == (76, 60, 20, 77)
        ask = logs_pb2.ReadLinesRequest(view_id=opened.view_id, count=20, at_ms=NOW_MS + 103)
        page = logs_pb2.ReadLinesResponse.FromString(await made.service.read_lines(ask.SerializeToString()))
        assert (page.at, page.lines[13].line.data) == (53, "line 3")
        tail = made.service.tail(logs_pb2.TailRequest(view_id=opened.view_id, first=100).SerializeToString())
        beat = logs_pb2.TailResponse.FromString(await anext(tail))
        assert not beat.lines
        answer = asyncio.ensure_future(anext(tail))
        made.put(numbered(1, first=50, key="/u/k/0:0", producer="k"))
        while not answer.done():
            made.now += 0.1
            await asyncio.sleep(0)
        assert [found.line.data for found in logs_pb2.TailResponse.FromString(answer.result()).lines] == ["line 50"]
        await cast(Any, tail).aclose()

    served(tmp_path, body)
