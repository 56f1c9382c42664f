"""A real image registry for tests (Debian's `docker-registry`): open, with passwords, or with a token service, and images put into it.

Images are pushed with plain HTTP requests of our own, so that nothing of what is tested takes part in it.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import http.client
import http.server
import json
import socket
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ports import free_port

USER, PASSWORD = "ann", "pa:ss word"
_HASH = "$2y$04$BFO8OCUEU0e4.CEwjnIr7OWo4cAAF./pwui5EZi.mExWfhjkljK2u"
"""Of the password, as htpasswd makes it, with few rounds."""

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@dataclass
class Pusher:
    """Puts images into a registry. `authorization` is a header's value."""

    registry: str
    authorization: str = ""

    def _ask(self, method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.registry, timeout=30)
        headers = {"content-type": kind} if kind else {}
        if self.authorization:
            headers["authorization"] = self.authorization
        try:
            connection.request(method, path, body or None, {**headers, "content-length": str(len(body))})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def blob(self, repository: str, data: bytes) -> str:
        """Its digest."""
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        status, headers, said = self._ask("POST", f"/v2/{repository}/blobs/uploads/")
        assert status == 202, said
        place = urllib.parse.urlsplit(headers["location"])
        query = f"{place.query}&digest={urllib.parse.quote(digest)}"
        status, _, said = self._ask("PUT", f"{place.path}?{query}", data, "application/octet-stream")
        assert status == 201, said
        return digest

    def put(self, repository: str, reference: str, manifest: object, kind: str) -> str:
        """Puts a manifest; returns its digest."""
        data = json.dumps(manifest).encode()
        status, _, said = self._ask("PUT", f"/v2/{repository}/manifests/{reference}", data, kind)
        assert status == 201, said
        return "sha256:" + hashlib.sha256(data).hexdigest()

    def single(self, repository: str, tag: str, platform: str, *, kind: str = OCI_MANIFEST, note: str = "") -> str:
        """An image of one platform and no layers; returns its digest."""
        digest, size, data = self._manifest(repository, platform, kind, note)
        assert self.put(repository, tag or digest, data, kind) == digest and size
        return digest

    def _manifest(self, repository: str, platform: str, kind: str, note: str) -> tuple[str, int, dict[str, Any]]:
        system, architecture, *variant = platform.split("/")
        config: dict[str, Any] = {
            "os": system,
            "architecture": architecture,
            "rootfs": {"type": "layers"},
            "note": note,
        }
        if variant:
            config["variant"] = variant[0]
        packed = json.dumps(config).encode()
        configs = {OCI_MANIFEST: "application/vnd.oci.image.config.v1+json"}
        manifest = {
            "schemaVersion": 2,
            "mediaType": kind,
            "config": {
                "mediaType": configs.get(kind, "application/vnd.docker.container.image.v1+json"),
                "digest": self.blob(repository, packed),
                "size": len(packed),
            },
            "layers": [],
        }
        data = json.dumps(manifest).encode()
        return "sha256:" + hashlib.sha256(data).hexdigest(), len(data), manifest

    def index(
        self, repository: str, tag: str, platforms: Sequence[str], *, kind: str = OCI_INDEX, attested: bool = False
    ) -> str:
        """An image of several platforms; returns its digest. `attested`: with what buildx adds about the build."""
        single = OCI_MANIFEST if kind == OCI_INDEX else DOCKER_MANIFEST
        entries = []
        for platform in [*platforms, *(["unknown/unknown"] if attested else [])]:
            digest, size, manifest = self._manifest(repository, platform, single, tag)
            assert self.put(repository, digest, manifest, single) == digest
            system, architecture, *variant = platform.split("/")
            described = {"os": system, "architecture": architecture, **({"variant": variant[0]} if variant else {})}
            entries.append({"mediaType": single, "digest": digest, "size": size, "platform": described})
        return self.put(repository, tag, {"schemaVersion": 2, "mediaType": kind, "manifests": entries}, kind)


def basic() -> str:
    """The header of the one user."""
    return "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@contextmanager
def running(program: str, folder: Path, auth: dict[str, Any] | None = None) -> Iterator[str]:
    """A registry of its own on this machine; yields its `host:port`. What it holds lies below `folder`."""
    port = free_port()
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}, "delete": {"enabled": True}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "not-a-secret"},
    }
    if auth:
        config["auth"] = auth
    # JSON is YAML.
    (folder / "registry.yml").write_text(json.dumps(config))
    with (folder / "registry.log").open("wb") as log:
        process = subprocess.Popen([program, "serve", str(folder / "registry.yml")], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            alive = process.poll() is None
            assert alive and time.monotonic() < deadline, (folder / "registry.log").read_text()
            time.sleep(0.02)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def passwords(folder: Path) -> dict[str, Any]:
    """`auth` of a registry that takes user and password."""
    (folder / "htpasswd").write_text(f"{USER}:{_HASH}\n")
    return {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}


@dataclass
class TokenService:
    """Hands out tokens that the registry believes. Whoever asks without credentials may pull; `USER` may push, too.

    `asked` holds each request's way in and scope. `says`, when set, is what every request gets instead: a status and a body.
    """

    url: str = ""
    lifetime_s: int = 300
    says: tuple[int, bytes] | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)
    key: Any = None
    certificate: bytes = b""

    def token(self, account: str, scope: str) -> str:
        import jwt

        kind, _, rest = scope.partition(":")
        name, _, actions = rest.rpartition(":")
        allowed = [action for action in actions.split(",") if action == "pull" or account]
        now = int(time.time())
        claims = {"iss": "tests", "aud": "tests", "sub": account, "nbf": now - 60, "iat": now - 60}
        claims |= {
            "exp": now + self.lifetime_s,
            "jti": "1",
            "access": [{"type": kind, "name": name, "actions": allowed}],
        }
        chain = [base64.b64encode(self.certificate).decode()]
        return jwt.encode(claims, self.key, algorithm="RS256", headers={"x5c": chain})


@contextmanager
def token_service(folder: Path) -> Iterator[tuple[TokenService, dict[str, Any]]]:
    """A token service, and the `auth` of a registry that believes it."""
    service = TokenService()
    service.key, service.certificate, bundle = _signer()
    (folder / "bundle.pem").write_bytes(bundle)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            given = self.headers.get("authorization", "")
            self._answer("basic" if given else "nobody", USER if given == basic() else "", query, bool(given))

        def do_POST(self) -> None:
            form = dict(urllib.parse.parse_qsl(self.rfile.read(int(self.headers["content-length"])).decode()))
            self._answer("identity", USER if form.get("refresh_token") == PASSWORD else "", form, True)

        def _answer(self, how: str, account: str, query: dict[str, str], needs_account: bool) -> None:
            service.asked.append((how, query.get("scope", "")))
            status, body = service.says or (200, json.dumps({"token": service.token(account, query["scope"])}).encode())
            if needs_account and not account:
                status, body = 401, b"{}"
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing is printed."""

    with serving(Handler) as address:
        service.url = f"http://{address}/token"
        yield (
            service,
            {"token": {"realm": service.url, "service": "tests", "issuer": "tests", "rootcertbundle": str(folder / "bundle.pem")}},
        )  # fmt: skip


@contextmanager
def serving(handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[str]:
    """An HTTP server of this process; yields its `host:port`."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _signer() -> tuple[Any, bytes, bytes]:
    """A key, its own certificate, and that as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "tests")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    der = made.public_bytes(serialization.Encoding.DER)
    return key, der, made.public_bytes(serialization.Encoding.PEM)
