"""Secrets in Google's Secret Manager: keys made, read, rotated and shared there, references resolved, and every way to fail as one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.auth.compute_engine import _metadata as metadata

from iris_controller.boot import BootFailed, signing_key
from iris_core.auth import gcp_secrets
from iris_core.auth.gcp_secrets import ACCESSOR, OVERRIDE, SecretManager, SecretsFailed
from iris_core.auth.keys import key_of, new_key
from iris_core.auth.secret_references import SecretMissing, require, resolve
from iris_core.config.cluster import parse_config
from iris_core.contracts import IrisError, UsageFailed
from iris_core.model.secret_reference import SecretReference
from tests.unit.cli_world import Done, World
from tests.unit.secret_manager_server import Manager, Secret, Version, broken, says, secret_manager, silent

NAME = "projects/p1/secrets/signing"
FIRST = "gcp-secret://projects/12/secrets/signing/versions/1"
MEMBER = "serviceAccount:controller@p1.iam.gserviceaccount.com"


@pytest.fixture(scope="module")
def server() -> Iterator[Manager]:
    with secret_manager() as made:
        yield made


@pytest.fixture
def google(server: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manager:
    server.secrets.clear()
    server.denied.clear()
    server.faults.clear()
    server.asked.clear()
    server.before, server.token_fault, server.bad_checksum = lambda verb: None, "", False
    server.token_waits, server.machine_tokens = False, 0
    monkeypatch.setenv(OVERRIDE, server.url)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(server.credentials(tmp_path)))
    monkeypatch.setattr(metadata, "_NO_GCE_CHECK", True)
    return server


def init_keys(*words: str) -> Done:
    return World().cli("cluster", "init-keys", *words)


def held(google: Manager, version: int = 1) -> bytes:
    return google.secrets[NAME].versions[version - 1].data


def test_a_key_is_made_once_read_afterwards_and_never_shown(google: Manager) -> None:
    made = init_keys("--gcp-secret", NAME)
    assert made.code == 0, made.err
    key = key_of(held(google), "there")
    assert made.out == f"kid: {key.kid}\n{key.public_pem()}" and f"signing_key: {FIRST}" in made.err
    again = init_keys("--gcp-secret", f"gcp-secret://{NAME}")
    assert (again.code, again.out) == (0, made.out) and "--rotate adds another version" in again.err
    assert len(google.secrets[NAME].versions) == 1
    secret = held(google).decode().split("\n")[1]
    assert not any(secret in text for text in (made.out, made.err, again.out, again.err, *google.asked))


def test_rotating_adds_a_version_and_leaves_the_one_before(google: Manager) -> None:
    first = init_keys("--gcp-secret", NAME)
    rotated = init_keys("--gcp-secret", NAME, "--rotate")
    assert rotated.code == 0 and rotated.out != first.out
    assert f"signing_key: {FIRST.removesuffix('1')}2" in rotated.err
    assert f"stays in {FIRST.removeprefix('gcp-secret://')}; list its public half" in rotated.err
    states = [(version.state, key_of(version.data, "there").kid) for version in google.secrets[NAME].versions]
    assert [state for state, _ in states] == ["ENABLED", "ENABLED"] and len({kid for _, kid in states}) == 2


@pytest.mark.parametrize("rotate", [(), ("--rotate",)])
@pytest.mark.parametrize(
    ("version", "said"),
    [
        (Version(b"x", "DISABLED"), "versions/latest is disabled"),
        (Version(b"x", "DESTROYED"), "versions/latest is destroyed"),
        (Version(b"nothing of the kind"), "is not a private key in PEM form"),
    ],
)
def test_what_cannot_be_read_is_an_error_and_never_a_reason_for_another_key(
    google: Manager, version: Version, said: str, rotate: tuple[str, ...]
) -> None:
    google.secrets[NAME] = Secret([version])
    done = init_keys("--gcp-secret", NAME, *rotate)
    assert (done.code, done.out) == (1, "") and said in done.err
    assert google.secrets[NAME].versions == [version]


def test_a_secret_without_a_version_gets_one(google: Manager) -> None:
    google.secrets[NAME] = Secret()
    assert init_keys("--gcp-secret", NAME).code == 0 and len(google.secrets[NAME].versions) == 1
    # Somebody else makes it between the look and the making.
    other = "projects/p1/secrets/other"

    def made(verb: str) -> None:
        if verb == "secrets.create":
            google.secrets[other] = Secret()

    google.before = made
    assert init_keys("--gcp-secret", other).code == 0 and len(google.secrets[other].versions) == 1


def test_an_account_is_let_in_once_and_nobody_is_put_out(google: Manager) -> None:
    conditional = {"role": ACCESSOR, "members": ["user:b@x"], "condition": {"title": "t", "expression": "true"}}
    google.secrets[NAME] = Secret(bindings=[conditional, {"role": "roles/owner", "members": ["user:a@x"]}])
    raced: list[str] = []

    def race(verb: str) -> None:
        if verb == "secrets.setIamPolicy" and not raced:
            raced.append(verb)
            google.secrets[NAME].bindings.append({"role": ACCESSOR, "members": ["user:c@x"]})
            google.secrets[NAME].etag += 1

    google.before = race
    done = init_keys("--gcp-secret", NAME, "--accessor", MEMBER)
    assert done.code == 0 and f"{MEMBER} may read {NAME}" in done.err and raced
    assert google.secrets[NAME].bindings == [
        conditional,
        {"role": "roles/owner", "members": ["user:a@x"]},
        {"role": ACCESSOR, "members": ["user:c@x", MEMBER]},
    ]
    assert "could already read" in init_keys("--gcp-secret", NAME, "--accessor", MEMBER).err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gcp-secret", "signing"), "projects/P/secrets/S"),
        (("--gcp-secret", f"{NAME}/versions/1"), "projects/P/secrets/S"),
        (("--gcp-secret", "projects/p1/secrets/a/../b"), "projects/P/secrets/S"),
        (("--gcp-secret", NAME, "--out-file", "/x"), "a key is kept in one place"),
        (("--accessor", MEMBER), "--accessor goes with --gcp-secret"),
        (("--gcp-secret", NAME, "--accessor", "controller@p1"), "is no account"),
    ],
)
def test_wrong_words_are_usage_errors_and_ask_nobody(google: Manager, words: tuple[str, ...], said: str) -> None:
    done = init_keys(*words)
    assert done.code == 2 and said in done.err and not google.asked


def test_a_controller_and_its_preflight_read_what_the_cluster_file_refers_to(google: Manager, tmp_path: Path) -> None:
    init_keys("--gcp-secret", NAME)
    text = "name: lab\nplatform: {{local: }}\nauth: {{signing_key: {0}}}\n"
    config = parse_config(text.format(FIRST.replace("projects/12", "projects/p1")))
    require(config.secrets)
    assert signing_key(config, tmp_path).kid == key_of(held(google), "there").kid
    assert not (tmp_path / "signing.key").exists()
    google.secrets[NAME].versions[0].state = "DISABLED"
    with pytest.raises(BootFailed, match=r"signing/versions/1 is disabled \(enable it"):
        signing_key(config, tmp_path)
    with pytest.raises(SecretMissing, match=r"auth\.signing_key: gcp-secret://.*/versions/1 is disabled"):
        require(config.secrets)
    for reference in ("gcp-secret://signing", "gcp-secret://projects/p1/secrets/signing", f"{FIRST}/x", f"{FIRST}?a=b"):
        with pytest.raises(IrisError, match="no reference to a secret"):
            parse_config(text.format(reference))


def test_the_first_reference_that_can_be_had_counts(google: Manager) -> None:
    google.secrets[NAME] = Secret([Version(b"there")])
    both = SecretReference("auth.signing_key", ("env:NOWHERE", f"gcp-secret://{NAME}/versions/latest"))
    require([both], {})
    assert resolve(both.references[1]) == "there"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (says(401, "UNAUTHENTICATED", "Bad token."), "the credentials are not accepted: Bad token."),
        (says(404, "NOT_FOUND", "x"), "there is no projects/p1/secrets/signing/versions/1"),
        (says(429, "RESOURCE_EXHAUSTED", "Quota."), "answers 429: Quota. (try again)"),
        (says(503, "UNAVAILABLE", "Away\x1b[31m."), "answers 503: Away"),
        (says(500, raw=b"<html>"), "answers 500"),
        (says(200, raw=b"<html>"), "answers 200"),
        (says(200, raw=b"{}"), "holds no secret"),
        (says(200, raw=b'{"name": "n", "payload": {"data": "&&"}}'), "holds no secret"),
        (says(200, raw=b" " * (300 << 10)), "more than 256 KiB"),
        (broken, "cannot be reached"),
    ],
)
def test_every_failure_is_one_line(google: Manager, fault: Any, said: str) -> None:
    google.secrets[NAME] = Secret([Version(b"a secret of ours")])
    google.faults.append(fault)
    with pytest.raises(SecretMissing) as caught:
        resolve(f"gcp-secret://{NAME}/versions/1")
    assert said in caught.value.message and caught.value.message.isprintable()
    assert "a secret of ours" not in caught.value.message
    assert resolve(f"gcp-secret://{NAME}/versions/1") == "a secret of ours", "the next one has it"


def test_a_missing_right_says_which(google: Manager) -> None:
    google.secrets[NAME] = Secret([Version(new_key().private_pem().encode())])
    google.denied.add("versions.access")
    with pytest.raises(SecretMissing, match=rf"this account may not read .*versions/1.*{ACCESSOR}"):
        resolve(f"gcp-secret://{NAME}/versions/1")
    google.denied = {"secrets.setIamPolicy"}
    done = init_keys("--gcp-secret", NAME, "--accessor", MEMBER)
    assert done.code == 1 and "may not change who may read" in done.err and "secretmanager.admin" in done.err
    google.denied = {"versions.add"}
    done = init_keys("--gcp-secret", NAME, "--rotate")
    assert (done.code, done.out) == (1, "") and "may not add a version to" in done.err


def test_what_did_not_arrive_whole_is_not_believed(google: Manager) -> None:
    google.secrets[NAME] = Secret([Version(b"x")])
    google.bad_checksum = True
    with pytest.raises(SecretMissing, match="did not arrive as it was stored"):
        resolve(f"gcp-secret://{NAME}/versions/1")


def test_one_that_does_not_answer_is_given_up(google: Manager) -> None:
    google.secrets[NAME] = Secret([Version(b"x")])
    patient, hasty = SecretManager(), SecretManager(os.environ, answer_s=0.3)
    patient.access(f"{NAME}/versions/1")
    # With a token that was fetched in peace: nothing but what hangs is measured by the short limit.
    hasty._credentials, hasty._carrier = patient._credentials, patient._carrier
    google.faults.append(silent(google))
    with pytest.raises(SecretsFailed, match=r"did not answer within 0\.3 s"):
        hasty.access(f"{NAME}/versions/1")
    hasty.close()
    patient.close()


def test_credentials_that_are_none_are_said(google: Manager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    google.token_fault = "invalid_grant"
    with pytest.raises(SecretMissing, match=r"no credentials of Google can be had here: .*gcloud auth"):
        resolve(f"gcp-secret://{NAME}/versions/1")
    assert not google.asked
    google.token_fault = ""
    (tmp_path / "torn.json").write_text("{")
    for path in (tmp_path / "torn.json", tmp_path / "nothing.json"):
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
        with pytest.raises(SecretMissing, match="credentials"):
            resolve(f"gcp-secret://{NAME}/versions/1")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    with pytest.raises(SecretMissing, match="no credentials of Google can be had here"):
        resolve(f"gcp-secret://{NAME}/versions/1")


def test_a_machine_of_google_has_an_identity_of_its_own(
    google: Manager, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    google.secrets[NAME] = Secret([Version(b"there")])
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    host = google.url.removeprefix("http://")
    monkeypatch.setenv("GCE_METADATA_IP", host)
    monkeypatch.setattr(metadata, "_GCE_METADATA_HOST", host)
    monkeypatch.setattr(metadata, "_NO_GCE_CHECK", False)
    assert resolve(f"gcp-secret://{NAME}/versions/1") == "there"
    assert google.machine_tokens == 1


def test_a_token_service_that_does_not_answer_is_given_up(google: Manager) -> None:
    google.token_waits = True
    hasty = SecretManager(os.environ, answer_s=0.3)
    with pytest.raises(SecretsFailed, match=r"no credentials of Google can be had here: .*[Tt]imed out"):
        hasty.access(f"{NAME}/versions/1")
    hasty.close()


@pytest.mark.parametrize("url", ["http://example.com/", "ftp://127.0.0.1/", "nothing", "https://a:b@example.com/"])
def test_a_token_travels_to_no_doubtful_place(url: str) -> None:
    with pytest.raises(UsageFailed, match=OVERRIDE):
        SecretManager({OVERRIDE: url})


def test_without_its_packages_it_says_what_to_install(google: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins

    real = builtins.__import__

    def without(name: str, *words: Any, **more: Any) -> Any:
        if name == "google.auth":
            raise ImportError(name)
        return real(name, *words, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SecretMissing, match=r"need google-auth, which is not installed here \(install it with"):
        resolve(f"gcp-secret://{NAME}/versions/1")


@pytest.mark.parametrize("fault", [broken, says(503, "UNAVAILABLE", "Away.")])
def test_whatever_request_fails_no_key_and_no_right_is_taken_away(google: Manager, fault: Any) -> None:
    first = new_key()
    for fails_at in range(10):
        kept = {"role": "roles/owner", "members": ["user:a@x"]}
        google.secrets[NAME] = Secret([Version(first.private_pem().encode())], [kept])
        google.asked.clear()
        google.before = lambda verb, at=fails_at: google.faults.append(fault) if len(google.asked) == at else None  # type: ignore[misc]
        if fails_at == 0:
            google.faults.append(fault)
        done = init_keys("--gcp-secret", NAME, "--rotate", "--accessor", MEMBER)
        versions = google.secrets[NAME].versions
        assert versions[0] == Version(first.private_pem().encode()) and len(versions) <= 2
        assert kept in google.secrets[NAME].bindings
        if done.code == 0:
            break
        assert done.code == 1 and "Error:" in done.err and "Traceback" not in done.err
    assert fails_at == 4, "latest, addVersion, getIamPolicy, setIamPolicy"


def test_nothing_that_is_kept_is_in_a_repr(google: Manager) -> None:
    google.secrets[NAME] = Secret([Version(b"a secret of ours")])
    manager = SecretManager()
    assert "ours" not in repr(manager.access(f"{NAME}/versions/1"))
    manager.close()
    assert gcp_secrets.crc32c(b"123456789") == 0xE3069283
