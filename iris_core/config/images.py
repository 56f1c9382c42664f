"""The images that a cluster file names: those of the controller, of the workers, and of tasks that name none (control-plane §8).

Must never ask a registry: whether an image is there, and for which machines, is looked at when it is deployed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_core.model.images import ImageRef

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.config.document import Value


@dataclass(frozen=True, slots=True)
class NamedImages:
    """By target; None = the file names none."""

    controller: ImageRef | None = None
    """`controller.image`."""
    worker: ImageRef | None = None
    """`defaults.worker.docker_image`."""
    task: ImageRef | None = None
    """`kubernetes_provider.default_image`, else `defaults.worker.default_task_image`."""


KEYS = {
    "controller": "controller.image",
    "worker": "defaults.worker.docker_image",
    "task": "defaults.worker.default_task_image",
}
"""Where each target is named, for messages."""


def parse_images(
    controller: Mapping[str, Value], worker: Mapping[str, Value], kubernetes: Mapping[str, Value]
) -> NamedImages:
    """The images of the sections `controller`, `defaults.worker` and `kubernetes_provider`. Raises UsageFailed."""
    task = _image(kubernetes, "default_image") or _image(worker, "default_task_image")
    return NamedImages(_image(controller, "image"), _image(worker, "docker_image"), task)


def _image(section: Mapping[str, Value], key: str) -> ImageRef | None:
    if key not in section or section[key].is_nothing:
        return None
    return section[key].parsed(ImageRef.parse)
