"""Secrets at rest: values recognised as secrets are stored sealed (AES-GCM) and opened only at dispatch (DESIGN §5.22).

The key is a file of its own, mode 0600, and never part of a checkpoint. Names stay readable.
"""

from __future__ import annotations

import base64
import os
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from iris_core.model.redact import holds_secret, redact_argv
from iris_core.wire.gen.iris.v1 import controller_pb2

PREFIX = "sealed:v1:"
NONCE = 12


class SealedElsewhere(Exception):
    """The value was sealed with another key: the job cannot be started here."""


class Seal:
    """Seals and opens texts with one key."""

    def __init__(self, key: bytes) -> None:
        self._cipher = AESGCM(key)

    @classmethod
    def from_file(cls, path: Path) -> Seal:
        """Reads the key, or makes one when the file is absent. Raises OSError or ValueError (damaged key)."""
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return cls(base64.b64decode(path.read_bytes()))
        with os.fdopen(handle, "wb") as file:
            key = AESGCM.generate_key(256)
            file.write(base64.b64encode(key))
            file.flush()
            os.fsync(file.fileno())
        return cls(key)

    def seal(self, text: str) -> str:
        nonce = os.urandom(NONCE)
        return PREFIX + base64.b64encode(nonce + self._cipher.encrypt(nonce, text.encode(), None)).decode()

    def open(self, text: str) -> str:
        """The text itself when it is not sealed. Raises SealedElsewhere."""
        if not text.startswith(PREFIX):
            return text
        try:
            raw = base64.b64decode(text[len(PREFIX) :], validate=True)
            return self._cipher.decrypt(raw[:NONCE], raw[NONCE:], None).decode()
        except (ValueError, InvalidTag):
            raise SealedElsewhere("a value was sealed with a key that is not here") from None

    def seal_request(self, request: controller_pb2.LaunchJobRequest) -> controller_pb2.LaunchJobRequest:
        """A copy in which no secret can be read. A value that already looks sealed is sealed again, so that a user cannot
        hand in a text for the controller to open."""
        sealed = controller_pb2.LaunchJobRequest()
        sealed.CopyFrom(request)
        variables = sealed.environment.env_vars
        for name in list(variables):
            if holds_secret(name, variables[name]) or variables[name].startswith(PREFIX):
                variables[name] = self.seal(variables[name])
        argv = sealed.entrypoint.run_command.argv
        for index, (word, shown) in enumerate(zip(list(argv), redact_argv(list(argv)), strict=True)):
            if word != shown or word.startswith(PREFIX):
                argv[index] = self.seal(word)
        shown_argv = redact_argv(list(sealed.submit_argv))
        del sealed.submit_argv[:]
        sealed.submit_argv.extend(shown_argv)
        return sealed

    def open_request(self, request: controller_pb2.LaunchJobRequest) -> None:
        """Opens what is sealed, in place. Raises SealedElsewhere."""
        variables = request.environment.env_vars
        for name in list(variables):
            variables[name] = self.open(variables[name])
        argv = request.entrypoint.run_command.argv
        for index, word in enumerate(list(argv)):
            argv[index] = self.open(word)

    def opens(self, raw: bytes) -> bool:
        """Whether every secret of a stored request can be opened here."""
        if PREFIX.encode() not in raw:
            return True
        try:
            self.open_request(controller_pb2.LaunchJobRequest.FromString(raw))
        except SealedElsewhere:
            return False
        return True


def redact_request(request: controller_pb2.LaunchJobRequest) -> None:
    """Replaces what is sealed by a marker with its name, in place, for replies."""
    variables = request.environment.env_vars
    for name in list(variables):
        if variables[name].startswith(PREFIX):
            variables[name] = f"[redacted:{name}]"
    argv = request.entrypoint.run_command.argv
    for index, word in enumerate(list(argv)):
        if word.startswith(PREFIX):
            argv[index] = "[redacted]"
