"""How a scale group becomes a request for one slice, and what marks the slices of this cluster.

Names are ours, never the provider's: the slice `<group>-<8 hex digits>`, its workers `<slice>-w-<i>`, so that a slice that was asked
for and never heard of again is still recognised when it appears.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from iris_core.contracts import SliceSpec
from iris_core.model.resources import Resources

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.config.scale_groups import ScaleGroup
    from iris_core.contracts import SliceInfo


def new_slice_id(group: str) -> str:
    """A name that no slice had before."""
    return f"{group}-{secrets.token_hex(4)}"


def slice_spec(group: ScaleGroup, slice_id: str, platform: str, prefix: str, *, manual: bool = False) -> SliceSpec:
    """What the provider is asked for."""
    options = group.template.get(platform)
    labels = dict(group.labels) | {f"iris-{prefix}-managed": "true", f"iris-{prefix}-scale-group": group.name}
    if manual:
        labels[manual_label(prefix)] = "true"
    return SliceSpec(
        slice_id=slice_id,
        scale_group=group.name,
        num_vms=group.num_vms,
        resources=group.resources(Resources()),
        attributes=group.worker_attributes(),
        labels=labels,
        zone=group.zone,
        preemptible=group.preemptible,
        cache_dir=group.cache_dir,
        options=options if isinstance(options, dict) else {},
    )


def manual_label(prefix: str) -> str:
    """The label of a slice that an operator made."""
    return f"iris-{prefix}-manual"


def is_manual(labels: Mapping[str, str], prefix: str) -> bool:
    return labels.get(manual_label(prefix)) == "true"


def workers_of(info: SliceInfo, num_vms: int) -> tuple[str, ...]:
    """The workers that a slice will have, known or to be expected."""
    named = [vm.worker_id for vm in info.vms if vm.worker_id]
    if len(named) >= num_vms:
        return tuple(named)
    return tuple(f"{info.slice_id}-w-{index}" for index in range(num_vms))
