"""The model costs nothing to import: every command pays for it before it prints its help."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import iris_core.model

MODULES = [f"iris_core.model.{info.name}" for info in pkgutil.iter_modules(iris_core.model.__path__)]

PROGRAM = f"""
import sys
before = set(sys.modules)
import {", ".join(MODULES)}
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
print(*sorted(loaded - set(sys.stdlib_module_names) - {{"iris_core"}}))
print(*sorted(loaded & {{"difflib", "asyncio", "datetime", "logging", "random", "socket", "sqlite3", "threading", "time"}}))
"""


def test_the_model_loads_no_third_party_module_and_nothing_with_a_clock() -> None:
    ran = subprocess.run([sys.executable, "-I", "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == "\n\n"
