"""Credentials for a registry, where `docker login` has put them: docker's config file, or the helper program that it names.

They are read anew each time they are needed and kept nowhere else. What is read must never be part of a message, a log line or an argv: errors
name the file, and a helper gets the registry's name on its standard input.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from iris_core.contracts import RegistryFailed
from iris_core.model.images import DOCKER_HUB

HELPER_S: Final = 30.0
MAX_BYTES: Final = 1 << 20
_HUB_KEY: Final = "https://index.docker.io/v1/"
_HELPER_RE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_IDENTITY: Final = "<token>"
"""The user name by which helpers mark an identity token."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are to one registry.

    Attributes:
        user: The user's name, "" with an identity token.
        secret: Password or token; hidden from `repr`.
        is_identity: The secret is exchanged for access tokens, and is never a password.
    """

    user: str
    secret: str = field(repr=False)
    is_identity: bool = False


def config_file() -> Path:
    """Docker's, which `$DOCKER_CONFIG` moves."""
    folder = os.environ.get("DOCKER_CONFIG", "")
    return (Path(folder) if folder else Path.home() / ".docker") / "config.json"


def find(registry: str) -> Credentials | None:
    """The credentials kept for a registry, None if there are none. Raises RegistryFailed: the file or the helper makes no sense."""
    path = config_file()
    config = _read(path)
    key = _HUB_KEY if registry == DOCKER_HUB else registry
    helpers = config.get("credHelpers")
    helper = helpers.get(registry) if isinstance(helpers, dict) else None
    helper = helper or config.get("credsStore") or ""
    if helper:
        found = _from_helper(str(helper), key, path)
        if found is not None:
            return found
    auths = config.get("auths")
    if isinstance(auths, dict):
        for name, entry in auths.items():
            if isinstance(entry, dict) and (name == key or _host(str(name)) == registry):
                return _from_entry(entry, registry, path)
    return None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise RegistryFailed(f"{path} cannot be read: {error.strerror}", hint="docker login writes it") from None
    try:
        config = json.loads(raw) if raw.strip() else {}
        if len(raw) > MAX_BYTES or not isinstance(config, dict):
            raise ValueError
    except ValueError:
        raise RegistryFailed(f"{path} is no configuration of docker", hint="docker login writes it") from None
    return config


def _host(key: str) -> str:
    """The registry that a key of `auths` means: some are written as URLs."""
    return re.sub(r"^https?://", "", key).partition("/")[0]


def _from_entry(entry: Mapping[str, Any], registry: str, path: Path) -> Credentials | None:
    token = entry.get("identitytoken")
    if isinstance(token, str) and token:
        return Credentials("", token, is_identity=True)
    packed = entry.get("auth")
    if isinstance(packed, str) and packed:
        try:
            user, colon, secret = base64.b64decode(packed, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            user, colon, secret = "", "", ""
        if not (colon and user):
            raise RegistryFailed(f"{path}: the entry of {registry} makes no sense", hint=f"docker login {registry}")
        return Credentials(user, secret)
    name, word = entry.get("username"), entry.get("password")
    return Credentials(name, word) if isinstance(name, str) and isinstance(word, str) and name else None


def _from_helper(helper: str, key: str, path: Path) -> Credentials | None:
    program = f"docker-credential-{helper}"
    if not _HELPER_RE.fullmatch(helper):
        raise RegistryFailed(f"{path} names a credential helper that cannot be one")
    try:
        done = subprocess.run(
            [program, "get"], input=key.encode(), capture_output=True, timeout=HELPER_S, check=False, cwd="/"
        )
    except FileNotFoundError:
        raise RegistryFailed(f"{path} names {program}, which is not installed") from None
    except subprocess.TimeoutExpired:
        raise RegistryFailed(f"{program} has not answered within {HELPER_S:g} s") from None
    except OSError as error:
        raise RegistryFailed(f"{program} cannot be run: {error.strerror}") from None
    if done.returncode != 0:
        if b"not found" in done.stdout + done.stderr:
            return None
        raise RegistryFailed(f"{program} failed with exit code {done.returncode}")
    try:
        answer = json.loads(done.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise RegistryFailed(f"{program} answered with what are no credentials") from None
    return Credentials("", secret, is_identity=True) if user == _IDENTITY else Credentials(user, secret)
