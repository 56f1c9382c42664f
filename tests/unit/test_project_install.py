"""`requirements/install.py`: it speaks to whoever has just cloned the repository, so it must not speak in tracebacks."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "requirements" / "install.py"


def test_ctrl_c_is_one_line_and_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("install_script", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    def interrupted(lock: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(script, "ready", lambda lock: False)
    monkeypatch.setattr(script, "install", interrupted)
    monkeypatch.setattr(sys, "argv", ["install.py", "controller"])
    with pytest.raises(SystemExit) as ended:
        script.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted; the next make goes on with it\n"


def test_of_two_at_once_the_second_waits_and_finds_it_done(tmp_path: Path) -> None:
    """Each would remove the `.venv` that the other one fills."""
    copy = tmp_path / "requirements" / "install.py"
    copy.parent.mkdir()
    # Its own step is replaced by one that takes a line of standard input: the first one stays in it until it is told.
    copy.write_text(
        SCRIPT.read_text()
        .replace("ready(sys.argv[1])", "(ROOT / 'done').exists()")
        .replace("install(sys.argv[1])", "(print('in it', flush=True), input(), (ROOT / 'done').touch())")
    )
    command = (sys.executable, str(copy), "controller")
    pipe = subprocess.PIPE
    with (
        subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as first,
        contextlib.ExitStack() as later,
    ):
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "in it\n"
        second = later.enter_context(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=pipe, text=True))
        assert second.stdout is not None
        assert second.stdout.readline() == "Another make is setting up .venv: waiting for it\n"
        first.stdin.write("\n")
        first.stdin.close()
        assert first.wait(timeout=60) == 0
        assert second.stdout.read() == ""
        assert second.wait(timeout=60) == 0
