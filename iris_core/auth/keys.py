"""The signing key on disk: an Ed25519 private key in PEM, readable by its owner alone.

Whoever holds it is every worker and every user, so a file that others can read, that belongs to somebody else or that is reached
through a symbolic link is refused rather than used. It is created whole or not at all, and replaced only when
somebody asks for that, with the one before kept. Must never print a key.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from pathlib import Path

_MAX_BYTES = 16 * 1024


class KeyFileError(IrisError):
    """The key file cannot be used or made."""


@dataclass(frozen=True)
class SigningKey:
    """A private key and the id (`kid`) under which its public half is known."""

    private: Ed25519PrivateKey
    kid: str

    @property
    def public(self) -> Ed25519PublicKey:
        """The half that verifies."""
        return self.private.public_key()

    def public_pem(self) -> str:
        """The public half as PEM, for a list of previous keys."""
        return self.public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        ).decode("ascii")

    def private_pem(self) -> str:
        """The secret half, for whoever asked for it by name."""
        return self.private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ).decode("ascii")

    def __repr__(self) -> str:
        return f"SigningKey(kid={self.kid!r})"


def key_id(public: Ed25519PublicKey) -> str:
    """The id of a public key: the first 16 hex digits of the sha256 of its raw bytes."""
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return sha256(raw).hexdigest()[:16]


def new_key() -> SigningKey:
    """A fresh key that is stored nowhere."""
    private = Ed25519PrivateKey.generate()
    return SigningKey(private, key_id(private.public_key()))


def load_or_create_key(path: Path) -> SigningKey:
    """The key in `path`, made there (0600, durable, never a partial file) if there is none. Raises KeyFileError."""
    try:
        return load_key(path)
    except FileNotFoundError:
        pass
    try:
        return create_key(path)
    except FileExistsError:
        # Somebody else was first: there is one key, theirs.
        return load_key(path)


def load_key(path: Path) -> SigningKey:
    """The key in `path`. Raises FileNotFoundError: there is none; KeyFileError: it cannot be trusted or read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        if path.is_symlink():
            raise KeyFileError(
                f"the signing key {path} is a symbolic link", hint="put the file itself there"
            ) from error
        raise KeyFileError(f"cannot read the signing key {path}: {error.strerror}") from error
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise KeyFileError(f"the signing key {path} is not a regular file")
        if found.st_uid not in {os.geteuid(), 0}:
            raise KeyFileError(f"the signing key {path} belongs to another user (uid {found.st_uid})")
        if stat.S_IMODE(found.st_mode) & 0o077:
            raise KeyFileError(
                f"the signing key {path} can be read by others (mode {stat.S_IMODE(found.st_mode):04o})",
                hint=f"chmod 600 {path}, and replace the key if somebody else may have read it",
            )
        pem = os.read(descriptor, _MAX_BYTES)
    finally:
        os.close(descriptor)
    return key_of(pem, str(path))


def key_of(pem: bytes, place: str) -> SigningKey:
    """The key in these bytes; `place` says in errors where they are from. Raises KeyFileError."""
    try:
        private = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as error:
        raise KeyFileError(f"the signing key {place} is not a private key in PEM form") from error
    if not isinstance(private, Ed25519PrivateKey):
        raise KeyFileError(f"the signing key {place} is not an Ed25519 key")
    return SigningKey(private, key_id(private.public_key()))


def create_key(path: Path) -> SigningKey:
    """A new key in a new file (0600, durable, never a partial one). Raises FileExistsError: there is one; KeyFileError."""
    key = new_key()
    try:
        _create(path, key.private_pem().encode())
    except FileExistsError:
        raise
    except OSError as error:
        raise KeyFileError(f"cannot create the signing key {path}: {error.strerror}") from error
    return key


def replace_key(path: Path) -> tuple[SigningKey, Path]:
    """A new key in the place of the one in `path`, and where the one before is kept: beside it, under its id.

    At every moment there is a whole key in `path`, and the one before is kept before another one stands there. Two that do this at once
    replace one after the other. Raises FileNotFoundError: there is none; KeyFileError.
    """
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise KeyFileError(f"cannot use {path.parent}: {error.strerror}") from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        old, key = load_key(path), new_key()
        kept = path.with_name(f"{path.name}.{old.kid}")
        _keep(path, kept)
        scratch = _scratch(path, key.private_pem().encode())
        try:
            os.fsync(folder)
            os.replace(scratch, path)
        except OSError:
            os.unlink(scratch)
            raise
        os.fsync(folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise KeyFileError(f"cannot replace the signing key {path}: {error.strerror}") from error
    finally:
        os.close(folder)
    return key, kept


def _keep(path: Path, kept: Path) -> None:
    try:
        os.link(path, kept, follow_symlinks=False)
    except FileExistsError:
        # Left by a run that did not come further, or by whoever took that name for something else.
        if kept.is_symlink() or not kept.samefile(path):
            raise KeyFileError(f"{kept} is there already", hint="move it away, and try again") from None


def load_public_key(pem: str) -> Ed25519PublicKey:
    """A public key from its PEM form. Raises KeyFileError."""
    try:
        public = serialization.load_pem_public_key(pem.encode())
    except ValueError as error:
        raise KeyFileError("a previous public key is not in PEM form") from error
    if not isinstance(public, Ed25519PublicKey):
        raise KeyFileError("a previous public key is not an Ed25519 key")
    return public


def _create(path: Path, data: bytes) -> None:
    """Writes `data` to a file beside `path` and links it into place; raises FileExistsError if `path` exists."""
    scratch = _scratch(path, data)
    try:
        os.link(scratch, path)
    finally:
        os.unlink(scratch)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _scratch(path: Path, data: bytes) -> Path:
    """A file beside `path` that has `data` for good, 0600. Raises OSError, and leaves none then."""
    scratch = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            file.write(data)
            file.flush()
            os.fsync(descriptor)
    except OSError:
        os.unlink(scratch)
        raise
    return scratch
