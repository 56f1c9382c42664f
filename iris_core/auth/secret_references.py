"""Secrets that a cluster file refers to, and whether they can be had from here: in the environment, in a file, in Google's Secret Manager.

A cluster file never holds a secret, it says where one is; of a list the first that can be had counts. Must never print, log or return
in an error what a secret is, nor create one that is missing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from iris_core.contracts import IrisError
from iris_core.model.secret_reference import ENV, FILE, GCP, SecretReference

MOST_BYTES: Final = 64 << 10


class SecretMissing(IrisError):
    """A secret cannot be had; the text names the reference and says why."""


def require(wanted: Sequence[SecretReference], environment: Mapping[str, str] = os.environ) -> None:
    """Sees that each of them can be had. Raises SecretMissing, which names every one that cannot."""
    missing: list[str] = []
    for secret in wanted:
        try:
            obtain(secret, environment)
        except SecretMissing as error:
            missing.append(f"{secret.where}: {error.message}")
    if missing:
        raise SecretMissing(
            f"a secret that the controller needs cannot be had: {'; '.join(missing)}",
            hint="nothing was changed; set it where this command runs, or correct the reference",
        )


def obtain(secret: SecretReference, environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The first of its references that can be had, and the secret behind it. Raises SecretMissing: none can, and why not."""
    why: list[str] = []
    for reference in secret.references:
        try:
            return reference, resolve(reference, environment)
        except SecretMissing as error:
            why.append(error.message)
    raise SecretMissing(", ".join(why))


def resolve(reference: str, environment: Mapping[str, str] = os.environ) -> str:
    """The secret behind a reference. Raises SecretMissing."""
    if reference.startswith(ENV):
        name = reference.removeprefix(ENV)
        if not environment.get(name):
            raise SecretMissing(f"the environment has no {name}")
        return environment[name]
    if reference.startswith(FILE):
        return _read(Path(reference.removeprefix(FILE)))
    if reference.startswith(GCP):
        return _stored(reference)
    raise SecretMissing("it is no reference to a secret")


def _stored(reference: str) -> str:
    from iris_core.auth.gcp_secrets import SecretManager

    try:
        manager = SecretManager()
        try:
            held = manager.access(reference.removeprefix(GCP)).data
        finally:
            manager.close()
        text = held.decode()
    except UnicodeDecodeError:
        raise SecretMissing(f"{reference} is no text") from None
    except IrisError as error:
        raise SecretMissing(f"{reference}: {error.message}{f' ({error.hint})' if error.hint else ''}") from None
    if not text.strip():
        raise SecretMissing(f"{reference} is empty")
    return text


def _read(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise SecretMissing(f"{path} is no regular file")
            if stat.S_IMODE(found.st_mode) & 0o077:
                raise SecretMissing(f"{path} can be read by others: chmod 600 it")
            text = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise SecretMissing(f"{path}: {(error.strerror or str(error)).lower()}") from None
    if not text.strip() or len(text) > MOST_BYTES:
        raise SecretMissing(f"{path} is empty" if not text.strip() else f"{path} is too large for a secret")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise SecretMissing(f"{path} is no text") from None
