"""Loading the packages that lie beside this one, and nothing that merely has their name.

Job code often runs with PYTHONPATH=., where a folder called `providers` may lie: what is found must be the sibling of
`iris_core`, and otherwise the error names the path that is in the way (DESIGN §2).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import iris_core
from iris_core.contracts import IrisError


def load(name: str) -> Any:
    """The module `name`, a dotted name that starts with a sibling package. Raises IrisError: something else is in its
    place.
    """
    top = name.partition(".")[0]
    home = Path(iris_core.__file__).resolve().parents[1]
    package = importlib.import_module(top)
    found = Path(package.__file__ or next(iter(package.__path__))).resolve()
    place = found.parent if found.name == "__init__.py" else found
    if place != home / top:
        raise IrisError(
            f"{place} is in the way of the package {top!r} of this program",
            hint="run it from another directory, or without PYTHONPATH",
        )
    return importlib.import_module(name)
