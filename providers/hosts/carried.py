"""The code that runs on a host, carried there on the standard input of each command.

A host may have no release of ours, or one of another version: what asks and what answers are always of one version when the answering side
is sent along. It is the part of `iris-controller` that needs only the standard library, read from the files of this installation as
text; a Python without our packages loads it from memory, and nothing of it stays there.
"""

from __future__ import annotations

import ast
import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
ENTRY: Final = "iris_controller.main"
ROOTS: Final = (ENTRY, "iris_controller.host_command", "providers.objects.file", "iris_core.auth.gcp_secrets")
"""With what is loaded late."""
OURS: Final = ("iris_core", "iris_controller", "providers")
OLDEST: Final = (3, 11)

LOADER: Final = """\
import sys,json,zlib,importlib.util as u
M=json.loads(zlib.decompress(sys.stdin.buffer.read(int(sys.argv.pop(1)))))
class F:
 def find_spec(s,n,p=None,t=None):
  if n in M:return u.spec_from_loader(n,s,is_package=M[n][0])
 def create_module(s,p):pass
 def exec_module(s,m):
  k,c=M[m.__name__];m.__file__="/carried/"+m.__name__.replace(".","/")+("/__init__.py" if k else ".py")
  exec(compile(c,m.__file__,"exec"),m.__dict__)
sys.meta_path.insert(0,F())
from iris_controller.main import main
sys.exit(main(sys.argv[1:]))
"""
"""What the host's Python is given: it takes the modules from its standard input, and leaves the rest of that to the command."""

FIND: Final = """\
n={here}; p=$(command -v $n) && exec "$p" -I -c "$0" "$@"
for n in {candidates}; do
p=$(command -v $n) && "$p" -c 'import sys;sys.exit(sys.version_info<{oldest})' 2>/dev/null && exec "$p" -I -c "$0" "$@"
done
echo "Error: there is no Python {shown} or later on this host" >&2; echo "Hint: install one; python3 of its PATH is tried first" >&2; exit 127
"""
"""Picks the host's Python: one of the version that runs here if there is one, so that the same wheels fit both."""


@cache
def modules() -> dict[str, tuple[bool, str]]:
    """The modules that are carried, by name: whether it is a package, and its text."""
    found: dict[str, tuple[bool, str]] = {}
    waiting = list(ROOTS)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        path = _source(name)
        if path is None:
            continue  # a name inside a module, not a module
        text = path.read_text()
        found[name] = (path.name == "__init__.py", text)
        if "." in name:
            waiting.append(name.rpartition(".")[0])
        waiting += _imported(ast.parse(text).body)
    return found


def _source(name: str) -> Path | None:
    path = ROOT.joinpath(*name.split("."))
    for candidate in (path / "__init__.py", path.with_suffix(".py")):
        if candidate.is_file():
            return candidate
    return None


def _imported(body: Sequence[ast.stmt]) -> Iterator[str]:
    """What is imported when a module is loaded: imports for types and inside functions are not."""
    for statement in body:
        if isinstance(statement, ast.Import):
            yield from (alias.name for alias in statement.names if alias.name.split(".")[0] in OURS)
        elif isinstance(statement, ast.ImportFrom) and statement.module and statement.module.split(".")[0] in OURS:
            yield statement.module
            yield from (f"{statement.module}.{alias.name}" for alias in statement.names)


@cache
def package() -> bytes:
    """The modules as they travel."""
    return zlib.compress(json.dumps(modules()).encode(), 9)


def command(*words: str) -> list[str]:
    """The remote command that runs `iris-controller WORDS`; its standard input begins with `package()`."""
    here = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    others = [f"python3.{minor}" for minor in range(OLDEST[1] + 3, OLDEST[1] - 1, -1)]
    script = FIND.format(
        here=here, candidates=" ".join(["python3", *others]), oldest=OLDEST, shown=".".join(map(str, OLDEST))
    )
    return ["sh", "-c", script, LOADER, str(len(package())), *words]
