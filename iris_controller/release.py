"""Which code this is: the version of the installed distribution and a content hash of the packages that run.

The hash says "the same code" and nothing else; it is what adopting a live finelog or worker compares (DESIGN §7).
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from importlib import metadata
from pathlib import Path

DISTRIBUTION = "iris-ops"
PACKAGES = ("iris_core", "iris_controller", "providers")


@cache
def version() -> str:
    """The distribution's version, "0+unknown" when it runs from a bare tree."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "0+unknown"


@cache
def release() -> str:
    """Twelve hex digits over the content of every module and migration of the packages that a daemon loads."""
    root = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in {".py", ".sql"} and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(root)).encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


@cache
def tree() -> str:
    """The tree of the release that this runs from, as its manifest beside the modules says; "" when it runs from anywhere else."""
    try:
        manifest = json.loads((Path(__file__).absolute().parents[2] / "manifest.json").read_text())
        return str(manifest["tree"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
