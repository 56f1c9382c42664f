"""The program `iris`: when it is the command line, when the console, and when neither."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_core.cli.session import Session as CommandLine
from iris_core.connect import Target, resolve
from iris_core.contracts import ConnectFailed
from iris_tui.app import IrisApp
from iris_tui.main import _without_plain, session_for
from iris_tui.rollouts import Rollouts
from providers.hosts.ssh import HostUnreachable

if TYPE_CHECKING:
    from iris_core.contracts import AsyncClient

IRIS = Path(sys.executable).with_name("iris")
_DEPLOYED = "remote_state_dir: file:///r, local_state_dir: /s"
_REFUSED = "cannot connect: connection refused"


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


def test_a_checkpoint_without_a_terminal_is_told_how_it_can_be_read_there() -> None:
    done = run("--checkpoint", "/nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    first, *rest = done.stderr.splitlines()
    assert first.endswith(
        "the console needs a terminal; --plain prints the jobs of the checkpoint once; or name a command, as `job list`"
    )
    assert not rest


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


def test_a_rollout_from_the_console_reads_the_file_that_the_console_was_given(tmp_path: Path) -> None:
    file = tmp_path / "my lab's.yaml"
    opened = CommandLine()
    opened.config = str(file)
    session = session_for(Target("http://h:1", "lab"), selector=opened.selector().strip())
    assert shlex.split(f"iris-core {session.selector} job list")[1:] == [f"--config={file}", "job", "list"]
    assert Rollouts().command_line(session).config == str(file)


@pytest.mark.parametrize(
    ("storage", "failure", "named"),
    [
        (_DEPLOYED, ConnectFailed(_REFUSED), True),
        (_DEPLOYED, ConnectFailed(_REFUSED, hint="is the host up?"), False),
        (_DEPLOYED, HostUnreachable(_REFUSED), False),
        ("local_state_dir: /s", ConnectFailed(_REFUSED), False),
    ],
)
@pytest.mark.asyncio
async def test_a_deployment_that_does_not_answer_is_told_what_to_look_at(
    storage: str, failure: ConnectFailed, named: bool, tmp_path: Path
) -> None:
    """As the command line says it; not where the failure says itself what to do, nor where it is of the way to the host."""
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: lab\nplatform: {{local: }}\ncontroller: {{local: {{port: 9}}}}\nstorage: {{{storage}}}\n")

    async def connect() -> AsyncClient:
        raise failure

    session = session_for(
        resolve(config=str(file)), client_factory=connect, selector="--config=lab.yaml", remember=False
    )
    app = IrisApp(session)
    words = "iris-core --config=lab.yaml cluster controller"
    async with app.run_test(size=(120, 40)) as pilot:
        deadline = time.monotonic() + 60
        text = ""
        while "q quits." not in text:
            assert time.monotonic() < deadline, text
            await pilot.pause()
            await asyncio.sleep(0.005)
            text = " ".join(" ".join(strip.text for strip in app.screen._compositor.render_strips()).split())
        assert "Cannot reach lab: cannot connect: connection refused" in text
        assert (f"{words} status says how it stands, {words} start starts one that is stopped." in text) == named
        assert ("cluster controller" in text) == named
