"""One HTTP request to a registry or its token service, with bounded time and size, and every way it fails as one clear line.

The only place that knows the HTTP library. Connections that cannot be made are tried again; nothing else is, because what was asked may
have been done. Must never put a header of ours into a message: they carry credentials.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from iris_core.contracts import RegistryFailed

if TYPE_CHECKING:
    import httpx

CONNECT_S: Final = 10.0
READ_S: Final = 30.0
TOTAL_S: Final = 60.0
"""Of one answer, however slowly it drips."""
MAX_BYTES: Final = 4 << 20
"""What the specification lets a manifest be."""
CONNECT_RETRIES: Final = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, whatever its status. Header names are lower-case."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    @property
    def kind(self) -> str:
        """Its media type, without parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()


class Transport:
    """Sends requests. `read_s` is how long the other side may be silent."""

    def __init__(self, read_s: float = READ_S, total_s: float = TOTAL_S) -> None:
        self._read_s = read_s
        self._total_s = total_s
        self._clients: dict[bool, httpx.Client] = {}

    def close(self) -> None:
        """Closes every connection."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()

    def _client(self, is_loopback: bool) -> httpx.Client:
        import httpx

        found = self._clients.get(is_loopback)
        if found is None:
            # A proxy of the environment is for the world outside, never for this machine.
            found = self._clients[is_loopback] = httpx.Client(
                trust_env=not is_loopback,
                timeout=httpx.Timeout(self._read_s, connect=CONNECT_S),
                headers={"user-agent": "iris-core"},
            )
        return found

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        content: bytes | None = None,
        basic: tuple[str, str] | None = None,
        is_loopback: bool = False,
        follow: bool = False,
    ) -> Answer:
        """The answer to one request. `follow`: redirections are followed, to another host without credentials.

        Raises RegistryFailed: no answer, none in time, none that is HTTP, or one that is too large.
        """
        import httpx

        host = urlsplit(url).netloc.rpartition("@")[2]
        client = self._client(is_loopback)
        try:
            request = client.build_request(
                method,
                url,
                headers=dict(headers or {}),
                params=dict(params) if params else None,
                content=content,
                data=dict(form) if form else None,
            )
            for left in range(CONNECT_RETRIES, -1, -1):
                try:
                    response = client.send(request, auth=basic, follow_redirects=follow, stream=True)
                    break
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    if not left:
                        raise
            with contextlib.closing(response):
                return self._read(response, host)
        except httpx.TimeoutException as error:
            within = CONNECT_S if isinstance(error, httpx.ConnectTimeout) else self._read_s
            raise RegistryFailed(f"{host} did not answer within {within:g} s", hint="try again") from None
        except httpx.ConnectError as error:
            raise RegistryFailed(f"{host} cannot be reached: {_reason(error)}") from None
        except httpx.TooManyRedirects:
            raise RegistryFailed(f"{host} sends its callers round in circles") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise RegistryFailed(f"{host} is no image registry: {_reason(error)}") from None
        except (httpx.InvalidURL, ValueError):
            raise RegistryFailed(f"{host} sends its callers to an address that is none") from None

    def _read(self, response: httpx.Response, host: str) -> Answer:
        deadline = time.monotonic() + self._total_s
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > MAX_BYTES:
                raise RegistryFailed(f"{host} answered with more than {MAX_BYTES >> 20} MiB")
            if time.monotonic() > deadline:
                raise RegistryFailed(f"{host} has not finished its answer within {self._total_s:g} s")
        names = {name.lower(): value for name, value in response.headers.items()}
        return Answer(response.status_code, names, bytes(body))


def _reason(error: Exception) -> str:
    said = " ".join(str(error).split())
    if "WRONG_VERSION_NUMBER" in said or "RECORD_LAYER_FAILURE" in said:
        return "it does not speak TLS"
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return "its certificate is not trusted: " + said.partition("verify failed: ")[2].partition(" (")[0]
    return said.partition("] ")[2].strip() or said or type(error).__name__
