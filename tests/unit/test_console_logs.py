"""A log as its reader sees it: no gap and no duplicate whatever breaks, a place that is kept, and a bound on what is held."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.contracts import IrisError, RpcFailed
from iris_core.live import log_lines
from iris_core.live.log_lines import PAGE, SHOWN_CHARACTERS, Pages
from iris_core.live.log_query import PREFIX, parse_log_query
from iris_core.live.log_view import TAIL, LogQuery, LogSource, LogView
from iris_core.live.watch import Link
from iris_core.model.errors import ModelError
from iris_core.wire.gen.iris.v1 import logs_pb2
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.log_views import FakeViews

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

KEY = "/u/j/0:0"
OTHER = "/u/j/1:0"


async def until(condition: Callable[[], object], clock: FakeClock | None = None) -> None:
    async with asyncio.timeout(60):
        while not condition():
            if clock is not None:
                clock.advance(0.05)
            await asyncio.sleep(0)


def write(client: FakeClient, count: int, key: str = KEY) -> None:
    start = len(client.lines)
    client.log(key, *(f"n{start + number}" for number in range(count)))


@asynccontextmanager
async def reading(
    lines: int, *, query: LogQuery | None = None, sources: tuple[LogSource, ...] = (LogSource(KEY, 1, KEY),)
) -> AsyncIterator[tuple[LogView, FakeClient, FakeClock]]:
    clock, client = FakeClock(), FakeClient()
    write(client, lines)
    view = LogView(client, sources, clock, query=query)
    task = asyncio.create_task(view.run())
    try:
        await until(lambda: view.loaded and view.is_whole)
        yield view, client, clock
    finally:
        task.cancel()


def texts(view: LogView, first: int, last: int) -> list[str]:
    found = [view.line(number) for number in range(first, last)]
    return [line.text if line is not None else "?" for line in found]


def expected(first: int, last: int) -> list[str]:
    return [f"n{number}" for number in range(first, last)]


async def look(view: LogView, first: int, last: int) -> list[str]:
    """What a reader sees who waits there."""
    view.want(first, last)
    await until(lambda: all(view.line(number) is not None for number in range(first, min(last + 1, view.count))))
    return texts(view, first, min(last + 1, view.count))


@pytest.mark.asyncio
async def test_the_last_lines_are_shown_before_the_whole_log_is_numbered() -> None:
    clock, client = FakeClock(), FakeClient()
    write(client, 3000)
    view = LogView(client, LogSource(KEY, 1, KEY), clock)
    task = asyncio.create_task(view.run())
    await until(lambda: view.loaded)
    assert (view.count, view.is_whole) == (TAIL, False)
    assert texts(view, TAIL - 50, TAIL) == expected(2950, 3000)
    await until(lambda: view.is_whole)
    assert view.count == 3000
    assert texts(view, 2950, 3000) == expected(2950, 3000)
    assert view.take_shift() == 3000 - TAIL
    assert await look(view, 1000, 1050) == expected(1000, 1051)
    write(client, 2)
    await until(lambda: view.count == 3002)
    assert texts(view, 2998, 3002) == expected(2998, 3002)
    task.cancel()
    await until(lambda: len(client.called("CloseLogView")) == 2)


@pytest.mark.parametrize("knows", [True, False], ids=["now", "an older store"])
@pytest.mark.asyncio
async def test_the_last_lines_come_with_the_answer_that_opens_them(
    knows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    opens = FakeViews.open

    def older(views: FakeViews, request: logs_pb2.OpenLogViewRequest) -> logs_pb2.OpenLogViewResponse:
        asked = logs_pb2.OpenLogViewRequest()
        asked.CopyFrom(request)
        asked.ClearField("last_lines")
        return opens(views, asked)

    if not knows:
        monkeypatch.setattr(FakeViews, "open", older)
    async with reading(3000) as (view, client, _):
        assert texts(view, 2900, 3000) == expected(2900, 3000)
        # Of the whole log, whose numbers are others, the same lines come in the same way.
        assert len(client.called("OpenLogView")) == 2
        assert len(client.called("ReadLines")) == (0 if knows else 3)


@pytest.mark.asyncio
async def test_a_place_stays_the_same_line_when_the_whole_log_is_numbered() -> None:
    clock, client = FakeClock(), FakeClient()
    write(client, 2000)
    view = LogView(client, LogSource(KEY, 1, KEY), clock)
    task = asyncio.create_task(view.run())
    await until(lambda: view.loaded)
    view.follow(False)
    view.want(300, 340)
    shown = texts(view, 300, 340)
    await until(lambda: view.is_whole)
    shift = view.take_shift()
    assert shift == 2000 - TAIL
    assert (view.top, view.following) == (300 + shift, False)
    assert texts(view, 300 + shift, 340 + shift) == shown == expected(1788, 1828)
    task.cancel()


@pytest.mark.asyncio
async def test_a_short_log_is_whole_at_once_and_is_opened_once() -> None:
    async with reading(4) as (view, client, _):
        assert (view.count, view.is_whole, texts(view, 0, 4)) == (4, True, expected(0, 4))
        assert len(client.called("OpenLogView")) == 1


@pytest.mark.asyncio
async def test_a_paused_reader_keeps_the_place_and_what_comes_is_counted() -> None:
    async with reading(600) as (view, client, _):
        view.follow(False)
        assert await look(view, 100, 140) == expected(100, 141)
        for _ in range(12):
            write(client, 500)
            await until(lambda: view.count == len(client.lines))
            view.want(100, 140)
        assert view.unseen == 6000
        assert texts(view, 100, 141) == expected(100, 141)
        assert await look(view, 6550, 6599) == expected(6550, 6600)
        view.follow(True)
        assert view.unseen == 0


@pytest.mark.asyncio
async def test_what_is_held_is_a_few_pages_however_far_a_reader_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 8
    assert most < log_lines.MAX_PAGES
    monkeypatch.setattr(log_lines, "MAX_PAGES", most)
    async with reading(most * PAGE + 5 * PAGE) as (view, _, _):
        view.follow(False)
        for first in range(0, view.count, PAGE):
            await look(view, first, first + 20)
            assert len(view.pages) <= most
        assert view.line(0) is None
        assert await look(view, 0, 3) == expected(0, 4)


@pytest.mark.asyncio
async def test_only_what_is_looked_at_is_asked_for_and_one_request_a_page() -> None:
    async with reading(5_000) as (view, client, _):
        view.follow(False)
        client.freeze()
        before = len(client.called("ReadLines"))
        for first in (1000, 2300, 3400):
            view.want(first, first + 40)
            view.want(first, first + 40)
            await asyncio.sleep(0)
        client.thaw()
        await until(lambda: view.line(3_440) is not None)
        asked = [call.first // PAGE for call in client.called("ReadLines")[before:]]
        assert len(asked) == len(set(asked))
        await until(lambda: view.line(3_327) is not None and view.line(3_584) is not None)
        assert view.line(1000) is None and view.line(2300) is None, "the answers to what was passed by are of no use"


@pytest.mark.asyncio
async def test_a_filter_replaces_the_lines_only_when_it_is_answered() -> None:
    async with reading(100) as (view, client, _):
        await view.show(LogQuery(regex="n.*7$"))
        assert texts(view, 0, view.count) == ["n7", "n17", "n27", "n37", "n47", "n57", "n67", "n77", "n87", "n97"]
        client.log(KEY, "no match", "n107")
        await until(lambda: view.count == 11)
        assert texts(view, 10, 11) == ["n107"]
        client.fail("OpenLogView", RpcFailed("INVALID_ARGUMENT", "bad pattern"))
        with pytest.raises(IrisError, match="bad pattern"):
            await view.show(LogQuery(regex="n.*8$"))
        assert (view.query.regex, texts(view, 10, 11)) == ("n.*7$", ["n107"])


@pytest.mark.asyncio
async def test_a_hit_opens_the_log_around_it_and_back() -> None:
    async with reading(2000) as (view, _, clock):
        await view.show(LogQuery(regex="n1234$", context=1))
        assert texts(view, 0, 3) == ["n1233", "n1234", "n1235"]
        hit = view.line(1)
        assert hit is not None and not hit.is_context
        task = asyncio.create_task(view.show(view.query.unfiltered, at_seq=hit.seq))
        await until(task.done, clock)
        assert (view.top, view.following, view.is_whole) == (1234, False, True)
        assert texts(view, 1230, 1240) == expected(1230, 1240)
        task = asyncio.create_task(view.show(LogQuery(regex="n1234$", context=1), at_seq=hit.seq))
        await until(task.done, clock)
        assert (view.count, view.top) == (3, 1)


@pytest.mark.asyncio
async def test_a_later_filter_beats_one_that_is_not_answered() -> None:
    async with reading(20) as (view, client, _):
        client.freeze()
        first = asyncio.create_task(view.show(LogQuery(regex="n1$")))
        await until(lambda: any(call.query.regex == "n1$" for call in client.called("OpenLogView")))
        second = asyncio.create_task(view.show(LogQuery(regex="n2$")))
        with pytest.raises(asyncio.CancelledError):
            await first
        client.thaw()
        await second
        assert texts(view, 0, view.count) == ["n2"]


@pytest.mark.asyncio
async def test_a_broken_connection_is_said_and_the_follow_goes_on_exactly_there() -> None:
    async with reading(15) as (view, client, clock):
        client.break_connection()
        write(client, 5)
        await until(lambda: view.state.link is Link.RECONNECTING)
        assert texts(view, 0, 15) == expected(0, 15)
        client.restore()
        write(client, 5)
        await until(lambda: view.count == 25, clock)
        assert texts(view, 0, 25) == expected(0, 25)
        assert view.state.link is Link.LIVE
        assert len(client.called("OpenLogView")) == 1, "the store knows the view still"


@pytest.mark.parametrize("is_following", [True, False])
@pytest.mark.asyncio
async def test_a_view_that_the_store_forgot_is_opened_again_at_the_same_place(is_following: bool) -> None:
    async with reading(1500) as (view, client, clock):
        if not is_following:
            view.follow(False)
            await look(view, 700, 720)
            write(client, 3)
            await until(lambda: view.count == 1503)
        client.views.forget()
        client.break_connection()
        write(client, 1)
        await until(lambda: view.state.link is Link.RECONNECTING)
        assert texts(view, 700, 720) == expected(700, 720) or is_following
        client.restore()
        opened = len(client.called("OpenLogView"))
        write(client, 6)
        await until(lambda: len(client.called("OpenLogView")) > opened and view.is_whole, clock)
        await until(lambda: view.count == len(client.lines), clock)
        if is_following:
            assert (view.following, view.unseen) == (True, 0)
            assert texts(view, 1450, 1507) == expected(1450, 1507)
        else:
            assert (view.following, view.unseen, view.top) == (False, 10, 700)
            assert texts(view, 700, 720) == expected(700, 720)


@pytest.mark.asyncio
async def test_several_logs_stand_in_one_view_and_an_old_store_is_said() -> None:
    sources = (LogSource(KEY, 1, KEY), LogSource(OTHER, 1, OTHER))
    async with reading(3, sources=sources) as (view, client, _):
        write(client, 2, OTHER)
        client.log("/u/other/0:0", "not of them")
        await until(lambda: view.count == 5)
        assert [line.key for number in range(5) if (line := view.line(number))] == [KEY] * 3 + [OTHER] * 2
        open_view = client.views.open

        def older(request: logs_pb2.OpenLogViewRequest) -> logs_pb2.OpenLogViewResponse:
            answer = open_view(request)
            answer.sources = 0
            return answer

        client.views.open = older  # type: ignore[method-assign]
        with pytest.raises(IrisError, match="too old to merge"):
            await view.show(LogQuery(regex="x"))


@pytest.mark.asyncio
async def test_finding_tells_the_ordinal_goes_round_and_waits_for_the_whole_log() -> None:
    clock, client = FakeClock(), FakeClient()
    write(client, 3000)
    client.log(KEY, "it broke", level=4)
    view = LogView(client, LogSource(KEY, 1, KEY), clock)
    task = asyncio.create_task(view.run())
    await until(lambda: view.loaded)
    hit = await view.find(view.count - 1, regex="n..99$", backward=True)
    assert hit is not None
    assert (hit.number, hit.ordinal, hit.total, hit.wrapped) == (2999, 20, 20, False)
    again = await view.find(hit.number + 1, regex="n..99$")
    assert again is not None and (again.number, again.ordinal, again.wrapped) == (1099, 1, True)
    assert await view.find(0, regex="nothing") is None
    error = await view.find(0, min_level=4)
    assert error is not None and (error.number, error.total) == (3000, 1)
    task.cancel()


@pytest.mark.asyncio
async def test_a_time_leads_to_its_line() -> None:
    async with reading(0) as (view, client, _):
        for number in range(600):
            client.log(KEY, f"n{number}", epoch_ms=1_000_000 + number * 10)
        await until(lambda: view.count == 600)
        assert await view.number_at(ms=1_000_000 + 4321) == 433
        assert await view.number_at(ms=9_000_000) == 599


@pytest.mark.asyncio
async def test_an_export_has_what_is_shown_and_is_taken_up_again_where_it_broke() -> None:
    async with reading(50, query=LogQuery(regex="[05]$")) as (view, client, clock):
        written, calls = b"", 0
        export = client.views.export

        def breaking(request: logs_pb2.ExportLogsRequest) -> logs_pb2.ExportLogsResponse:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise RpcFailed("UNAVAILABLE", "gone for a moment")
            whole = export(request)
            if request.first == 0:
                data = b"".join(whole.data.splitlines(keepends=True)[:4])
                return logs_pb2.ExportLogsResponse(data=data, next_line=4, lines=4, state=whole.state)
            return whole

        client.views.export = breaking  # type: ignore[method-assign]

        async def save() -> int:
            nonlocal written
            lines = 0
            async for answer in view.export():
                written += answer.data
                lines = answer.lines
            return lines

        task = asyncio.create_task(save())
        await until(task.done, clock)
        assert task.result() == 10
        assert written == b"".join(f"n{number}\n".encode() for number in range(0, 50, 5))


@pytest.mark.asyncio
async def test_long_lines_are_kept_as_far_as_they_are_shown_and_read_whole_when_asked() -> None:
    async with reading(0) as (view, client, _):
        client.log(KEY, "x" * 10_000)
        client.lines[-1].partial = True
        client.log(KEY, "ü" * 5000)
        client.lines[-1].part = 1
        client.log(KEY, "next")
        await until(lambda: view.count == 3)
        shown = [line for number in range(3) if (line := view.line(number))]
        more = [10_000 - SHOWN_CHARACTERS, 2 * (5000 - SHOWN_CHARACTERS), 0]
        assert [(len(line.text), line.more) for line in shown] == [(4096, more[0]), (4096, more[1]), (4, more[2])]
        for number in (0, 1):
            parts = await view.entry(number)
            assert "".join(part.line.data for part in parts) == "x" * 10_000 + "ü" * 5000
        assert [part.line.data for part in await view.entry(2)] == ["next"]


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 600),
    st.lists(st.sampled_from(["write", "flood", "up", "end", "pause", "go", "break", "forget"]), max_size=12),
)
def test_what_is_seen_is_the_log_whatever_happens(lines: int, steps: list[str]) -> None:
    async def play() -> None:
        async with reading(lines) as (view, client, clock):
            for step in steps:
                if step in ("write", "flood"):
                    write(client, 3 if step == "write" else 400)
                elif step in ("pause", "go"):
                    view.follow(step == "go")
                elif step == "up":
                    view.follow(False)
                    view.want(max(view.top - 300, 0), max(view.top - 300, 0) + 40)
                elif step == "end":
                    view.follow(True)
                elif step == "break":
                    client.break_connection()
                    await asyncio.sleep(0)
                    client.restore()
                else:
                    client.views.forget()
                    client.break_connection()
                    client.restore()
                await until(lambda: view.count == len(client.lines) and view.is_whole, clock)
                first = max(view.count - 40, 0) if view.following else view.top
                end = min(first + 40, view.count)

                def is_there(first: int = first, end: int = end) -> bool:
                    view.want(first, first + 39)
                    return "?" not in texts(view, first, end)

                await until(is_there, clock)
                assert texts(view, first, end) == expected(first, end)

    asyncio.run(play())


@pytest.mark.asyncio
async def test_a_log_without_a_line_says_the_likely_cause_until_there_is_one() -> None:
    async with reading(0) as (view, client, clock):
        client.pipeline.problems.append("worker w0 is 75 s behind with its log lines")
        await until(lambda: view.why, clock)
        assert client.called("GetPipelineHealth")[-1].target == KEY
        assert view.why == "worker w0 is 75 s behind with its log lines"
        client.fail("GetPipelineHealth", RpcFailed("UNAVAILABLE", "not now"))
        await until(lambda: view.pipeline.account.fault == "not now", clock)
        assert view.why == ""
        write(client, 1)
        await until(lambda: view.count, clock)
        assert view.why == ""


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("", LogQuery(since_ms=7)),
        ("a b", LogQuery(regex="a b", since_ms=7)),
        ("-C 3 a -b", LogQuery(regex="a -b", context=3, since_ms=7)),
        ("-l warning -C 0 x", LogQuery(regex="x", context=0, min_level=3, since_ms=7)),
        ("-l error", LogQuery(min_level=4, since_ms=7)),
        ('-v ping -v "a b" x', LogQuery(regex="x", without=("ping", "a b"), since_ms=7)),
        (r'-v \"a -v "\"b c" x', LogQuery(regex="x", without=(r"\"a", r"\"b c"), since_ms=7)),
        ("-C 1 -v ping", LogQuery(context=1, without=("ping",), since_ms=7)),
        ("-F  (a", LogQuery(substring=" (a", since_ms=7)),
        ("-- -x", LogQuery(regex="-x", since_ms=7)),
        ("-", LogQuery(regex="-", since_ms=7)),
    ],
)
def test_a_filter_is_typed_in_one_line(text: str, query: LogQuery) -> None:
    assert parse_log_query(text, LogQuery(regex="old", context=1, since_ms=7)) == query
    assert parse_log_query(query.words(), query) == query


def test_what_is_left_out_goes_to_the_server_as_one_pattern() -> None:
    sources = [LogSource("/a/j", PREFIX, "/a/j")]
    query = parse_log_query("-v ping -v 'step' loss", LogQuery())
    assert query.filters and query.request(sources).query.without == "(?:ping)|(?:'step')"
    assert parse_log_query("-v ping", LogQuery()).request(sources).query.without == "ping"


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("a(", 1, "missing"),
        ("-C 2 a(", 6, "missing"),
        ("-C x a", 3, "0 to 1,000"),
        ("-C", 0, "needs a value"),
        ("-C 3", 0, "needs a pattern"),
        ("-l loud", 3, "no log level"),
        ("-z", 0, "there is no option -z"),
        ("-F", 0, "needs a text"),
        ("-v", 0, "needs a value"),
        ('-v "a (" x', 6, "missing"),
        ('-v "" x', 4, "an empty one is found in every line"),
        ('-v "a b', 3, "has no end"),
        ('-v "a"b c', 3, "has no end"),
        (r"-v \Qa -v b", 10, "cannot be put together"),
        (f"-v {'a' * 3000} -v {'b' * 3000}", 3007, "cannot be put together .* more than 4096"),
    ],
)
def test_a_wrong_filter_says_where(text: str, position: int, message: str) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        parse_log_query(text, LogQuery())
    assert caught.value.position == position


def test_pages_take_only_what_goes_on() -> None:
    def lines(first: int, count: int) -> list[logs_pb2.ViewLine]:
        return [
            logs_pb2.ViewLine(number=number, line=logs_pb2.StoredLine(seq=number + 1))
            for number in range(first, first + count)
        ]

    pages = Pages()
    pages.put(lines(100, 10))
    assert pages.line(100) is None, "a page is filled from its first line on"
    pages.put(lines(0, 50))
    pages.put(lines(60, 10))
    pages.put(lines(40, 20))
    assert (pages.filled(0), pages.last()) == (60, (59, pages.line(59)))
