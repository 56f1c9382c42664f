"""The program `iris`: when it is the command line, when the console, and when neither."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_core.connect import Target
from iris_tui.main import _without_plain, session_for
from iris_tui.plain import follow, table
from providers.fake.clock import FakeClock
from providers.fake.samples import job, sample

if TYPE_CHECKING:
    from collections.abc import Callable

IRIS = Path(sys.executable).with_name("iris")


def run(*words: str, stdin: str = "", env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [IRIS, *words],
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, **(env or {})},
    )


def test_without_a_terminal_it_prints_the_help_and_fails_as_usage() -> None:
    done = run()
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Usage: iris" in done.stderr
    assert "needs a terminal" in done.stderr


def test_with_a_command_it_is_the_command_line_and_loads_no_screen() -> None:
    code = (
        "import sys; sys.argv = ['iris', 'version']\n"
        "from iris_tui.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "import json; print('\\n' + json.dumps([name for name in sys.modules if name.split('.')[0] == 'textual']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout.splitlines()[-1]) == []


@pytest.mark.parametrize(
    "words, rest, plain",
    [
        (["--plain"], [], True),
        (["--cluster", "x", "--plain"], ["--cluster", "x"], True),
        (["--cluster=x", "--plain", "--read-only"], ["--cluster=x", "--read-only"], True),
        (["job", "run", "--plain"], ["job", "run", "--plain"], False),
        (["job", "run", "--", "x", "--plain"], ["job", "run", "--", "x", "--plain"], False),
        (["--cluster", "--plain"], ["--cluster"], True),
        ([], [], False),
    ],
)
def test_plain_is_taken_only_before_a_command(words: list[str], rest: list[str], plain: bool) -> None:
    assert _without_plain(words) == (rest, plain)


def test_an_unknown_cluster_is_one_line_with_a_suggestion() -> None:
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "iris" / "clusters"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text("name: lab\nplatform: {local: }\ncontroller: {local: {port: 9}}\n")
    main, terminal = pty.openpty()
    with subprocess.Popen([IRIS, "--cluster=lba"], stdin=terminal, stdout=terminal, stderr=terminal) as process:
        os.close(terminal)
        said = b""
        while True:
            try:
                part = os.read(main, 4096)
            except OSError:
                break
            if not part:
                break
            said += part
        code = process.wait(30)
    os.close(main)
    assert code == 2
    assert b"no cluster named 'lba'" in said and b"did you mean 'lab'" in said
    assert b"\x1b[?1049h" not in said


def test_a_session_names_its_cluster_for_command_lines() -> None:
    assert session_for(Target("http://h:1", "lab")).selector == "--cluster=lab"
    assert session_for(Target("http://h:1")).selector == "--controller-url=http://h:1"
    assert session_for(Target("http://h:1", "lab"), selector="--config=x.yaml").selector == "--config=x.yaml"


async def _until(condition: Callable[[], object], clock: FakeClock) -> None:
    async with asyncio.timeout(10):
        while not condition():
            clock.advance(0.1)
            await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_the_plain_view_lists_the_jobs_and_then_says_what_changes() -> None:
    clock = FakeClock()
    client = sample(clock)
    said: list[str] = []
    ended = asyncio.Event()
    view = asyncio.create_task(follow(client, "lab", clock, said.append, ended))
    await _until(lambda: any("Changes follow" in line for line in said), clock)
    text = "\n".join(said)
    assert "lab: LIVE" in text and "/bob/[red]brackets[/red]" in text and "\x1b" not in text
    client.put(job("/dan/new", "FAILED", now_ms=clock.now_ms(), counts={"FAILED": 1}, error="bad\nthing"))
    await _until(lambda: "/dan/new: failed, tasks 0/1, bad thing" in said, clock)
    client.break_connection("connection refused by lab:10000")
    await _until(lambda: any("RECONNECTING: connection refused" in line for line in said), clock)
    client.restore()
    await _until(lambda: said[-1] == "lab: LIVE", clock)
    ended.set()
    await _until(view.done, clock)
    await view


def test_plain_lines_are_aligned_and_ids_whole() -> None:
    now = FakeClock().now_ms()
    jobs = [job("/a/" + "x" * 60, "RUNNING", now_ms=now), job("/a/失敗", "FAILED", now_ms=now, error="why " * 40)]
    head, first, second = table(jobs, now)
    assert "/a/" + "x" * 60 in first
    assert head.index("STATE") == first.index("running")
    assert second.endswith("…")
