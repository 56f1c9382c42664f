"""The object store on a host's disk (`contracts.ObjectStore`), by `iris-controller store` at the other end of ssh.

`file://` in the cluster file of a controller on an SSH host means that host's disk. Must never touch this machine's own.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from iris_core.contracts import GenerationMismatch, IrisError, ObjectInfo, ObjectMissing
from providers.hosts.relay import LARGEST
from providers.hosts.remote import ANSWER_S, Remote
from providers.hosts.ssh import Done, pieces
from providers.objects.names import parts_of

MISSING: Final = 3
MISMATCH: Final = 4
"""Exit codes of `iris-controller store`."""
LARGE_S: Final = 3_600.0
WAITING: Final = 8
"""Pieces of a large object that wait to be taken."""


class HostStore:
    """Objects below `root`, a `file://` URL as the host itself reads it. Safe for several threads."""

    def __init__(self, remote: Remote, root: str) -> None:
        self._remote = remote
        self.root = root
        """The store as the host itself names it."""
        self.url = f"ssh://{remote.ssh.label}{root.removeprefix('file://').removeprefix('localhost')}"

    def put(self, name: str, data: bytes, *, if_generation: str | None = None) -> ObjectInfo:
        """See ObjectStore. Raises GenerationMismatch, IrisError."""
        command = self._command(name, len(data), hashlib.sha256(data).hexdigest(), if_generation)
        if len(data) > LARGEST:
            return _info(self._checked(name, self._remote.store(command, timeout_s=LARGE_S, data=lambda: (data,))))
        return _info(self._checked(name, self._remote.small(command, timeout_s=ANSWER_S, data=data)))

    def put_file(self, name: str, path: Path, *, if_generation: str | None = None) -> ObjectInfo:
        """See ObjectStore. Raises GenerationMismatch, IrisError."""
        try:
            with path.open("rb") as file:
                size, digest = path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()
                command = self._command(name, size, digest, if_generation)
                done = self._remote.store(command, timeout_s=LARGE_S, data=lambda: pieces(file))
                info = _info(self._checked(name, done))
            path.unlink()
        except OSError as error:
            raise IrisError(f"cannot read {path}: {(error.strerror or str(error)).lower()}") from error
        return info

    def _command(self, name: str, size: int, sha256: str, if_generation: str | None) -> Callable[[int], Sequence[str]]:
        parts_of(name)
        words = ["--root", self.root, "--size", str(size), "--sha256", sha256]
        tail = ["--", name]

        def command(attempt: int) -> list[str]:
            if if_generation is None:
                return ["put", *words, *tail]
            return ["cas", *words, f"--generation={if_generation}", *(["--again"] if attempt > 1 else []), *tail]

        return command

    def get(self, name: str) -> bytes:
        """See ObjectStore. Raises ObjectMissing, IrisError."""
        found = self.stat(name)
        if found is None:
            raise ObjectMissing(f"there is no {name} in {self.url}")
        if found.size_bytes > LARGEST:
            return b"".join(self.chunks(name))
        return self._checked(name, self._run("get", name)).out

    def chunks(self, name: str) -> Iterator[bytes]:
        """See ObjectStore. Raises ObjectMissing, IrisError."""
        parts_of(name)
        waiting: queue.Queue[bytes | Done | BaseException] = queue.Queue(WAITING)
        left = threading.Event()

        def put(item: bytes | Done | BaseException) -> None:
            while not left.is_set():
                try:
                    return waiting.put(item, timeout=0.5)
                except queue.Full:
                    continue
            raise IrisError("nobody takes it any more")

        def read() -> None:
            try:
                put(self._remote.store(lambda _: ["get", "--root", self.root, "--", name], timeout_s=LARGE_S, sink=put))
            except BaseException as error:
                if not left.is_set():
                    put(error)

        thread = threading.Thread(target=read, name="object", daemon=True)
        thread.start()
        try:
            while isinstance(item := waiting.get(), bytes):
                yield item
            if isinstance(item, BaseException):
                raise item
            self._checked(name, item)
        finally:
            left.set()
            thread.join()

    def stat(self, name: str) -> ObjectInfo | None:
        """See ObjectStore. Raises IrisError."""
        parts_of(name)
        done = self._run("stat", name)
        return None if done.code == MISSING else _info(self._checked(name, done))

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """See ObjectStore. Raises IrisError."""
        done = self._checked(prefix, self._run("list", prefix))
        yield from (_info_of(line) for line in done.out.splitlines())

    def delete(self, name: str) -> None:
        """See ObjectStore. Raises IrisError."""
        self._checked(name, self._run("delete", name))

    def _run(self, verb: str, name: str) -> Done:
        if verb != "list":
            parts_of(name)
        return self._remote.small(lambda _: [verb, "--root", self.root, "--", name], timeout_s=ANSWER_S)

    def _checked(self, name: str, done: Done) -> Done:
        if done.code == 0:
            return done
        error = self._remote.failed(done)
        if done.code == MISSING:
            raise ObjectMissing(f"there is no {name} in {self.url}")
        if done.code == MISMATCH:
            raise GenerationMismatch(f"{name} in {self.url} was written by somebody else")
        raise error


def _info(done: Done) -> ObjectInfo:
    return _info_of(done.out)


def _info_of(line: bytes) -> ObjectInfo:
    try:
        values = json.loads(line)
        return ObjectInfo(str(values["name"]), int(values["size_bytes"]), str(values["generation"]))
    except (ValueError, KeyError, TypeError):
        raise IrisError(f"the host answered something else than an object: {line[:80]!r}") from None
