"""What is imported is declared, and what is declared is used: a base install that lacks a module fails at a user's desk."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
OURS = {"iris_core", "iris_controller", "providers", "iris_tui", "screens"}
IMPORTS = {"pyyaml": "yaml", "pyjwt": "jwt", "protobuf": "google.protobuf", "google-re2": "re2", "grpcio": "grpc",
           "grpcio-health-checking": "grpc_health", "grpcio-reflection": "grpc_reflection", "cryptography": "cryptography",
           "google-auth": "google.auth", "google-api-core": "google.api_core", "google-cloud-storage": "google.cloud.storage",
           "google-cloud-tpu": "google.cloud.tpu"}  # fmt: skip
"""Where the name on the index is not the name in the code."""

BROUGHT_BY = {"cryptography": "pyjwt", "requests": "google-cloud-storage", "google-api-core": "google-cloud-storage"}
"""Imported in its own right, and brought by the extra of another."""

FOR_OPERATORS = {"sqlite-utils"}
"""Installed for a person at a shell, imported by nothing."""

PROGRAMS = {"py-spy", "memray"}
"""Run as programs of their own, imported by nothing; where one is missing, profiles say so and all else goes on."""

FOR_DEPLOYMENTS = {"httpx"}
"""Asks image registries, which a cluster of this machine has none of."""

DAEMON = "iris_controller"
"""The one package that may import the `controller` extra at the top of a module."""

LATER = {"gcp", "kubernetes", "web"}
"""Extras whose rooms are not built yet: their packages are locked, so that the pins are known to fit."""


def project() -> dict[str, Any]:
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)["project"]  # type: ignore[no-any-return]


def names(requirements: list[str]) -> set[str]:
    return {re.match(r"[A-Za-z0-9._-]+", line).group().lower() for line in requirements}  # type: ignore[union-attr]


def module_of(package: str) -> str:
    return IMPORTS.get(package, package.replace("-", "_"))


def imported(folder: str, *, at_start: bool = False) -> dict[str, set[str]]:
    """Third-party modules (dotted), each with the files that import them; `at_start`: outside functions only."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / folder).rglob("*.py"):
        if path.name == "generate.py" and path.parent.name == "wire":
            continue  # a developer's tool
        for module in everything_of(path)[at_start]:
            top = module.partition(".")[0]
            if top not in sys.stdlib_module_names and top not in OURS:
                found.setdefault(module, set()).add(str(path.relative_to(ROOT)))
    return found


@cache
def everything_of(path: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """All of a file's imports, and those outside functions. Trees are not kept: all of them together would be most of this process."""
    tree = ast.parse(path.read_text())
    return tuple(imports_of(tree, False)), tuple(imports_of(tree, True))


def imports_of(node: ast.AST, at_start: bool) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        # `from google import protobuf` names google.protobuf; `from grpc import aio` is grpc all the same.
        yield from (f"{node.module}.{alias.name}" if node.module == "google" else node.module for alias in node.names)
    elif (at_start and isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))) or (
        at_start and isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
    ):
        return
    else:
        for child in ast.iter_child_nodes(node):
            # No expression imports anything.
            if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
                yield from imports_of(child, at_start)


def covered(module: str, packages: set[str]) -> bool:
    return any(module == name or module.startswith(name + ".") for name in map(module_of, packages))


def allowed(requirements: set[str]) -> set[str]:
    return requirements | {name for name, bringer in BROUGHT_BY.items() if bringer in requirements}


def undeclared(declared: set[str], folders: set[str], *, at_start: bool) -> dict[str, set[str]]:
    return {
        module: files
        for folder in folders
        for module, files in imported(folder, at_start=at_start).items()
        if not covered(module, declared)
    }


def test_everything_imported_is_declared() -> None:
    project_ = project()
    base = allowed(names(project_["dependencies"]))
    everything = base.union(*(allowed(names(extra)) for extra in project_["optional-dependencies"].values()))
    assert undeclared(everything, OURS, at_start=False) == {}
    assert undeclared(base, OURS - {DAEMON}, at_start=True) == {}, "an extra may be imported inside a function only"


def test_everything_declared_is_imported() -> None:
    used = {module for folder in OURS for module in imported(folder)}
    extras = project()["optional-dependencies"]
    declared = names(project()["dependencies"]) | {n for extra in extras.keys() - LATER for n in names(extras[extra])}
    unused = {
        package
        for package in declared - FOR_OPERATORS - PROGRAMS
        if not any(covered(module, {package}) for module in used)
    }
    assert unused == set()


def test_a_local_cluster_asks_for_what_the_extra_brings() -> None:
    """Its check runs before anything is started, so a name too many would refuse an install that is complete."""
    from providers.local.cluster import NEEDED

    extra = names(project()["optional-dependencies"]["controller"]) - FOR_OPERATORS - FOR_DEPLOYMENTS - PROGRAMS
    assert set(NEEDED) == {module_of(package) for package in extra}


def test_locks_name_no_place_and_pin_everything() -> None:
    for lock in (ROOT / "requirements").glob("*.txt"):
        lines = [line.rstrip(" \\") for line in lock.read_text().splitlines()]
        packages = [line for line in lines if line and not line.lstrip().startswith("--hash=sha256:")]
        assert packages
        assert [line for line in packages if not re.fullmatch(r"[a-z0-9.-]+==[^ ]+( ; [^/]+)?", line)] == [], lock.name


def test_smaller_locks_are_cut_from_the_largest() -> None:
    """One .venv serves every target only if no two locks disagree about a version."""
    whole = pins("all")
    for name in ("base", "controller", "deployed", "dev", "task-image"):
        part = pins(name)
        assert part.items() <= whole.items(), name
    assert pins("base").items() <= pins("controller").items() <= pins("dev").items()
    assert pins("base").items() < pins("task-image").items()
    assert pins("controller").items() < pins("deployed").items() <= pins("dev").items()


def test_locks_hold_what_the_project_asks_for() -> None:
    assert names(project()["dependencies"]) <= pins("base").keys()
    assert names(project()["optional-dependencies"]["controller"]) <= pins("controller").keys()
    assert names(project()["optional-dependencies"]["google"]) <= pins("deployed").keys()
    for extra in project()["optional-dependencies"].values():
        assert names(extra) - {project()["name"]} <= pins("all").keys()


def pins(lock: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{lock}.txt").read_text()
    return dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, flags=re.M))
