"""An image registry and a builder in memory, of which a test decides what they hold and what goes wrong.

They keep the rules of the real ones (`latest` is never moved, an absent image is ImageMissing, a push is a new digest under its tag), and
count what changed, so that a test sees whether something was built twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from iris_core.contracts import ImageBuild, ImageInfo, ImageMissing, IrisError, UsageFailed
from iris_core.model.images import BOTH, LATEST, ImageRef, lacking

INDEX = "application/vnd.oci.image.index.v1+json"


class FakeRegistry:
    """Implements Registry. `failure`, when set, is what every call raises."""

    def __init__(self) -> None:
        self.failure: IrisError | None = None
        self.refuses_pushes: IrisError | None = None
        self.effects: list[str] = []
        """What changed, in order."""
        self._images: dict[tuple[str, str], ImageInfo] = {}

    def put(self, text: str, platforms: Sequence[str] = BOTH, content: str = "") -> ImageInfo:
        """An image under a tag, as a push leaves it; `content` tells it from others on the same platforms."""
        ref = ImageRef.parse(text)
        listed = tuple(sorted(platforms))
        digest = "sha256:" + hashlib.sha256(f"{ref.name} {listed} {content}".encode()).hexdigest()
        info = ImageInfo(ref.pinned(digest), listed, True, INDEX)
        self._images[ref.name, ref.reference] = self._images[ref.name, digest] = info
        return info

    def inspect(self, image: ImageRef) -> ImageInfo:
        """See Registry."""
        if self.failure is not None:
            raise self.failure
        found = self._images.get((image.name, image.reference))
        if found is None:
            raise ImageMissing(f"there is no {image}")
        return found

    def tag(self, image: ImageRef, tag: str) -> ImageInfo:
        """See Registry."""
        wanted = image.tagged(tag)
        if tag == LATEST:
            raise UsageFailed(f"{image.name}: the tag latest is never moved")
        found = self.inspect(image)
        self._images[wanted.name, tag] = found
        self.effects.append(f"tag {wanted}")
        return found

    def check_push(self, image: ImageRef) -> None:
        """See Registry."""
        if self.failure or self.refuses_pushes:
            raise self.failure or self.refuses_pushes or AssertionError

    def close(self) -> None:
        """Nothing is open."""


@dataclass
class FakeBuilder:
    """Implements ImageBuilder: what it builds lies in `registry`. `platforms` is what it can build for."""

    registry: FakeRegistry
    platforms: tuple[str, ...] = BOTH
    failure: IrisError | None = None
    builds: list[ImageBuild] = field(default_factory=list)
    during: Callable[[ImageBuild], None] | None = None
    """Called while an image is built."""

    def check(self, platforms: Sequence[str]) -> None:
        """See ImageBuilder."""
        missing = lacking(self.platforms, tuple(platforms))
        if missing:
            raise IrisError(f"the builder cannot build for {', '.join(missing)}")

    def build(self, build: ImageBuild, say: Callable[[str], None]) -> str:
        """See ImageBuilder."""
        if self.during is not None:
            self.during(build)
        if self.failure is not None:
            raise self.failure
        self.builds.append(build)
        say(f"built {build.target}")
        info = self.registry.put(str(build.ref), build.platforms, f"{build.target} {build.profile} {build.base}")
        self.registry.effects.append(f"push {build.ref}")
        return info.ref.digest
