"""Google's Secret Manager over its REST API: reading a version, making a secret, adding a version, letting somebody read it.

Identity is what google-auth finds in the environment (Application Default Credentials). Every request has a time limit, nothing is tried
again that may have been done, and every way to fail is one line. What is stored travels in bodies alone: must never be in an address, a
header, an error, a log line or a `repr`. A regional endpoint is named as for gcloud, by CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from iris_core.contracts import IrisError, UsageFailed
from iris_core.model.text import one_line

if TYPE_CHECKING:
    import httpx

ENDPOINT: Final = "https://secretmanager.googleapis.com/"
OVERRIDE: Final = "CLOUDSDK_API_ENDPOINT_OVERRIDES_SECRETMANAGER"
SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
ACCESSOR: Final = "roles/secretmanager.secretAccessor"
CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0
"""Of one answer, however slowly it drips."""
MAX_BYTES: Final = 256 << 10
"""A payload is 64 KiB at most, and a policy is smaller."""
POLICY_TRIES: Final = 4
LOGIN: Final = "log in with: gcloud auth application-default login, or set GOOGLE_APPLICATION_CREDENTIALS"


class SecretsFailed(IrisError):
    """The Secret Manager refused, or did not answer. `status` is Google's word for it (`NOT_FOUND`), "" = it gave none."""

    def __init__(self, message: str, *, hint: str = "", status: str = "") -> None:
        super().__init__(message, hint=hint)
        self.status = status


@dataclass(frozen=True, slots=True)
class Accessed:
    """A version as it is named by number (`projects/P/secrets/S/versions/3`), and what it holds."""

    name: str
    data: bytes = field(repr=False)


class SecretManager:
    """One connection, made with the first request. `close` it. Every call may raise SecretsFailed."""

    def __init__(self, environment: Mapping[str, str] = os.environ, *, answer_s: float = ANSWER_S) -> None:
        self._endpoint = _endpoint(environment.get(OVERRIDE, "") or ENDPOINT)
        self._answer_s = answer_s
        self._opened: httpx.Client | None = None
        self._credentials: Any = None
        self._carrier: Any = None

    def close(self) -> None:
        """Closes the connection."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None
        if self._carrier is not None:
            self._carrier.session.close()
            self._carrier = self._credentials = None

    # --- what is asked -----------------------------------------------------------------------------------------------

    def access(self, version: str) -> Accessed:
        """What a version (`projects/P/secrets/S/versions/V`) holds; found to be what was stored."""
        said = self._ask("GET", f"v1/{version}:access", "read", version)
        try:
            payload = said["payload"]
            data = base64.b64decode(payload["data"], validate=True)
            expected = payload.get("dataCrc32c")
            name = str(said["name"])
        except (KeyError, TypeError, ValueError, AttributeError, binascii.Error):
            raise SecretsFailed(f"the answer for {version} holds no secret") from None
        if expected is not None and str(expected) != str(crc32c(data)):
            raise SecretsFailed(f"{version} did not arrive as it was stored", hint="try again")
        return Accessed(name, data)

    def exists(self, secret: str) -> bool:
        """Whether there is a secret `projects/P/secrets/S`, with or without a version."""
        try:
            self._ask("GET", f"v1/{secret}", "look at", secret)
        except SecretsFailed as error:
            if error.status == "NOT_FOUND":
                return False
            raise
        return True

    def create(self, secret: str) -> None:
        """Makes the secret, without a version and replicated as Google sees fit. One that is there is no error."""
        parent, _, name = secret.partition("/secrets/")
        try:
            self._ask(
                "POST",
                f"v1/{parent}/secrets",
                "make",
                secret,
                params={"secretId": name},
                body={"replication": {"automatic": {}}},
            )
        except SecretsFailed as error:
            if error.status != "ALREADY_EXISTS":
                raise

    def add(self, secret: str, data: bytes) -> str:
        """Stores `data` as a new version; its name, by number."""
        payload = {"data": base64.b64encode(data).decode("ascii"), "dataCrc32c": str(crc32c(data))}
        said = self._ask("POST", f"v1/{secret}:addVersion", "add a version to", secret, body={"payload": payload})
        name = str(said.get("name", ""))
        if not name.rpartition("/versions/")[2].isdigit():
            raise SecretsFailed(f"a version was added to {secret}, and the answer does not name it", hint="look at it")
        return name

    def allow(self, secret: str, member: str) -> bool:
        """Lets `member` read every version of the secret; whether that was new. Another's change in between is kept."""
        for left in range(POLICY_TRIES - 1, -1, -1):
            policy = self._ask(
                "GET",
                f"v1/{secret}:getIamPolicy",
                "see who may read",
                secret,
                params={"options.requestedPolicyVersion": "3"},
            )
            bindings = [dict(binding) for binding in policy.get("bindings") or []]
            plain = next((b for b in bindings if b.get("role") == ACCESSOR and not b.get("condition")), None)
            if plain is None:
                plain = {"role": ACCESSOR, "members": []}
                bindings.append(plain)
            if member in plain["members"]:
                return False
            plain["members"] = [*plain["members"], member]
            try:
                self._ask(
                    "POST",
                    f"v1/{secret}:setIamPolicy",
                    "change who may read",
                    secret,
                    body={"policy": {**policy, "version": 3, "bindings": bindings}},
                )
            except SecretsFailed as error:
                if error.status != "ABORTED" or not left:
                    raise
                continue
            return True
        raise AssertionError

    # --- how it is asked ---------------------------------------------------------------------------------------------

    @property
    def _client(self) -> httpx.Client:
        if self._opened is None:
            try:
                import httpx
            except ImportError:
                raise _not_installed("httpx") from None
            self._opened = httpx.Client(
                # A proxy of the environment is for the world outside, never for this machine.
                trust_env=not _is_loopback(self._endpoint),
                timeout=httpx.Timeout(self._answer_s, connect=CONNECT_S),
                headers={"user-agent": "iris-core"},
            )
        return self._opened

    def _ask(
        self, method: str, path: str, verb: str, what: str, *, params: Mapping[str, str] | None = None, body: Any = None
    ) -> dict[str, Any]:
        url = f"{self._endpoint}{path}"
        headers = self._authorised(method, url)
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["content-type"] = "application/json"
        status, raw = self._send(method, url, headers, content, params)
        try:
            said = json.loads(raw) if raw else {}
        except ValueError:
            said = None
        if status == 200 and isinstance(said, dict):
            return said
        raise _refused(status, said, verb, what)

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: bytes | None,
        params: Mapping[str, str] | None = None,
    ) -> tuple[int, bytes]:
        client = self._client
        import httpx

        host = urlsplit(url).netloc
        deadline = time.monotonic() + self._answer_s
        try:
            with client.stream(
                method, url, headers=dict(headers), content=content, params=dict(params) if params else None
            ) as answer:
                data = bytearray()
                for piece in answer.iter_bytes():
                    data += piece
                    if len(data) > MAX_BYTES:
                        raise SecretsFailed(f"{host} answered with more than {MAX_BYTES >> 10} KiB")
                    if time.monotonic() > deadline:
                        raise SecretsFailed(f"{host} did not answer within {self._answer_s:g} s", hint="try again")
                return answer.status_code, bytes(data)
        except httpx.TimeoutException as error:
            within = CONNECT_S if isinstance(error, httpx.ConnectTimeout) else self._answer_s
            raise SecretsFailed(f"{host} did not answer within {within:g} s", hint="try again") from None
        except httpx.HTTPError as error:
            why = " ".join(str(error).split()).partition("] ")
            raise SecretsFailed(f"{host} cannot be reached: {why[2] or why[0] or type(error).__name__}") from None

    def _authorised(self, method: str, url: str) -> dict[str, str]:
        try:
            import google.auth
            from google.auth.exceptions import GoogleAuthError
        except ImportError:
            raise _not_installed("google-auth") from None
        headers: dict[str, str] = {}
        try:
            if self._carrier is None:
                self._carrier = _carrier(self._answer_s, trust_env=not _is_loopback(self._endpoint))
            if self._credentials is None:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    self._credentials, _ = google.auth.default(scopes=[SCOPE], request=self._carrier)
            self._credentials.before_request(self._carrier, method, url, headers)
        except GoogleAuthError as error:
            said = str(error.args[0]) if error.args else type(error).__name__
            raise SecretsFailed(f"no credentials of Google can be had here: {_short(said)}", hint=LOGIN) from None
        except (OSError, ValueError) as error:
            raise SecretsFailed(f"the credentials of Google cannot be read: {_short(str(error))}", hint=LOGIN) from None
        return headers


def _carrier(answer_s: float, *, trust_env: bool) -> Any:
    """How google-auth reaches token services and the metadata of a machine: its own way, which knows them all, but with a time limit."""
    try:
        requests = import_module("requests")
        from google.auth.transport.requests import Request
    except ImportError:
        raise _not_installed("requests") from None

    class Bounded(Request):
        def __call__(
            self,
            url: str,
            method: str = "GET",
            body: bytes | None = None,
            headers: Mapping[str, str] | None = None,
            timeout: float | None = None,
            **more: Any,
        ) -> Any:
            return super().__call__(url, method, body, headers, timeout or answer_s, **more)  # type: ignore[no-untyped-call]

    session = requests.Session()
    session.trust_env = trust_env
    return Bounded(session)


def crc32c(data: bytes) -> int:
    """The checksum (Castagnoli) that the API has of a payload."""
    table, value = _table(), 0xFFFFFFFF
    for byte in data:
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


@cache
def _table() -> tuple[int, ...]:
    found = []
    for value in range(256):
        for _ in range(8):
            value = (value >> 1) ^ 0x82F63B78 if value & 1 else value >> 1
        found.append(value)
    return tuple(found)


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if not parts.hostname or parts.scheme not in ("https", "http") or parts.username or parts.query:
        raise UsageFailed(f"{OVERRIDE} is no address", hint=f"it looks like {ENDPOINT}")
    if parts.scheme == "http" and not _is_loopback(text):
        raise UsageFailed(f"{OVERRIDE} is not https: a token would travel in clear", hint=f"it looks like {ENDPOINT}")
    return text if text.endswith("/") else f"{text}/"


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _not_installed(name: str) -> SecretsFailed:
    return SecretsFailed(
        f"secrets in Google's Secret Manager need {name}, which is not installed here",
        hint="install it with: pip install 'iris-ops[controller,gcp]'",
    )


def _refused(status: int, said: Any, verb: str, what: str) -> SecretsFailed:
    error = said.get("error") if isinstance(said, dict) else None
    word = str(error.get("status", "")) if isinstance(error, dict) else ""
    why = _short(str(error.get("message", ""))) if isinstance(error, dict) else ""
    told = f": {why}" if why else ""
    if word == "FAILED_PRECONDITION" and ("DISABLED" in why or "DESTROYED" in why):
        state, hint = ("disabled", "enable it, or name another version") if "DISABLED" in why else (
            "destroyed", "name another version",
        )  # fmt: skip
        return SecretsFailed(f"{what} is {state}", hint=hint, status=word)
    if status == 401:
        return SecretsFailed(f"cannot {verb} {what}: the credentials are not accepted{told}", hint=LOGIN, status=word)
    if status == 403:
        hint = f"it needs {ACCESSOR} there" if verb == "read" else "it needs roles/secretmanager.admin there"
        return SecretsFailed(f"this account may not {verb} {what}{told}", hint=hint, status=word)
    if status == 404:
        return SecretsFailed(f"there is no {what}", hint="look at its name, and at its project", status=word)
    hint = "try again" if status == 429 or status >= 500 else ""
    return SecretsFailed(f"cannot {verb} {what}: the Secret Manager answers {status}{told}", hint=hint, status=word)


def _short(text: str) -> str:
    line = one_line(" ".join(text.split()))
    return line if len(line) <= 300 else line[:300] + "…"
