"""The setup step that makes a project's packages ready on a worker (control-plane §4.3).

Must never look at a file: whether there is a project is the caller's to find out.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

UV_SYNC: Final = "uv sync --all-packages --no-dev"
"""Of a workspace with a pyproject.toml, unless a part of it is named."""


def sync_script(packages: Sequence[str] = (), extras: Sequence[str] = ()) -> str:
    """The step that installs all of the project, or these packages and extras of it."""
    if not packages and not extras:
        return UV_SYNC
    words = ["uv", "sync"]
    for name in packages:
        words += ["--package", name]
    if not packages:
        words.append("--all-packages")
    for name in extras:
        words += ["--extra", name]
    return shlex.join([*words, "--no-dev"])
