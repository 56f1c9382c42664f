"""The console as lines: the same views, commands and gates, printed; nothing waits where nobody reads or answers."""

from __future__ import annotations

import io
import random
from typing import TYPE_CHECKING

import pytest

from iris_core.live.backoff import Backoff
from iris_tui.plain import SIZE, Lines, PlainApp
from iris_tui.session import Session
from providers.fake.clock import FakeClock
from providers.fake.samples import sample

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient
    from providers.fake.client import FakeClient

pytestmark = pytest.mark.asyncio
JOB = "/ada/train-llama"


class Closed(io.StringIO):
    """Whoever read has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


async def told(
    *lines: str, asks: bool = True, sink: io.StringIO | None = None, environment: str = ""
) -> tuple[str, PlainApp, FakeClient]:
    """What was printed, where these lines are typed, the app when it has ended, and its cluster."""
    clock = FakeClock()
    client = sample(clock)

    async def connect() -> AsyncClient:
        return client

    session = Session("lab", connect, clock, backoff=Backoff(rng=random.Random(1)), environment=environment)
    out = sink or io.StringIO()
    app = PlainApp(session, Lines(io.StringIO("".join(f"{line}\n" for line in lines)), out), asks=asks)
    await app.run_async(headless=True, size=SIZE, mouse=False)
    return out.getvalue(), app, client


def ended(client: FakeClient) -> list[str]:
    return [call.request.job_id for call in client.calls if call.method.endswith("/TerminateJob")]


async def test_without_anybody_to_ask_it_prints_the_first_view_and_ends() -> None:
    text, app, client = await told("cancel " + JOB, asks=False)
    assert app.return_code == 0 and not ended(client)
    assert text.startswith("lab  jobs  LIVE\n") and "/bob/[red]brackets[/red]" in text and JOB in text
    assert "\x1b" not in text and "> \n" not in text


async def test_nobody_reads() -> None:
    _, app, _ = await told("jobs", sink=Closed())
    assert app.return_code == 141


async def test_views_are_those_of_the_console() -> None:
    text, app, _ = await told("jobs state=failed", "tasks", "describe " + JOB, "nonsense", "help", "quit", "jobs")
    assert app.return_code == 0
    jobs, tasks, page, rest = text.split("> lab  ")[1:2] + text.split("> lab  ")[2:4] + [text]
    assert "/dan/oom" in jobs and JOB not in jobs
    assert JOB + "/7" in tasks
    assert "Resources" in page
    assert "error: no command 'nonsense'" in rest and "back, help, quit" in rest and rest.endswith("> ")


@pytest.mark.parametrize("answers", [(), ("no",), ("yes",), ("yes", "", "no")])
async def test_what_is_not_confirmed_is_not_done(answers: tuple[str, ...]) -> None:
    text, app, client = await told("cancel " + JOB, *answers)
    assert "not confirmed, nothing was changed" in text
    assert not ended(client) and app.return_code == 0


async def test_what_is_confirmed_is_done_once_and_from_any_view() -> None:
    text, _, client = await told("overview", "cancel " + JOB, "yes", "it hangs", "yes")
    assert "Cancel /ada/train-llama on lab" in text and "the same: iris-core --cluster=lab job cancel " + JOB in text
    assert "ended" in text.rpartition("Cancel /ada/train-llama: ")[2]
    assert ended(client) == [JOB]


async def test_production_wants_a_reason() -> None:
    text, _, client = await told("cancel " + JOB, "yes", "", "yes", environment="production")
    assert "on lab, PRODUCTION" in text and "not confirmed" in text and not ended(client)


async def test_a_form_is_refused_and_the_next_command_is_heard() -> None:
    text, _, _ = await told("rerun " + JOB, "tasks")
    assert "asks with a form" in text and "lab  tasks  LIVE" in text


async def test_nothing_to_go_back_to_is_said_as_that() -> None:
    text, _, _ = await told("tasks", "back", "previous", "quit")
    assert "asks with a form" not in text and "nothing to go back to" in text
    assert text.rpartition("> lab  ")[2].startswith("jobs  LIVE")


async def test_words_in_the_middle_of_an_empty_view_have_no_blank_lines_above() -> None:
    text, _, _ = await told("jobs zzz", "job /ada/nope")
    assert "matches zzz" in text and "no job /ada/nope" in text
    assert "\n\n\n\n" not in text
