"""The chain that says who calls (cli-auth-logs §2.5, DESIGN §11)."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_controller.rpc.auth import Authenticator, Identity, Role, TaskClaims, parse_peer
from iris_controller.rpc.errors import RpcError
from iris_core.auth.keys import new_key
from iris_core.auth.tokens import KeySet, TokenSigner
from iris_core.contracts import UsageFailed
from iris_core.model.redact import redact_text

LOCAL, REMOTE, TRUSTED = "127.0.0.1:4000", "203.0.113.9:4000", "10.1.2.3:4000"
KEY = new_key()
SIGNER = TokenSigner(KEY)
CURRENT = {"0123456789abcdef"}
AUTH = Authenticator(KeySet(KEY.public), ["10.0.0.0/8", "fd00::/8"], ["root"], CURRENT.__contains__)


def bearer(token: str, **more: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}", **more}


def refused(headers: dict[str, str], peer: str | None) -> RpcError:
    with pytest.raises(RpcError) as error:
        AUTH.authenticate(headers, peer)
    assert error.value.status == "UNAUTHENTICATED"
    return error.value


@pytest.mark.parametrize("peer", [LOCAL, "[::1]:4000", "127.8.8.8:1", "[::ffff:127.0.0.1]:4000"])
def test_loopback_is_admin_by_the_real_peer(peer: str) -> None:
    found = AUTH.authenticate({}, peer)
    assert (found.user_id, found.role, found.via, found.read_only) == ("local_admin", Role.ADMIN, "loopback", False)
    assert found.peer == peer


@pytest.mark.parametrize("peer", [TRUSTED, "[fd00::7]:4000", "[::ffff:10.0.0.1]:9"])
def test_a_trusted_network_is_admin(peer: str) -> None:
    found = AUTH.authenticate({}, peer)
    assert (found.role, found.via) == (Role.ADMIN, "cidr")


@pytest.mark.parametrize(
    "peer",
    [REMOTE, "11.0.0.1:80", "[fe80::1%eth0]:80", "[2001:db8::1]:80", None, "", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:x",
     "127.0.0.1:99999", "localhost:80", "unix:", "::1:80", "127.0.0.1:٤"],
)  # fmt: skip
def test_everybody_else_is_unknown(peer: str | None) -> None:
    hint = refused({}, peer).hint
    assert hint and redact_text(hint) == hint, "a hint with something like a secret in it is hidden from who needs it"


@pytest.mark.parametrize("peer", [LOCAL, TRUSTED])
@pytest.mark.parametrize(
    "name",
    ["x-forwarded-for", "X-Forwarded-For", "forwarded", "Forwarded", "x-real-ip", "via", "Via", "x-forwarded-host",
     "x-forwarded-proto", "True-Client-IP", "x-envoy-external-address"],
)  # fmt: skip
def test_a_forwarded_call_is_nobody_whatever_it_claims(peer: str, name: str) -> None:
    refused({name: "127.0.0.1"}, peer)
    refused({name: ""}, peer)


def test_a_forwarded_call_with_a_credential_is_its_owner() -> None:
    found = AUTH.authenticate(bearer(SIGNER.user_token("bob"), via="1.1 proxy"), REMOTE)
    assert (found.user_id, found.role) == ("bob", Role.USER)


@pytest.mark.parametrize("peer", [LOCAL, TRUSTED, REMOTE])
@pytest.mark.parametrize(
    "credential",
    ["", "Bearer", "Bearer ", "Bearer x", "Basic cm9vdDpyb290", "bearer a.b.c", "Token t", "Bearer null", ", ",
     "Bearer " + TokenSigner(new_key()).user_token("root"), "Bearer " + SIGNER.user_token("root", ttl_s=-1)],
    ids=lambda credential: credential[:20],  # keys differ between the processes that share the tests
)  # fmt: skip
def test_a_bad_credential_never_falls_through(peer: str, credential: str) -> None:
    error = refused({"authorization": credential}, peer)
    assert error.message == "authentication failed"
    assert not error.hint


def test_an_assertion_that_nobody_configured_never_falls_through() -> None:
    refused({"X-Goog-IAP-JWT-Assertion": "x"}, LOCAL)
    refused(bearer(SIGNER.user_token("root")) | {"x-goog-iap-jwt-assertion": "x"}, LOCAL)


def test_two_credentials_are_never_one_good_one() -> None:
    good = f"Bearer {SIGNER.user_token('root')}"
    refused({"authorization": f"{good}, {good}"}, LOCAL)
    refused({"authorization": good, "Authorization": "Bearer x"}, LOCAL)


def test_header_names_and_the_scheme_in_any_case() -> None:
    token = SIGNER.user_token("bob")
    for headers in ({"AUTHORIZATION": f"Bearer {token}"}, {"authorization": f"bearer {token}"}):
        assert AUTH.authenticate(headers, REMOTE).user_id == "bob"


def test_a_credential_decides_from_loopback_too() -> None:
    found = AUTH.authenticate(bearer(SIGNER.user_token("bob", dashboard=True)), LOCAL)
    assert (found.user_id, found.role, found.via) == ("bob", Role.DASHBOARD, "token")


def test_roles_by_token() -> None:
    assert AUTH.authenticate(bearer(SIGNER.user_token("root")), REMOTE).role is Role.ADMIN
    assert AUTH.authenticate(bearer(SIGNER.user_token("root", dashboard=True)), REMOTE).role is Role.DASHBOARD
    worker = AUTH.authenticate(bearer(SIGNER.worker_token("w1")), REMOTE)
    assert (worker.role, worker.user_id, worker.principal) == (Role.WORKER, "w1", "worker/w1")
    # A worker whose id is an admin's name is a worker.
    assert AUTH.authenticate(bearer(SIGNER.worker_token("root")), REMOTE).role is Role.WORKER


def test_a_task_is_known_while_its_attempt_is_current() -> None:
    token = SIGNER.task_token("root", "/root/r", "/root/r/c", "0123456789abcdef")
    found = AUTH.authenticate(bearer(token), LOCAL)
    assert found.role is Role.TASK
    assert found.task == TaskClaims("root", "/root/r", "/root/r/c", "0123456789abcdef")
    CURRENT.clear()
    try:
        refused(bearer(token), LOCAL)
    finally:
        CURRENT.add("0123456789abcdef")


def test_read_only_by_header_or_by_token_and_nothing_lifts_it() -> None:
    assert AUTH.authenticate({"Iris-Read-Only": "1"}, LOCAL).read_only
    assert AUTH.authenticate({"iris-read-only": "yes"}, LOCAL).read_only
    assert not AUTH.authenticate({"iris-read-only": "0"}, LOCAL).read_only
    token = SIGNER.user_token("root", read_only=True)
    assert AUTH.authenticate(bearer(token), REMOTE).read_only
    assert AUTH.authenticate(bearer(token, **{"iris-read-only": "0"}), REMOTE).read_only


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0.0/33", "everything", "", "10.0.0.0/8 "])
def test_a_malformed_network_fails_at_construction(text: str) -> None:
    with pytest.raises(UsageFailed, match="trusted network"):
        Authenticator(KeySet(KEY.public), [text], [], CURRENT.__contains__)


def test_scope_and_ownership() -> None:
    task = Identity("ann", Role.TASK, "token", LOCAL, task=TaskClaims("ann", "/ann/r", "/ann/r/c", "u"))
    for name in ("/ann/r/c", "/ann/r/c/0", "/ann/r/c/0:3", "/ann/r/c/d/e"):
        task.require_scope(name)
    for name in ("/ann/r", "/ann/r/cc", "/ann/r/c2/0", "/ann", "", "/bob/x", "/system/controller", "ann/r/c"):
        with pytest.raises(RpcError, match="may not reach"):
            task.require_scope(name)
    user = Identity("ann", Role.USER, "token", LOCAL)
    user.require_scope("/bob/x")
    user.require_owner("ann", "/ann/r")
    with pytest.raises(RpcError, match="belongs to bob"):
        user.require_owner("bob", "/bob/x")
    Identity("local_admin", Role.ADMIN, "loopback", LOCAL).require_owner("bob", "/bob/x")


def test_the_log_says_why_and_the_caller_does_not(caplog: pytest.LogCaptureFixture) -> None:
    quiet = Authenticator(KeySet(KEY.public), [], [], CURRENT.__contains__)
    secret = SIGNER.user_token("bob", ttl_s=-1)
    with caplog.at_level(logging.WARNING, "iris.auth"), pytest.raises(RpcError):
        quiet.authenticate(bearer(secret), REMOTE)
    assert "expired" in caplog.text
    assert REMOTE in caplog.text
    assert secret not in caplog.text
    for _ in range(50):
        with pytest.raises(RpcError):
            quiet.authenticate(bearer("x"), REMOTE)
    assert len(caplog.records) == 1


@given(st.text(max_size=40))
def test_no_peer_text_breaks_the_parser(text: str) -> None:
    parse_peer(text)
    parse_peer(f"{text}:80")
    parse_peer(f"[{text}]:80")
