"""The console in a real terminal against a real controller: signals, a frozen and a killed side, hostile output, a long log."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from tests.integration.local_cluster import Place
from tests.integration.served import Served
from tests.integration.tmux_terminal import IRIS, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import RequireProgram

HOSTILE = r"""
import sys
for text in ("\033]0;stolen title\007", "\033]52;c;c3RvbGVu\007", "\033[?1049l\033[2J\033[H", "\033[?1000h", "\033c", "\x9b31m",
             "\033P1;2q\033\\", "\rover", "\u202eabc", "[bold]b[/bold][@click=app.quit]q[/]", "a" + "\u0301" * 40):
    sys.stdout.buffer.write(text.encode() + b"<end>\n")
print("all said", flush=True)
import time; time.sleep(600)
"""


def window(require_program: RequireProgram, folder: Path, size: tuple[int, int] = (110, 32)) -> Terminal:
    folder.mkdir(parents=True, exist_ok=True)
    return Terminal(require_program("tmux"), Place(folder), *size)


@pytest.fixture
def terminal(require_program: RequireProgram, tmp_path: Path) -> Iterator[Terminal]:
    made = window(require_program, tmp_path)
    yield made
    made.tmux("kill-server")
    made.place.assert_nothing_left(30)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    folder = tmp_path / "served"
    folder.mkdir()
    made = Served(folder, workers=1)
    made.start()
    yield made
    if made.process is not None and made.process.poll() is None:
        made.process.send_signal(signal.SIGCONT)
    made.end()


def submit(served: Served, name: str, *argv: str) -> None:
    with served.client() as client:
        request = pb.LaunchJobRequest(name=name, replicas=1)
        request.entrypoint.run_command.argv.extend(argv)
        request.resources.cpu_millicores = 100
        request.resources.memory_bytes = 100_000_000
        client.call("ControllerService/LaunchJob", request, pb.LaunchJobResponse)


def console_pid(terminal: Terminal) -> int:
    found = [
        pid
        for pid in terminal.place.ours()
        if b"bin/iris\0--controller-url" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGQUIT], ids=lambda n: n.name)
def test_a_signal_leaves_the_terminal_as_it_was_and_is_said(terminal: Terminal, number: signal.Signals) -> None:
    terminal.tmux("new-session", "-d", *terminal.size, "sh")
    terminal.tmux("send-keys", f"{IRIS} --controller-url http://127.0.0.1:9", "Enter")
    terminal.until(lambda s: "Cannot reach" in s, "the console")
    os.kill(console_pid(terminal), number)
    terminal.until(lambda s: f"iris: ended by {number.name}" in s, "one line that says why")
    flags = terminal.tmux("display", "-p", "#{alternate_on} #{mouse_any_flag} #{cursor_flag}").split()
    assert flags == ["0", "0", "1"]
    terminal.tmux("send-keys", "echo code=$?; stty -a | tr ';' '\\n' | grep -cE '(^| )(icanon|echo)( |$)'", "Enter")
    screen = terminal.until(lambda s: "code=" in s.partition("echo code=")[2], "the shell")
    assert f"code={128 + number}" in screen


def test_suspended_it_gives_the_shell_back_and_comes_again(terminal: Terminal) -> None:
    terminal.tmux("new-session", "-d", *terminal.size, "bash", "--norc", "-i")
    terminal.tmux("send-keys", f"{IRIS} --controller-url http://127.0.0.1:9", "Enter")
    terminal.until(lambda s: "Cannot reach" in s, "the console")
    terminal.keys("C-z")
    terminal.until(lambda s: "Stopped" in s, "the shell")
    assert terminal.tmux("display", "-p", "#{alternate_on} #{mouse_any_flag}").split() == ["0", "0"]
    terminal.tmux("send-keys", "fg", "Enter")
    terminal.until(lambda s: "Cannot reach" in s and "RECONNECTING" in s, "the console again")
    terminal.keys(":")
    terminal.until(lambda s: "Take it" in s, "the command line")
    terminal.keys("q", "Enter")
    terminal.until(lambda s: "RECONNECTING" not in s, "the shell at the end")


def test_a_frozen_side_ages_and_a_killed_one_comes_back_without_a_blank(
    terminal: Terminal, served: Served, soak: bool
) -> None:
    submit(served, "/t/steady", "sleep", "600")
    terminal.run(f"{IRIS} --controller-url {served.url}")
    terminal.until(lambda s: "/t/steady" in s and "running" in s and "LIVE" in s, "the running job")
    assert served.process is not None
    served.process.send_signal(signal.SIGSTOP)
    terminal.until(lambda s: "STALE" in s, "that it is stale", within_s=60)
    began = time.monotonic()
    terminal.keys("?")
    terminal.until(lambda s: "Sort by run time" in s, "the help")
    # Escape and what follows reach the terminal in one breath.
    terminal.keys("Escape", ":", "jobs state:running", "Enter")
    terminal.until(lambda s: "/ state:running" in s and "/t/steady" in s, "the filtered jobs")
    assert time.monotonic() - began < 40, "no key waited for the frozen side"
    served.process.send_signal(signal.SIGCONT)
    terminal.until(lambda s: "LIVE" in s, "that it is live again")

    served.kill()
    terminal.until(lambda s: "RECONNECTING" in s, "that the connection broke")
    until = time.monotonic() + (60 if soak else 4)
    while time.monotonic() < until:
        screen = terminal.screen()
        assert "/t/steady" in screen
        assert not terminal.code.exists()
        time.sleep(0.5)
    served.start()
    screen = terminal.until(lambda s: "LIVE" in s and "running" in s, "that it is live again")
    assert screen.count("/t/steady") == 2, "one row, and the line about the selected one"

    served.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    terminal.keys(":", "q", "Enter")
    assert terminal.end() == 0
    assert time.monotonic() - began < 25, "quitting does not wait for a dead side"
    served.process.send_signal(signal.SIGCONT)


def test_what_a_task_prints_cannot_drive_the_terminal(terminal: Terminal, served: Served) -> None:
    submit(served, "/t/hostile", "python3", "-c", HOSTILE)
    terminal.run(f"{IRIS} --controller-url {served.url}")
    terminal.until(lambda s: "/t/hostile" in s and "LIVE" in s, "the job")
    terminal.tmux("select-pane", "-T", "mine")
    terminal.keys("l")
    screen = terminal.until(lambda s: "all said" in s, "the log")
    assert screen.count("<end>") == 11
    assert "[bold]b[/bold][@click=app.quit]q[/]" in screen
    assert "/t/hostile" in screen.splitlines()[0] or "LIVE" in screen.splitlines()[0]
    state = terminal.tmux("display", "-p", "#{pane_title}|#{alternate_on}|#{insert_flag}|#{origin_flag}").strip()
    assert state == "mine|1|0|0"
    assert terminal.tmux("show-buffer") == ""
    terminal.keys("Escape")
    terminal.until(lambda s: "all said" not in s, "the jobs")
    terminal.keys("q")
    terminal.until(lambda s: "Quit the console?" in s, "the question")
    terminal.keys("y")
    assert terminal.end() == 0


def test_a_long_log_is_never_empty_and_its_first_line_is_found(terminal: Terminal, served: Served) -> None:
    script = "import time\nfor i in range(60000): print(f'n{i}')\nprint('written', flush=True)\ntime.sleep(600)"
    submit(served, "/t/long", "python3", "-c", script)
    terminal.run(f"{IRIS} --controller-url {served.url}")
    terminal.until(lambda s: "/t/long" in s and "LIVE" in s, "the job")
    terminal.keys("l")
    terminal.until(lambda s: "n" in s and "FOLLOW" in s, "the log")
    terminal.until(lambda s: "written" in s, "its end")
    terminal.tmux("resize-window", "-x", "60", "-y", "15")
    terminal.until(lambda s: "n59999" in s and len(s.splitlines()[0]) <= 60, "its end in a small window")
    terminal.tmux("resize-window", "-x", "100", "-y", "30")
    terminal.until(lambda s: "n59999" in s, "its end again")
    terminal.keys("g")
    terminal.until(lambda s: "n0" in s.split() and "n1" in s.split() and "PAUSED" in s, "its first line")
    terminal.keys("&")
    terminal.until(lambda s: "& regex" in s, "the pattern's line")
    terminal.keys("-l", "n5999[0-4]$")
    terminal.keys("Enter")
    screen = terminal.until(lambda s: "n59994" in s and "5 lines" in s, "the hits of the whole log")
    assert "n59995" not in screen
    rss = next(
        line for line in Path(f"/proc/{console_pid(terminal)}/status").read_text().splitlines() if "VmRSS" in line
    )
    assert int(rss.split()[1]) < 200_000
    terminal.keys(":", "q", "Enter")
    assert terminal.end() == 0


def test_a_frozen_cluster_is_left_and_found_again(terminal: Terminal, tmp_path: Path) -> None:
    """C54: going from a cluster that no longer answers to another one and back, without a wait and without a mix-up."""
    clusters = terminal.place.home / ".config" / "iris" / "clusters"
    clusters.mkdir(parents=True)
    sides: dict[str, Served] = {}
    try:
        for name in ("a", "b"):
            (tmp_path / name).mkdir()
            side = sides[name] = Served(tmp_path / name, workers=1)
            side.config.write_text(side.config.read_text().replace("name: served", f"name: {name}"))
            (clusters / f"{name}.yaml").write_text(side.config.read_text())
            side.start()
            submit(side, f"/t/only-{name}", "sleep", "600")
        frozen = sides["a"].process
        assert frozen is not None
        terminal.run(f"{IRIS} --cluster a")
        terminal.until(lambda s: "/t/only-a" in s and "running" in s and "LIVE" in s, "the job of a")
        frozen.send_signal(signal.SIGSTOP)
        terminal.until(lambda s: "STALE" in s, "that a is stale", within_s=60)
        began = time.monotonic()
        terminal.keys(":", "cluster b", "Enter")
        screen = terminal.until(lambda s: "/t/only-b" in s and "LIVE" in s, "the job of b", within_s=60)
        assert "/t/only-a" not in screen
        terminal.keys("?")
        terminal.until(lambda s: "Sort by run time" in s, "the help")
        terminal.keys("Escape", ":", "cluster a", "Enter")
        screen = terminal.until(lambda s: "/t/only-a" in s and "STALE" in s, "the old data of a, marked", within_s=60)
        assert time.monotonic() - began < 80, "nothing waited for the frozen side"
        assert "/t/only-b" not in screen
        frozen.send_signal(signal.SIGCONT)
        screen = terminal.until(lambda s: "LIVE" in s, "that a is live again")
        assert screen.count("/t/only-a") == 2, "one row, and the line about the selected one"
        frozen.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        terminal.keys(":", "q", "Enter")
        assert terminal.end() == 0
        assert time.monotonic() - began < 25, "quitting does not wait for a dead side"
    finally:
        for side in sides.values():
            if side.process is not None and side.process.poll() is None:
                side.process.send_signal(signal.SIGCONT)
            side.end()
