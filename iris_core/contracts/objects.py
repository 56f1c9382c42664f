"""The store that outlives a machine: whole objects by name, with compare-and-set. Must never say where they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from iris_core.contracts.errors import IrisError


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object. `generation` changes with every write and is what compare-and-set compares."""

    name: str
    size_bytes: int
    generation: str


class GenerationMismatch(IrisError):
    """The object is not at the expected generation: somebody else wrote it."""


class ObjectMissing(IrisError):
    """There is no such object."""


class ObjectStore(Protocol):
    """Flat objects under one root URL. Names are relative, `/`-separated, and never leave the root.

    Every method may raise IrisError: the store does not answer, or refuses.
    """

    url: str

    def put(self, name: str, data: bytes, *, if_generation: str | None = None) -> ObjectInfo:
        """Durable when it returns. `if_generation=""` = only if absent. Raises GenerationMismatch."""
        ...

    def put_file(self, name: str, path: Path, *, if_generation: str | None = None) -> ObjectInfo:
        """As `put`, for a file of any size, which is handed over: it is gone afterwards. Raises GenerationMismatch."""
        ...

    def get(self, name: str) -> bytes:
        """Raises ObjectMissing."""
        ...

    def chunks(self, name: str) -> Iterator[bytes]:
        """One version of an object of any size, in pieces of some MiB. Raises ObjectMissing."""
        ...

    def stat(self, name: str) -> ObjectInfo | None: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    def delete(self, name: str) -> None:
        """Deleting what is absent is no error."""
        ...
