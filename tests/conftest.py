"""What every test stands on: an environment that holds nothing of the machine's user, and one way to ask for a service.

A test that reads the developer's own configuration passes for the wrong reason, so HOME, the XDG folders and every
variable that steers Iris point into a temporary folder or are gone. This file must never start anything.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUIRE_SERVICES = os.environ.get("IRIS_REQUIRE_SERVICES") == "1"
SOAK = os.environ.get("IRIS_SOAK") == "1"

CLEARED = (
    "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLUMNS", "LINES", "PAGER", "VIRTUAL_ENV", "PYTHONPATH",
    "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy", "GRPC_PROXY", "grpc_proxy",
    "KUBECONFIG", "DOCKER_CONFIG", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CLOUD_PROJECT", "TEXTUAL", "TEXTUAL_DRIVER", "COLORTERM",
)  # fmt: skip


def pytest_configure() -> None:
    """A shell starts what it puts in the background with Ctrl-C ignored, and every program of ours would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


# No test fails because the machine is busy; the same examples each time, new ones only in the soak.
settings.register_profile(
    "iris", deadline=None, derandomize=not SOAK, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("iris")


def fresh_folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A new folder below the run's own. pytest's way looks through all that are there for the next number, which after some thousand
    tests takes longer than most tests do.
    """
    # In a folder apart: those of pytest have numbers of their own.
    folder = factory.getbasetemp() / "t" / f"{name}{next(_numbers)}"
    folder.mkdir(mode=0o700, parents=True)
    return folder


_numbers = itertools.count()


@pytest.fixture
def tmp_path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pytest's own, and kept as that is."""
    return fresh_folder(tmp_path_factory, re.sub(r"\W", "_", request.node.name)[:30])


@pytest.fixture(autouse=True)
def clean_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Gives the test a home of its own, and returns it."""
    home = fresh_folder(tmp_path_factory, "home-")
    for name in list(os.environ):
        if name in CLEARED or name.startswith(("IRIS_", "MARIN_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(home))
    for name, folder in (
        ("XDG_CONFIG_HOME", ".config"),
        ("XDG_STATE_HOME", ".local/state"),
        ("XDG_CACHE_HOME", ".cache"),
        ("XDG_DATA_HOME", ".local/share"),
    ):
        monkeypatch.setenv(name, str(home / folder))
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("TZ", "UTC")
    return home


class RequireService(Protocol):
    """Ends the test unless `found`: it skips on a developer's machine and fails where services are promised."""

    def __call__(self, found: object, reason: str) -> None: ...


@pytest.fixture
def require_service() -> RequireService:
    """`require_service(shutil.which("tmux"), "tmux is not installed")`."""

    def require(found: object, reason: str) -> None:
        if found:
            return
        if REQUIRE_SERVICES:
            pytest.fail(f"{reason}, and IRIS_REQUIRE_SERVICES=1 promises it", pytrace=False)
        pytest.skip(reason)

    return require


@pytest.fixture
def require_program(require_service: RequireService) -> RequireProgram:
    """`tmux = require_program("tmux")`: its path."""

    def require(name: str) -> str:
        path = shutil.which(name)
        require_service(path, f"{name} is not installed")
        assert path is not None
        return path

    return require


class RequireProgram(Protocol):
    """Finds a program on the PATH, by the rule of `RequireService`."""

    def __call__(self, name: str) -> str: ...


@pytest.fixture
def needs_git(require_program: RequireProgram) -> None:
    """For `@pytest.mark.usefixtures("needs_git")`."""
    require_program("git")


@pytest.fixture
def needs_curl(require_program: RequireProgram) -> None:
    """For `@pytest.mark.usefixtures("needs_curl")`."""
    require_program("curl")


@pytest.fixture(scope="session")
def soak() -> bool:
    """Whether the fault tests run at full size (`make soak`) or a few rounds with fixed seeds (`make test`)."""
    return SOAK


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Who asks whether it is the soak is part of it: `make soak` runs what is marked, and nothing else."""
    for item in items:
        if "soak" in getattr(item, "fixturenames", ()):
            item.add_marker("soak")


def pytest_make_parametrize_id(val: object) -> str | None:
    """Long texts by their start and length: pytest puts a test's name into the environment, and no program starts with 128 KiB there."""
    if isinstance(val, (str, bytes)) and len(val) > 200:
        return f"{val[:20]!a}-and-{len(val) - 20}-more"
    return None


@pytest.fixture
def memory() -> Iterator[Path]:
    """A folder whose syncs cost nothing, where there is such a place."""
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)
