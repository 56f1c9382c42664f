"""Logs as an operator meets them: every key, the words for every state, and what a workload prints steers nothing."""

from __future__ import annotations

import json
import unicodedata
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from textual.scrollbar import ScrollTo

from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.live.log_lines import LogLine
from iris_core.live.log_query import PREFIX, LogSource
from iris_core.live.log_saving import LogFile
from iris_core.model.errors import ModelError
from iris_core.model.regex import compile_content_regex
from iris_core.wire.gen.iris.v1 import logs_pb2
from iris_tui.pages import TextPage
from iris_tui.widgets.log_drawing import Gutter, drawn, letter, time_text
from iris_tui.widgets.log_entry import entry_lines
from iris_tui.widgets.log_pane import LogPane
from iris_tui.widgets.pane import State
from providers.fake.clock import FakeClock
from providers.fake.samples import sample
from screens.logs import LogsScreen
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from pathlib import Path

    from providers.fake.client import FakeClient

JOB = "/ada/train-llama"
RANK0 = f"{JOB}/0:0"
RANK1 = f"{JOB}/1:0"


def writing(count: int, *, key: str = RANK0, every_ms: int = 1000) -> FakeClient:
    """The sample cluster with a log of a known length."""
    client = sample(FakeClock())
    client.lines.clear()
    for number in range(count):
        client.log(
            key,
            f"step {number}",
            epoch_ms=client.now_ms - (count - number) * every_ms,
            level=4 if number % 50 == 7 else 2,
        )
    return client


async def open_logs(rig: Rig, name: str = JOB) -> LogPane:
    await rig.row(name)
    await rig.keys("l")
    await rig.until(lambda: rig.jobs.query(LogPane) and rig.jobs.query_one(LogPane).view.is_whole)
    pane = rig.jobs.query_one(LogPane)
    await rig.until(lambda: rig.app.focused is pane.lines)
    return pane


async def logs_screen(rig: Rig, subject: str) -> LogPane:
    rig.app.go("logs", subject)
    await rig.until(lambda: isinstance(rig.app.screen, LogsScreen))
    screen = rig.app.screen
    assert isinstance(screen, LogsScreen)
    pane = screen.pane
    await rig.until(lambda: pane.view.is_whole and rig.app.focused is pane.lines)
    return pane


def shown(pane: LogPane) -> list[int]:
    return [row.number for row in pane.lines.rows()]


@pytest.mark.asyncio
async def test_logs_follow_pause_and_resume_in_words() -> None:
    async with console(writing(500)) as rig:
        pane = await open_logs(rig)
        assert "FOLLOW" in pane.title.text and pane.lines.pointer is None
        await rig.keys("up")
        await rig.until(lambda: "PAUSED +0" in pane.title.text)
        assert pane.lines.pointer == 498
        await rig.keys("pageup")
        top = pane.lines.top
        rig.client.log(RANK0, "late 1", "late 2")
        await rig.until(lambda: "PAUSED +2" in pane.title.text)
        assert pane.lines.top == top
        assert "late 2" not in rig.screen_text()
        await rig.keys("F")
        await rig.until(lambda: "FOLLOW" in pane.title.text and "late 2" in rig.screen_text())
        await rig.keys("pageup", "pagedown")
        await rig.until(lambda: "FOLLOW" in pane.title.text)
        await rig.keys("g")
        await rig.until(
            lambda: shown(pane)[0] == 0 and "step 0" in rig.screen_text() and "1/502 lines" in pane.title.text
        )
        await rig.keys("G")
        await rig.until(lambda: "FOLLOW" in pane.title.text and shown(pane)[-1] == 501)


@pytest.mark.asyncio
async def test_what_a_workload_prints_cannot_steer_the_terminal() -> None:
    async with console() as rig:
        await open_logs(rig)
        await rig.until(lambda: "[bold]literal[/bold] 失敗" in rig.screen_text())
        text = rig.screen_text()
        assert "\x1b" not in text and "owned" not in text and "\x07" not in text
        for line in rig.app.screen._compositor.render_strips():
            assert all(segment.style is None or not segment.style.link for segment in line)
        assert "12 lines are lost: spool was full" in text


PIECES = st.sampled_from(
    [
        "\x1b[2J",
        "\x1b]0;owned\x07",
        "\x1b]8;;http://x\x1b\\",
        "\x1b[31m",
        "\x1b[0m",
        "\x9b5A",
        "\r",
        "\x08",
        "\x1bc",
        "\x1b[",
        "a",
        "失",
        "\u202e",
    ]
)


@given(st.lists(PIECES | st.text(max_size=4), max_size=12), st.integers(0, 3))
def test_nothing_but_colour_reaches_the_screen(pieces: list[str], part: int) -> None:
    line = LogLine(1, RANK0, text="".join(pieces), more=5, part=part)
    text = drawn(line, ((compile_content_regex("a"), Style(bold=True)),))
    assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in text.plain)
    assert "\u202e" not in text.plain
    assert all(not isinstance(span.style, str) and not span.style.link for span in text.spans)
    assert text.plain.endswith(" …(+5 B)")


@pytest.mark.asyncio
async def test_a_wrong_pattern_turns_red_and_the_lines_stay() -> None:
    async with console(writing(60)) as rig:
        pane = await open_logs(rig)
        await rig.keys("ampersand")
        await rig.type("-C 2 [/usr")
        await rig.keys("enter")
        await rig.until(lambda: rig.jobs.prompt.has_class("-wrong"))
        assert "position 5" in rig.jobs.prompt.fault.text
        await rig.until(lambda: "of the filter before" in pane.title.text)
        assert pane.view.count == 60
        await rig.keys("escape")
        assert not rig.jobs.prompt.is_open
        assert rig.app.focused is pane.lines


@pytest.mark.asyncio
async def test_a_pattern_is_answered_by_the_server_and_a_hit_opens_the_log_around_it() -> None:
    async with console(writing(1500)) as rig:
        pane = await open_logs(rig)
        await rig.keys("ampersand")
        await rig.type("-C 1 step 7[05]0$")
        await rig.keys("enter")
        await rig.until(lambda: "& -C 1 step 7[05]0$" in pane.title.text and pane.view.count == 6)
        assert "6 lines, 2 hits" in pane.title.text
        assert [line.text for number in range(6) if (line := pane.view.line(number))][3:] == [
            "step 749",
            "step 750",
            "step 751",
        ]
        await rig.keys("up", "up")
        assert pane.lines.pointer == 3
        await rig.keys("down", "enter")
        await rig.until(lambda: "around a hit" in pane.title.text and pane.view.count == 1500)
        await rig.until(lambda: pane.lines.pointer == 750 and "step 752" in rig.screen_text())
        assert "PAUSED" in pane.title.text
        await rig.keys("escape")
        await rig.until(lambda: pane.view.count == 6 and pane.lines.pointer == 4)
        rig.client.fail("OpenLogView", ConnectFailed("gone"))
        await rig.keys("ampersand", "x", "enter")
        await rig.until(lambda: "of the filter before" in pane.title.text)
        assert pane.view.count == 6


@pytest.mark.asyncio
async def test_a_pattern_that_matches_nothing_leaves_the_keys_with_the_log() -> None:
    async with console(writing(20)) as rig:
        pane = await open_logs(rig)
        await rig.keys("ampersand")
        await rig.type("no such line")
        await rig.keys("enter")
        await rig.until(
            lambda: "No line matches no such line" in rig.screen_text() and "20 lines searched" in rig.screen_text()
        )
        assert rig.app.focused is pane.lines
        await rig.keys("escape")
        await rig.until(lambda: not rig.jobs.query(LogPane))


@pytest.mark.asyncio
async def test_find_marks_hits_counts_them_and_goes_round() -> None:
    async with console(writing(1200)) as rig:
        pane = await open_logs(rig)
        await rig.keys("g")
        await rig.until(lambda: pane.lines.pointer == 0)
        await rig.keys("slash")
        await rig.type("STEP 11")
        await rig.keys("enter")
        await rig.until(lambda: "/STEP 11 0/0" in pane.title.text)
        await rig.keys("slash")
        await rig.keys("end", *["backspace"] * 7)
        await rig.type("step 11")
        await rig.keys("enter")
        await rig.until(lambda: "/step 11 1/111" in pane.title.text and pane.lines.pointer == 11)
        await rig.keys("n")
        await rig.until(lambda: "2/111" in pane.title.text and pane.lines.pointer == 110)
        await rig.keys("N")
        await rig.until(lambda: "1/111" in pane.title.text)
        await rig.keys("N")
        await rig.until(lambda: "111/111" in pane.title.text and pane.lines.pointer == 1199)
        await rig.keys("slash")
        await rig.type("(")
        await rig.until(lambda: rig.jobs.prompt.has_class("-wrong"))
        await rig.keys("escape")
        await rig.until(lambda: pane.lines.needle is None)
        assert rig.jobs.query(LogPane)
        await rig.keys("escape")
        await rig.until(lambda: not rig.jobs.query(LogPane))
        assert rig.app.focused is rig.jobs.table


@pytest.mark.asyncio
async def test_errors_are_jumped_to_and_levels_filtered() -> None:
    async with console(writing(200)) as rig:
        pane = await open_logs(rig)
        await rig.keys("E")
        await rig.until(lambda: pane.lines.pointer == 157)
        await rig.keys("E")
        await rig.until(lambda: pane.lines.pointer == 107)
        await rig.keys("e")
        await rig.until(lambda: pane.lines.pointer == 157)
        await rig.keys("e")
        await rig.until(lambda: pane.lines.pointer == 7)
        await rig.keys("L", "L")
        await rig.until(lambda: "& -l error" in pane.title.text and pane.view.count == 4)
        await rig.keys("L")
        await rig.until(lambda: pane.view.count == 200)


@pytest.mark.asyncio
async def test_times_are_bounds_and_places() -> None:
    async with console(writing(720, every_ms=10_000)) as rig:
        pane = await open_logs(rig)
        for key, lines in (("2", 6), ("3", 30), ("4", 90), ("5", 180), ("6", 360)):
            await rig.keys(key)
            await rig.until(lambda lines=lines: abs(pane.view.count - lines) <= 1 and pane.view.is_whole)  # type: ignore[misc]
        assert "since " in pane.title.text
        await rig.keys("0")
        await rig.until(lambda: pane.view.count == 720 and "FOLLOW" in pane.title.text and pane.view.is_whole)
        await rig.keys("T")
        await rig.type("1h")
        await rig.keys("enter")
        await rig.until(lambda: pane.lines.pointer == 360)
        await rig.keys("1")
        await rig.until(lambda: pane.lines.pointer == 0)
        rig.app.run_command("since 10m")
        await rig.until(lambda: abs(pane.view.count - 60) <= 1)
        with pytest.raises(ModelError, match="no time"):
            rig.app.run_command("since whenever")


@pytest.mark.asyncio
async def test_wrapping_and_times_show_the_whole_line() -> None:
    client = sample(FakeClock())
    client.log(RANK0, "word " * 60 + "END", epoch_ms=client.now_ms)
    async with console(client, size=(80, 24)) as rig:
        pane = await open_logs(rig)
        await rig.until(lambda: "›" in rig.screen_text())
        assert "END" not in rig.screen_text()
        await rig.keys("w", "G")
        await rig.until(lambda: "END" in rig.screen_text())
        last = pane.lines.rows()[-1]
        assert (last.number, last.part) == (pane.view.count - 1, len(pane.lines._chunks(last.number)) - 1)
        await rig.keys("t")
        await rig.until(lambda: "00:00:00.000" in rig.screen_text())
        assert "UTC" in pane.title.text
        await rig.keys("g")
        await rig.until(lambda: shown(pane)[0] == 0)
        before = pane.lines.rows()[0]
        while not pane.view.following:
            pane.lines.scroll_rows(1)
            after = pane.lines.rows()[0]
            assert after >= before
            before = after
        await rig.until(lambda: "FOLLOW" in pane.title.text)
        await rig.keys("t", "t")
        await rig.until(lambda: "relative" in pane.title.text)


@pytest.mark.asyncio
async def test_one_line_is_shown_whole_with_its_json_spelled_out_and_copied() -> None:
    client = writing(5)
    client.log(RANK0, 'INFO {"loss": 0.5, "step": 12}')
    async with console(client) as rig:
        pane = await open_logs(rig)
        copied: list[str] = []
        rig.app.copy_text = lambda text, what: copied.append(f"{what}: {text}")  # type: ignore[method-assign]
        await rig.keys("enter")
        await rig.until(lambda: isinstance(rig.app.screen, TextPage) and '"step": 12' in rig.screen_text())
        assert RANK0 in rig.screen_text()
        await rig.keys("escape")
        await rig.keys("up", "up", "m", "m", "c")
        await rig.until(lambda: copied == ["2 lines: step 3\nstep 4"])
        await rig.keys("c")
        assert pane.lines.marks == {3, 4}


@pytest.mark.asyncio
async def test_all_that_is_shown_is_saved_and_never_over_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with console(writing(300)) as rig:
        pane = await open_logs(rig)
        await rig.keys("ampersand")
        await rig.type("7$")
        await rig.keys("enter")
        await rig.until(lambda: pane.view.count == 30)
        await rig.keys("ctrl+s")
        await rig.until(lambda: rig.jobs.prompt.is_open)
        path = rig.jobs.prompt.input.value
        assert path.startswith(str(tmp_path)) and path.endswith(".log")
        await rig.keys("enter")
        await rig.until(lambda: list(tmp_path.iterdir()) == [tmp_path / path])
        await rig.until(lambda: not pane.saving)
        assert (tmp_path / path).read_text() == "".join(f"step {number}\n" for number in range(7, 300, 10))
        assert (tmp_path / path).stat().st_mode & 0o777 == 0o600
        with pytest.raises(ModelError, match="is there already"):
            rig.app.run_command(f"save-log {path}")
        opened: list[str] = []

        def open_file(file: Path, *, editor: bool) -> None:
            opened.append(f"{editor} {file.read_text()[:7]}")

        monkeypatch.setattr(rig.app, "open_file", open_file)
        await rig.keys("P")
        await rig.until(lambda: opened == ["False step 7\n"])


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    file = LogFile(tmp_path / "a.log")
    file.write(b"half")
    file.abandon()
    assert not list(tmp_path.iterdir())
    file = LogFile(tmp_path / "a.log")
    file.write(b"whole")
    (tmp_path / "a.log").write_text("somebody else's")
    with pytest.raises(ModelError, match="is there already"):
        file.finish()
    file.abandon()
    assert (tmp_path / "a.log").read_text() == "somebody else's"
    with pytest.raises(ModelError, match="cannot write"):
        LogFile(tmp_path / "none" / "a.log")


@pytest.mark.asyncio
async def test_a_log_that_cannot_be_had_says_why_and_comes_by_itself() -> None:
    async with console() as rig:
        rig.client.fail("OpenLogView", RpcFailed("UNAVAILABLE", "finelog is starting"))
        await rig.row(JOB)
        await rig.keys("l")
        await rig.until(lambda: rig.jobs.query(LogPane) and rig.jobs.query_one(LogPane).status.state is State.ERROR)
        assert "finelog is starting" in rig.screen_text()
        await rig.keys("ctrl+r")
        await rig.until(lambda: rig.jobs.query_one(LogPane).view.loaded)


@pytest.mark.asyncio
async def test_a_log_whose_reader_failed_says_so_and_is_read_again_when_asked() -> None:
    async with console(writing(3)) as rig:
        rig.client.fail("OpenLogView", RuntimeError("a mistake of ours"))  # type: ignore[arg-type]
        await rig.row(JOB)
        await rig.keys("l")
        await rig.until(lambda: "this log is not read any more; ^r reads it again" in rig.screen_text())
        assert rig.jobs.query_one(LogPane).status.state is State.ERROR
        await rig.keys("ctrl+r")
        await rig.until(lambda: "step 2" in rig.screen_text())


@pytest.mark.asyncio
async def test_a_silent_store_makes_the_lines_stale_and_they_stay() -> None:
    async with console(writing(50)) as rig:
        pane = await logs_screen(rig, JOB)
        rig.client.freeze()
        rig.clock.advance(13)
        await rig.until(lambda: pane.status.state is State.STALE)
        assert "step 49" in rig.screen_text()
        rig.client.thaw()
        rig.client.log(RANK0, "again")
        await rig.until(lambda: pane.status.state is State.READY and "again" in rig.screen_text())


@pytest.mark.asyncio
async def test_two_tasks_are_followed_at_once_each_with_its_letter() -> None:
    client = writing(3)
    client.log(RANK1, "from rank 1")
    async with console(client, size=(120, 40)) as rig:
        pane = await logs_screen(rig, f"{JOB}/0 {JOB}/1")
        await rig.until(lambda: "B 0" in rig.screen_text())
        lines = [line for line in rig.lines() if "step" in line or "from rank" in line]
        assert [line.split()[0] for line in lines] == ["A"] * 3 + ["B"]
        assert f"A {JOB}/0" in pane.title.text and f"B {JOB}/1" in pane.title.text
        rig.client.log(RANK1, "more")
        await rig.until(lambda: "more" in rig.screen_text())
        await rig.keys("escape")
        await rig.until(lambda: not isinstance(rig.app.screen, LogsScreen))


@pytest.mark.asyncio
async def test_marked_jobs_lead_to_one_view_and_the_place_is_kept() -> None:
    async with console() as rig:
        await rig.row(JOB)
        await rig.keys("space", "space", "l")
        await rig.until(lambda: isinstance(rig.app.screen, LogsScreen))
        screen = rig.app.screen
        assert isinstance(screen, LogsScreen)
        pane = screen.pane
        assert len(pane.view.sources) == 2
        await rig.until(lambda: pane.view.is_whole)
        await rig.keys("w", "t")
        state = screen.view_state()
        assert (state["wrap"], state["times"]) == (True, "UTC")
        opened = len(rig.client.called("OpenLogView"))
        await rig.keys("left_square_bracket")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        await rig.keys("right_square_bracket")
        await rig.until(lambda: rig.app.screen is screen and pane.view.state.fresh)
        await rig.until(lambda: len(rig.client.called("OpenLogView")) > opened)
        assert pane.lines.wrap


@pytest.mark.asyncio
async def test_the_log_of_a_process_is_a_log_and_wrong_ids_are_refused() -> None:
    client = writing(0)
    client.log("/system/controller", "event=job_submitted")
    async with console(client) as rig:
        await logs_screen(rig, "/system/controller")
        await rig.until(lambda: "event=job_submitted" in rig.screen_text())
        for wrong, message in (("", "nothing to show"), ("x y", "must start|begin"), ("/a/b " * 1, "")):
            if message:
                with pytest.raises(ModelError):
                    rig.app.go("logs", wrong)
        with pytest.raises(ModelError, match="too many"):
            rig.app.go("logs", " ".join(f"/ada/j/{number}" for number in range(65)))


@pytest.mark.asyncio
async def test_below_a_log_stands_how_late_it_is() -> None:
    client = writing(5)
    worker = client.pipeline.workers.add(worker_id="w0", attached=True)
    worker.shipper.lag_ms = 7300
    worker.shipper.lost_lines = 12
    client.pipeline.store.shipping.unshipped_since_ms = client.now_ms - 20_000
    async with console(client, size=(160, 40)) as rig:
        pane = await logs_screen(rig, JOB)
        await rig.until(lambda: "lag 7.3s" in pane.strip.text)
        assert "12 lines lost on the way" in pane.strip.text
        assert "would take the last 20s" in pane.strip.text
        assert "last line" in pane.strip.text


@pytest.mark.asyncio
async def test_no_output_yet_has_its_cause() -> None:
    client = writing(0)
    client.pipeline.problems.append("worker w0 is 75 s behind with its log lines")
    async with console(client) as rig:
        pane = await logs_screen(rig, JOB)
        await rig.until(lambda: "No output yet." in rig.screen_text() and "w0 is 75 s behind" in rig.screen_text())
        assert pane.status.state is State.EMPTY
        rig.client.log(RANK0, "first")
        await rig.until(lambda: "first" in rig.screen_text())


@pytest.mark.asyncio
async def test_drawing_touches_the_lines_on_the_screen_alone() -> None:
    async with console(writing(6_000)) as rig:
        pane = await logs_screen(rig, JOB)
        drawn_before = len(pane.lines._texts)
        assert drawn_before <= pane.lines.height + 1
        asked = len(rig.client.called("ReadLines"))
        pane.go_to(3_000)
        await rig.until(lambda: "step 3000" in rig.screen_text())
        assert len(pane.lines._texts) <= pane.lines.height + 1
        assert len(rig.client.called("ReadLines")) - asked <= 3
        pane.lines.post_message(ScrollTo(y=1_000))
        await rig.until(lambda: shown(pane)[0] == 1_000 and "step 1000" in rig.screen_text())
        assert "PAUSED" in pane.title.text


def test_a_gutter_has_letters_and_one_width() -> None:
    gutter = Gutter([LogSource("/a/j/0", PREFIX, "/a/j/0"), LogSource("/a/j/10", PREFIX, "/a/j/10")])
    gutter.look(["/a/j/0:0", "/a/j/10:3"])
    assert [run.text for run in (*gutter.runs("/a/j/0:0"), *gutter.runs("/a/j/10:3"))] == ["A 0 ", "B 3 "]
    single = Gutter([LogSource("/a/j", PREFIX, "/a/j")])
    single.look(["/a/j/0:0", "/a/j/100:0"])
    assert [run.text for run in single.runs("/a/j/0:0")] == ["0:0   "]
    assert [letter(place) for place in (0, 25, 26, 51)] == ["A", "Z", "A1", "Z1"]


def test_times_before_a_line() -> None:
    assert time_text(0, "off", 5) == ""
    assert time_text(1_700_000_000_123, "UTC", 0) == "22:13:20.123 "
    assert time_text(1 << 60, "UTC", 0).strip() == "-"
    assert time_text(1_000, "relative", 61_000).endswith("1m ")


def entry(*texts: str, **fields: Any) -> list[logs_pb2.ViewLine]:
    return [
        logs_pb2.ViewLine(number=n, line=logs_pb2.StoredLine(data=text, part=n, partial=n + 1 < len(texts), **fields))
        for n, text in enumerate(texts)
    ]


def test_a_line_whole() -> None:
    nested = json.dumps({"a": [1, {"b": "\x1b[2J"}]})
    rows = [text for text, _ in entry_lines(entry("head ", nested), 4, 0)]
    assert rows[-1] == "}" and "head " in rows and all(row.isprintable() for row in rows)
    rows = [text for text, _ in entry_lines(entry("x" * 5000), 0, 0)]
    assert [len(row) for row in rows[-2:]] == [4096, 904]
    assert "[" * 3000 in entry_lines(entry("[" * 3000), 0, 0)[-1][0]
    assert "not kept" in entry_lines([logs_pb2.ViewLine(gone=True)], 0, 0)[0][0]
