"""Signed tokens: who a task, a worker or a user is (cli-auth-logs §2.6).

JWTs with one algorithm, Ed25519, and one audience; every other algorithm, `none` included, is refused before the signature is
looked at. A token says who somebody is and never grants `admin`: what a name may do is resolved by the server at every request.
What reads and writes tokens is imported with the first one, since a checkpoint that is only looked at has none. Must never log a
token, and must never accept one without an expiry.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iris_core.auth.keys import SigningKey, key_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

ALGORITHM = "EdDSA"
AUDIENCE = "iris"
ENDPOINT_AUDIENCE = "iris-endpoint"
"""Of a token in a capability URL: it opens one endpoint of the proxy and no RPC."""
TASK, WORKER, USER, DASHBOARD = "task", "worker", "user", "dashboard"
"""The roles that a token may carry."""

TASK_TTL_S = 400 * 86_400
"""Of a task's token, in seconds: longer than any task; it is worthless as soon as the attempt is no longer current."""
WORKER_TTL_S = 30 * 86_400
USER_TTL_S = 12 * 3600

_MAX_LENGTH = 4096
_REMEMBERED = 4096


class TokenError(Exception):
    """The token is not good. Says why for the log; the caller is told no more than that it failed."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a verified token says. The fields of a task are empty for the others."""

    subject: str
    role: str
    expires_at_s: int
    read_only: bool = False
    root_job: str = ""
    job_id: str = ""
    attempt_uid: str = ""


@dataclass(frozen=True, slots=True)
class EndpointGrant:
    """What a verified capability says: which endpoint it opens, and who made it."""

    endpoint: str
    minted_by: str
    expires_at_s: int


def load() -> None:
    """Imports what reads and writes tokens now: it takes a tenth of a second, which the first token on an event loop must not."""
    import jwt  # noqa: F401


class TokenSigner:
    """Makes tokens. `clock` gives epoch seconds."""

    def __init__(self, key: SigningKey, clock: Callable[[], float] = time.time) -> None:
        self._key = key
        self._clock = clock
        self._headers = {"kid": key.kid}

    def task_token(self, owner: str, root_job: str, job_id: str, attempt_uid: str, *, ttl_s: int = TASK_TTL_S) -> str:
        """For one attempt of a task: `IRIS_TOKEN`."""
        return self._sign(owner, TASK, ttl_s, root_job=root_job, job_id=job_id, attempt_uid=attempt_uid)

    def worker_token(self, worker_id: str, *, ttl_s: int = WORKER_TTL_S) -> str:
        """For a worker process."""
        return self._sign(worker_id, WORKER, ttl_s)

    def user_token(
        self, user_id: str, *, ttl_s: int = USER_TTL_S, read_only: bool = False, dashboard: bool = False
    ) -> str:
        """For a person. `read_only` refuses every mutation, `dashboard` leaves only what a viewer may read; nothing lifts either."""
        more = {"read_only": True} if read_only else {}
        return self._sign(user_id, DASHBOARD if dashboard else USER, ttl_s, **more)

    def endpoint_token(self, endpoint: str, minted_by: str, ttl_s: int) -> str:
        """For whoever holds the URL it is in: opens this endpoint until it expires."""
        return self._encode({"aud": ENDPOINT_AUDIENCE, "sub": minted_by, "endpoint": endpoint}, ttl_s)

    def _sign(self, subject: str, role: str, ttl_s: int, **more: Any) -> str:
        return self._encode({"aud": AUDIENCE, "sub": subject, "role": role, **more}, ttl_s)

    def _encode(self, claims: dict[str, Any], ttl_s: int) -> str:
        import jwt

        now = int(self._clock())
        claims = {**claims, "iat": now, "exp": now + ttl_s}
        return jwt.encode(claims, self._key.private, algorithm=ALGORITHM, headers=self._headers)


class KeySet:
    """Verifies tokens: by the current key, and by the previous public keys while a rotation overlaps."""

    def __init__(
        self,
        current: Ed25519PublicKey,
        previous: Iterable[Ed25519PublicKey] = (),
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keys = {key_id(key): key for key in (*previous, current)}
        self._clock = clock
        # A caller shows the same token with every request; a signature costs more than most requests.
        self._verified: OrderedDict[str, Claims] = OrderedDict()

    def verify(self, token: str) -> Claims:
        """What `token` says. Raises TokenError."""
        found = self._verified.get(token)
        if found is None:
            found = _claims(self._decode(token, AUDIENCE))
            self._verified[token] = found
            if len(self._verified) > _REMEMBERED:
                self._verified.popitem(last=False)
        else:
            self._verified.move_to_end(token)
        if found.expires_at_s <= self._clock():
            raise TokenError("expired")
        return found

    def verify_endpoint(self, token: str) -> EndpointGrant:
        """What a capability says. Raises TokenError."""
        claims = self._decode(token, ENDPOINT_AUDIENCE)
        grant = EndpointGrant(_text(claims, "endpoint"), _text(claims, "sub"), _expiry(claims))
        if not grant.endpoint:
            raise TokenError("no endpoint")
        if grant.expires_at_s <= self._clock():
            raise TokenError("expired")
        return grant

    def _decode(self, token: str, audience: str) -> dict[str, Any]:
        if len(token) > _MAX_LENGTH:
            raise TokenError("too long")
        import jwt

        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") != ALGORITHM:
                raise TokenError("another algorithm")
            key = self._keys.get(str(header.get("kid")))
            if key is None:
                raise TokenError("signed by an unknown key")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[ALGORITHM],
                audience=audience,
                # The expiry is compared below, by the injected clock, at every use.
                options={
                    "require": ["exp", "aud", "sub"],
                    "verify_exp": False,
                    "verify_iat": False,
                    "strict_aud": True,
                },
            )
        except TokenError:
            raise
        except Exception as error:
            # Not only PyJWTError: a header of ten thousand brackets ends in RecursionError, a lone surrogate in UnicodeError.
            raise TokenError(f"{type(error).__name__}: {error}") from error
        return claims


def _text(claims: dict[str, Any], name: str) -> str:
    value = claims.get(name, "")
    if not isinstance(value, str):
        raise TokenError(f"{name} is not text")
    return value


def _expiry(claims: dict[str, Any]) -> int:
    expires = claims["exp"]
    if isinstance(expires, bool) or not isinstance(expires, int):
        raise TokenError("exp is not a whole number")
    return expires


def _claims(claims: dict[str, Any]) -> Claims:
    expires = _expiry(claims)
    read_only = claims.get("read_only", False)
    if not isinstance(read_only, bool):
        raise TokenError("read_only is not true or false")
    found = Claims(
        subject=_text(claims, "sub"),
        role=_text(claims, "role"),
        expires_at_s=expires,
        read_only=read_only,
        root_job=_text(claims, "root_job"),
        job_id=_text(claims, "job_id"),
        attempt_uid=_text(claims, "attempt_uid"),
    )
    if not found.subject or found.role not in {TASK, WORKER, USER, DASHBOARD}:
        raise TokenError("no subject or an unknown role")
    if found.role == TASK and not (found.root_job and found.job_id and found.attempt_uid):
        raise TokenError("a task's token without its job or attempt")
    return found
