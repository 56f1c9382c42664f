"""`requirements/install.py`: it speaks to whoever has just cloned the repository, so it must not speak in tracebacks."""

from __future__ import annotations

import importlib.util
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
