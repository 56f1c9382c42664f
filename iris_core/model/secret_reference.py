"""Where a secret is, as a cluster file says it: `env:NAME`, `file:/absolute/path`, `gcp-secret://projects/P/secrets/S/versions/N`.

A cluster file never holds a secret itself. Must never read one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from iris_core.model.errors import ModelError

ENV: Final = "env:"
FILE: Final = "file:"
GCP: Final = "gcp-secret://"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_GCP_SECRET: Final = re.compile(r"projects/[A-Za-z0-9][A-Za-z0-9.:-]{0,99}/secrets/[A-Za-z0-9_-]{1,255}")
_GCP_VERSION: Final = re.compile(_GCP_SECRET.pattern + r"/versions/[A-Za-z0-9_-]{1,63}")


@dataclass(frozen=True, slots=True)
class SecretReference:
    """A secret that a cluster file refers to.

    Attributes:
        where: The key that names it (`auth.signing_key`).
        references: Where it is; the first that can be had counts.
    """

    where: str
    references: tuple[str, ...]


def check_reference(text: str) -> str:
    """The text, found to be a reference. Raises ModelError, which never repeats it: it may be the secret itself."""
    ok = (
        (text.startswith(ENV) and _NAME.fullmatch(text.removeprefix(ENV)) is not None)
        or (text.startswith(FILE) and text.removeprefix(FILE).startswith("/"))
        or (text.startswith(GCP) and _GCP_VERSION.fullmatch(text.removeprefix(GCP)) is not None)
    )
    if not ok or not text.isprintable():
        raise ModelError(
            "this is no reference to a secret, and a secret itself may not stand here",
            hint="write env:NAME, file:/absolute/path or gcp-secret://projects/P/secrets/S/versions/N",
        )
    return text


def check_gcp_secret(text: str) -> str:
    """The name of a secret of Google's Secret Manager, without a version: `projects/P/secrets/S`. Raises ModelError."""
    name = text.removeprefix(GCP)
    if _GCP_SECRET.fullmatch(name) is None:
        raise ModelError("this is no secret of Google's Secret Manager", hint="write it as projects/P/secrets/S")
    return name
