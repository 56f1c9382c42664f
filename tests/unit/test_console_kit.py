"""The console's kit under an operator's hands: own keys, colours, read-only and back, clusters, what is remembered, bad input."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from textual import events
from textual.widgets import Button, Input

from iris_core.client.context import headers_now
from iris_core.config.console import ConsoleSettings, parse_settings
from iris_core.contracts import Denied
from iris_core.live.watch import Link
from iris_core.model.errors import ModelError
from iris_tui.actions import ACTIONS
from iris_tui.app import IrisApp
from iris_tui.chooser import ChooserApp
from iris_tui.gate import MenuScreen, QuitScreen
from iris_tui.glyphs import UNICODE
from iris_tui.pages import TextPage
from iris_tui.saved import Saved, load_saved
from iris_tui.session import Session
from iris_tui.write_screen import WriteScreen
from providers.fake.client import FakeClient
from providers.fake.clock import FakeClock
from providers.fake.samples import job, sample
from tests.unit.test_console_app import Rig, console

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from google.protobuf.message import Message

    from iris_core.contracts import AsyncClient, R

pytestmark = pytest.mark.asyncio


def page_text(rig: Rig) -> str:
    screen = rig.app.screen
    assert isinstance(screen, TextPage), screen
    return screen.text.plain


async def page(rig: Rig) -> str:
    await rig.until(lambda: isinstance(rig.app.screen, TextPage) and rig.app.screen.text.count())
    return page_text(rig)


# --- own keys --------------------------------------------------------------------------------------------------------


async def test_own_keys_work_and_are_shown_everywhere() -> None:
    settings = parse_settings("keys: {list.filter: [f18], app.goto: [f19], target.describe: []}")
    async with console(settings=settings) as rig:
        assert "F18 Filter" in rig.lines()[-1] and "Describe" not in rig.lines()[-1]
        await rig.keys("slash")
        assert not rig.jobs.prompt.is_open
        await rig.keys("f18")
        assert rig.jobs.prompt.asks("/ filter")
        await rig.keys("escape", "f19")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))
        await rig.keys("escape", "d")
        assert rig.app.screen is rig.jobs
        await rig.keys("question_mark")
        text = await page(rig)
        assert any("F18" in line and ":filter " in line for line in text.splitlines())
        assert any(line.split()[:2] == ["F19", "j"] for line in text.splitlines())


async def test_what_is_wrong_with_the_settings_is_a_page_at_the_start_and_the_console_works() -> None:
    settings = parse_settings("keys: {app.goto: [slash], list.fitler: [f18]}\ncolour: red\n")
    async with console(settings=settings, ready=False) as rig:
        text = await page(rig)
        assert "already means 'Filter'" in text and "did you mean 'list.filter'" in text and "'colour'" in text
        await rig.keys("escape")
        await rig.until(lambda: rig.app.screen is rig.jobs and rig.jobs.store.order)
        await rig.keys("slash")
        assert rig.jobs.prompt.asks("/ filter")


async def test_a_keymap_without_quit_still_quits() -> None:
    settings = parse_settings("keys: {app.quit: [], app.back: []}")
    async with console(settings=settings) as rig:
        await rig.keys("q")
        assert rig.app.screen is rig.jobs
        await rig.keys("ctrl+c")
        await rig.until(lambda: isinstance(rig.app.screen, QuitScreen))


# --- colours and characters ------------------------------------------------------------------------------------------


async def test_without_colours_no_cell_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with console(environment="production") as rig:
        assert "PROD" in rig.lines()[0]
        styles = [segment.style for strip in rig.app.screen._compositor.render_strips() for segment in strip]
        assert any(style and style.reverse for style in styles)
        for style in styles:
            assert style is None or (style.color is None or style.color.is_default)
            assert style is None or (style.bgcolor is None or style.bgcolor.is_default)
        with pytest.raises(ModelError, match="NO_COLOR"):
            rig.app.run_command("theme light")


async def test_each_cluster_has_the_colours_that_are_settled_for_it() -> None:
    settings = parse_settings("theme: light\nclusters: {lab: {theme: contrast}}")
    async with console(settings=settings) as rig:
        assert rig.app.theme == "iris-contrast"
        rig.app.run_command("theme dark")
        assert rig.app.theme == "iris-dark"
        with pytest.raises(ModelError, match="did you mean 'light'"):
            rig.app.run_command("theme ligth")


async def test_a_terminal_of_ascii_gets_nothing_else() -> None:
    client = sample(FakeClock())
    client.put(job("/eva/übung", "RUNNING", now_ms=client.now_ms, age_min=1))
    async with console(client, settings=parse_settings("glyphs: ascii"), glyphs=None) as rig:
        await rig.row("/eva/übung")
        for keys in ((), ("slash",), ("escape", "x"), ("escape", "question_mark")):
            await rig.keys(*keys)
            assert rig.screen_text().isascii()
        assert "/eva/" in rig.app.session.tree.store.order[0] or rig.jobs.store.order


# --- read-only -------------------------------------------------------------------------------------------------------


class Watchful(FakeClient):
    """Notes whether each call asks the server to refuse changes."""

    def __init__(self) -> None:
        super().__init__(now_ms=FakeClock().now_ms())
        self.asked: list[tuple[str, bool]] = []

    async def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        self.asked.append((method.rpartition("/")[2], ("iris-read-only", "1") in headers_now()))
        return await super().call(method, request, response, timeout_s=timeout_s)

    async def stream(self, method: str, request: Message, response: type[R]) -> AsyncIterator[R]:
        self.asked.append((method.rpartition("/")[2], ("iris-read-only", "1") in headers_now()))
        first = True
        async for item in super().stream(method, request, response):
            assert first or headers_now() == [], "nothing of the opening is left around the reading"
            first = False
            yield item


@asynccontextmanager
async def session_of(client: FakeClient, **options: Any) -> AsyncIterator[Session]:
    async def connect() -> AsyncClient:
        return client

    session = Session("lab", connect, FakeClock(), **options)
    task = asyncio.create_task(session.run())
    try:
        for _ in range(2000):
            if session.role and session.tree.loaded:
                break
            await asyncio.sleep(0.005)
        assert session.role and session.tree.loaded
        yield session
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_every_call_of_a_read_only_session_says_so_and_none_after_it_was_lifted() -> None:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    client = Watchful()
    async with session_of(client, read_only=True) as session:
        assert ("Watch", True) in client.asked
        assert ("GetCurrentUser", False) in client.asked, "what the server says of us is not what we asked it to say"
        for read_only in (True, False, True):
            session.set_read_only(read_only)
            await session.client.call("ControllerService/ListJobs", pb.ListJobsRequest(), pb.ListJobsResponse)
            assert client.asked[-1] == ("ListJobs", read_only)


async def test_read_only_is_a_word_in_the_header_and_offers_no_change() -> None:
    async with console() as rig:
        rig.app.run_command("readonly")
        rig.jobs.flush_now()
        assert "READ-ONLY" in rig.lines()[0]
        for action in ACTIONS:
            assert bool(rig.app.refusal(action)) is action.mutates, action.id
        await rig.row("/ada/train-llama")
        await rig.keys("x")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))
        screen = rig.app.screen
        assert isinstance(screen, MenuScreen)
        assert not {name for _, name, _ in screen.entries} & {action.id for action in ACTIONS if action.mutates}
        await rig.keys("escape")
        rig.app.run_command("write")
        await rig.until(lambda: "READ-ONLY" not in rig.lines()[0])
        assert "WRITE" not in rig.lines()[0], "nothing ends by itself where it was not opened read-only"
        assert not any(rig.app.refusal(action) for action in ACTIONS)


async def test_a_console_that_was_opened_read_only_returns_to_it() -> None:
    async with console(read_only=True, settings=parse_settings("write_minutes: 5")) as rig:
        rig.app.run_command("write")
        await rig.until(lambda: "WRITE 5m" in rig.lines()[0])
        rig.app.check_write()
        assert not rig.app.session.read_only
        rig.clock.advance(5 * 60)
        rig.app.check_write()
        await rig.until(lambda: "READ-ONLY" in rig.lines()[0])


async def test_changes_on_production_are_allowed_by_typing_its_name() -> None:
    async with console(read_only=True, environment="production") as rig:
        rig.app.run_command("write")
        await rig.until(lambda: isinstance(rig.app.screen, WriteScreen))
        screen = rig.app.screen
        await rig.until(lambda: rig.app.focused is not None and rig.app.focused.id == "write-cancel")
        assert "PROD" in rig.screen_text() and "15 minutes" in rig.screen_text()
        screen.query_one(Input).focus()
        await rig.type("la")
        assert screen.query_one("#write-confirm", Button).disabled
        await rig.keys("enter")
        await rig.type("b")
        await rig.keys("enter")
        assert rig.app.session.read_only, "one Enter is not enough"
        await rig.keys("enter")
        await rig.until(lambda: not rig.app.session.read_only)
        rig.app.run_command("readonly")
        rig.app.run_command("write")
        await rig.until(lambda: isinstance(rig.app.screen, WriteScreen))
        await rig.keys("escape")
        assert rig.app.session.read_only


async def test_what_a_token_forbids_nothing_lifts() -> None:
    async with console() as rig:
        rig.app.session.locked = "the token of this console is read-only"
        assert rig.app.session.read_only
        with pytest.raises(ModelError, match="token of this console"):
            rig.app.run_command("write")


async def test_an_expired_token_is_tried_anew_with_another_connection() -> None:
    made: list[FakeClient] = []

    async def connect() -> AsyncClient:
        made.append(FakeClient(now_ms=FakeClock().now_ms()))
        if len(made) == 1:
            made[0].deny("the token has expired")
        return made[-1]

    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    session = Session("lab", connect, FakeClock())
    for _ in range(2):
        try:
            await session.client.call("ControllerService/ListJobs", pb.ListJobsRequest(), pb.ListJobsResponse)
        except Denied as error:
            assert error.status == "UNAUTHENTICATED"
    assert len(made) == 2


# --- clusters --------------------------------------------------------------------------------------------------------


async def test_a_cluster_is_chosen_from_all_that_are_known_and_found_again_as_it_was_left() -> None:
    from iris_core.config.places import config_home

    folder = config_home() / "iris" / "clusters"
    folder.mkdir(parents=True)
    (folder / "eu-prod.yaml").write_text("name: eu-prod\n")

    def open_session(name: str) -> Session:
        clock = FakeClock()
        fake = sample(clock)

        async def connect() -> AsyncClient:
            return fake

        return Session(name, connect, clock, environment="production")

    async with console(open_session=open_session) as rig:
        rig.app.run_command("jobs state:running")
        rig.app.run_command("cluster")
        await rig.until(lambda: any(line.split()[2:4] == ["eu-prod", "PROD"] for line in rig.lines()))
        assert "LIVE  (this one)" in rig.screen_text()
        await rig.keys("2")
        await rig.until(lambda: rig.app.session.name == "eu-prod" and rig.app.theme == "iris-production")
        await rig.until(lambda: "PROD" in rig.lines()[0] and "eu-prod" in rig.lines()[0])
        rig.app.run_command("cluster lab")
        await rig.until(lambda: rig.app.session.name == "lab")
        assert rig.jobs.filter is not None and rig.jobs.filter.text == "state:running"
        assert set(rig.app.sessions) == {"lab", "eu-prod"}


# --- remembered ------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def remembered(saved: Saved, settings: ConsoleSettings | None = None) -> AsyncIterator[Rig]:
    clock = FakeClock()
    fake = sample(clock)

    async def connect() -> AsyncClient:
        return fake

    session = Session("lab", connect, clock)
    session.saved = saved
    app = IrisApp(session, glyphs=UNICODE, settings=settings)
    async with app.run_test(size=(120, 40)) as pilot:
        rig = Rig(app, pilot, fake, clock)
        await rig.until(lambda: rig.jobs.jobs.loaded and not rig.jobs.store.dirty and session.role)
        yield rig


async def test_the_console_opens_as_the_cluster_was_left() -> None:
    async with remembered(load_saved("lab")) as rig:
        rig.app.run_command("jobs state:running")
        rig.jobs.sort_by("name", reverse=True)
        rig.app.run_command("save-filter busy ones")
        await rig.keys("colon", *"jobs user:ada", "enter")
        rig.app.exit(0)
    saved = load_saved("lab")
    assert saved.screen == "jobs"
    assert saved.views["jobs"]["filter"] == "user:ada"
    assert saved.histories["command"] == ["jobs user:ada"]
    assert saved.filters == {"job": {"busy ones": "state:running"}}
    async with remembered(saved) as rig:
        assert rig.jobs.filter is not None and rig.jobs.filter.text == "user:ada"
        assert (rig.jobs.table.sorted_by, rig.jobs.table.reversed) == ("name", True)
        await rig.keys("ctrl+f")
        await rig.until(lambda: isinstance(rig.app.screen, MenuScreen))
        assert "busy ones:  state:running" in rig.screen_text()
        await rig.keys("1")
        await rig.until(lambda: rig.jobs.filter is not None and rig.jobs.filter.text == "state:running")
        await rig.keys("colon", "up")
        assert rig.jobs.prompt.input.value == "jobs user:ada"
    async with remembered(load_saved("lab"), parse_settings("restore: false")) as rig:
        assert rig.jobs.filter is None


async def test_what_was_remembered_and_makes_no_sense_any_more_changes_nothing() -> None:
    saved = Saved(
        screen="no-such-screen", subject="/x", views={"jobs": {"filter": "no:such~[", "sort": "nothing", "x": 1}}
    )
    async with remembered(saved) as rig:
        assert rig.jobs.filter is None and rig.jobs.store.order


async def test_named_filters_are_saved_chosen_and_forgotten() -> None:
    async with console() as rig:
        with pytest.raises(ModelError, match="no filter is on"):
            rig.app.run_command("save-filter x")
        rig.app.run_command("jobs state:running")
        rig.app.run_command("save-filter x")
        rig.app.run_command("jobs user:bob")
        rig.app.run_command("filters x")
        assert rig.jobs.filter is not None and rig.jobs.filter.text == "state:running"
        rig.app.run_command("forget-filter x")
        with pytest.raises(ModelError, match="no filter is called"):
            rig.app.run_command("filters x")


# --- how it fares ----------------------------------------------------------------------------------------------------


async def test_the_debug_page_says_how_the_console_fares_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IRIS_TOKEN", "hf_aaaaaaaaaaaaaaaaaaaaaaaa")
    async with console() as rig:
        rig.app.watchdog.lateness.beat(0.6, 0.0, 0, "JobsScreen.flush (jobs.py:87)")
        await rig.keys("o", "colon", *"debug", "enter")
        text = await page(rig)
        assert "LIVE" in text and "10 rows" in text
        assert "600 ms late: JobsScreen.flush" in text and "list.reverse app.command app.debug" in text
        assert "textual" in text and "hf_aaaa" not in text


async def test_after_a_sleep_every_connection_is_tried_at_once() -> None:
    async with console() as rig:
        rig.client.break_connection("connection refused")
        await rig.until(lambda: rig.app.session.link.link is Link.RECONNECTING)
        rig.client.restore()
        rig.app.woke()
        await rig.until(lambda: rig.app.session.link.link is Link.LIVE)


async def test_a_crash_report_has_what_is_needed_and_no_secret() -> None:
    async with console() as rig:
        await rig.keys("o")
        try:
            raise ValueError("cannot reach https://ada:hunter2@lab/ with HF_TOKEN=hf_aaaaaaaaaaaaaaaaaaaaaaaa")
        except ValueError as error:
            text = rig.app.crash_text(error)
        assert "# textual: 8.2.8" in text and "# screen: jobs" in text and "# last actions: list.reverse" in text
        assert "test_a_crash_report_has_what_is_needed" in text
        assert "hunter2" not in text and "hf_aaaa" not in text


# --- bad input -------------------------------------------------------------------------------------------------------

NASTY = {
    "/m/[bold]x[/bold]": "markup",
    "/w/" + "漢字" * 20: "wide characters",
    "/l/" + "n" * 300: "300 characters",
}


async def test_names_of_every_kind_are_literal_and_break_no_line() -> None:
    clock = FakeClock()
    client = FakeClient(now_ms=clock.now_ms())
    for name in NASTY:
        client.put(job(name, "RUNNING", now_ms=clock.now_ms(), age_min=1))
    async with console(client, size=(80, 24)) as rig:
        for name in NASTY:
            await rig.row(name)
            strips = rig.app.screen._compositor.render_strips()
            assert {strip.cell_length for strip in strips} == {80}
        assert "[bold]x[/bold]" in rig.screen_text()


async def test_a_terminal_may_shrink_to_40x10_and_grow_again() -> None:
    async with console() as rig:
        await rig.row("/cleo/sweep-lr")
        for keys in ((), ("x",), ("escape", "question_mark")):
            await rig.keys(*keys)
            await rig.pilot.resize_terminal(40, 10)
            await rig.pilot.pause()
            assert {strip.cell_length for strip in rig.app.screen._compositor.render_strips()} == {40}
            assert len(rig.lines()) == 10
            await rig.pilot.resize_terminal(120, 40)
            await rig.pilot.pause()
        await rig.keys("escape")
        await rig.until(lambda: rig.app.screen is rig.jobs)
        assert rig.selected() == "/cleo/sweep-lr"


async def test_a_paste_of_a_megabyte_is_cut_and_said() -> None:
    async with console() as rig:
        await rig.keys("slash")
        rig.app.post_message(events.Paste("x" * 1_000_000))
        await rig.until(lambda: rig.jobs.prompt.input.value)
        assert len(rig.jobs.prompt.input.value) <= 4096
        assert "1,000,000" in rig.screen_text()
        await rig.keys("escape")
        await rig.until(lambda: not rig.jobs.prompt.is_open)


async def test_the_key_bar_has_few_keys_all_whole_and_always_ends_with_help() -> None:
    async with console(size=(80, 24)) as rig:
        for width in (80, 60, 40, 30):
            await rig.pilot.resize_terminal(width, 24)
            await rig.until(lambda width=width: rig.app.size.width == width)  # type: ignore[misc]
            rig.jobs.flush_now()
            bar = rig.jobs.keybar.text
            assert bar.rstrip().endswith("? Help") and "…" not in bar and len(bar) <= width
        await rig.pilot.resize_terminal(200, 24)
        await rig.until(lambda: rig.app.size.width == 200)
        rig.jobs.flush_now()
        assert len(rig.jobs.keybar.text.split("  ")) <= 9


async def test_the_first_question_says_which_cluster_is_production() -> None:
    app = ChooserApp(["eu-prod", "lab"], {"eu-prod": "PROD"})
    async with app.run_test(size=(60, 12)) as pilot:
        await pilot.pause()
        lines = [strip.text for strip in app.screen._compositor.render_strips()]
        assert any(line.split() == ["eu-prod", "PROD"] for line in lines)
        assert "`iris-core cluster start --local`" in " ".join(" ".join(lines).split())
        await pilot.press("down", "enter")
    assert app.return_value == "lab"
