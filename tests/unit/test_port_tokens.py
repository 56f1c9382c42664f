"""Keys on disk and the tokens they sign (S12 file modes, S5 forged tokens)."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

from iris_core.auth.keys import KeyFileError, load_key, load_or_create_key, load_public_key, new_key
from iris_core.auth.tokens import ALGORITHM, AUDIENCE, KeySet, TokenError, TokenSigner

if TYPE_CHECKING:
    from pathlib import Path

    from iris_core.auth.keys import SigningKey


@pytest.fixture(scope="module")
def key() -> SigningKey:
    return new_key()


def forged(
    key: SigningKey, *, headers: dict[str, str] | None = None, algorithm: str = ALGORITHM, **changed: Any
) -> str:
    claims = {"aud": AUDIENCE, "sub": "alice", "role": "user", "exp": 4_000_000_000} | changed
    claims = {name: value for name, value in claims.items() if value is not None}
    return jwt.encode(claims, key.private, algorithm=algorithm, headers={"kid": key.kid} | (headers or {}))


# Key files -----------------------------------------------------------------------------------------------------------


def test_a_key_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    old = os.umask(0)
    try:
        made = load_or_create_key(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert load_or_create_key(path).kid == made.kid == load_key(path).kid
    assert [entry.name for entry in tmp_path.iterdir()] == ["signing.key"]


def test_many_that_start_at_once_get_one_key(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    kids: list[str] = []
    start = threading.Barrier(8)

    def make() -> None:
        start.wait()
        kids.append(load_or_create_key(path).kid)

    threads = [threading.Thread(target=make) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(kids) == 8
    assert set(kids) == {load_key(path).kid}


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o777])
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "signing.key"
    load_or_create_key(path)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"mode {mode:04o}") as error:
        load_or_create_key(path)
    assert "chmod 600" in error.value.hint


def test_a_symbolic_link_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    path = tmp_path / "signing.key"
    path.symlink_to(elsewhere)
    with pytest.raises(KeyFileError):
        load_or_create_key(path)
    assert not elsewhere.exists()
    load_or_create_key(elsewhere)
    with pytest.raises(KeyFileError, match="symbolic link"):
        load_or_create_key(path)


def test_what_is_no_key_is_named_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    for content in (b"", b"not a key", b"-----BEGIN PRIVATE KEY-----\nMTIz\n-----END PRIVATE KEY-----\n"):
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(KeyFileError, match=r"signing\.key is not a private key"):
            load_or_create_key(path)
        assert path.read_bytes() == content
    other = generate_private_key(SECP256R1())
    path.write_bytes(
        other.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    with pytest.raises(KeyFileError, match="not an Ed25519 key"):
        load_or_create_key(path)


def test_a_fifo_or_folder_is_refused_without_waiting(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    os.mkfifo(path, 0o600)
    with pytest.raises(KeyFileError, match="not a regular file"):
        load_or_create_key(path)
    path.unlink()
    path.mkdir(mode=0o700)
    with pytest.raises(KeyFileError, match="not a regular file"):
        load_or_create_key(path)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"cannot create the signing key .*: No such file or directory"):
        load_or_create_key(tmp_path / "missing" / "signing.key")


def test_a_key_never_shows_itself(key: SigningKey) -> None:
    assert repr(key) == f"SigningKey(kid={key.kid!r})"


# Tokens --------------------------------------------------------------------------------------------------------------


def test_each_kind_of_token_says_what_was_put_in(key: SigningKey) -> None:
    now = [1000.0]
    signer, keys = TokenSigner(key, lambda: now[0]), KeySet(key.public, clock=lambda: now[0])
    task = keys.verify(signer.task_token("alice", "/alice/root", "/alice/root/child", "0123456789abcdef"))
    assert (task.subject, task.role, task.root_job, task.job_id, task.attempt_uid) == (
        "alice", "task", "/alice/root", "/alice/root/child", "0123456789abcdef",
    )  # fmt: skip
    worker = keys.verify(signer.worker_token("w-1", ttl_s=60))
    assert (worker.subject, worker.role, worker.expires_at_s, worker.read_only) == ("w-1", "worker", 1060, False)
    assert keys.verify(signer.user_token("bob", read_only=True)).read_only
    assert keys.verify(signer.user_token("bob", dashboard=True)).role == "dashboard"


def test_a_token_expires_also_after_it_was_verified(key: SigningKey) -> None:
    now = [1000.0]
    signer, keys = TokenSigner(key, lambda: now[0]), KeySet(key.public, clock=lambda: now[0])
    token = signer.user_token("alice", ttl_s=10)
    now[0] = 1009.9
    assert keys.verify(token).subject == "alice"
    now[0] = 1010.0
    with pytest.raises(TokenError, match="expired"):
        keys.verify(token)


def test_a_previous_key_verifies_while_it_is_listed(key: SigningKey) -> None:
    old = new_key()
    token = TokenSigner(old).worker_token("w-1")
    listed = load_public_key(old.public_pem())
    assert KeySet(key.public, [listed]).verify(token).subject == "w-1"
    with pytest.raises(TokenError, match="unknown key"):
        KeySet(key.public).verify(token)
    with pytest.raises(KeyFileError):
        load_public_key("nonsense")


def test_forged_tokens_are_refused(key: SigningKey) -> None:
    keys = KeySet(key.public)
    assert keys.verify(forged(key)).subject == "alice"
    other = new_key()
    head, body, signature = forged(key).split(".")

    def part(value: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    nothing = part({"alg": "none", "kid": key.kid})
    public_pem = key.public_pem()
    symmetric = part({"alg": "HS256", "kid": key.kid})
    bad = {
        "another key under our id": forged(other, headers={"kid": key.kid}),
        "an unknown key": forged(other),
        "no kid": jwt.encode(
            {"aud": AUDIENCE, "sub": "a", "role": "user", "exp": 4e9}, key.private, algorithm=ALGORITHM
        ),
        "alg none": f"{nothing}.{body}.",
        "alg None": f"{part({'alg': 'None', 'kid': key.kid})}.{body}.",
        "alg none, signed": f"{nothing}.{body}.{signature}",
        "alg HS256 by the public key": f"{symmetric}.{body}.{_hs256(f'{symmetric}.{body}', public_pem)}",
        "alg ES256": f"{part({'alg': 'ES256', 'kid': key.kid})}.{body}.{signature}",
        "another body": f"{head}.{part({'sub': 'root'})}.{signature}",
        "a cut signature": forged(key)[:-4],
        "another audience": forged(key, aud="other"),
        "a list of audiences": forged(key, aud=["iris", "other"]),
        "no audience": forged(key, aud=None),
        "no expiry": forged(key, exp=None),
        "an expiry in words": forged(key, exp=None, expires="never"),
        "a true expiry": forged(key, exp=True),
        "a broken expiry": forged(key, exp=4e9),
        "no subject": forged(key, sub=None),
        "an empty subject": forged(key, sub=""),
        "a role that grants itself admin": forged(key, role="admin"),
        "no role": forged(key, role=None),
        "a read_only that is no bool": forged(key, read_only="no"),
        "a task without an attempt": forged(key, role="task", root_job="/a/b", job_id="/a/b"),
        "an attempt that is no text": forged(key, role="task", root_job="/a/b", job_id="/a/b", attempt_uid=[1]),
        "nothing": "",
        "dots": "..",
        "brackets": base64.urlsafe_b64encode(b"[" * 3000).decode() + ".e30.e30",
        "too long": forged(key, more="x" * 5000),
        "a lone surrogate": "\ud800.e30.e30",
    }
    for what, token in bad.items():
        with pytest.raises(TokenError):
            pytest.fail(f"{what}: {keys.verify(token)}")


def _hs256(text: str, secret: str) -> str:
    import hashlib
    import hmac

    digest = hmac.new(secret.encode(), text.encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def test_a_forged_token_is_not_remembered_as_good(key: SigningKey) -> None:
    keys = KeySet(key.public)
    token = forged(new_key(), headers={"kid": key.kid})
    for _ in range(2):
        with pytest.raises(TokenError):
            keys.verify(token)
