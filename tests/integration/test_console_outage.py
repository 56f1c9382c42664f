"""The console in real terminals while the real controller goes silent, dies and comes back under load.

Four consoles, on Jobs, Tasks, Logs and Overview. At no look may one of them have ended or show an empty pane; each says that
what it shows is old, and how old; and afterwards each shows what the cluster says, every row and every line once.
With `IRIS_SOAK=1` the controller is away for a minute instead of a few seconds.
"""

from __future__ import annotations

import json
import os
import re
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_core.contracts import IrisError
from tests.integration.local_cluster import Place
from tests.integration.served import Served, launch, served, wait_jobs
from tests.integration.tmux_terminal import IRIS, Terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import RequireProgram

AWAY_S = 60 if os.environ.get("IRIS_SOAK") == "1" else 3
JOBS = 18
STEADY = "/k/steady"
WORDS = {"jobs": "jobs", "tasks": "tasks", "logs": f"logs {STEADY}/0", "overview": "overview"}
KNOWN = {"jobs": "/k/", "tasks": "/k/", "logs": "line ", "overview": "Tasks "}
ROW = re.compile(r"(/k/[a-z0-9-]+)(?:/0)? .*?\b(running|succeeded|failed|pending|assigned|building)\b")
BLANK = re.compile("Loading|Cannot reach|No jobs|No tasks")

# Says each line twice: to its output and to a file.
SCRIPT = 'n=0; while :; do echo "line $n"; echo "line $n" >>"$1"; n=$((n+1)); sleep 0.2; done'


class Load(threading.Thread):
    """Submits one short job after the other, three at a time, and the same one again while the controller does not answer."""

    def __init__(self, environment: Served) -> None:
        super().__init__(daemon=True)
        self.environment = environment
        self.names: list[str] = []
        self.go_on = threading.Semaphore(JOBS // 3)
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            with self.environment.client() as client:
                for number in range(JOBS):
                    self.go_on.acquire()
                    name = f"/k/load-{number:02}"
                    while True:
                        try:
                            launch(client, name, ["sleep", "0.3"], request_id=name)
                        except IrisError:
                            time.sleep(0.1)
                            continue
                        break
                    self.names.append(name)
        except BaseException as error:
            self.failed = error

    def more(self) -> None:
        """The next third."""
        self.go_on.release(JOBS // 3)


class Consoles:
    """The four; every look is at all of them, and asserts that none is empty."""

    def __init__(self, terminals: dict[str, Terminal]) -> None:
        self.terminals = terminals

    def look(self) -> dict[str, str]:
        screens = {}
        for name, terminal in self.terminals.items():
            assert not terminal.code.exists(), f"{name} has ended"
            screens[name] = screen = terminal.screen()
            assert KNOWN[name] in screen and not BLANK.search(screen), f"{name} is blank:\n{screen}"
        return screens

    def until(self, holds: Callable[[str], object], what: str, within_s: float = 90) -> dict[str, str]:
        deadline = time.monotonic() + within_s
        while True:
            screens = self.look()
            waiting = [name for name, screen in screens.items() if not holds(screen)]
            if not waiting:
                return screens
            assert time.monotonic() < deadline, f"{waiting[0]} never showed {what}:\n{screens[waiting[0]]}"
            time.sleep(0.1)


@pytest.fixture
def consoles(require_program: RequireProgram, tmp_path: Path) -> Iterator[Consoles]:
    place = Place(tmp_path / "consoles")
    made = Consoles({name: Terminal(require_program("tmux"), place, 120, 40, name) for name in WORDS})
    yield made
    for terminal in made.terminals.values():
        terminal.close()
    place.assert_nothing_left(30)


def live(screen: str) -> bool:
    return "LIVE" in screen.partition("\n")[0]


def old(screen: str) -> int:
    """How old what a pane shows is, in seconds, as it says; -1 = it says nothing of the kind."""
    said = [int(n) * (60 if unit == "m" else 1) for n, unit in re.findall(r"STALE (\d+)([sm])", screen)]
    return max(said, default=-1)


def is_drawn(name: str, screen: str, rows: int) -> bool:
    """Whether it is drawn anew after a change of size: until then the terminal cuts what was there as it likes."""
    return len(screen.splitlines()) == rows and KNOWN[name] in screen and "STALE" in screen


def numbers(screen: str) -> list[int]:
    return [int(n) for n in re.findall(r"\bline (\d+)\b", screen)]


def is_whole(seen: list[int]) -> bool:
    """Whether no number is missing or there twice."""
    return bool(seen) and seen == list(range(seen[0], seen[0] + len(seen)))


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_no_end_no_blank(consoles: Consoles, tmp_path: Path) -> None:
    written = tmp_path / "written"
    folder = tmp_path / "cluster"
    folder.mkdir()
    with served(folder) as environment, environment.client() as client:
        launch(client, STEADY, ["sh", "-c", SCRIPT, "sh", str(written)])
        load = Load(environment)
        load.start()
        for terminal in consoles.terminals.values():
            terminal.run(f"{IRIS} --controller-url={environment.url}")
        for name, terminal in consoles.terminals.items():
            terminal.until(lambda s: "LIVE" in s, "a live console")
            terminal.type(f":{WORDS[name]}")
            terminal.until(lambda s, name=name: KNOWN[name] in s and live(s), f"{name} with rows")  # type: ignore[misc]
        silent(consoles, environment, load)
        before = dead(consoles, environment, load)
        load.more()
        load.join(60)
        assert load.failed is None and len(load.names) == JOBS
        wait_jobs(client, load.names)
        compare(consoles, environment, load.names, written, before)


def silent(consoles: Consoles, environment: Served, load: Load) -> None:
    """It hangs; meanwhile the windows are made tiny and large again."""
    assert environment.process is not None
    environment.process.send_signal(signal.SIGSTOP)
    load.more()
    try:
        consoles.until(lambda s: old(s) >= 0 and not live(s), "that it is stale")
        for columns, rows in ((40, 10), (120, 40)):
            for name, terminal in consoles.terminals.items():
                terminal.resize(columns, rows)
                terminal.until(lambda s: is_drawn(name, s, rows), f"{name} in {rows} lines")  # noqa: B023
            consoles.look()
    finally:
        environment.process.send_signal(signal.SIGCONT)
    consoles.until(lambda s: live(s) and old(s) < 0, "that it is live again")


def dead(consoles: Consoles, environment: Served, load: Load) -> int:
    """It dies and stays away; returns the last line of the log that was seen before."""
    before = max(numbers(consoles.look()["logs"]))
    environment.kill()
    consoles.until(lambda s: old(s) >= 1, "its age")
    consoles.until(lambda s: old(s) >= AWAY_S, "its age growing", AWAY_S + 90)
    environment.start()
    consoles.until(lambda s: live(s) and old(s) < 0, "that it is live again")
    return before


def compare(consoles: Consoles, environment: Served, names: list[str], written: Path, before: int) -> None:
    """What the consoles show, against the command line and the file that the task wrote itself."""
    place = next(iter(consoles.terminals.values())).place
    done = place.run(f"--controller-url={environment.url}", "job", "list", "--limit=0", "-o", "jsonl")
    said = sorted((job["job_id"], job["state"]) for job in map(json.loads, done.out.splitlines()))
    assert [name for name, _ in said] == [*names, STEADY]

    def shows_all(screen: str) -> bool:
        table = "\n".join(screen.splitlines()[:-2])  # below it is the row under the cursor once more
        return sorted((name, state) for name, state in ROW.findall(table)) == said

    consoles.terminals["tasks"].keys("End")  # where those that had ended before it looked are read
    for name in ("jobs", "tasks"):
        consoles.terminals[name].until(shows_all, f"{name} as `job list` has them, each once: {said}")
    consoles.terminals["overview"].until(lambda s: re.search(r"Tasks +1 running", s) is not None, "what runs")
    logs = consoles.terminals["logs"]
    seen = numbers(logs.until(lambda s: is_whole(numbers(s)), "the end of the log, each line once"))
    while seen[0] > before:
        first = seen[0]
        logs.keys("PageUp")
        screen = logs.until(
            lambda s: is_whole(numbers(s)) and numbers(s)[0] < first,  # noqa: B023
            "the lines before, each once",
        )
        seen = numbers(screen)
    assert seen[-1] < len(written.read_text().splitlines())
