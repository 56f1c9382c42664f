"""What a report about this program begins with: its versions, the terminal, its files, and the last crash. Meant to be pasted.

Everything is read from this machine at once and without a controller; the console shows the same on its `:debug` page. No secret leaves:
every value passes the redaction. Must never import what it reports the version of.
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Final

from iris_core.model.redact import redact_text

Facts = list[tuple[str, str]]

PACKAGES: Final = ("textual", "rich", "grpcio", "protobuf", "pyarrow", "duckdb")
VARIABLES: Final = (
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "TERM_PROGRAM",
    "LANG",
    "LC_ALL",
    "IRIS_CLUSTER",
    "IRIS_CONTROLLER_URL",
)
CRASHES: Final = "console-crash-*.txt"


def versions() -> Facts:
    """Of the program and of what it stands on."""
    from importlib.metadata import PackageNotFoundError, version

    from iris_core.cli.version import release

    found = [("iris", release()), ("python", platform.python_version()), ("system", platform.platform(terse=True))]
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            found.append((name, "not installed"))
    return found


def terminal() -> Facts:
    """What the terminal says of itself."""
    inside = [
        name
        for name, variable in (("tmux", "TMUX"), ("screen", "STY"), ("ssh", "SSH_CONNECTION"))
        if os.environ.get(variable)
    ]
    try:
        cells = os.get_terminal_size(sys.__stdout__.fileno() if sys.__stdout__ else 1)
        size = f"{cells.columns}x{cells.lines}"
    except (OSError, ValueError):
        size = "no terminal"
    import locale

    found = [
        ("size", size),
        ("encoding", locale.getpreferredencoding(False)),
        ("inside", ", ".join(inside) or "nothing"),
    ]
    found += [(name, redact_text(os.environ[name])) for name in VARIABLES if name in os.environ]
    found.append(
        ("token", "set" if os.environ.get("IRIS_TOKEN") or os.environ.get("MARIN_CLUSTER_TOKEN") else "not set")
    )
    return found


def files() -> Facts:
    """Where everything of this user is, and whether it is there."""
    from iris_core.config.console import console_file
    from iris_core.config.places import cache_home, cluster_folders, state_home

    found = [("program", _there(Path(__file__).resolve().parents[2])), ("settings", _there(console_file()))]
    found += [("clusters", _there(folder)) for folder in cluster_folders()]
    found += [("state", _there(state_home())), ("cache", _there(cache_home()))]
    return found


def _there(path: Path) -> str:
    return str(path) if path.exists() else f"{path} (not there)"


def settings() -> Facts:
    """What of the operator's settings is in force, and what could not be applied."""
    from iris_core.config.console import load_settings

    found = load_settings()
    facts = [("file", found.source or "none")]
    facts += [("theme", found.theme)] if found.theme else []
    facts += [("own keys", str(len(found.keys)))] if found.keys else []
    return facts + [("problem", redact_text(problem)) for problem in found.problems]


def last_crash() -> Facts:
    """The newest crash report of the console."""
    from iris_core.config.places import state_home

    try:
        reports = sorted(state_home().glob(CRASHES), key=lambda path: path.stat().st_mtime)
        if not reports:
            return [("report", "none")]
        lines = [line for line in reports[-1].read_text(errors="replace").splitlines() if line.strip()]
    except OSError as error:
        return [("report", f"cannot be read: {(error.strerror or str(error)).lower()}")]
    errors = [line for line in lines if not line.startswith((" ", "#"))]
    return [
        ("report", str(reports[-1])),
        ("reports", str(len(reports))),
        ("ends with", redact_text(errors[-1] if errors else "")),
    ]


def all_facts() -> list[tuple[str, Facts]]:
    """Every section, in order."""
    return [
        ("Versions", versions()),
        ("Terminal", terminal()),
        ("Files", files()),
        ("Settings", settings()),
        ("Last crash", last_crash()),
    ]
