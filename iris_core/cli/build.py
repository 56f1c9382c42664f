"""`build`: the container images of a cluster, made from the tree around the working directory, and what a registry has of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from iris_core.cli import output
from iris_core.cli.image_options import build_profile_option, image_platform_option, prebuilt_tag_option
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import headers_option, output_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from iris_core.cli.session import Session
    from iris_core.config.cluster import ClusterConfig
    from iris_core.contracts import ImageInfo, Registry
    from iris_core.model.images import ImageRef
    from iris_core.procedures.rollout_checks import Check

COMMANDS = {
    "images": Lazy("iris_core.cli.build:images", "Build and push the images that a cluster runs."),
    "inspect": Lazy("iris_core.cli.build:inspect", "Show the digest of images and the platforms that they run on."),
    "tag": Lazy("iris_core.cli.build:tag", "Give an image in a registry a second tag."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def build() -> None:
    """Build the container images of a cluster, and look at those in a registry.

    Clusters of this machine and of SSH hosts run releases, and need none of this.
    """


@click.command("images", short_help=COMMANDS["images"].help)
@image_platform_option
@build_profile_option
@prebuilt_tag_option
@click.option("--dry-run", is_flag=True, help="Show what would be built, look whether it can be, and build nothing.")
@output_option("table", "json", "name")
@headers_option
@click.pass_obj
def images(
    session: Session,
    image_platform: str | None,
    build_profile: str,
    prebuilt_tag: str | None,
    dry_run: bool,
    how: str,
    no_headers: bool,
) -> int:
    """Build and push the images that a cluster runs, from the tree around the working directory, and print each by its digest.

    The tree is frozen first: tracked, changed and untracked files, but not ignored ones. What its kind of cluster needs is built, for the
    architectures of its machines; what is in the registry for this tree is taken as it is. The tag latest is never moved. Nothing of the
    cluster changes.

    \b
    iris-core --config gpu.yaml build images --dry-run
    iris-core --config gpu.yaml build images --build-profile release
    iris-core --config gpu.yaml build images --prebuilt-tag 2026-07-29 -o json
    """
    from iris_core.cli.beside import load
    from iris_core.procedures.images import obtain, plan, requirements
    from iris_core.procedures.source_tree import freeze

    config = _config(session)
    say = session.diagnostics.note
    tree = freeze(Path.cwd())
    planned = plan(
        config,
        tree,
        image_platform=image_platform or "",
        profile=build_profile,
        prebuilt_tag=prebuilt_tag or "",
    )
    if not planned.wanted:
        say(f"{config.name} is a {config.platform} cluster: it runs releases, and no images")
        return 0
    if planned.built:
        say(f"tree {tree.id} ({tree.branch})")
        for warning in tree.warnings():
            session.diagnostics.warn(warning)
    for want in planned.wanted:
        say(want.describe())
    registry: Registry = load("providers.registry").open_registry()
    try:
        builder = load("providers.registry.buildx").DockerBuildx()
        needs = requirements(planned, registry, builder)
        if not _met(session, needs):
            return 1
        if not dry_run:
            found = obtain(planned, registry, builder, say)
            _write([(target, info) for target, info in found.items()], how, headers=not no_headers)
    finally:
        registry.close()
    return 0


@click.command("inspect", short_help=COMMANDS["inspect"].help)
@click.argument("names", nargs=-1, required=True, metavar="IMAGE...")
@click.option(
    "--require", metavar="PLATFORMS", help="Exit with 1 unless each runs on these, as linux/amd64,linux/arm64."
)
@output_option("table", "json", "name")
@headers_option
@click.pass_obj
def inspect(session: Session, names: tuple[str, ...], require: str | None, how: str, no_headers: bool) -> int:
    """Show the digest of images and the platforms that they run on, as their registry has them now.

    A registry that wants to know who asks is told what docker login has kept. Attestations, whose platform is unknown, are no platform.

    \b
    iris-core build inspect ghcr.io/org/iris-task:latest
    iris-core build inspect --require linux/amd64,linux/arm64 ghcr.io/org/iris-task:v3
    """
    from iris_core.cli.beside import load
    from iris_core.model.images import lacking, parse_platforms

    wanted = parse_platforms(require) if require else ()
    refs = [_ref(name) for name in names]
    registry: Registry = load("providers.registry").open_registry()
    try:
        found = [(str(ref), registry.inspect(ref)) for ref in refs]
    finally:
        registry.close()
    _write(found, how, headers=not no_headers)
    code = 0
    for name, info in found:
        missing = lacking(info.platforms, wanted)
        if missing:
            session.diagnostics.warn(f"{name} has no {', '.join(missing)}")
            code = 1
    return code


@click.command("tag", short_help=COMMANDS["tag"].help)
@click.argument("name", metavar="IMAGE")
@click.argument("tag", metavar="TAG")
@output_option("table", "json", "name")
@headers_option
@click.pass_obj
def tag(session: Session, name: str, tag: str, how: str, no_headers: bool) -> int:
    """Give an image in a registry a second tag in its repository, byte for byte, with every platform that it has.

    The tag latest is never moved. A tag that is there already is moved only if it means the same image.

    \b
    iris-core build tag ghcr.io/org/iris-task:4f2a… 2026-07-29
    """
    from iris_core.cli.beside import load
    from iris_core.contracts import ImageMissing, IrisError

    ref = _ref(name)
    wanted = ref.tagged(tag)
    registry: Registry = load("providers.registry").open_registry()
    try:
        source = registry.inspect(ref)
        try:
            standing = registry.inspect(wanted)
        except ImageMissing:
            standing = None
        if standing is not None and standing.ref != source.ref:
            raise IrisError(
                f"{wanted} is there and means another image, {standing.ref.digest}", hint="choose a tag that is free"
            )
        made = registry.tag(source.ref, tag)
    finally:
        registry.close()
    _write([(str(wanted), made)], how, headers=not no_headers)
    return 0


def _met(session: Session, needs: Sequence[Check]) -> bool:
    """Whether all that is needed is there; each line says how it is, so that everything is mended in one go."""
    from iris_core.contracts import IrisError
    from iris_core.model.text import one_line

    is_met = True
    for need in needs:
        try:
            session.diagnostics.note(one_line(f"ok: {need.what}: {need.look()}"))
        except IrisError as error:
            is_met = False
            hint = f"; {error.hint}" if error.hint else ""
            session.diagnostics.note(one_line(f"FAILED: {need.what} ({need.why}): {error.message}{hint}"))
    return is_met


def _ref(text: str) -> ImageRef:
    from iris_core.model.images import ImageRef

    return ImageRef.parse(text)


def _config(session: Session) -> ClusterConfig:
    """Raises UsageFailed: no cluster is named, or its file is wrong."""
    from iris_core.config.cluster import find_cluster, load_config
    from iris_core.config.places import LOCAL
    from iris_core.contracts import UsageFailed

    cluster = session.named
    if cluster == LOCAL:
        raise UsageFailed("the local cluster runs from where it was started, and has no images")
    if not (session.config or cluster):
        raise UsageFailed("no cluster is named", hint="give --config FILE, or --cluster NAME")
    return load_config(Path(session.config) if session.config else find_cluster(cluster))


def _write(found: Sequence[tuple[str, ImageInfo]], how: str, *, headers: bool) -> None:
    from iris_core.cli.tables import Column, render
    from iris_core.model.text import one_line

    if how == "json":
        rows: list[dict[str, Any]] = [
            {"name": name, "image": str(info.ref), "platforms": list(info.platforms), "is_index": info.is_index}
            for name, info in found
        ]
        output.line(output.as_json({"images": rows}))
    elif how == "name":
        for _, info in found:
            output.line(str(info.ref))
    else:
        columns = [Column("NAME", is_id=True), Column("IMAGE", is_id=True), Column("PLATFORMS")]
        cells = [(name, str(info.ref), one_line(", ".join(info.platforms) or "none")) for name, info in found]
        output.write(render(columns, cells, headers=headers))
