"""Container images: the registry that holds them, and what builds them. Must never let anything move the tag `latest`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from iris_core.contracts.errors import IrisError

if TYPE_CHECKING:
    from iris_core.model.images import ImageRef


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What a registry holds under a reference.

    Attributes:
        ref: The image by its digest: what may be deployed.
        platforms: `linux/amd64` and so on, sorted; attestations, whose platform is unknown, are left out.
        is_index: Whether it is a list of images, one per platform, and not a single one.
        media_type: Of the manifest, as it was sent.
    """

    ref: ImageRef
    platforms: tuple[str, ...]
    is_index: bool
    media_type: str


class RegistryFailed(IrisError):
    """An image registry does not answer, or not as a registry does.

    ImageMissing      it has no such image
    RegistryDenied    it refuses whoever asks: no credentials, wrong ones, or no right to do this
    """


class ImageMissing(RegistryFailed):
    """The registry has no such image, tag or digest."""


class RegistryDenied(RegistryFailed):
    """The registry refuses whoever asks."""


class Registry(Protocol):
    """Where images lie. Every call may block for as long as its time-out, and may raise RegistryFailed and its kinds."""

    def inspect(self, image: ImageRef) -> ImageInfo:
        """What a tag or digest stands for now. Raises ImageMissing."""
        ...

    def tag(self, image: ImageRef, tag: str) -> ImageInfo:
        """Gives an image another tag in its repository, byte for byte. Raises ImageMissing; UsageFailed: the tag is `latest`, which
        nothing here moves.
        """
        ...

    def check_push(self, image: ImageRef) -> None:
        """Raises RegistryDenied: whoever runs this may not push there. No image is left behind."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """One image to be built and pushed.

    Attributes:
        target: The stage of the Dockerfile: controller, worker or task.
        ref: Where it is pushed to, with its tag.
        platforms: What it is built for, sorted.
        profile: `fast` or `release`.
        base: The image that it stands on, by its digest.
        tree: The frozen tree's id, which the image says of itself.
        context: An export of that tree, which nobody else writes to.
        cache: Where layers are kept between builds, None = nowhere.
    """

    target: str
    ref: ImageRef
    platforms: tuple[str, ...]
    profile: str
    base: ImageRef
    tree: str
    context: Path
    cache: ImageRef | None = None


class ImageBuilder(Protocol):
    """Builds images and pushes them in the same step."""

    def check(self, platforms: Sequence[str]) -> None:
        """Raises IrisError: it cannot build here, or not for all of these platforms."""
        ...

    def build(self, build: ImageBuild, say: Callable[[str], None]) -> str:
        """Builds and pushes; returns the digest of what was pushed. `say` gets each line of its log. Raises IrisError."""
        ...
