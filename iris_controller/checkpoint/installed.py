"""Whether this installation can read checkpoints: asked before anything that does is loaded, so that it answers at once."""

from __future__ import annotations

import importlib.util

from iris_core.contracts import IrisError


def require_installed() -> None:
    """Raises IrisError: the package that unpacks them is missing, which the base install leaves out."""
    if importlib.util.find_spec("zstandard") is None:
        raise IrisError(
            "checkpoints are compressed, and the package zstandard is not installed",
            hint="install it with: pip install 'iris-ops[controller]'",
        )
