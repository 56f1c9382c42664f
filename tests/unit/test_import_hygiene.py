"""Start-up loads what it needs and no more, proved in a fresh interpreter rather than read from the source."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("textual", "grpc", "kubernetes", "google.cloud", "duckdb", "polars", "pyarrow")
UI = ("textual",)


def loaded_by(code: str) -> set[str]:
    """The names of all modules in a fresh interpreter after it ran `code`."""
    script = f"{code}\nimport json, sys\nprint('\\n' + json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(names, list)
    return set(names)


def running(entry: str, *arguments: str) -> str:
    module, function = entry.split(":")
    return (
        f"import sys; sys.argv = ['program', *{list(arguments)!r}]\n"
        f"from {module} import {function}\n"
        f"try: {function}()\n"
        f"except SystemExit as end: assert not end.code, end.code"
    )


def entry_points() -> dict[str, str]:
    with open(ROOT / "pyproject.toml", "rb") as file:
        scripts = tomllib.load(file)["project"]["scripts"]
    assert isinstance(scripts, dict)
    return scripts


def present(loaded: set[str], unwanted: tuple[str, ...]) -> set[str]:
    return {name for name in loaded for heavy in unwanted if name == heavy or name.startswith(heavy + ".")}


def test_the_command_lines_help_loads_nothing_heavy() -> None:
    assert present(loaded_by(running(entry_points()["iris-core"], "--help")), HEAVY) == set()


def test_help_of_a_command_that_talks_to_the_controller_loads_nothing_heavy() -> None:
    assert present(loaded_by(running(entry_points()["iris-core"], "job", "list", "--help")), HEAVY) == set()


@pytest.mark.parametrize("program", ["iris-core", "iris-controller", "iris-worker", "finelog"])
def test_a_program_without_a_screen_never_loads_the_console(program: str) -> None:
    assert present(loaded_by(running(entry_points()[program], "--help")), UI) == set()


def test_the_consoles_first_picture_waits_for_nothing_that_it_does_not_draw_with() -> None:
    """Neither for the connection (it is imported beside it) nor for settings that nobody made."""
    base = loaded_by("import textual.app")
    loaded = loaded_by(
        "from iris_core.config.console import load_settings\n"
        "from iris_core.connect import Target\n"
        "from iris_tui.main import session_for\n"
        "from iris_tui.app import IrisApp\n"
        "from iris_tui import registry\n"
        "IrisApp(session_for(Target('http://127.0.0.1:1', 'lab'), settings=load_settings()))\n"
        "registry.load(registry.FIRST)\n"
    )
    unwanted = (
        "grpc",
        "google",
        "yaml",
        "h11",
        "jwt",
        "re2",
        "plotext",
        "pyarrow",
        "duckdb",
        "httpx",
        "asyncio.subprocess",
    )
    assert present(loaded - base, unwanted) == set()
    ours = {
        name for name in loaded if name.partition(".")[0] in ("iris_core", "iris_tui", "screens", "iris_controller")
    }
    assert len(ours) <= 170, "each costs a part of a millisecond; import in the function that needs it"


def test_the_first_frame_waits_for_nothing_that_draws() -> None:
    loaded = loaded_by(
        "import iris_core.cli.root\n"
        "from iris_core.config.console import load_settings\n"
        "from iris_core.connect import Target\n"
        "from iris_tui.first_frame import first_frame\n"
        "import iris_tui.main\n"
        "load_settings()\n"
        "with first_frame('lab', 'CONNECTING', 'Connecting to lab'): pass\n"
    )
    assert present(loaded, ("textual", "rich", "grpc", "google", "yaml", "asyncio")) == set()


@pytest.mark.parametrize("program", sorted(entry_points()))
def test_every_program_says_what_it_is_for(program: str) -> None:
    path = Path(sys.executable).with_name(program)
    done = subprocess.run([path, "--help"], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "usage" in done.stdout.lower()


def test_every_room_stands_on_a_floor() -> None:
    """A new sub-package that no contract names would be free to import upwards."""
    with open(ROOT / "pyproject.toml", "rb") as file:
        contracts = tomllib.load(file)["tool"]["importlinter"]["contracts"]
    floors = {name.strip(" ()") for layer in contracts[0]["layers"] for name in layer.replace("|", ":").split(":")}
    rooms = {
        f"iris_core.{path.stem}"
        for path in (ROOT / "iris_core").iterdir()
        if ((path.is_dir() and any(path.glob("*.py"))) or path.suffix == ".py") and not path.name.startswith("_")
    }
    assert rooms
    assert rooms - floors == set()
