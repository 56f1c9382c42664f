"""How a registry lets us in: it answers 401 with a challenge, and we come back with what the challenge asks for.

`Basic` takes user and password as they are; `Bearer` has a token service hand out a short-lived token for exactly the scope that was asked for.
A password goes to no other place than the registry and the token service that it names, and to none over plain HTTP but on this machine.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from iris_core.contracts import RegistryDenied, RegistryFailed
from providers.registry.credentials import Credentials, config_file, find

if TYPE_CHECKING:
    from iris_core.model.images import ImageRef
    from providers.registry.transport import Transport

CLIENT_ID: Final = "iris-core"
_SCHEME_RE: Final = re.compile(r"(?:^|,)\s*([A-Za-z][A-Za-z0-9-]*)\s+(?=[A-Za-z_]+\s*=)")
_PARAMETER_RE: Final = re.compile(r'([A-Za-z_]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))')


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way in: its scheme in lower case, and what it says of itself."""

    scheme: str
    parameters: dict[str, str]


def challenges(header: str) -> list[Challenge]:
    """The ways in that a `WWW-Authenticate` header offers, in its order. What cannot be read is left out."""
    starts = list(_SCHEME_RE.finditer(header))
    found = []
    for index, start in enumerate(starts):
        end = starts[index + 1].start() if index + 1 < len(starts) else len(header)
        parameters = {
            match[1].lower(): re.sub(r"\\(.)", r"\1", match[2]) if match[2] is not None else match[3]
            for match in _PARAMETER_RE.finditer(header[start.end() : end])
        }
        found.append(Challenge(start[1].lower(), parameters))
    if not starts and header.strip():
        found.append(Challenge(header.strip().partition(" ")[0].lower(), {}))
    return found


@dataclass
class Authorizer:
    """Answers challenges, and keeps what was got for as long as this object lives: a command, or one procedure."""

    transport: Transport
    _headers: dict[tuple[str, str, str], str] = field(default_factory=dict, repr=False)

    def header(self, image: ImageRef, actions: str) -> str:
        """The `Authorization` that let us in before, "" = none yet."""
        return self._headers.get((image.registry, image.repository, actions), "")

    def answer(self, image: ImageRef, actions: str, challenge: str) -> str:
        """The `Authorization` that a challenge asks for. Raises RegistryDenied, RegistryFailed."""
        credentials = find(image.registry)
        for offered in challenges(challenge):
            if offered.scheme == "bearer":
                made = "Bearer " + self._token(image, actions, offered.parameters, credentials)
            elif offered.scheme == "basic":
                if credentials is None or credentials.is_identity:
                    raise no_credentials(image)
                made = _basic(credentials)
            else:
                continue
            self._headers[image.registry, image.repository, actions] = made
            return made
        raise RegistryFailed(f"{image.registry} asks for a kind of credentials that is not known here")

    def _token(self, image: ImageRef, actions: str, parameters: dict[str, str], credentials: Credentials | None) -> str:
        realm = parameters.get("realm", "")
        parts = urlsplit(realm)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise RegistryFailed(f"{image.registry} names no token service")
        if parts.scheme == "http" and not image.is_loopback:
            raise RegistryFailed(
                f"{image.registry} names the token service {parts.netloc} without TLS: no credentials are sent there"
            )
        asked = {"scope": parameters.get("scope") or f"repository:{image.repository}:{actions}"}
        if parameters.get("service"):
            asked["service"] = parameters["service"]
        if credentials is not None and credentials.is_identity:
            form = {**asked, "grant_type": "refresh_token", "client_id": CLIENT_ID, "refresh_token": credentials.secret}
            said = self.transport.send("POST", realm, form=form, is_loopback=image.is_loopback)
        else:
            basic = (credentials.user, credentials.secret) if credentials is not None else None
            said = self.transport.send("GET", realm, params=asked, basic=basic, is_loopback=image.is_loopback)
        if said.status in (401, 403):
            raise refused(image, credentials)
        try:
            answer = json.loads(said.body) if said.status == 200 else {}
            token = answer.get("token") or answer.get("access_token")
        except (ValueError, AttributeError):
            token = None
        # A token of other characters could end the header that carries it.
        if not isinstance(token, str) or not re.fullmatch(r"[A-Za-z0-9._~+/=-]{1,65536}", token):
            raise RegistryFailed(f"the token service {parts.netloc} answered {said.status} without a token")
        return token


def no_credentials(image: ImageRef) -> RegistryDenied:
    """It asks for credentials, and none are kept."""
    return RegistryDenied(
        f"{image.registry} asks for credentials, and {config_file()} has none", hint=f"docker login {image.registry}"
    )


def refused(image: ImageRef, credentials: Credentials | None) -> RegistryDenied:
    """It knows who asks, and does not let them in."""
    if credentials is None:
        return no_credentials(image)
    who = f"the credentials of {credentials.user}" if credentials.user else "the token that is kept"
    return RegistryDenied(f"{image.registry} refuses {who}", hint=f"docker login {image.registry}")


def _basic(credentials: Credentials) -> str:
    return "Basic " + base64.b64encode(f"{credentials.user}:{credentials.secret}".encode()).decode()
