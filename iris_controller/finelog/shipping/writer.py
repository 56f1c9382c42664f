"""Who a folder is to the object store: a name of its own, which the manifest bears.

So two folders of one store never both ship into one place. Must never give a folder a new name while it has one.
"""

from __future__ import annotations

import json
import secrets
from typing import TYPE_CHECKING, Final

from iris_controller.finelog.disk import write_atomically
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from pathlib import Path

WRITER_FILE: Final = "shipping.json"


def own_writer(folder: Path) -> str:
    """Who the folder is to the object store; made at first. Raises IrisError, OSError."""
    path = folder / WRITER_FILE
    try:
        return str(json.loads(path.read_text())["writer"])
    except FileNotFoundError:
        pass
    except (ValueError, KeyError, TypeError):
        raise IrisError(f"{path} cannot be read: remove it if no other folder of this store is in use") from None
    writer = secrets.token_hex(8)
    save_writer(folder, writer)
    return writer


def save_writer(folder: Path, writer: str) -> None:
    """Durable when it returns. Raises OSError."""
    write_atomically(folder / WRITER_FILE, json.dumps({"writer": writer}).encode() + b"\n")
