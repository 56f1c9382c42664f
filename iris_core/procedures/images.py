"""Which images a deployment needs, whether they can be had, and having them: the part of a rollout for clusters that run containers.

The kind of a cluster decides (rollout §2.3): Kubernetes runs the controller's and the tasks' image on both architectures, since a task's
pod has the controller's image beside it; VMs run all three, on amd64. An image that the file names by `latest`, or by no tag, is
built from the frozen tree under a tag that names the tree; one with a tag of its own or a digest is the operator's choice and is left alone. A tag
stands for one set of architectures for ever, so that a build for fewer never takes the place of one for more: that once left a fleet
without images. What is deployed is pinned by digest. Must never read the working directory.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_core.config.images import KEYS
from iris_core.config.places import LOCAL
from iris_core.contracts import ImageBuild, ImageInfo, ImageMissing, IrisError, RegistryFailed, UsageFailed
from iris_core.model.errors import ModelError, shown
from iris_core.model.images import AMD64, BOTH, DOCKER_HUB, LATEST, ImageRef, check_tag, lacking, parse_platforms
from iris_core.procedures.rollout_checks import Check
from iris_core.procedures.source_tree import SourceTree, export, read_file

if TYPE_CHECKING:
    from iris_core.config.cluster import ClusterConfig
    from iris_core.contracts import ImageBuilder, Registry

FAST: Final = "fast"
RELEASE: Final = "release"
PROFILES: Final = (FAST, RELEASE)
KUBERNETES: Final = "coreweave"
VMS: Final = "gcp"
NEEDED: Final = {
    KUBERNETES: (("controller", BOTH), ("task", BOTH)),
    VMS: (("controller", (AMD64,)), ("worker", (AMD64,)), ("task", (AMD64,))),
}
"""Targets and platforms by the kind of cluster; a kind that is not here runs releases, and no images."""
CACHE: Final = "iris-cache"
DOCKERFILE: Final = "deploy/Dockerfile"
_BASE_RE: Final = re.compile(r"^ARG PYTHON_IMAGE=(\S+)\s*$", re.MULTILINE)

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """One image of a deployment.

    Attributes:
        target: controller, worker or task.
        ref: Where it is, or will be.
        platforms: What it has to run on.
        is_built: Whether it is made from the tree; else it is there already, or the deployment fails.
    """

    target: str
    ref: ImageRef
    platforms: tuple[str, ...]
    is_built: bool

    def describe(self) -> str:
        """As it is shown before anybody approves."""
        how = "built from the tree" if self.is_built else "as it is in the registry"
        return f"{self.target} image {self.ref}, {how}, for {', '.join(self.platforms)}"


@dataclass(frozen=True, slots=True)
class ImagePlan:
    """The images of one deployment of one tree; none for a cluster that runs no containers."""

    tree: SourceTree
    profile: str
    wanted: tuple[Wanted, ...]

    @property
    def built(self) -> tuple[Wanted, ...]:
        """Those that are made from the tree."""
        return tuple(want for want in self.wanted if want.is_built)


def plan(
    config: ClusterConfig,
    tree: SourceTree,
    *,
    image_platform: str = "",
    profile: str = FAST,
    prebuilt_tag: str = "",
    is_rollback: bool = False,
) -> ImagePlan:
    """The images that a deployment of this tree to this cluster needs. Nothing is asked.

    Args:
        image_platform: `linux/amd64` and the like, in the place of the task image's platforms alone.
        profile: `fast`, or `release`, which compiles everything beforehand.
        prebuilt_tag: Deploy images that are in the registry under this tag, and build none.
        is_rollback: The image of before is deployed again; then `prebuilt_tag` makes no sense.

    Raises:
        UsageFailed: words that exclude each other, a kind of cluster that they do not apply to, or a file that names no image.
    """
    platforms = check_options(config, image_platform, profile, prebuilt_tag, is_rollback)
    wanted = []
    for target, usual in NEEDED.get(config.platform, ()):
        on = platforms if platforms and target == "task" else usual
        named: ImageRef | None = getattr(config.images, target)
        if named is None:
            raise UsageFailed(
                f"{config.source}: {KEYS[target]} is not set",
                hint=f"name an image, as ghcr.io/ORG/iris-{target}:latest",
            )
        if not named.is_moving:
            wanted.append(Wanted(target, named, on, is_built=False))
        elif prebuilt_tag:
            wanted.append(Wanted(target, named.tagged(prebuilt_tag), on, is_built=False))
        else:
            if not named.is_explicit or named.registry == DOCKER_HUB:
                raise UsageFailed(
                    f"{config.source}: {KEYS[target]}: {named} names no registry to push to",
                    hint=f"write it as ghcr.io/ORG/iris-{target}:latest, or name a version that is there",
                )
            wanted.append(Wanted(target, named.tagged(tag_of(tree.id, profile, on)), on, is_built=True))
    return ImagePlan(tree, profile, tuple(wanted))


def check_options(
    config: ClusterConfig, image_platform: str, profile: str, prebuilt_tag: str, is_rollback: bool
) -> tuple[str, ...]:
    """The platforms that are asked for. Raises UsageFailed: the words exclude each other, or mean nothing for this kind of cluster."""
    platforms = _platforms(image_platform)
    if profile not in PROFILES:
        raise UsageFailed(f"--build-profile {shown(profile)}: it is {' or '.join(PROFILES)}")
    if prebuilt_tag:
        _check_prebuilt(config, prebuilt_tag, image_platform, profile, is_rollback)
    if config.platform not in NEEDED:
        for name, is_given in (("--image-platform", bool(platforms)), ("--build-profile", profile != FAST)):
            if is_given:
                raise UsageFailed(f"{name}: {_where(config)} runs releases, and no images")
    return platforms


def tag_of(tree: str, profile: str, platforms: tuple[str, ...]) -> str:
    """The tag of what is built from a tree: its id, and what sets it apart from the usual build, which is fast and for both architectures."""
    parts = [tree]
    if profile != FAST:
        parts.append(profile)
    if platforms != BOTH:
        parts += [platform.removeprefix("linux/").replace("/", "-") for platform in platforms]
    return "-".join(parts)


def requirements(plan: ImagePlan, registry: Registry, builder: ImageBuilder) -> list[Check]:
    """What a deployment's images need. Nothing is built, pushed or changed by looking."""
    found = []
    if plan.built:
        everywhere = tuple(sorted({platform for want in plan.built for platform in want.platforms}))

        def builds() -> str:
            builder.check(everywhere)
            return f"for {', '.join(everywhere)}"

        def stands() -> str:
            return str(_base(plan, registry))

        found.append(Check("docker builds images", "the controller ships as one", builds))
        found.append(Check("the base image is there", "every image stands on it", stands))
    for want in plan.wanted:
        look, what = (_may_push, "can be pushed") if want.is_built else (_is_there, "is there")
        found.append(
            Check(
                f"the {want.target} image {what}",
                f"{want.ref} runs on {' and '.join(want.platforms)}",
                partial(look, want, registry),
            )
        )
    return found


def obtain(
    plan: ImagePlan, registry: Registry, builder: ImageBuilder, say: Say = lambda _: None
) -> dict[str, ImageInfo]:
    """Builds and pushes what is not in the registry yet, and returns every image by its target, pinned.

    A build that is there for all of its platforms is taken as it is, so that a repeated deployment builds nothing. Raises IrisError: a build or
    push fails, or an image is not there for every platform; what was pushed until then stays, under the tree's own tag.
    """
    found: dict[str, ImageInfo] = {}
    missing: list[Wanted] = []
    for want in plan.wanted:
        info = _present(want, registry)
        if info is None:
            missing.append(want)
        else:
            say(f"{want.target} image {info.ref} is there")
            found[want.target] = info
    if missing:
        base = _base(plan, registry)
        with tempfile.TemporaryDirectory(prefix="iris-context-") as scratch:
            context = Path(scratch) / "tree"
            say(f"exporting tree {plan.tree.id[:12]}")
            export(plan.tree, context)
            for want in missing:
                say(f"building the {want.target} image {want.ref}")
                build = ImageBuild(
                    want.target, want.ref, want.platforms, plan.profile, base, plan.tree.id, context, _cache(want)
                )
                digest = builder.build(build, say)
                found[want.target] = require(registry, want.ref.pinned(digest), want.platforms)
    return {want.target: found[want.target] for want in plan.wanted}


def require(registry: Registry, image: ImageRef, platforms: tuple[str, ...]) -> ImageInfo:
    """The image, which runs on all of these platforms. Raises RegistryFailed: it does not; ImageMissing."""
    info = registry.inspect(image)
    missing = lacking(info.platforms, platforms)
    if missing:
        has = ", ".join(info.platforms) or "no platform"
        raise RegistryFailed(
            f"{image} has no {', '.join(missing)}: it is for {has} only",
            hint="build it for every architecture under another tag; nodes that still have the old image keep it",
        )
    return info


def _present(want: Wanted, registry: Registry) -> ImageInfo | None:
    """An image as it is in the registry, None if it has yet to be built."""
    if not want.is_built:
        return require(registry, want.ref, want.platforms)
    try:
        info = registry.inspect(want.ref)
    except ImageMissing:
        return None
    # Somebody pushed something else under the tree's tag: what it should be is built.
    return None if lacking(info.platforms, want.platforms) else info


def _is_there(want: Wanted, registry: Registry) -> str:
    return str(require(registry, want.ref, want.platforms).ref)


def _may_push(want: Wanted, registry: Registry) -> str:
    try:
        info = _present(want, registry)
    except RegistryFailed:
        # Some registries refuse to say that nothing is there; whether one may push is what counts.
        info = None
    if info is not None:
        return f"{info.ref}, built before"
    registry.check_push(want.ref)
    return str(want.ref)


def _base(plan: ImagePlan, registry: Registry) -> ImageRef:
    """The image that all others stand on, by its digest. Raises IrisError."""
    text = read_file(plan.tree, DOCKERFILE)
    named = _BASE_RE.search(text or "")
    if named is None:
        raise IrisError(
            f"tree {plan.tree.id[:12]} has no {DOCKERFILE} with a base image", hint="it is no tree of this program"
        )
    try:
        ref = ImageRef.parse(named[1])
    except ModelError as error:
        raise IrisError(f"{DOCKERFILE}: {error.message}") from None
    needed = tuple(sorted({platform for want in plan.built for platform in want.platforms}))
    return require(registry, ref, needed).ref


def _cache(want: Wanted) -> ImageRef:
    organisation = want.ref.repository.rpartition("/")[0]
    return ImageRef(want.ref.registry, f"{organisation}/{CACHE}" if organisation else CACHE, want.target)


def _platforms(text: str) -> tuple[str, ...]:
    try:
        return parse_platforms(text) if text else ()
    except ModelError as error:
        raise UsageFailed(f"--image-platform: {error.message}", hint=error.hint) from None


def _check_prebuilt(config: ClusterConfig, tag: str, image_platform: str, profile: str, is_rollback: bool) -> None:
    try:
        check_tag(tag)
    except ModelError as error:
        raise UsageFailed(f"--prebuilt-tag: {error.message}", hint=error.hint) from None
    if tag == LATEST:
        raise UsageFailed("--prebuilt-tag latest: that names whatever was pushed last", hint="name a version")
    if config.platform != KUBERNETES:
        raise UsageFailed(f"--prebuilt-tag is for Kubernetes clusters; {_where(config)} is none")
    excluded = (
        ("--image-platform", bool(image_platform)),
        ("--build-profile", profile != FAST),
        ("--rollback", is_rollback),
    )
    for name, is_given in excluded:
        if is_given:
            raise UsageFailed(f"--prebuilt-tag and {name} exclude each other: nothing is built")


def _where(config: ClusterConfig) -> str:
    kind = "local" if config.platform == LOCAL else config.platform
    return f"{config.name}, a {kind} cluster,"
