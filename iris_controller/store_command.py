"""`iris-controller store get|put|cas|stat|list|delete`: an object store at the other end of a pipe.

The state of a controller on another host may lie on that host's disk; record, lock and checkpoints are reached there by `ssh HOST
iris-controller store …` and never through the caller's own file system. What is written says beforehand how much of it there is and what
its digest is: a connection that breaks in the middle writes nothing. Needs nothing but the standard library for `file://`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from iris_core.contracts import GenerationMismatch, IrisError, ObjectInfo, ObjectMissing, UsageFailed
from providers.objects import open_store

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.contracts import ObjectStore

MISSING: Final = 3
"""Exit code: there is no such object."""
MISMATCH: Final = 4
"""Exit code: the object is not at that generation."""
SMALL: Final = 4 << 20
PIECE: Final = 1 << 20


def add_parser(commands: argparse._SubParsersAction[Any]) -> None:
    """Adds `store` to the program's commands."""
    text = "read and write the objects of a state dir"
    store = commands.add_parser(
        "store", help=text, description=f"{text.capitalize()}. Data goes through stdin and stdout."
    )
    verbs = store.add_subparsers(dest="verb", required=True)
    for verb, what in (
        ("get", "write an object to stdout; exit code 3: there is none"),
        ("stat", "print size and generation of an object; exit code 3: there is none"),
        ("list", "print a line of JSON for every object whose name starts like this"),
        ("put", "write an object from stdin"),
        ("cas", "write an object from stdin if it is at a generation; exit code 4: it is not"),
        ("delete", "delete an object; one that is absent is deleted already"),
    ):
        command = verbs.add_parser(verb, help=what, description=f"{what[0].upper()}{what[1:]}.")
        command.add_argument("--root", metavar="URL", required=True, help="the store, as file:///path")
        command.add_argument("name", metavar="NAME", nargs="?" if verb == "list" else None, default="")
        if verb in ("put", "cas"):
            command.add_argument("--size", type=int, required=True, metavar="BYTES", help="how much comes on stdin")
            command.add_argument("--sha256", required=True, metavar="HEX", help="of what comes on stdin")
        if verb == "cas":
            command.add_argument("--generation", required=True, metavar="G", help='that it has to be at; "" = absent')
            command.add_argument(
                "--again",
                action="store_true",
                help="it may have been written already: then the same object is found there",
            )


def run(words: argparse.Namespace) -> int:
    """One command. Raises IrisError."""
    store = open_store(words.root)
    try:
        if words.verb in ("put", "cas"):
            info = _written(store, words)
            sys.stdout.write(json.dumps(asdict(info)) + "\n")
        elif words.verb == "get":
            for piece in store.chunks(words.name):
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        elif words.verb == "stat":
            found = store.stat(words.name)
            if found is None:
                return MISSING
            sys.stdout.write(json.dumps(asdict(found)) + "\n")
        elif words.verb == "list":
            for found in store.list(words.name):
                sys.stdout.write(json.dumps(asdict(found)) + "\n")
        else:
            store.delete(words.name)
    except ObjectMissing as error:
        sys.stderr.write(f"Error: {error.message}\n")
        return MISSING
    except GenerationMismatch as error:
        sys.stderr.write(f"Error: {error.message}\n")
        return MISMATCH
    return 0


def _written(store: ObjectStore, words: argparse.Namespace) -> ObjectInfo:
    import tempfile

    if words.size < 0:
        raise UsageFailed(f"--size {words.size} is no size")
    expected = words.generation if words.verb == "cas" else None
    try:
        if words.size <= SMALL:
            data = bytearray()
            _receive(sys.stdin.buffer, words, data.extend)
            return store.put(words.name, bytes(data), if_generation=expected)
        with tempfile.TemporaryDirectory(prefix="iris-store-") as folder:
            path = Path(folder) / "object"
            with path.open("wb") as file:
                _receive(sys.stdin.buffer, words, file.write)
            return store.put_file(words.name, path, if_generation=expected)
    except GenerationMismatch:
        found = _same(store, words) if words.verb == "cas" and words.again else None
        if found is None:
            raise
        return found
    except OSError as error:
        raise IrisError(f"cannot write {words.name}: {(error.strerror or str(error)).lower()}") from error


def _receive(source: IO[bytes], words: argparse.Namespace, sink: Callable[[bytes], object]) -> None:
    """Raises IrisError: not all of it came, or something else did."""
    digest, left = hashlib.sha256(), words.size
    while left and (piece := source.read(min(left, PIECE))):
        digest.update(piece)
        sink(piece)
        left -= len(piece)
    if left or digest.hexdigest() != words.sha256:
        raise IrisError(f"{words.name} did not arrive whole, so nothing was written", hint="send it again")


def _same(store: ObjectStore, words: argparse.Namespace) -> ObjectInfo | None:
    """What stands, if it is exactly what was to be written."""
    found = store.stat(words.name)
    if found is None or found.size_bytes != words.size:
        return None
    digest = hashlib.sha256()
    for piece in store.chunks(words.name):
        digest.update(piece)
    return found if digest.hexdigest() == words.sha256 else None
