"""Resources and the texts of sizes, CPUs, durations and accelerators."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.model.errors import ModelError
from iris_core.model.resources import (
    GPU_VARIANTS,
    NO_RESOURCES,
    Device,
    Resources,
    format_age,
    format_cpu,
    format_duration,
    format_size,
    parse_cpu,
    parse_duration,
    parse_gpu_spec,
    parse_size,
    parse_tpu_spec,
    parse_tpu_specs,
    tpu_device,
)
from iris_core.model.tpu import tpu_types

AMOUNTS = st.integers(0, 2**50)
DEVICES = st.none() | st.builds(Device, st.just("gpu"), st.just("H100"), st.integers(0, 64))
RESOURCES = st.builds(Resources, AMOUNTS, AMOUNTS, AMOUNTS, DEVICES)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512", 512),
        ("64GB", 64 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("2g", 2 * 10**9),
        ("512M", 512 * 10**6),
        ("512Mi", 512 * 2**20),
        (" 1 tb ", 10**12),
        ("0", 0),
        ("0.5k", 500),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@given(st.integers(0, 2**63 - 1))
def test_exact_sizes_round_trip(size: int) -> None:
    assert parse_size(format_size(size, exact=True)) == size


@given(st.integers(0, 10**18))
def test_rounded_sizes_are_close_and_short(size: int) -> None:
    text = format_size(size)
    assert abs(parse_size(text) - size) <= size * Fraction(6, 1000)
    assert len(text) <= 6


def test_size_display() -> None:
    assert [format_size(n) for n in (0, 999, 1000, 1_073_741_824, 999_600, 134_217_728)] == [
        "0B", "999B", "1KB", "1.07GB", "1MB", "134MB",
    ]  # fmt: skip
    assert format_size(3 * 2**29, exact=True) == "1.5GiB"
    assert format_size(64 * 10**9, exact=True) == "64GB"
    assert format_size(1001, exact=True) == "1001B"
    assert format_size(-2000) == "-2KB"


@pytest.mark.parametrize(
    ("text", "hint"),
    [("0.5", "add a unit"), ("5GBs", "did you mean 'GB'"), ("-1", "write it as"), ("9EiB", ""), ("1e9", ""), ("", "")],
)
def test_bad_sizes(text: str, hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_size(text, field="memory")
    assert caught.value.field == "memory"
    assert hint in caught.value.hint


@given(st.integers(0, 2**31 - 1))
def test_cpu_round_trips(millicores: int) -> None:
    assert parse_cpu(format_cpu(millicores)) == millicores
    assert parse_cpu(f"{millicores}m") == millicores


def test_cpu_refusals() -> None:
    assert (parse_cpu("0.5"), parse_cpu("0.1000"), parse_cpu("8")) == (500, 100, 8000)
    assert format_cpu(-500) == "-0.5"
    for text in ("0.0005", "0.5m", "1.5.5", "-1", "99999999", "one", ""):
        with pytest.raises(ModelError):
            parse_cpu(text)


@given(st.integers(0, 2**62))
def test_exact_durations_round_trip(ms: int) -> None:
    assert parse_duration(format_duration(ms, exact=True)) == ms


@given(st.integers(1, 10**12))
def test_shown_durations_never_exceed_the_truth_and_stay_close(ms: int) -> None:
    shown = parse_duration(format_duration(ms))
    assert shown <= ms
    assert ms - shown <= max(ms / 10, 0)


def test_durations() -> None:
    assert [parse_duration(text) for text in ("90", "1h30m", "500ms", "1.5h", "2d 4h", "1w", "0")] == [
        90_000, 5_400_000, 500, 5_400_000, 187_200_000, 604_800_000, 0,
    ]  # fmt: skip
    assert parse_duration("250", default_unit="ms") == 250
    assert [format_duration(n) for n in (0, 850, 3200, 12_345, 5_400_000, 187_200_000, -1500)] == [
        "0s", "850ms", "3.2s", "12s", "1h30m", "2d4h", "-1.5s",
    ]  # fmt: skip
    for text in ("", "5x", "1m1h", "1m1m", "-3", "m", "1 2", "9" * 19 + "w"):
        with pytest.raises(ModelError):
            parse_duration(text)


def test_ages_get_coarser() -> None:
    minute, hour, day = 60_000, 3_600_000, 86_400_000
    ages = [0, 45_000, 119_000, 5 * minute + 1000, 12 * minute, 3 * hour + 20 * minute, 30 * hour, 9 * day, 800 * day]
    assert [format_age(age) for age in ages] == ["0s", "45s", "1m59s", "5m1s", "12m", "3h20m", "30h", "9d", "2y"]
    assert format_age(-5000) == "0s"


def test_an_age_and_a_duration_are_written_in_the_same_units() -> None:
    """One of 62 s in a column beside one of 1m2s in the next would be read as two different times."""
    for ms in (
        0,
        10_000,
        59_999,
        62_000,
        119_000,
        599_000,
        3_600_000,
        5_400_000,
        7 * 3_600_000 + 60_000,
        26 * 3_600_000,
    ):
        age, duration = format_age(ms), format_duration(ms)
        assert duration.startswith(age) or age.startswith("26h"), (age, duration)


@given(st.text(max_size=50) | st.from_regex(r"[0-9]{0,25}\.?[0-9]{0,25}[a-zA-Z]{0,4}", fullmatch=True))
def test_quantity_parsers_raise_only_model_errors(text: str) -> None:
    for parse in (parse_size, parse_cpu, parse_duration):
        try:
            assert 0 <= parse(text) < 2**63
        except ModelError as error:
            assert str(error).isprintable()


def test_gpu_specs() -> None:
    assert parse_gpu_spec("H100x8") == parse_gpu_spec("h100X8") == Device("gpu", "H100", 8)
    assert parse_gpu_spec("8") == Device("gpu", "", 8)
    assert parse_gpu_spec("rtx4090") == Device("gpu", "rtx4090", 1)
    assert parse_gpu_spec("rtx4090x2").count == 2
    assert [str(parse_gpu_spec(text)) for text in ("l40s", "3")] == ["L40Sx1", "gpu x3"]
    for variant in GPU_VARIANTS:
        assert parse_gpu_spec(str(Device("gpu", variant, 4))) == Device("gpu", variant, 4)
    with pytest.raises(ModelError, match="did you mean 'H100'"):
        parse_gpu_spec("H10x8")
    for text in ("", "0", "H100x0", "H100x", "x8", "H100x99999", "-1", "٣"):
        with pytest.raises(ModelError):
            parse_gpu_spec(text)


@pytest.mark.parametrize(
    ("name", "chips", "vms", "per_vm"),
    [
        ("v2-8", 4, 1, 4),
        ("v3-32", 16, 4, 4),
        ("v4-8", 4, 1, 4),
        ("v4-2048", 1024, 256, 4),
        ("v5litepod-1", 1, 1, 1),
        ("v5litepod-4", 4, 1, 4),
        ("v5litepod-8", 8, 1, 8),
        ("v5litepod-16", 16, 4, 4),
        ("v5litepod-256", 256, 64, 4),
        ("v5p-8", 4, 1, 4),
        ("v5p-384", 192, 48, 4),
        ("v6e-8", 8, 1, 8),
        ("V6E-16", 16, 4, 4),
    ],
)
def test_tpu_types(name: str, chips: int, vms: int, per_vm: int) -> None:
    spec = parse_tpu_spec(name)
    assert (spec.name, spec.chips, spec.vm_count, spec.chips_per_vm) == (name.lower(), chips, vms, per_vm)
    assert tpu_device(spec) == Device("tpu", name, per_vm)


def test_every_listed_tpu_type_parses_and_is_whole() -> None:
    for name in tpu_types():
        spec = parse_tpu_spec(name)
        assert spec.vm_count * spec.chips_per_vm == spec.chips
        assert spec.name == name
        if spec.topology:
            assert math.prod(int(side) for side in spec.topology.split("x")) == spec.chips


@pytest.mark.parametrize(
    ("name", "topology"),
    [("v5litepod-1", "1x1"), ("v5litepod-16", "4x4"), ("v5litepod-128", "8x16"), ("v2-32", "4x4"), ("v4-8", "2x2x1"),
     ("v4-16", "2x2x2"), ("v5p-32", "2x2x4"), ("v5p-128", "4x4x4"), ("v5p-256", ""), ("v5p-384", "")],
)  # fmt: skip
def test_tpu_topologies_are_told_where_there_is_one(name: str, topology: str) -> None:
    assert parse_tpu_spec(name).topology == topology


def test_tpu_near_misses_are_named() -> None:
    for text, hint in (
        ("v5litepod-12", "v5litepod-8 and v5litepod-16"),
        ("v5e-16", "did you mean 'v5litepod-16'"),
        ("v4-99999", "the nearest is v4-4096"),
        ("v4", ""),
        ("v5p-192", "v5p-128 and v5p-256"),
        ("v4-8192", "the nearest is v4-4096"),
        ("", "families are"),
    ):
        with pytest.raises(ModelError) as caught:
            parse_tpu_spec(text)
        assert hint in caught.value.hint


def test_tpu_alternatives_have_the_same_number_of_machines() -> None:
    assert [spec.name for spec in parse_tpu_specs("v5litepod-16, v6e-16")] == ["v5litepod-16", "v6e-16"]
    for text in ("v5litepod-16,v6e-8", "v6e-8,v6e-8", "v6e-8,", ","):
        with pytest.raises(ModelError):
            parse_tpu_specs(text)


@given(st.text(max_size=40))
def test_accelerator_parsers_raise_only_model_errors(text: str) -> None:
    for parse in (parse_gpu_spec, parse_tpu_spec, parse_tpu_specs):
        try:
            parse(text)
        except ModelError as error:
            assert str(error).isprintable()


@given(RESOURCES, RESOURCES)
def test_addition_undoes_subtraction_and_keeps_fit(left: Resources, right: Resources) -> None:
    total = left + right
    back = total - right
    assert (back.cpu_millicores, back.memory_bytes, back.disk_bytes) == (
        left.cpu_millicores, left.memory_bytes, left.disk_bytes,
    )  # fmt: skip
    assert back.gpu_count == left.gpu_count
    assert total.fits(left) and total.fits(right)
    assert back.fits(left)
    assert left + NO_RESOURCES == left


@given(RESOURCES, RESOURCES)
def test_fit_means_nothing_is_left_negative(capacity: Resources, request: Resources) -> None:
    rest = capacity - request
    amounts = (rest.cpu_millicores, rest.memory_bytes, rest.disk_bytes, rest.gpu_count)
    assert capacity.fits(request) == all(amount >= 0 for amount in amounts)


def test_devices_of_different_kind_or_variant_do_not_mix() -> None:
    gpus = Resources(device=Device("gpu", "H100", 8))
    assert gpus.fits(Resources(device=Device("gpu", "h100", 8)))
    assert gpus.fits(Resources(device=Device("gpu", "", 8))), "no variant means any"
    assert not gpus.fits(Resources(device=Device("gpu", "", 9)))
    assert not gpus.fits(Resources(device=Device("gpu", "A100", 1)))
    assert not gpus.fits(Resources(device=Device("tpu", "", 1)))
    assert not NO_RESOURCES.fits(Resources(device=Device("gpu", "", 1)))
    assert (gpus.gpu_count, gpus.tpu_count) == (8, 0)
    with pytest.raises(ModelError):
        gpus + Resources(device=Device("tpu", "v4-8", 4))
    with pytest.raises(ModelError):
        gpus - Resources(device=Device("gpu", "A100", 4))


def test_requests_are_checked() -> None:
    Resources(100, 10**9, 5 * 10**9, Device("gpu", "", 1)).check_request()
    for bad, field in (
        (Resources(-1), "cpu_millicores"),
        (Resources(0, -1), "memory_bytes"),
        (Resources(0, 0, 2**63), "disk_bytes"),
        (Resources(device=Device("gpu", "", 0)), "device"),
    ):
        with pytest.raises(ModelError) as caught:
            bad.check_request()
        assert caught.value.field == field
