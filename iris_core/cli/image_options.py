"""What a deployment's images are asked to be, spelled and explained once for every command that builds or deploys them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def image_platform_option(function: F) -> F:
    """`--image-platform`."""
    return click.option(
        "--image-platform",
        metavar="PLATFORMS",
        help="Platforms of the task image alone, as linux/amd64, where a cluster's nodes are all of one kind.",
    )(function)


def build_profile_option(function: F) -> F:
    """`--build-profile`, which was called `--cargo-profile`."""
    return click.option(
        "--build-profile",
        "--cargo-profile",
        "build_profile",
        type=click.Choice(["fast", "release"]),
        default="fast",
        show_default=True,
        help="release compiles all modules beforehand: the build takes longer, the start does not.",
    )(function)


def prebuilt_tag_option(function: F) -> F:
    """`--prebuilt-tag`."""
    return click.option(
        "--prebuilt-tag",
        metavar="TAG",
        help="Take the images that are in the registry under this tag, and build none; Kubernetes only.",
    )(function)
