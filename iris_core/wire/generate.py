"""Regenerates the committed protobuf code from `iris_core/wire/proto` (needs grpcio-tools).

Generated modules live in `iris_core/wire/gen/iris/v1` and import each other as `iris_core.wire.gen.iris.v1.*`, so that no
top-level package named `iris` appears. Run `python -m iris_core.wire.generate`; with `--check` it only compares and exits 1
on drift.
"""

from __future__ import annotations

import filecmp
import re
import shutil
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PROTO = HERE / "proto"
TARGET = HERE / "gen"
PACKAGE = "iris_core.wire.gen"


def generate(target: Path) -> None:
    """Writes `*_pb2.py` and `*_pb2.pyi` for every proto into `target`."""
    import grpc_tools
    from grpc_tools import protoc

    well_known = Path(grpc_tools.__file__).parent / "_proto"
    files = sorted(str(p.relative_to(PROTO)) for p in PROTO.rglob("*.proto"))
    code = protoc.main(
        ["protoc", f"-I{PROTO}", f"-I{well_known}", f"--python_out={target}", f"--pyi_out={target}", *files]
    )
    if code != 0:
        raise SystemExit(f"protoc failed with exit code {code}")
    for path in [*target.rglob("*_pb2.py"), *target.rglob("*_pb2.pyi")]:
        text = path.read_text()
        path.write_text(re.sub(r"^from iris\.v1 import", f"from {PACKAGE}.iris.v1 import", text, flags=re.M))
    for folder in (target, target / "iris", target / "iris" / "v1"):
        (folder / "__init__.py").write_text("")


def _replace(fresh: Path) -> None:
    """Makes TARGET the same as `fresh`, file by file: a program that is starting meanwhile always finds a whole one."""
    for path in (p for p in fresh.rglob("*") if p.is_file()):
        kept = TARGET / path.relative_to(fresh)
        if not (kept.exists() and filecmp.cmp(path, kept, shallow=False)):
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, kept.with_name(kept.name + ".new"))
            kept.with_name(kept.name + ".new").replace(kept)
    for kept in [*TARGET.rglob("*.py"), *TARGET.rglob("*.pyi")]:
        if not (fresh / kept.relative_to(TARGET)).exists():
            kept.unlink()


def main(argv: list[str]) -> int:
    """Returns 0, or 1 when `--check` finds committed code that differs from what the protos give."""
    with tempfile.TemporaryDirectory() as scratch:
        fresh = Path(scratch)
        generate(fresh)
        if "--check" in argv:
            names = {str(p.relative_to(fresh)) for p in fresh.rglob("*") if p.is_file()}
            kept = {str(p.relative_to(TARGET)) for p in TARGET.rglob("*.py*") if p.suffix in {".py", ".pyi"}}
            stale = [n for n in names & kept if not filecmp.cmp(fresh / n, TARGET / n, shallow=False)]
            for name in sorted(set(stale) | (names ^ kept)):
                print(f"generated code out of date: {name} (run: make proto)", file=sys.stderr)
            return 1 if stale or names != kept else 0
        _replace(fresh)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
