"""The registry client against a real registry: open, with passwords, with a token service; and what it says when it gets nowhere."""

from __future__ import annotations

import base64
import http.server
import json
import os
import shutil
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from iris_core.contracts import ImageMissing, IrisError, Registry, RegistryDenied, UsageFailed
from iris_core.model.images import BOTH, ImageRef
from providers.fake.images import FakeRegistry
from providers.registry import open_registry
from providers.registry.auth import challenges
from providers.registry.client import RegistryClient
from providers.registry.transport import Transport
from tests.conftest import RequireService
from tests.unit.image_registries import (
    DOCKER_LIST,
    DOCKER_MANIFEST,
    PASSWORD,
    USER,
    Pusher,
    TokenService,
    basic,
    passwords,
    running,
    serving,
    token_service,
)


@dataclass
class Registries:
    """One registry of each kind, all with the same images in `org/iris`."""

    open: str
    passwords: str
    tokens: str
    service: TokenService
    images: dict[str, str]
    """Digests by tag."""


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registries | None]:
    program = shutil.which("docker-registry")
    if program is None:
        yield None
        return
    folder = tmp_path_factory.mktemp("registries")
    for name in ("open", "passwords", "tokens"):
        (folder / name).mkdir()
    with ExitStack() as stack:
        service, tokens = stack.enter_context(token_service(folder / "tokens"))
        made = Registries(
            stack.enter_context(running(program, folder / "open")),
            stack.enter_context(running(program, folder / "passwords", passwords(folder / "passwords"))),
            stack.enter_context(running(program, folder / "tokens", tokens)),
            service,
            {},
        )
        made.images = fill(Pusher(made.open))
        fill(Pusher(made.passwords, basic()))
        fill(Pusher(made.tokens, f"Bearer {service.token(USER, 'repository:org/iris:pull,push')}"))
        yield made


def fill(pusher: Pusher) -> dict[str, str]:
    return {
        "both": pusher.index("org/iris", "both", BOTH, attested=True),
        "variant": pusher.index("org/iris", "variant", ("linux/amd64", "linux/arm64/v8"), kind=DOCKER_LIST),
        "amd64": pusher.single("org/iris", "amd64", "linux/amd64"),
        "docker": pusher.single("org/iris", "docker", "linux/arm64/v8", kind=DOCKER_MANIFEST),
    }


@pytest.fixture
def registries(started: Registries | None, require_service: RequireService) -> Registries:
    require_service(started, "docker-registry is not installed")
    assert started is not None
    started.service.says = None
    started.service.asked.clear()
    return started


@pytest.fixture(scope="module")
def transport() -> Iterator[Transport]:
    """Loading the certificates of the world takes longer than most of these tests."""
    made = Transport()
    yield made
    made.close()


@pytest.fixture
def client(transport: Transport) -> Registry:
    return RegistryClient(transport)


def ref(host: str, tag: str, repository: str = "org/iris") -> ImageRef:
    return ImageRef.parse(f"{host}/{repository}:{tag}")


def login(host: str, user: str = USER, password: str = PASSWORD, **entry: str) -> Path:
    """What `docker login` leaves."""
    path = Path.home() / ".docker" / "config.json"
    path.parent.mkdir(exist_ok=True)
    said = entry or {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}
    path.write_text(json.dumps({"auths": {host: said}}))
    return path


# --- what every registry promises ---------------------------------------------------------------------------------


@pytest.fixture(params=["real", "fake"])
def filled(request: pytest.FixtureRequest) -> tuple[Registry, str]:
    """A registry with `org/iris:both` and `:amd64`, and its host."""
    if request.param == "fake":
        fake = FakeRegistry()
        fake.put("fake.example/org/iris:both")
        fake.put("fake.example/org/iris:amd64", ["linux/amd64"])
        return fake, "fake.example"
    found: Registries = request.getfixturevalue("registries")
    client: Registry = request.getfixturevalue("client")
    return client, found.open


def test_a_tag_is_resolved_to_a_digest_that_names_the_same_image(filled: tuple[Registry, str]) -> None:
    registry, host = filled
    found = registry.inspect(ref(host, "both"))
    assert (found.platforms, found.is_index) == (BOTH, True)
    assert found.ref.tag == "" and found.ref.digest.startswith("sha256:")
    assert registry.inspect(found.ref) == found
    assert registry.inspect(ref(host, "amd64")).platforms == ("linux/amd64",)


def test_a_second_tag_is_the_same_image_byte_for_byte(filled: tuple[Registry, str]) -> None:
    registry, host = filled
    before = registry.inspect(ref(host, "both"))
    made = registry.tag(ref(host, "both"), "release-1")
    assert made.ref == before.ref
    assert registry.inspect(ref(host, "release-1")) == before


def test_latest_is_never_moved(filled: tuple[Registry, str]) -> None:
    registry, host = filled
    with pytest.raises(UsageFailed, match="latest is never moved"):
        registry.tag(ref(host, "both"), "latest")
    with pytest.raises(ImageMissing):
        registry.inspect(ref(host, "latest"))


def test_what_is_not_there_is_said_by_name(filled: tuple[Registry, str]) -> None:
    registry, host = filled
    for absent in (ref(host, "nothing"), ref(host, "both").pinned("sha256:" + "0" * 64)):
        with pytest.raises(ImageMissing, match=r"there is no .*org/iris"):
            registry.inspect(absent)
        with pytest.raises(ImageMissing):
            registry.tag(absent, "other")


def test_whether_one_may_push_is_learned_without_leaving_anything(filled: tuple[Registry, str]) -> None:
    registry, host = filled
    registry.check_push(ref(host, "new", "org/elsewhere"))
    with pytest.raises(ImageMissing):
        registry.inspect(ref(host, "new", "org/elsewhere"))


# --- manifests of a real registry ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "platforms", "is_index"),
    [
        ("both", BOTH, True),
        ("variant", ("linux/amd64", "linux/arm64/v8"), True),
        ("amd64", ("linux/amd64",), False),
        ("docker", ("linux/arm64/v8",), False),
    ],
)
def test_each_kind_of_manifest_is_read(
    registries: Registries, client: Registry, tag: str, platforms: tuple[str, ...], is_index: bool
) -> None:
    found = client.inspect(ref(registries.open, tag))
    assert (found.platforms, found.is_index, found.ref.digest) == (platforms, is_index, registries.images[tag])


# --- who asks -----------------------------------------------------------------------------------------------------


def test_user_and_password_are_those_of_docker_login(registries: Registries) -> None:
    login(registries.passwords)
    client = open_registry()
    assert client.inspect(ref(registries.passwords, "both")).platforms == BOTH
    assert client.tag(ref(registries.passwords, "both"), "mine").ref.digest == registries.images["both"]
    client.close()


def test_a_token_is_asked_for_once_per_scope(registries: Registries, client: Registry) -> None:
    login(registries.tokens)
    for _ in range(2):
        assert client.inspect(ref(registries.tokens, "amd64")).platforms == ("linux/amd64",)
    client.tag(ref(registries.tokens, "both"), "mine")
    client.check_push(ref(registries.tokens, "both"))
    # The registry names what it wants in any order.
    scopes = [
        (how, sorted(scope.removeprefix("repository:org/iris:").split(","))) for how, scope in registries.service.asked
    ]
    assert scopes == [("basic", ["pull"]), ("basic", ["pull", "push"])]


def test_a_token_that_has_run_out_is_asked_for_anew(registries: Registries, client: Registry) -> None:
    registries.service.lifetime_s = -3600
    try:
        with pytest.raises(RegistryDenied):
            client.inspect(ref(registries.tokens, "both"))
    finally:
        registries.service.lifetime_s = 300
    assert client.inspect(ref(registries.tokens, "both")).platforms == BOTH


def test_without_credentials_a_public_image_is_read_and_nothing_pushed(
    registries: Registries, client: Registry
) -> None:
    assert client.inspect(ref(registries.tokens, "both")).platforms == BOTH
    with pytest.raises(RegistryDenied, match=r"asks for credentials, and .*config.json has none") as refusal:
        client.check_push(ref(registries.tokens, "both"))
    assert refusal.value.hint == f"docker login {registries.tokens}"
    assert [how for how, _ in registries.service.asked] == ["nobody", "nobody"]


def test_an_identity_token_is_exchanged_and_never_sent_as_a_password(registries: Registries, client: Registry) -> None:
    login(registries.tokens, identitytoken=PASSWORD)
    client.check_push(ref(registries.tokens, "both"))
    assert [how for how, _ in registries.service.asked] == ["identity"]


def test_a_helper_program_is_asked_by_the_registrys_name(
    registries: Registries, client: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-vault"
    answer = json.dumps({"Username": USER, "Secret": PASSWORD})
    helper.write_text(
        f'#!/bin/sh\nread host\necho "$*:$host" >> {tmp_path}/calls\n'
        f"case $host in {registries.passwords}) echo '{answer}';;\n"
        "  *) echo 'credentials not found in native keychain'; exit 1;; esac\n"
    )
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "vault"}))
    assert client.inspect(ref(registries.passwords, "both")).platforms == BOTH
    client.inspect(ref(registries.tokens, "both"))
    assert (tmp_path / "calls").read_text().splitlines() == [f"get:{registries.passwords}", f"get:{registries.tokens}"]


# --- what it says when it gets nowhere ----------------------------------------------------------------------------


def said(call: Callable[[], object]) -> str:
    with pytest.raises(IrisError) as failure:
        call()
    text = f"{failure.value.message} {failure.value.hint}"
    assert PASSWORD not in text and "\n" not in text
    return text


@pytest.mark.parametrize("kind", ["passwords", "tokens"])
def test_a_wrong_password_is_said_without_it(registries: Registries, client: Registry, kind: str) -> None:
    host = getattr(registries, kind)
    login(host, password="s3cret-of-mine")
    text = said(lambda: client.inspect(ref(host, "both")))
    assert f"{host} refuses the credentials of {USER}" in text and f"docker login {host}" in text
    assert "s3cret" not in text


def test_no_password_where_one_is_asked_for(registries: Registries, client: Registry) -> None:
    assert "asks for credentials, and" in said(lambda: client.inspect(ref(registries.passwords, "both")))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{not json", "is no configuration of docker"),
        ("[]", "is no configuration of docker"),
        ('{"auths": {"HOST": {"auth": "%%%"}}}', "the entry of HOST makes no sense"),
        ('{"auths": {"HOST": {"auth": "YWJj"}}}', "the entry of HOST makes no sense"),
        ('{"credsStore": "../evil"}', "names a credential helper that cannot be one"),
        ('{"credHelpers": {"HOST": "not-there"}}', "docker-credential-not-there, which is not installed"),
    ],
)
def test_a_broken_configuration_of_docker_is_named(
    registries: Registries, client: Registry, config: str, words: str
) -> None:
    path = login(registries.passwords)
    path.write_text(config.replace("HOST", registries.passwords))
    text = said(lambda: client.inspect(ref(registries.passwords, "both")))
    assert words.replace("HOST", registries.passwords) in text and "YWJj" not in text


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ((500, b"oops"), "answered 500 without a token"),
        ((200, b"<html>"), "answered 200 without a token"),
        ((200, b'{"token": "a\\r\\nX-Evil: 1"}'), "answered 200 without a token"),
        ((200, b"[]"), "answered 200 without a token"),
        ((200, b'{"token": "bm9uc2Vuc2U"}'), "asks for credentials, and"),
    ],
)
def test_a_token_service_that_makes_no_sense(
    registries: Registries, client: Registry, answer: tuple[int, bytes], words: str
) -> None:
    registries.service.says = answer
    assert words in said(lambda: client.inspect(ref(registries.tokens, "both")))


@dataclass
class Scripted:
    """An HTTP server whose every answer is this."""

    host: str = ""
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    paths: tuple[str, ...] = ()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    script = Scripted()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            script.paths += (self.path,)
            self.send_response(script.status)
            for name, value in script.headers:
                self.send_header(name, value)
            self.send_header("content-length", str(len(script.body)))
            self.end_headers()
            self.wfile.write(script.body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is printed."""

    with serving(Handler) as host:
        script.host = host
        yield script


HTML = (("content-type", "text/html; charset=utf-8"),)
INDEX = (("content-type", "application/vnd.oci.image.index.v1+json"),)
DENIED = b'{"errors": [{"code": "DENIED", "message": "not in this organisation"}]}'


@pytest.mark.parametrize(
    ("status", "headers", "body", "words"),
    [
        (200, HTML, b"<html>", "is no image registry: it answered 200 with text/html"),
        (404, HTML, b"<html>", "is no image registry: it answered 404 with text/html"),
        (401, HTML, b"<html>", "is no image registry: it answered 401 with text/html"),
        (401, (("www-authenticate", "Negotiate"),), b"", "asks for a kind of credentials that is not known here"),
        (401, (("www-authenticate", 'Bearer service="x"'),), b"", "names no token service"),
        (403, (), DENIED, f"{USER} may not pull"),
        (403, (), DENIED, "not in this organisation"),
        (429, (), b"", "has had too many requests"),
        (503, HTML, b"<html>", "answered 503 for"),
        (200, INDEX, b"{", "makes no sense"),
        (200, INDEX, b"[]", "makes no sense"),
        (200, INDEX, b"{}", "makes no sense"),
        (200, INDEX, b"[" * 100_000, "makes no sense"),
        (200, (*INDEX, ("docker-content-digest", "sha256:" + "0" * 64)), b"{}", "another content than its digest"),
        (200, (("content-type", "application/vnd.docker.distribution.manifest.v1+prettyjws"),), b"{}", "of a kind that is"),
        (200, INDEX, b" " * (5 << 20), "answered with more than 4 MiB"),
    ],
)  # fmt: skip
def test_each_wrong_answer_is_one_clear_line(
    scripted: Scripted, client: Registry, status: int, headers: tuple[tuple[str, str], ...], body: bytes, words: str
) -> None:
    login(scripted.host)
    scripted.status, scripted.headers, scripted.body = status, headers, body
    text = said(lambda: client.inspect(ref(scripted.host, "both")))
    assert words in text and scripted.host in text


def test_where_nobody_listens(client: Registry) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert f"127.0.0.1:{port} cannot be reached" in said(lambda: client.inspect(ref(f"127.0.0.1:{port}", "x")))


def test_one_that_is_silent_is_given_up() -> None:
    hasty = RegistryClient(Transport(read_s=0.05))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        host = f"127.0.0.1:{mute.getsockname()[1]}"
        assert f"{host} did not answer within 0.05 s" in said(lambda: hasty.inspect(ref(host, "both")))
    hasty.close()


def test_credentials_are_not_sent_to_a_token_service_without_tls(
    scripted: Scripted, client: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry elsewhere could name any address; the scripted one stands for it, reached as if it were not this machine."""
    login(scripted.host)
    scripted.status = 401
    scripted.headers = (("www-authenticate", f'Bearer realm="http://{scripted.host}/token",service="x"'),)
    monkeypatch.setattr(ImageRef, "is_loopback", False)
    monkeypatch.setattr("providers.registry.client._base", lambda image: f"http://{image.registry}/v2/")
    assert "without TLS: no credentials are sent there" in said(lambda: client.inspect(ref(scripted.host, "both")))
    assert scripted.paths == ("/v2/org/iris/manifests/both",)


def test_a_plain_server_where_tls_is_expected_is_said_so(
    scripted: Scripted, client: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageRef, "is_loopback", False)
    assert "it does not speak TLS" in said(lambda: client.inspect(ref(scripted.host, "both")))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('Bearer realm="https://a/token",service="s",scope="repository:x:pull,push"', [("bearer", "repository:x:pull,push")]),
        ('Basic realm="a, b", Bearer realm="https://a/token"', [("basic", None), ("bearer", None)]),
        ("Negotiate", [("negotiate", None)]),
        ("bearer realm=https://a/token", [("bearer", None)]),
        ("", []),
    ],
)  # fmt: skip
def test_challenges_are_read_in_their_order(header: str, expected: list[tuple[str, str | None]]) -> None:
    found = challenges(header)
    assert [(one.scheme, one.parameters.get("scope")) for one in found] == expected
    assert all(one.parameters.get("realm") in ("https://a/token", "a, b", None) for one in found)
