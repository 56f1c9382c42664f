"""Scale groups, TPU pools and the autoscaler's delays in a cluster file (control-plane §8)."""

from __future__ import annotations

import pytest

from iris_controller.autoscaling.holdings import reserved_groups
from iris_core.config.cluster import parse_config
from iris_core.config.scale_groups import AutoscalerConfig
from iris_core.contracts import UsageFailed

MINIMAL = "name: a\nplatform: {local: }\n"


def test_what_a_group_leaves_out_has_its_default() -> None:
    group = parse_config(MINIMAL + "scale_groups: {g: {num_vms: 2, buffer_slices: 3}}\n").scale_groups["g"]
    assert (group.priority, group.scale_up_rate_limit, group.scale_down_rate_limit) == (100, 16, 32)
    assert (group.max_slices, group.quota_pool, group.allocation_tier, group.zone) == (3, "", 0, "")
    assert group.worker_attributes() == {"device-type": "cpu", "preemptible": "false"}


def test_a_group_is_made_for_each_of_its_zones() -> None:
    config = parse_config(
        MINIMAL
        + """\
scale_groups:
  tpu:
    num_vms: 4
    max_slices: 8
    priority: 20
    scale_up_rate_limit: 0
    scale_down_rate_limit: 5
    quota_pool: v5e
    allocation_tier: 1
    zones: [us-central1-a, europe-west4-b]
    resources: {device_type: tpu, device_variant: v5litepod-16, device_count: 4, capacity_type: preemptible}
    worker: {attributes: {Pool: A}}
    slice_template: {num_vms: 4, labels: {team: x}, gcp: {mode: tpu, runtime_version: v2}}
"""
    )
    assert list(config.scale_groups) == ["tpu-us-central1-a", "tpu-europe-west4-b"]
    group = config.scale_groups["tpu-europe-west4-b"]
    assert (group.priority, group.scale_up_rate_limit, group.quota_pool, group.allocation_tier) == (20, 0, "v5e", 1)
    assert (dict(group.labels), dict(group.template)) == (
        {"team": "x"},
        {"gcp": {"mode": "tpu", "runtime_version": "v2"}},
    )
    assert group.worker_attributes() == {
        "device-type": "tpu",
        "device-variant": "v5litepod-16",
        "preemptible": "true",
        "region": "europe-west4",
        "zone": "europe-west4-b",
        "tpu-vm-count": 4,
        "pool": "a",
    }


def test_the_zone_and_region_of_a_template_count() -> None:
    config = parse_config(
        MINIMAL
        + "scale_groups:\n"
        + "  a: {num_vms: 1, slice_template: {gcp: {zone: us-east1-c}}}\n"
        + "  b: {num_vms: 1, slice_template: {coreweave: {region: US-EAST-04}}}\n"
    )
    assert (config.scale_groups["a"].zone, config.scale_groups["a"].region) == ("us-east1-c", "us-east1")
    assert config.scale_groups["b"].region == "us-east-04"


def test_a_pool_has_a_group_for_each_size_and_zone_larger_ones_in_higher_tiers() -> None:
    config = parse_config(
        MINIMAL
        + """\
tpu_pools:
  v5e:
    family: v5litepod
    zones: [us-west1-a]
    base_priority: 10
    resources: {cpu: 100, capacity_type: preemptible}
    sizes: {"16": {max_slices: 4}, "4": {buffer_slices: 1, max_slices: 2}}
"""
    )
    small, large = config.scale_groups.values()
    assert (small.name, small.num_vms, small.priority, small.allocation_tier) == ("v5e-4-us-west1-a", 1, 10, 0)
    assert (large.name, large.num_vms, large.priority, large.allocation_tier) == ("v5e-16-us-west1-a", 4, 11, 1)
    assert small.quota_pool == large.quota_pool == "v5e-us-west1-a"
    assert large.device is not None and (large.device.variant, large.device.count) == ("v5litepod-16", 4)
    assert (large.cpu_millicores, large.preemptible, small.buffer_slices) == (100_000, True, 1)
    assert config.unused == ()


@pytest.mark.parametrize(
    ("text", "ms"),
    [("{seconds: 2, milliseconds: 500}", 2500), ("1500", 1500), ("{milliseconds: 100}", 100)],
)
def test_durations_have_three_forms(text: str, ms: int) -> None:
    config = parse_config(MINIMAL + f"defaults: {{autoscaler: {{evaluation_interval: {text}}}}}\n")
    assert config.autoscaler == AutoscalerConfig(ms, 600_000)


RESERVED = (
    "num_vms: 4, quota_pool: p, resources: {capacity_type: reserved, device_type: tpu, device_variant: v5litepod-16}"
)


def test_a_reservation_is_shared_by_the_reserved_groups_of_its_quota_pool() -> None:
    config = parse_config(
        MINIMAL + f"scale_groups: {{g: {{{RESERVED}}}, h: {{{RESERVED.replace('reserved', 'preemptible')}}}}}\n"
        "defaults: {autoscaler: {reservations: {p: 64}}}\n"
    )
    assert config.autoscaler.reservations == {"p": 64}
    assert (config.scale_groups["g"].reserved, config.scale_groups["g"].chips) == (True, 16)
    assert not config.scale_groups["h"].reserved
    assert set(reserved_groups(config)) == {"g"}


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ("{q: 64}", "no scale group of capacity_type reserved has the quota_pool 'q'"),
        ("{p: 8}", "one slice of g has 16 chips, more than the reservation"),
        ("{p: 0}", "'0' is outside 1"),
        ("{c: 8}", "the group c has no accelerators"),
        ("[p]", "reservations"),
    ],
)
def test_a_reservation_that_nothing_can_be_made_of_is_refused(pools: str, message: str) -> None:
    groups = f"{{g: {{{RESERVED}}}, c: {{num_vms: 1, quota_pool: c, resources: {{capacity_type: reserved}}}}}}"
    with pytest.raises(UsageFailed) as caught:
        parse_config(MINIMAL + f"scale_groups: {groups}\ndefaults: {{autoscaler: {{reservations: {pools}}}}}\n")
    assert caught.value.message.startswith("config:4:") and message in caught.value.message


def test_a_delay_that_is_not_acted_on_is_said() -> None:
    config = parse_config(MINIMAL + "defaults: {autoscaler: {scale_up_delay: {seconds: 60}, scale_down_delay: 0}}\n")
    assert config.unused == ("defaults.autoscaler.scale_up_delay",)
    assert config.autoscaler.scale_down_delay_ms == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("scale_groups: {g: {num_vms: 1, buffer_slices: 3, max_slices: 2}}", "3 slices cannot be kept ready where at most 2"),
        ("scale_groups: {g: {num_vms: 1, slice_template: {num_vms: 2}}}", "the group has 1 machines in a slice"),
        ("scale_groups: {g-z: {num_vms: 1}, g: {num_vms: 1, zones: [z]}}", "two scale groups named 'g-z'"),
        ("scale_groups: {g: {num_vms: 1, scale_up_rate_limit: -1}}", "'-1' is outside"),
        ("tpu_pools: {p: {family: v5litepod}}", "the key 'sizes' is missing"),
        ("tpu_pools: {p: {family: v5litepod, sizes: {many: {}}}}", "'many' is not a number of chips"),
        ("tpu_pools: {p: {family: v5litepod, sizes: {'7': {}}}}", "no TPU type 'v5litepod-7'"),
        ("defaults: {autoscaler: {evaluation_interval: {minutes: 1}}}", "unknown key 'minutes'"),
        ("defaults: {autoscaler: {scale_down: 5}}", "unknown key 'scale_down'"),
        ("defaults: {autoscaler: {evaluation_interval: 5}}", "'5' is outside 100"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UsageFailed) as caught:
        parse_config(MINIMAL + text + "\n")
    assert caught.value.message.startswith("config:3:") and message in caught.value.message


@pytest.mark.parametrize(
    ("num_vms", "resources", "machines"),
    [
        (4, "device_variant: v5litepod-32", "8 machines, not 4"),
        (4, "device_variant: v5litepod-32, device_count: 4", "8 machines, not 4"),
        (2, "device_variant: V4-8", "1 machine, not 2"),
        (1, "device_variant: v5p-16", "2 machines, not 1"),
        (8, "device_variant: v5litepod-32", ""),
        (1, "device_variant: v5litepod-8", ""),
        (2, "device_variant: v5litepod-8, device_count: 4", ""),
        (3, "device_variant: of-the-future, device_count: 4", ""),
        (3, "device_count: 4", ""),
    ],
)
def test_a_tpu_slice_has_as_many_machines_as_its_type(num_vms: int, resources: str, machines: str) -> None:
    text = f"{MINIMAL}scale_groups: {{g: {{num_vms: {num_vms}, resources: {{device_type: tpu, {resources}}}}}}}\n"
    if not machines:
        assert parse_config(text).scale_groups["g"].num_vms == num_vms
        return
    with pytest.raises(UsageFailed) as caught:
        parse_config(text)
    assert caught.value.message.startswith("config:3: scale_groups.g.num_vms: a slice of v")
    assert machines in caught.value.message and "write num_vms:" in caught.value.hint


def test_a_label_prefix_is_a_label() -> None:
    assert parse_config("name: a\nplatform: {local: , label_prefix: marin}\n").label_prefix == "marin"
    with pytest.raises(UsageFailed, match="is no label"):
        parse_config("name: a\nplatform: {local: , label_prefix: 'A b'}\n")
