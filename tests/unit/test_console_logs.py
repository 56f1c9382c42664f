"""The window on a log: no gap and no duplicate however it is moved, and a bound on what is kept."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iris_core.contracts import IrisError, RpcFailed
from iris_core.live.logs import SHOWN_BYTES, LogFilter, LogSource, LogView
from iris_core.live.watch import Link
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

KEY = "/u/j/0:0"


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0)


def write(client: FakeClient, count: int) -> None:
    start = len(client.lines)
    client.log(KEY, *(f"n{start + number}" for number in range(count)))


@asynccontextmanager
async def following(
    lines: int, *, page: int = 10, max_lines: int = 40
) -> AsyncIterator[tuple[LogView, FakeClient, FakeClock]]:
    clock, client = FakeClock(), FakeClient()
    write(client, lines)
    view = LogView(client, LogSource(KEY, 1, KEY), clock, page=page, max_lines=max_lines)
    task = asyncio.create_task(view.run())
    try:
        await until(lambda: view.loaded)
        yield view, client, clock
    finally:
        task.cancel()


def texts(view: LogView) -> list[str]:
    return [line.text for line in view.lines]


def expected(first: int, last: int) -> list[str]:
    return [f"n{number}" for number in range(first, last)]


@pytest.mark.asyncio
async def test_it_begins_with_the_end_and_follows() -> None:
    async with following(25) as (view, client, _):
        assert texts(view) == expected(15, 25)
        assert (view.at_start, view.at_end) == (False, True)
        write(client, 3)
        await until(lambda: len(view.lines) == 13)
        assert texts(view) == expected(15, 28)
        assert view.total() == (28, False)


@pytest.mark.asyncio
async def test_a_short_log_is_whole_and_its_count_exact() -> None:
    async with following(4) as (view, _, _):
        assert (view.at_start, view.at_end, view.total()) == (True, True, (4, True))


@pytest.mark.asyncio
async def test_reading_back_to_the_start() -> None:
    async with following(35) as (view, _, _):
        view.keep_top(True)
        while await view.older():
            pass
        assert texts(view) == expected(0, 35)
        assert view.at_start
        assert view.take_shift() == 25


@pytest.mark.asyncio
async def test_what_is_kept_is_bounded_and_reading_forward_comes_back_to_the_end() -> None:
    async with following(200) as (view, client, _):
        view.keep_top(True)
        while not view.at_start:
            await view.older()
            assert len(view.lines) <= 40
        assert texts(view)[:3] == ["n0", "n1", "n2"]
        assert not view.at_end
        write(client, 5)
        await until(lambda: view.unseen == 5)
        seen = texts(view)
        while not view.at_end:
            await view.newer()
            assert len(view.lines) <= 40
            assert [n for n in texts(view) if n in seen] == [n for n in seen if n in texts(view)]
            seen = list(dict.fromkeys([*seen, *texts(view)]))
        assert seen == expected(0, 205)
        write(client, 1)
        await until(lambda: view.lines[-1].text == "n205")


@pytest.mark.asyncio
async def test_the_first_line_and_back_to_the_end() -> None:
    async with following(100) as (view, client, _):
        view.keep_top(True)
        await view.head()
        assert texts(view) == expected(0, 10)
        assert (view.at_start, view.at_end) == (True, False)
        write(client, 7)
        await until(lambda: view.unseen == 7)
        view.keep_top(False)
        await view.tail()
        assert texts(view) == expected(97, 107)
        assert view.unseen == 0


@pytest.mark.asyncio
async def test_a_paused_reader_keeps_the_place_and_nothing_is_dropped() -> None:
    async with following(30) as (view, client, _):
        view.keep_top(True)
        for _ in range(12):
            before = view.version
            write(client, 5)
            await until(lambda before=before: view.version != before)  # type: ignore[misc]
        assert view.unseen == 60
        assert texts(view)[0] == "n20"
        assert len(view.lines) <= 40
        while not view.at_end:
            await view.newer()
        assert view.lines[-1].text == "n89"


@pytest.mark.asyncio
async def test_a_server_filter_replaces_the_lines_only_when_it_is_answered() -> None:
    async with following(100) as (view, client, _):
        await view.set_filter(LogFilter("n.*7$"))
        assert texts(view) == ["n7", "n17", "n27", "n37", "n47", "n57", "n67", "n77", "n87", "n97"]
        assert view.total() == (10, True)
        client.log(KEY, "no match", "n107")
        await until(lambda: view.lines[-1].text == "n107")
        await until(lambda: client.called("FetchLogs")[-1].cursor == len(client.lines))
        client.fail("FetchLogs", RpcFailed("INVALID_ARGUMENT", "bad pattern"))
        with pytest.raises(IrisError, match="bad pattern"):
            await view.set_filter(LogFilter("n.*8$"))
        assert view.filter.regex == "n.*7$"
        assert view.lines[-1].text == "n107"


@pytest.mark.asyncio
async def test_a_later_filter_beats_one_that_is_not_answered() -> None:
    async with following(20) as (view, client, _):
        client.freeze()
        first = asyncio.create_task(view.set_filter(LogFilter("n1$")))
        await until(lambda: any(call.regex == "n1$" for call in client.called("FetchLogs")))
        second = asyncio.create_task(view.set_filter(LogFilter("n2$")))
        with pytest.raises(asyncio.CancelledError):
            await first
        client.thaw()
        await second
        assert texts(view) == ["n2"]


@pytest.mark.asyncio
async def test_a_broken_connection_is_said_and_the_follow_goes_on_exactly_there() -> None:
    async with following(15) as (view, client, clock):
        client.break_connection()
        write(client, 5)
        await until(lambda: view.state.link is Link.RECONNECTING)
        assert texts(view) == expected(5, 15)
        client.restore()
        write(client, 5)
        async with asyncio.timeout(10):
            while len(view.lines) < 20:
                clock.advance(0.1)
                await asyncio.sleep(0)
        assert texts(view) == expected(5, 25)
        assert view.state.link is Link.LIVE


@pytest.mark.asyncio
async def test_a_flood_is_not_chased_the_window_jumps_to_the_end() -> None:
    async with following(5) as (view, client, _):
        write(client, 500)
        await until(lambda: view.lines[-1].text == "n504")
        assert texts(view) == expected(505 - len(view.lines), 505)
        assert len([call for call in client.called("FetchLogs")]) < 20


@pytest.mark.asyncio
async def test_long_and_partial_lines_are_kept_as_far_as_they_are_shown() -> None:
    clock, client = FakeClock(), FakeClient()
    client.log(KEY, "x" * 10_000)
    client.lines[-1].partial = True
    client.log(KEY, "other", source="stderr")
    client.log(KEY, "y" * 500)
    client.log(KEY, "next")
    view = LogView(client, LogSource(KEY, 1, KEY), clock)
    task = asyncio.create_task(view.run())
    await until(lambda: view.loaded)
    assert [(len(line.text), line.more) for line in view.lines] == [(SHOWN_BYTES, 10_500 - SHOWN_BYTES), (5, 0), (4, 0)]
    task.cancel()


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 60),
    st.lists(st.sampled_from(["write", "older", "newer", "head", "tail", "pause", "go"]), max_size=25),
)
def test_the_window_is_one_run_of_the_log_whatever_is_asked(lines: int, steps: list[str]) -> None:
    async def play() -> None:
        async with following(lines, page=5, max_lines=20) as (view, client, _):
            for step in steps:
                if step == "write":
                    write(client, 3)
                    await until(
                        lambda: view.unseen or not view.at_end or texts(view)[-1:] == [f"n{len(client.lines) - 1}"]
                    )
                elif step in ("pause", "go"):
                    view.keep_top(step == "pause")
                else:
                    await {"older": view.older, "newer": view.newer, "head": view.head, "tail": view.tail}[step]()
                seen = texts(view)
                if seen:
                    first = int(seen[0][1:])
                    assert seen == expected(first, first + len(seen))
                    assert not view.at_start or first == 0
                assert len(seen) <= 25

    asyncio.run(play())


@pytest.mark.asyncio
async def test_a_log_without_a_line_says_the_likely_cause_until_there_is_one() -> None:
    async with following(0) as (view, client, _):
        assert view.why == ""
        client.pipeline.problems.append("worker w0 is 75 s behind with its log lines")
        view._wake.set()
        client.log("/u/other/0:0", "wakes the wait of everybody")
        await until(lambda: client.called("GetPipelineHealth"))
        assert client.called("GetPipelineHealth")[-1].target == KEY
        await view._ask_why()
        assert view.why == "worker w0 is 75 s behind with its log lines"
        client.fail("GetPipelineHealth", RpcFailed("UNAVAILABLE", "not now"))
        await view._ask_why()
        assert view.why == ""
        write(client, 1)
        await until(lambda: view.lines)
        asked = len(client.called("GetPipelineHealth"))
        await view._ask_why()
        assert (len(client.called("GetPipelineHealth")), view.why) == (asked, "")
