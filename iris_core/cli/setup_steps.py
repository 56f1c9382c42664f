"""The setup steps and the environment that a workspace brings along (control-plane §4.3, cli-auth-logs §1.2).

Must never read the submitter's own environment: only what lies in the workspace, or was named, travels (DESIGN §5.13).
"""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Final

from iris_core.config.places import LOCAL
from iris_core.contracts import UsageFailed
from iris_core.model.errors import shown
from iris_core.workspace.setup import sync_script

if TYPE_CHECKING:
    from pathlib import Path

    from iris_core.cli.run_options import RunOptions
    from iris_core.cli.session import Session

PROJECT_FILE: Final = ".marin.yaml"
"""Its `env:` is the environment of every job that is submitted from the workspace; `-e` beats it."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,127})")


def check_sync(options: RunOptions) -> None:
    """Raises UsageFailed: options that exclude each other, or what no package is called."""
    scoped = options.sync_packages or options.extras
    if options.no_sync and scoped:
        name = "--sync-package" if options.sync_packages else "--extra"
        raise UsageFailed(f"--no-sync and {name} exclude each other", hint="give one of them")
    for option, names in (("--sync-package", options.sync_packages), ("--extra", options.extras)):
        for name in names:
            if not _NAME.fullmatch(name):
                raise UsageFailed(f"{option} {shown(name)} is no name of a package or extra")


def setup_scripts(options: RunOptions, has_project: bool) -> list[str]:
    """The setup steps. Raises UsageFailed: a part of the project was named, and there is none."""
    scoped = options.sync_packages or options.extras
    if scoped and not has_project:
        raise UsageFailed("there is no pyproject.toml to sync", hint="run it where the project is")
    if options.no_sync or not has_project:
        return []
    return [sync_script(options.sync_packages, options.extras)]


def warn_without_uv(session: Session) -> None:
    """Says that the setup step will fail where the workers are processes of this machine and it has no uv.

    Of a controller that was only given by its URL it is not known where its workers are.
    """
    target = session.target
    here = target.environment == LOCAL and (target.cluster == LOCAL or bool(session.config or session.cluster))
    if here and not session.controller_url and shutil.which("uv") is None:
        session.diagnostics.warn(
            "the setup step needs uv, which this machine does not have: install it or submit with --no-sync"
        )


def project_environment(root: Path) -> dict[str, str]:
    """The `env:` of the workspace's project file, {} without one. Raises UsageFailed, with file and line."""
    path = root / PROJECT_FILE
    if not path.is_file():
        return {}
    from iris_core.config.document import read_document

    document = read_document(path)
    if document.is_nothing:
        return {}
    found = document.mapping().get("env")
    if found is None or found.is_nothing:
        return {}
    variables: dict[str, str] = {}
    for name, value in found.mapping().items():
        if not isinstance(value.data, str):
            raise value.wrong("a value of the environment is text", hint="put it in quotes")
        variables[name] = value.data
    return variables
