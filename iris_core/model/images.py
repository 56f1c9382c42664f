"""References to container images: `[registry/]repository[:tag][@digest]`, and the platforms that an image runs on.

The grammar is that of the OCI distribution and of `docker`: a first part with a dot, a colon or the name `localhost` is a registry,
anything else lies on Docker Hub. A reference with a digest names bytes; one with a tag names whatever somebody pushed last. Must never
contact a registry.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from iris_core.model.errors import ModelError, shown

DOCKER_HUB: Final = "docker.io"
LATEST: Final = "latest"
AMD64: Final = "linux/amd64"
ARM64: Final = "linux/arm64"
BOTH: Final = (AMD64, ARM64)

MAX_REFERENCE: Final = 512
MAX_TAG: Final = 128

_TAG_RE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_DIGEST_RE: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY_RE: Final = re.compile(rf"{_PART}(?:/{_PART})*")
_REGISTRY_RE: Final = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?")
_PLATFORM_RE: Final = re.compile(r"[a-z0-9]+/[a-z0-9_]+(?:/v[0-9]+)?")


@dataclass(frozen=True, slots=True)
class ImageRef:
    """An image by name. Construct one with `parse`, or from another with `tagged` and `pinned`.

    Attributes:
        registry: Host, with its port if it has one.
        repository: Path of the image there, without a tag.
        tag: "" = none was given.
        digest: `sha256:…` of its manifest, "" = not pinned.
        is_explicit: Whether the registry was written out, rather than assumed to be Docker Hub.
    """

    registry: str
    repository: str
    tag: str = ""
    digest: str = ""
    is_explicit: bool = True

    @classmethod
    def parse(cls, text: str) -> ImageRef:
        """The reference that a text is. Raises ModelError."""
        if not text or len(text) > MAX_REFERENCE:
            raise ModelError(f"{shown(text)} is no image", hint="write it as REGISTRY/REPOSITORY:TAG")
        rest, at, digest = text.partition("@")
        if at and not _DIGEST_RE.fullmatch(digest):
            raise ModelError(f"{shown(text)}: {shown(digest)} is no digest", hint="it is sha256: and 64 digits")
        head, slash, tail = rest.partition("/")
        is_explicit = bool(slash) and ("." in head or ":" in head or head == "localhost")
        registry, path = (head, tail) if is_explicit else (DOCKER_HUB, rest)
        repository, colon, tag = path.partition(":")
        if colon:
            check_tag(tag)
        if not _REGISTRY_RE.fullmatch(registry):
            raise ModelError(f"{shown(text)}: {shown(registry)} is no address of a registry")
        if not _REPOSITORY_RE.fullmatch(repository):
            raise ModelError(
                f"{shown(text)}: {shown(repository)} is no name of an image",
                hint="lower-case letters, digits, and single . _ - / between them",
            )
        if registry == DOCKER_HUB and "/" not in repository:
            repository = f"library/{repository}"
        return cls(registry, repository, tag, digest, is_explicit)

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def is_moving(self) -> bool:
        """Whether it names whatever was pushed last: no digest, and the tag `latest` or none."""
        return not self.digest and self.tag in ("", LATEST)

    @property
    def reference(self) -> str:
        """What the registry is asked for: the digest, else the tag, else `latest`."""
        return self.digest or self.tag or LATEST

    @property
    def is_loopback(self) -> bool:
        """Whether the registry is on this machine, where no TLS is spoken."""
        host = self.registry.rpartition(":")[0] if ":" in self.registry.rpartition("]")[2] else self.registry
        if host == "localhost":
            return True
        try:
            return ipaddress.ip_address(host.strip("[]")).is_loopback
        except ValueError:
            return False

    def tagged(self, tag: str) -> ImageRef:
        """The same image under that tag, not pinned. Raises ModelError."""
        return ImageRef(self.registry, self.repository, check_tag(tag), "", self.is_explicit)

    def pinned(self, digest: str) -> ImageRef:
        """The same image by its bytes alone: a tag beside a digest says nothing that still has to hold."""
        return ImageRef(self.registry, self.repository, "", digest, self.is_explicit)

    def __str__(self) -> str:
        return self.name + (f":{self.tag}" if self.tag else "") + (f"@{self.digest}" if self.digest else "")


def check_tag(text: str) -> str:
    """Returns the tag. Raises ModelError: it is none."""
    if not _TAG_RE.fullmatch(text):
        raise ModelError(
            f"{shown(text)} is no tag", hint=f"letters, digits, _ . and -, at most {MAX_TAG}, not beginning with . or -"
        )
    return text


def parse_platforms(text: str) -> tuple[str, ...]:
    """`linux/amd64,linux/arm64` as it is written for a build, in order and each once. Raises ModelError."""
    found: dict[str, None] = {}
    for word in text.split(","):
        if not _PLATFORM_RE.fullmatch(word.strip()):
            raise ModelError(f"{shown(word)} is no platform", hint="write it as linux/amd64 or linux/amd64,linux/arm64")
        found[word.strip()] = None
    return tuple(sorted(found))


def lacking(platforms: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[str, ...]:
    """What is wanted and not there. A variant that is not asked for counts: `linux/arm64/v8` runs where `linux/arm64` is wanted."""
    return tuple(want for want in wanted if not any(have == want or have.startswith(want + "/") for have in platforms))
