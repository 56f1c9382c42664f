"""A client of the OCI distribution API: what a tag stands for, on which platforms it runs, and a second name for it.

Manifests are checked against their digest before anything is believed of them, since what is deployed is pinned by it. Requests that change
something are two: a tag of an image that is there, and an upload that is begun and given up to learn whether it may be. `latest` is never written: a
push that overwrote a `latest` of two architectures with one of a single one cost a fleet its images.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urljoin, urlsplit

from iris_core.contracts import ImageInfo, ImageMissing, RegistryDenied, RegistryFailed, UsageFailed
from iris_core.model.images import DOCKER_HUB, LATEST, ImageRef
from providers.registry.auth import Authorizer, no_credentials, refused
from providers.registry.credentials import find
from providers.registry.transport import Answer, Transport

if TYPE_CHECKING:
    from collections.abc import Mapping

INDEXES: Final = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
SINGLES: Final = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_HUB_HOST: Final = "registry-1.docker.io"
_UNKNOWN: Final = "unknown"
"""Architecture and system of what buildx adds to an index about the build: no image."""
PULL: Final = "pull"
PUSH: Final = "pull,push"


class RegistryClient:
    """Implements `contracts.Registry`. One connection pool and one set of tokens, for one thread at a time."""

    def __init__(self, transport: Transport | None = None) -> None:
        self._transport = transport or Transport()
        self._authorizer = Authorizer(self._transport)

    def close(self) -> None:
        """Closes its connections, and forgets its tokens."""
        self._transport.close()

    def inspect(self, image: ImageRef) -> ImageInfo:
        """What a tag or digest stands for now. Raises ImageMissing, RegistryDenied, RegistryFailed."""
        return self._described(image, *self._manifest(image))

    def _described(self, image: ImageRef, answer: Answer, digest: str) -> ImageInfo:
        manifest = _json(answer, image)
        is_index = answer.kind in INDEXES
        platforms = _listed(manifest, image) if is_index else [self._platform_of(manifest, image)]
        return ImageInfo(image.pinned(digest), tuple(sorted(set(platforms))), is_index, answer.kind)

    def tag(self, image: ImageRef, tag: str) -> ImageInfo:
        """Gives an image another tag. Raises UsageFailed, ImageMissing, RegistryDenied, RegistryFailed."""
        wanted = image.tagged(tag)
        if tag == LATEST:
            raise UsageFailed(f"{image.name}: the tag latest is never moved", hint="choose a tag of its own")
        answer, digest = self._manifest(image)
        found = self._described(image, answer, digest)
        put = self._call(
            "PUT", wanted, f"manifests/{tag}", PUSH, headers={"content-type": answer.kind}, content=answer.body
        )
        if put.status != 201:
            raise self._failed(put, wanted, "push")
        return ImageInfo(wanted.pinned(digest), found.platforms, found.is_index, found.media_type)

    def check_push(self, image: ImageRef) -> None:
        """Begins an upload and gives it up. Raises RegistryDenied, RegistryFailed: nothing could be pushed."""
        begun = self._call("POST", image, "blobs/uploads/", PUSH, headers={"content-length": "0"})
        if begun.status != 202:
            raise self._failed(begun, image, "push")
        place = urljoin(_base(image), begun.headers.get("location", ""))
        if urlsplit(place).netloc == urlsplit(_base(image)).netloc:
            # With the token that we have: one that the registry keeps in spite of it ends by itself.
            headers = _authorization(self._authorizer.header(image, PUSH))
            self._transport.send("DELETE", place, headers=headers, is_loopback=image.is_loopback)

    # --- manifests -----------------------------------------------------------------------------------------------

    def _manifest(self, image: ImageRef) -> tuple[Answer, str]:
        """The manifest as it was sent, and its digest, which fits."""
        accept = ", ".join((*INDEXES, *SINGLES))
        answer = self._call("GET", image, f"manifests/{image.reference}", PULL, headers={"accept": accept})
        if answer.status != 200:
            raise self._failed(answer, image, "pull")
        if answer.kind not in (*INDEXES, *SINGLES):
            if answer.kind.startswith("application/vnd."):
                raise RegistryFailed(f"{image} is of a kind that is not known here: {answer.kind}")
            raise _not_a_registry(image, answer)
        digest = "sha256:" + hashlib.sha256(answer.body).hexdigest()
        said = answer.headers.get("docker-content-digest", digest)
        for named in (said, image.digest):
            if named and named != digest:
                raise RegistryFailed(f"{image} arrived with another content than its digest", hint="try again")
        return answer, digest

    def _platform_of(self, manifest: Mapping[str, Any], image: ImageRef) -> str:
        """Of a single image: its configuration says so, not its manifest."""
        config = manifest.get("config")
        digest = config.get("digest") if isinstance(config, dict) else None
        if not isinstance(digest, str):
            raise RegistryFailed(f"{image} has no configuration, so it is no image")
        answer = self._call("GET", image, f"blobs/{digest}", PULL, follow=True)
        if answer.status != 200:
            raise self._failed(answer, image, "pull")
        if digest != "sha256:" + hashlib.sha256(answer.body).hexdigest():
            raise RegistryFailed(f"the configuration of {image} arrived with another content than its digest")
        return _platform(_json(answer, image)) or "unknown/unknown"

    # --- requests ------------------------------------------------------------------------------------------------

    def _call(self, method: str, image: ImageRef, path: str, actions: str, **more: Any) -> Answer:
        url = f"{_base(image)}{image.repository}/{path}"
        headers: dict[str, str] = more.pop("headers", {})
        known = self._authorizer.header(image, actions)
        answer = self._transport.send(
            method, url, headers={**headers, **_authorization(known)}, is_loopback=image.is_loopback, **more
        )
        if answer.status != 401:
            return answer
        # Without a token yet, or with one that has run out.
        challenge = answer.headers.get("www-authenticate", "")
        if not challenge:
            raise _not_a_registry(image, answer)
        made = self._authorizer.answer(image, actions, challenge)
        return self._transport.send(
            method, url, headers={**headers, **_authorization(made)}, is_loopback=image.is_loopback, **more
        )

    def _failed(self, answer: Answer, image: ImageRef, verb: str) -> RegistryFailed:
        code, said = _errors(answer)
        if answer.status in (401, 403):
            credentials = find(image.registry)
            if answer.status == 401:
                return refused(image, credentials)
            if credentials is None:
                return no_credentials(image)
            who = credentials.user or "the token that is kept"
            return RegistryDenied(
                f"{who} may not {verb} {image.name}" + (f": {said}" if said else ""),
                hint=f"ask for the right to it, or docker login {image.registry} as somebody else",
            )
        if answer.status == 404 and code:
            return ImageMissing(f"there is no {image}")
        if answer.status == 404 or (answer.status < 400 and answer.kind == "text/html"):
            return _not_a_registry(image, answer)
        if answer.status == 429:
            return RegistryFailed(f"{image.registry} has had too many requests", hint="try again later")
        return RegistryFailed(f"{image.registry} answered {answer.status} for {image}" + (f": {said}" if said else ""))


def _base(image: ImageRef) -> str:
    host = _HUB_HOST if image.registry == DOCKER_HUB else image.registry
    return f"{'http' if image.is_loopback else 'https'}://{host}/v2/"


def _authorization(value: str) -> dict[str, str]:
    return {"authorization": value} if value else {}


def _not_a_registry(image: ImageRef, answer: Answer) -> RegistryFailed:
    what = f"{answer.status} with {answer.kind}" if answer.kind else str(answer.status)
    return RegistryFailed(f"{image.registry} is no image registry: it answered {what}")


def _json(answer: Answer, image: ImageRef) -> dict[str, Any]:
    try:
        found = json.loads(answer.body)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise RegistryFailed(f"the manifest of {image} makes no sense")
    return found


def _listed(index: Mapping[str, Any], image: ImageRef) -> list[str]:
    entries = index.get("manifests")
    if not isinstance(entries, list):
        raise RegistryFailed(f"the manifest of {image} makes no sense")
    found = [_platform(entry.get("platform")) for entry in entries if isinstance(entry, dict)]
    return [platform for platform in found if platform]


def _platform(value: Any) -> str:
    """`system/architecture[/variant]`, "" = nothing that runs."""
    if not isinstance(value, dict):
        return ""
    system, architecture = value.get("os"), value.get("architecture")
    variant = value.get("variant")
    if not (isinstance(system, str) and isinstance(architecture, str)) or _UNKNOWN in (system, architecture):
        return ""
    return "/".join(part[:40] for part in (system, architecture, variant) if isinstance(part, str) and part)


def _errors(answer: Answer) -> tuple[str, str]:
    """Code and text of the first error in the body, ("", "") if it has none."""
    try:
        first = json.loads(answer.body)["errors"][0]
        return str(first.get("code", "")), " ".join(str(first.get("message", "")).split())[:200]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return "", ""
