"""`python -m benchmarks [T8 T12 …] [--markdown FILE]`: runs the figures and prints what came out."""

from __future__ import annotations

import argparse
import importlib
import sys
import traceback
from pathlib import Path

from benchmarks.measure import Report, machine

FIGURES = {
    path.stem.split("_")[0].replace("t0", "t").upper(): path.stem for path in Path(__file__).parent.glob("t[0-9]*.py")
}


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measures the figures of docs/performance.md."
    )
    parser.add_argument(
        "figures", nargs="*", metavar="FIGURE", help=f"any of {' '.join(sorted(FIGURES))}; default: all"
    )
    parser.add_argument("--markdown", metavar="FILE", help="also write the table there, for docs/performance.md")
    options = parser.parse_args()
    unknown = set(options.figures) - FIGURES.keys()
    if unknown:
        parser.error(f"no such figure: {' '.join(sorted(unknown))}")
    report = Report()
    where = machine()
    print(where, flush=True)
    failed = False
    for name in options.figures or sorted(FIGURES, key=lambda figure: int(figure[1:])):
        try:
            importlib.import_module(f"benchmarks.{FIGURES[name]}").run(report)
        except Exception as error:
            traceback.print_exc()
            report.missing(name, "everything else", str(error).splitlines()[0] if str(error) else repr(error))
            failed = True
    after = machine().rpartition(", ")[2]
    print(f"afterwards: {after}")
    if options.markdown:
        Path(options.markdown).write_text(f"{where}; afterwards {after}\n\n{report.markdown()}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
