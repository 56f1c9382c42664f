"""The `scale_groups` and `tpu_pools` of a cluster file, and how the autoscaler is to go about them (control-plane §8).

A group that names zones becomes one group per zone, a pool one per size and zone, so that everything behind this room knows
groups alone. Must never know which provider makes the machines: its part of `slice_template` is handed on as it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from iris_core.model.constraints import (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    GPU_COUNT,
    GPU_VARIANT,
    PREEMPTIBLE,
    REGION,
    ROUTING_KEYS,
    TPU_VM_COUNT,
    ZONE,
    canonical_attributes,
)
from iris_core.model.errors import ModelError, did_you_mean, shown
from iris_core.model.ids import check_component
from iris_core.model.resources import (
    Device,
    Resources,
    parse_cpu,
    parse_gpu_spec,
    parse_size,
    parse_tpu_spec,
    tpu_device,
)
from iris_core.model.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.config.document import Value

_GROUP: Final = frozenset(
    [
        "num_vms",
        "buffer_slices",
        "max_slices",
        "priority",
        "scale_up_rate_limit",
        "scale_down_rate_limit",
        "quota_pool",
        "allocation_tier",
        "zones",
        "resources",
        "worker",
        "slice_template",
    ]
)
_RESOURCES: Final = frozenset(["cpu", "ram", "disk", "device_type", "device_variant", "device_count", "capacity_type"])
_CAPACITY: Final = ("on-demand", "preemptible", "reserved")
_GROUP_WORKER: Final = frozenset({"attributes", "cache_dir"})
_POOL: Final = frozenset({"family", "zones", "base_priority", "resources", "slice_template", "sizes"})
_SIZE: Final = frozenset({"buffer_slices", "max_slices"})
_TEMPLATE: Final = frozenset({"num_vms", "labels", "gcp", "coreweave", "manual", "local"})
_AUTOSCALER: Final = frozenset({"evaluation_interval", "scale_up_delay", "scale_down_delay", "reservations"})

MONTH_MS: Final = 30 * 24 * 3_600_000
DEFAULT_PRIORITY: Final = 100
DEFAULT_UP_PER_MINUTE: Final = 16
DEFAULT_DOWN_PER_MINUTE: Final = 32


@dataclass(frozen=True, slots=True)
class AutoscalerConfig:
    """How often the autoscaler looks by itself, and how long a slice is idle before it goes."""

    evaluation_interval_ms: int = 10_000
    scale_down_delay_ms: int = 600_000
    reservations: Mapping[str, int] = field(default_factory=dict)
    """Chips by quota pool: its groups of reserved capacity share them, whatever the sizes of their slices."""


@dataclass(frozen=True, slots=True)
class ScaleGroup:
    """Machines of one kind. A slice is `num_vms` of them that come and go together."""

    name: str
    num_vms: int = 1
    buffer_slices: int = 0
    """Slices kept ready beyond what runs or waits."""
    max_slices: int = 0
    """The most there may be at once; where the file does not say, `buffer_slices`."""
    priority: int = DEFAULT_PRIORITY
    """Groups with a lower number are asked first."""
    scale_up_rate_limit: int = DEFAULT_UP_PER_MINUTE
    """Slices asked for a minute, 0 = unlimited."""
    scale_down_rate_limit: int = DEFAULT_DOWN_PER_MINUTE
    """Slices given up a minute, 0 = unlimited."""
    quota_pool: str = ""
    """Groups of one pool use one quota: a block at a tier holds for the tiers from there on."""
    allocation_tier: int = 0
    zone: str = ""
    region: str = ""
    cpu_millicores: int | None = None
    """Of one machine; None = what it has."""
    memory_bytes: int | None = None
    disk_bytes: int | None = None
    device: Device | None = None
    preemptible: bool = False
    reserved: bool = False
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    """Those of the file, canonical (`iris_core.model.constraints`)."""
    cache_dir: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    template: Mapping[str, object] = field(default_factory=dict)
    """The provider's own part of `slice_template`, as plain values."""

    @property
    def chips(self) -> int:
        """Accelerators of one slice."""
        return self.num_vms * self.device.count if self.device is not None else 0

    def resources(self, detected: Resources) -> Resources:
        """What one machine offers: as written here, else as it was found there."""
        return Resources(
            detected.cpu_millicores if self.cpu_millicores is None else self.cpu_millicores,
            detected.memory_bytes if self.memory_bytes is None else self.memory_bytes,
            detected.disk_bytes if self.disk_bytes is None else self.disk_bytes,
            self.device or detected.device,
        )

    def worker_attributes(self) -> dict[str, str | int | float]:
        """What every worker of the group says of itself, canonical: the file's attributes and those that follow from the
        group (control-plane §2.5).
        """
        found: dict[str, str | int | float] = {DEVICE_TYPE: "cpu", PREEMPTIBLE: "true" if self.preemptible else "false"}
        if self.zone:
            found[ZONE] = self.zone
        if self.region:
            found[REGION] = self.region
        device = self.device
        if device is not None:
            found[DEVICE_TYPE] = device.kind
            if device.variant:
                found[DEVICE_VARIANT] = device.variant
            if device.kind == "tpu":
                found[TPU_VM_COUNT] = self.num_vms
            else:
                found[GPU_COUNT] = device.count
                if device.variant:
                    found[GPU_VARIANT] = device.variant
        return canonical_attributes(found) | dict(self.attributes)


def parse_scale_groups(groups: Mapping[str, Value], pools: Mapping[str, Value]) -> dict[str, ScaleGroup]:
    """All groups of a file by name. Raises UsageFailed, with file and line."""
    found: dict[str, ScaleGroup] = {}
    for name, value in groups.items():
        for group in _groups(name, value):
            _add(found, group, value)
    for name, value in pools.items():
        for group in _pool(name, value):
            _add(found, group, value)
    return found


def parse_autoscaler(keys: Mapping[str, Value], groups: Mapping[str, ScaleGroup]) -> AutoscalerConfig:
    """`defaults.autoscaler`; `groups` are those of the file. Raises UsageFailed, with file and line."""
    standard = AutoscalerConfig()
    return AutoscalerConfig(
        keys["evaluation_interval"].duration_ms(100, MONTH_MS) if "evaluation_interval" in keys else 10_000,
        keys["scale_down_delay"].duration_ms(0, MONTH_MS)
        if "scale_down_delay" in keys
        else standard.scale_down_delay_ms,
        _reservations(keys["reservations"], groups) if "reservations" in keys else {},
    )


def _reservations(value: Value, groups: Mapping[str, ScaleGroup]) -> dict[str, int]:
    found = {}
    for pool, item in value.mapping().items():
        found[pool] = item.whole(1, 10_000_000)
        members = [group for group in groups.values() if group.reserved and group.quota_pool == pool]
        if not members:
            known = sorted({group.quota_pool for group in groups.values() if group.reserved and group.quota_pool})
            raise item.wrong(
                f"no scale group of capacity_type reserved has the quota_pool {shown(pool)}",
                hint=did_you_mean(pool, known) or (f"there are: {', '.join(known)}" if known else ""),
            )
        for group in members:
            if not group.chips:
                raise item.wrong(f"the group {group.name} has no accelerators to take from a reservation")
            if group.chips > found[pool]:
                raise item.wrong(f"one slice of {group.name} has {group.chips} chips, more than the reservation")
    return found


def autoscaler_keys(value: Value) -> dict[str, Value]:
    """The keys of `defaults.autoscaler`. Raises UsageFailed: one that does not exist."""
    return value.mapping(_AUTOSCALER)


def _add(found: dict[str, ScaleGroup], group: ScaleGroup, value: Value) -> None:
    if group.name in found:
        raise value.wrong(f"there would be two scale groups named {shown(group.name)}", hint="rename one")
    found[group.name] = group


def _groups(name: str, value: Value) -> list[ScaleGroup]:
    keys = value.mapping(_GROUP)
    if "num_vms" not in keys:
        raise value.wrong("the key 'num_vms' is missing")
    num_vms = keys["num_vms"].whole(1, 10_000)
    template = _mapping(keys, "slice_template", _TEMPLATE)
    if "num_vms" in template and template["num_vms"].whole(1, 10_000) != num_vms:
        raise template["num_vms"].wrong(f"the group has {num_vms} machines in a slice")
    zones = [item.text() for item in keys["zones"].items()] if "zones" in keys else []
    resources = _mapping(keys, "resources", _RESOURCES)
    _check_machines(keys["num_vms"], num_vms, resources)
    return [
        _group(
            f"{name}-{zone}" if zone in zones else name,
            value,
            keys,
            template,
            resources,
            zone,
            num_vms,
            _device(resources),
        )
        for zone in zones or [_template_zone(template)]
    ]


def _check_machines(value: Value, num_vms: int, resources: Mapping[str, Value]) -> None:
    """A TPU's type says of how many machines a slice is: with another number no slice would be whole, and no gang would fit.

    Where the file says how many chips a machine has, as many machines as hold the type's chips are right, too.
    """
    if _choice(resources, "device_type", ("cpu", "gpu", "tpu")) != "tpu" or "device_variant" not in resources:
        return
    try:
        spec = parse_tpu_spec(resources["device_variant"].text())
    except ModelError:
        # A type that is not known, with its `device_count` given: nothing can be said of it.
        return
    written = resources["device_count"].whole(1, 4096) if "device_count" in resources else 0
    if num_vms != spec.vm_count and num_vms * written != spec.chips:
        raise value.wrong(
            f"a slice of {spec.name} has {counted(spec.vm_count, 'machine')}, not {num_vms}",
            hint=f"write num_vms: {spec.vm_count}, or another device_variant",
        )


def _group(
    name: str,
    value: Value,
    keys: Mapping[str, Value],
    template: Mapping[str, Value],
    resources: Mapping[str, Value],
    zone: str,
    num_vms: int,
    device: Device | None,
    **derived: Any,
) -> ScaleGroup:
    try:
        check_component(name, what="scale group")
    except ModelError as error:
        raise value.wrong(error.message, hint=error.hint) from None
    worker = _mapping(keys, "worker", _GROUP_WORKER)
    buffer = keys["buffer_slices"].whole(0, 10_000) if "buffer_slices" in keys else 0
    most = keys["max_slices"].whole(0, 100_000) if "max_slices" in keys else buffer
    if buffer > most:
        raise keys["buffer_slices"].wrong(
            f"{buffer} slices cannot be kept ready where at most {most} may be", hint="raise max_slices"
        )
    region = _template_region(template) or (zone.rpartition("-")[0] or zone)
    capacity_type = _choice(resources, "capacity_type", _CAPACITY)
    rates = {
        key: keys[key].whole(0, 1_000_000)
        for key in ("priority", "scale_up_rate_limit", "scale_down_rate_limit", "allocation_tier")
        if key in keys
    }
    values: dict[str, Any] = {**rates, **derived}
    if "quota_pool" in keys:
        values["quota_pool"] = keys["quota_pool"].text()
    return ScaleGroup(
        name=name,
        num_vms=num_vms,
        buffer_slices=buffer,
        max_slices=most,
        zone=zone.lower(),
        region=region.lower(),
        cpu_millicores=resources["cpu"].parsed(parse_cpu) if "cpu" in resources else None,
        memory_bytes=resources["ram"].parsed(parse_size) if "ram" in resources else None,
        disk_bytes=resources["disk"].parsed(parse_size) if "disk" in resources else None,
        device=device,
        preemptible=capacity_type == "preemptible",
        reserved=capacity_type == "reserved",
        attributes=_attributes(worker["attributes"]) if "attributes" in worker else {},
        cache_dir=worker["cache_dir"].text() if "cache_dir" in worker else "",
        labels={k: item.text() for k, item in _mapping(template, "labels", None).items()},
        template={key: plain(template[key]) for key in ("gcp", "coreweave", "manual", "local") if key in template},
        **values,
    )


def _pool(name: str, value: Value) -> list[ScaleGroup]:
    """A TPU pool: one group per size and zone, sharing a quota, the larger size in the higher tier."""
    keys = value.mapping(_POOL)
    for word in ("family", "sizes"):
        if word not in keys:
            raise value.wrong(f"the key {word!r} is missing")
    family = keys["family"].text()
    resources = _mapping(keys, "resources", _RESOURCES)
    template = _mapping(keys, "slice_template", _TEMPLATE)
    base = keys["base_priority"].whole(0, 1_000_000) if "base_priority" in keys else DEFAULT_PRIORITY
    zones = [item.text() for item in keys["zones"].items()] if "zones" in keys else [_template_zone(template)]
    sizes: list[tuple[int, Value]] = []
    for word, size in keys["sizes"].mapping().items():
        if not (word.isascii() and word.isdigit() and len(word) < 7):
            raise size.wrong(f"{shown(word)} is not a number of chips", hint='write it as "16": {max_slices: 2}')
        sizes.append((int(word), size))
    found: list[ScaleGroup] = []
    for tier, (number, size) in enumerate(sorted(sizes, key=lambda entry: entry[0])):
        try:
            spec = parse_tpu_spec(f"{family}-{number}")
        except ModelError as error:
            raise size.wrong(error.message, hint=error.hint) from None
        keys_of_size = size.mapping(_SIZE)
        for zone in zones:
            place = f"-{zone}" if "zones" in keys else ""
            group = _group(
                f"{name}-{number}{place}",
                size,
                keys_of_size,
                template,
                resources,
                zone,
                spec.vm_count,
                Device("tpu", spec.name, spec.chips_per_vm),
                priority=base + tier,
                quota_pool=f"{name}{place}",
                allocation_tier=tier,
            )
            found.append(group)
    return found


def _mapping(parent: Mapping[str, Value], name: str, keys: frozenset[str] | None) -> dict[str, Value]:
    return parent[name].mapping(keys) if name in parent else {}


def plain(value: Value) -> Any:
    """A value of a document without its places."""
    if isinstance(value.data, dict):
        return {key: plain(item) for key, item in value.data.items()}
    if isinstance(value.data, list):
        return [plain(item) for item in value.data]
    return value.data


def _template_zone(template: Mapping[str, Value]) -> str:
    gcp = _mapping(template, "gcp", None)
    return gcp["zone"].text() if "zone" in gcp else ""


def _template_region(template: Mapping[str, Value]) -> str:
    coreweave = _mapping(template, "coreweave", None)
    return coreweave["region"].text() if "region" in coreweave else ""


def _choice(keys: Mapping[str, Value], name: str, words: tuple[str, ...]) -> str:
    if name not in keys:
        return ""
    word = keys[name].text().lower()
    if word not in words:
        raise keys[name].wrong(f"{shown(word)} is not one of {', '.join(words)}", hint=did_you_mean(word, words))
    return word


def _device(resources: Mapping[str, Value]) -> Device | None:
    kind = _choice(resources, "device_type", ("cpu", "gpu", "tpu"))
    if kind in ("", "cpu"):
        return None
    variant = resources["device_variant"].text() if "device_variant" in resources else ""
    if kind == "tpu" and variant and "device_count" not in resources:
        return tpu_device(resources["device_variant"].parsed(parse_tpu_spec))
    count = resources["device_count"].whole(1, 4096) if "device_count" in resources else 1
    if kind == "gpu" and variant:
        return Device("gpu", resources["device_variant"].parsed(parse_gpu_spec).variant, count)
    return Device("gpu" if kind == "gpu" else "tpu", variant, count)


def _attributes(value: Value) -> dict[str, str | int | float]:
    raw: dict[str, str | int | float] = {}
    for key, item in value.mapping().items():
        if key.lower() in ROUTING_KEYS:
            raise item.wrong("this attribute follows from the group and may not be set by hand")
        data = item.data
        if not isinstance(data, (str, int, float)):
            raise item.wrong("an attribute is a text or a number")
        raw[key] = data
    try:
        return canonical_attributes(raw)
    except ModelError as error:
        raise value.wrong(error.message, hint=error.hint) from None
