"""Object stores, chosen by the scheme of their URL. A scheme whose package is not installed is named with the command
that installs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from iris_core.contracts import UsageFailed
from iris_core.model.errors import shown

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore


def open_store(url: str) -> ObjectStore:
    """The store rooted at that URL. Nothing is read or written yet. Raises UsageFailed: not a URL of a store that
    this release has.
    """
    parts = urlsplit(url)
    if parts.scheme == "file":
        path = unquote(parts.path)
        if parts.netloc not in ("", "localhost") or not path.startswith("/") or parts.query or parts.fragment:
            raise UsageFailed(f"{shown(url)} is not a folder of this machine", hint="write it as file:///path")
        from pathlib import Path

        from providers.objects.file import FileStore

        return FileStore(Path(path))
    raise UsageFailed(f"{shown(url)}: this release stores objects under file:// only", hint="write it as file:///path")
