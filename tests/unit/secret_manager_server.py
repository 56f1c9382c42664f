"""Google's Secret Manager for tests: its REST API (v1) and a token service on a port of this machine, strict about all that is asked.

No emulator of it exists as a package. What a client may ask is written from the API's reference; anything else (another method, an unknown
field or parameter, a checksum that is wrong, a policy whose etag is old, a token that was not given out) is refused as Google refuses it.
"""

from __future__ import annotations

import base64
import json
import re
import secrets
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import google_crc32c
import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

ACCOUNT = "operator@p1.iam.gserviceaccount.com"
AUDIENCE = "https://oauth2.googleapis.com/token"
"""Whom google-auth makes its assertions for, wherever they are sent."""
SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_SECRET = re.compile(r"/v1/(projects/[a-z0-9-]+)/secrets/([A-Za-z0-9_-]{1,255})(?::(\w+))?")
_VERSION = re.compile(r"/v1/(projects/[a-z0-9-]+)/secrets/([A-Za-z0-9_-]{1,255})/versions/(latest|[0-9]+):access")
_PARENT = re.compile(r"/v1/(projects/[a-z0-9-]+)/secrets")


class Refused(Exception):
    """An answer that is none."""

    def __init__(self, code: int, status: str, message: str) -> None:
        self.code, self.status, self.message = code, status, message


@dataclass
class Version:
    data: bytes
    state: str = "ENABLED"


@dataclass
class Secret:
    versions: list[Version] = field(default_factory=list)
    bindings: list[dict[str, Any]] = field(default_factory=list)
    etag: int = 1


class Manager:
    """What is stored, who may do what, and what goes wrong next."""

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.tokens: set[str] = set()
        self.secrets: dict[str, Secret] = {}
        self.denied: set[str] = set()
        """Verbs that the account may not do."""
        self.faults: deque[Callable[[BaseHTTPRequestHandler], None]] = deque()
        """What the next requests of the API do in place of an answer."""
        self.before: Callable[[str], None] = lambda verb: None
        self.asked: list[str] = []
        """Verb and address of every request of the API."""
        self.url = ""
        self.token_fault = ""
        self.token_waits = False
        self.machine_tokens = 0
        """Tokens that were given to the machine itself."""
        self.bad_checksum = False
        self.released = threading.Event()
        """Those who are kept waiting go on at the end of the test."""

    # --- the token service -------------------------------------------------------------------------------------------

    def credentials(self, folder: Path) -> Path:
        """A key file of a service account whose token service this is."""
        pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = folder / "account.json"
        found = {
            "type": "service_account",
            "project_id": "p1",
            "private_key_id": "k1",
            "private_key": pem.decode(),
            "client_email": ACCOUNT,
            "client_id": "1",
            "token_uri": f"{self.url}/token",
        }
        path.write_text(json.dumps(found))
        return path

    def token(self, body: bytes) -> dict[str, Any]:
        if self.token_fault:
            raise Refused(400, self.token_fault, "")
        form = parse_qs(body.decode(), strict_parsing=True)
        assert form.pop("grant_type") == ["urn:ietf:params:oauth:grant-type:jwt-bearer"]
        (assertion,) = form.pop("assertion")
        assert not form
        claims = jwt.decode(assertion, self.key.public_key(), algorithms=["RS256"], audience=AUDIENCE)
        assert claims["iss"] == ACCOUNT and claims["scope"] == SCOPE
        made = secrets.token_urlsafe(16)
        self.tokens.add(made)
        return {"access_token": made, "expires_in": 3600, "token_type": "Bearer"}

    def machine(self, path: str) -> Any:
        """What a machine of Google says of itself."""
        account = "/computeMetadata/v1/instance/service-accounts"
        if path == "/":
            return "ok"
        if path == "/computeMetadata/v1/project/project-id":
            return "p1"
        if path == f"{account}/default/":
            return {"email": ACCOUNT, "scopes": [SCOPE], "aliases": ["default"]}
        if path == f"{account}/default/token" or path == f"{account}/{ACCOUNT}/token":
            self.machine_tokens += 1
            made = secrets.token_urlsafe(16)
            self.tokens.add(made)
            return {"access_token": made, "expires_in": 3600, "token_type": "Bearer"}
        raise Refused(404, "NOT_FOUND", path)

    # --- the API -----------------------------------------------------------------------------------------------------

    def answer(self, method: str, path: str, query: dict[str, str], body: Any) -> dict[str, Any]:
        if match := _VERSION.fullmatch(path):
            _exactly(method, "GET", query, set(), body)
            return self._access(match[1], match[2], match[3])
        if match := _PARENT.fullmatch(path):
            _exactly(method, "POST", query, {"secretId"}, body, {"replication"})
            return self._create(match[1], query["secretId"], body)
        if match := _SECRET.fullmatch(path):
            name = f"{match[1]}/secrets/{match[2]}"
            if match[3] is None:
                _exactly(method, "GET", query, set(), body)
                self._may("secrets.get")
                self._find(name)
                return {"name": f"projects/12/secrets/{match[2]}", "replication": {"automatic": {}}}
            if match[3] == "addVersion":
                _exactly(method, "POST", query, set(), body, {"payload"})
                return self._add(name, body["payload"])
            if match[3] == "getIamPolicy":
                _exactly(method, "GET", query, {"options.requestedPolicyVersion"}, body)
                self._may("secrets.getIamPolicy")
                found = self._find(name)
                policy: dict[str, Any] = {"version": 3, "etag": _etag(found)}
                return {**policy, "bindings": found.bindings} if found.bindings else policy
            if match[3] == "setIamPolicy":
                _exactly(method, "POST", query, set(), body, {"policy"})
                return self._set_policy(name, body["policy"])
        raise Refused(404, "", f"no such method: {method} {path}")

    def _may(self, verb: str) -> None:
        if verb in self.denied:
            raise Refused(403, "PERMISSION_DENIED", f"Permission 'secretmanager.{verb}' denied on resource.")
        self.before(verb)

    def _find(self, name: str) -> Secret:
        if name not in self.secrets:
            raise Refused(404, "NOT_FOUND", f"Secret [{name}] not found.")
        return self.secrets[name]

    def _access(self, parent: str, name: str, version: str) -> dict[str, Any]:
        self._may("versions.access")
        found = self._find(f"{parent}/secrets/{name}").versions
        number = len(found) if version == "latest" else int(version)
        if not 1 <= number <= len(found):
            raise Refused(404, "NOT_FOUND", f"Secret [{name}] not found or has no versions.")
        held = found[number - 1]
        full = f"projects/12/secrets/{name}/versions/{number}"
        if held.state != "ENABLED":
            raise Refused(400, "FAILED_PRECONDITION", f"Secret Version [{full}] is in {held.state} state.")
        check = google_crc32c.value(held.data) + self.bad_checksum
        return {"name": full, "payload": {"data": _b64(held.data), "dataCrc32c": str(check)}}

    def _create(self, parent: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        self._may("secrets.create")
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,255}", name) or body["replication"] != {"automatic": {}}:
            raise Refused(400, "INVALID_ARGUMENT", "The provided Secret is invalid.")
        if f"{parent}/secrets/{name}" in self.secrets:
            raise Refused(409, "ALREADY_EXISTS", f"Secret [{name}] already exists.")
        self.secrets[f"{parent}/secrets/{name}"] = Secret()
        return {"name": f"projects/12/secrets/{name}", "replication": {"automatic": {}}}

    def _add(self, name: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        self._may("versions.add")
        found = self._find(name)
        if set(payload) != {"data", "dataCrc32c"} or not isinstance(payload["dataCrc32c"], str):
            raise Refused(400, "INVALID_ARGUMENT", "Invalid payload.")
        data = base64.b64decode(payload["data"], validate=True)
        if int(payload["dataCrc32c"]) != google_crc32c.value(data) or not 0 < len(data) <= 65536:
            raise Refused(400, "INVALID_ARGUMENT", "The payload's checksum does not match.")
        found.versions.append(Version(data))
        short = name.rpartition("/")[2]
        return {"name": f"projects/12/secrets/{short}/versions/{len(found.versions)}", "state": "ENABLED"}

    def _set_policy(self, name: str, policy: Mapping[str, Any]) -> dict[str, Any]:
        self._may("secrets.setIamPolicy")
        found = self._find(name)
        if set(policy) != {"version", "etag", "bindings"}:
            raise Refused(400, "INVALID_ARGUMENT", "Invalid policy.")
        if policy["etag"] != _etag(found):
            raise Refused(409, "ABORTED", "There were concurrent policy changes.")
        found.bindings, found.etag = policy["bindings"], found.etag + 1
        return {**policy, "etag": _etag(found)}


def _etag(secret: Secret) -> str:
    return _b64(f"etag {secret.etag}".encode())


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _exactly(
    method: str, wanted: str, query: dict[str, str], names: set[str], body: Any, fields: set[str] | None = None
) -> None:
    if method != wanted:
        raise Refused(404, "", f"no such method: {method}")
    given = set(body) if isinstance(body, dict) else None
    if set(query) != names or given != fields:
        raise Refused(400, "INVALID_ARGUMENT", f"Unknown name: {sorted(query)} {sorted(given or ())}")


@contextmanager
def secret_manager() -> Iterator[Manager]:
    """A server that listens on loopback."""
    made = Manager()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            self._serve()

        def do_POST(self) -> None:
            self._serve()

        def _serve(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", "0")))
            parts = urlsplit(self.path)
            try:
                if self.headers.get("metadata-flavor") == "Google":
                    self._say(200, made.machine(parts.path))
                    return
                if parts.path == "/token" and self.command == "POST":
                    if made.token_waits:
                        made.released.wait(60)
                    self._say(200, made.token(raw))
                    return
                made.asked.append(f"{self.command} {self.path}")
                if made.faults:
                    made.faults.popleft()(self)
                    return
                kind, _, token = self.headers.get("authorization", "").partition(" ")
                if kind != "Bearer" or token not in made.tokens:
                    raise Refused(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
                if raw and self.headers.get("content-type") != "application/json":
                    raise Refused(400, "INVALID_ARGUMENT", "Invalid content type.")
                query = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
                self._say(200, made.answer(self.command, parts.path, query, json.loads(raw) if raw else None))
            except Refused as refused:
                if parts.path == "/token":
                    self._say(refused.code, {"error": refused.status, "error_description": "no such account"})
                    return
                error = {"code": refused.code, "message": refused.message, "status": refused.status}
                self._say(refused.code, {"error": error})

        def _say(self, code: int, value: Any) -> None:
            text = isinstance(value, str)
            data = value.encode() if text else json.dumps(value).encode()
            self.send_response(code)
            self.send_header("content-type", "application/text" if text else "application/json; charset=UTF-8")
            if self.headers.get("metadata-flavor"):
                self.send_header("metadata-flavor", "Google")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    made.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.released.set()
        server.shutdown()
        server.server_close()
        thread.join(10)


def says(code: int, status: str = "", message: str = "", raw: bytes | None = None) -> Callable[[Any], None]:
    """A fault: this answer."""

    def fault(handler: Any) -> None:
        if raw is None:
            handler._say(code, {"error": {"code": code, "message": message, "status": status}})
            return
        handler.send_response(code)
        handler.send_header("content-length", str(len(raw)))
        handler.end_headers()
        handler.wfile.write(raw)

    return fault


def silent(manager: Manager) -> Callable[[Any], None]:
    """A fault: no answer until the test is over."""

    def fault(handler: Any) -> None:
        manager.released.wait(60)
        handler.close_connection = True

    return fault


def broken(handler: Any) -> None:
    """A fault: the connection breaks."""
    handler.connection.shutdown(2)
    handler.close_connection = True
