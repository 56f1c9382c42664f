"""Object stores, chosen by the scheme of their URL. A scheme whose package is not installed is named with the command
that installs it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from iris_core.contracts import UsageFailed
from iris_core.model.errors import shown

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,221}[a-z0-9]")


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
    if parts.scheme == "gs":
        if not _BUCKET.fullmatch(parts.netloc) or parts.query or parts.fragment:
            raise UsageFailed(f"{shown(url)} is not a place in a bucket", hint="write it as gs://bucket/path")
        import importlib.util

        # Looking for the package imports its parents; where those are missing it raises instead.
        try:
            found = importlib.util.find_spec("google.cloud.storage")
        except ModuleNotFoundError:
            found = None
        if found is None:
            raise UsageFailed(
                f"{shown(url)} needs the package google-cloud-storage, which is not installed",
                hint="pip install 'iris-ops[gcp]'",
            )
        from providers.objects.gcs import GcsStore

        return GcsStore(parts.netloc, parts.path.strip("/"))
    if parts.scheme == "ssh":
        path = unquote(parts.path)
        if not parts.netloc or not path.startswith("/") or parts.query or parts.fragment:
            raise UsageFailed(f"{shown(url)} is not a folder of a host", hint="write it as ssh://user@host/path")
        from providers.hosts.places import open_at

        return open_at(parts.netloc, path)
    raise UsageFailed(
        f"{shown(url)}: this release stores objects under file://, gs:// and ssh:// only",
        hint="write it as file:///path or gs://bucket/path",
    )
