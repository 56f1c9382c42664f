"""Which tables there are: their schemas, and since which seq each counts.

One small file, replaced as a whole before a registration is answered. A table that was dropped and registered again is another one:
rows below its first seq are of its predecessor. Must never forget a table that has rows.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from iris_controller.finelog.disk import write_atomically
from iris_core.model.tables import Column, ColumnType, StoragePolicy, Table

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FORMAT = 1
FILE_NAME = "registry.json"
MAX_TABLES = 1_000


class RegistryDamaged(Exception):
    """The file is there and cannot be read."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A table of the store. Rows with a seq below `since_seq` belong to a predecessor of the same name."""

    table: Table
    since_seq: int


def save(folder: Path, tables: Mapping[str, Registered]) -> None:
    """Durable when it returns. Raises OSError."""
    body = json.dumps({"format": FORMAT, "tables": [_told(one) for one in tables.values()]}, separators=(",", ":"))
    write_atomically(folder / FILE_NAME, f'{{"checksum":{zlib.crc32(body.encode())},"registry":{body}}}\n'.encode())


def load(folder: Path) -> dict[str, Registered] | None:
    """The tables; None if nothing was ever saved. Raises RegistryDamaged, OSError."""
    path = folder / FILE_NAME
    try:
        whole: dict[str, Any] = json.loads(path.read_text())
        body = whole["registry"]
        if whole["checksum"] != zlib.crc32(json.dumps(body, separators=(",", ":")).encode()):
            raise RegistryDamaged(f"the checksum of {path} does not fit")
        if body["format"] > FORMAT:
            raise RegistryDamaged(f"{path} was written by a newer release (format {body['format']})")
        found = [_heard(one) for one in body["tables"]]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise RegistryDamaged(f"{path} is no registry of tables: {error}") from error
    return {one.table.name: one for one in found}


def _told(one: Registered) -> dict[str, Any]:
    table = one.table
    return {
        "name": table.name,
        "since_seq": one.since_seq,
        "key_column": table.key_column,
        "policy": asdict(table.policy),
        "columns": [[column.name, int(column.type), column.nullable] for column in table.columns],
    }


def _heard(told: dict[str, Any]) -> Registered:
    columns = tuple(Column(name, ColumnType(type_), nullable) for name, type_, nullable in told["columns"])
    table = Table(told["name"], columns, told["key_column"], StoragePolicy(**told["policy"]))
    return Registered(table, told["since_seq"])
