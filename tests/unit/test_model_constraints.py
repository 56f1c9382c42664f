"""Constraints: canonical values, what each operator means, the text form, merging."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.model.constraints import (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    Constraint,
    Mode,
    Op,
    canonical,
    canonical_attributes,
    check_well_known,
    device_constraints,
    merge_constraints,
    parse_attributes,
    parse_constraint,
)
from iris_core.model.errors import ModelError
from iris_core.model.resources import Device, Resources

KEYS = st.sampled_from(["region", "zone", "slots", "tpu-name", "availability:h100"])
TEXTS = st.text(max_size=12).filter(lambda text: text.strip().lower().isprintable())
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = TEXTS | NUMBERS | st.sampled_from(["4", "4.0", "4.5", "EU ", "eu", "true", "-0", "007", "1e+16", "nan"])
ORDERINGS = (Op.GT, Op.GE, Op.LT, Op.LE)


@st.composite
def constraints(draw: st.DrawFn) -> Constraint:
    op = draw(st.sampled_from(list(Op)))
    key, mode = draw(KEYS), draw(st.sampled_from(list(Mode)))
    if op in (Op.EXISTS, Op.NOT_EXISTS):
        return Constraint(key, op, (), mode)
    if op is Op.IN:
        return Constraint(key, op, tuple(draw(st.lists(VALUES, min_size=1, max_size=4))), mode)
    return Constraint(key, op, (draw(NUMBERS if op in ORDERINGS else VALUES),), mode)


@given(VALUES)
def test_canonical_is_stable(value: str | int | float) -> None:
    once = canonical(value)
    assert canonical(once) == once
    assert canonical(str(once)) == once, "a value and its text are the same value"


def test_canonical_unites_what_people_mean() -> None:
    assert canonical(" EU ") == canonical("eu") == "eu"
    assert canonical("4") == canonical(4) == canonical(4.0)
    assert canonical("4.5") == 4.5
    assert canonical("007") == "007"
    assert canonical("1_000") == "1_000"
    assert canonical(True) == canonical("True") == "true"


@given(constraints())
def test_text_form_round_trips(constraint: Constraint) -> None:
    assert parse_constraint(str(constraint), mode=constraint.mode) == constraint


def as_number(value: str | int | float | None) -> int | float | None:
    """Text counts as a number in an ordering when it is a plain decimal, however it is padded."""
    if isinstance(value, str):
        return float(value) if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", value) else None
    return value


@given(constraints(), st.dictionaries(KEYS, VALUES, max_size=4))
def test_matching_agrees_with_a_plain_reading(constraint: Constraint, attributes: dict[str, str | int | float]) -> None:
    value = canonical(attributes[constraint.key]) if constraint.key in attributes else None
    wanted = constraint.values
    left, right = as_number(value), as_number(wanted[0] if wanted else None)
    is_ordered = left is not None and right is not None
    left, right = left or 0, right or 0
    expected = {
        Op.EXISTS: value is not None,
        Op.NOT_EXISTS: value is None,
        Op.EQ: value is not None and value in wanted,
        Op.IN: value is not None and value in wanted,
        Op.NE: value is None or value not in wanted,
        Op.GT: is_ordered and left > right,
        Op.GE: is_ordered and left >= right,
        Op.LT: is_ordered and left < right,
        Op.LE: is_ordered and left <= right,
    }[constraint.op]
    assert constraint.matches(attributes) == expected
    assert constraint.matches(canonical_attributes(attributes)) == expected


@pytest.mark.parametrize(
    ("sign", "below", "at", "above"),
    [(">", False, False, True), (">=", False, True, True), ("<", True, False, False), ("<=", True, True, False)],
)
def test_orderings_at_their_bound(sign: str, below: bool, at: bool, above: bool) -> None:
    constraint = parse_constraint(f"gpu-count{sign}4")
    assert [constraint.matches({"gpu-count": n}) for n in (3, 4, "5")] == [below, at, above]


def test_decimal_text_can_be_ordered() -> None:
    assert parse_constraint("version>=4").matches({"version": "4.50"})
    assert not parse_constraint("version>=4").matches({"version": "latest"})
    assert not parse_constraint("version>=4").matches({})


@pytest.mark.parametrize(
    ("text", "op", "values"),
    [
        ("region=EU", Op.EQ, ("eu",)),
        ("Region == eu", Op.EQ, ("eu",)),
        ("region=eu, us", Op.IN, ("eu", "us")),
        ("region=eu,", Op.IN, ("eu",)),
        ("region!=eu", Op.NE, ("eu",)),
        ("gpu-count>=4", Op.GE, (4,)),
        ("gpu-count<0.5", Op.LT, (0.5,)),
        ("tpu-name", Op.EXISTS, ()),
        ("!tpu-name", Op.NOT_EXISTS, ()),
        ('zone="a,b"', Op.EQ, ("a,b",)),
        ('zone=""', Op.EQ, ("",)),
        ("availability:v4-8=true", Op.EQ, ("true",)),
    ],
)
def test_text_forms(text: str, op: Op, values: tuple[str | int | float, ...]) -> None:
    constraint = parse_constraint(text)
    assert (constraint.op, constraint.values, constraint.mode) == (op, values, Mode.REQUIRED)


@pytest.mark.parametrize(
    "text",
    ["", "=eu", "region=", "region=,eu", "region!=eu,us", "gpu-count>x", "gpu-count>1,2", "!region=eu", 'a="x', 'a="x"y',
     "a b", "a=\x1b", "x" * 300, "a=" + "x" * 300],
)  # fmt: skip
def test_bad_texts_are_refused(text: str) -> None:
    with pytest.raises(ModelError) as caught:
        parse_constraint(text)
    assert str(caught.value).isprintable()


@given(st.text(alphabet='ab=<>!,"\\ 1.\x00é', max_size=20) | st.text(max_size=30))
def test_parsing_raises_only_model_errors(text: str) -> None:
    for parse in (parse_constraint, parse_attributes):
        try:
            parse(text)
        except ModelError as error:
            assert "\n" not in str(error)


def test_arity_is_checked() -> None:
    for op, values in (
        (Op.EQ, ()),
        (Op.EQ, ("a", "b")),
        (Op.IN, ()),
        (Op.EXISTS, ("a",)),
        (Op.GT, ("a",)),
        (Op.EQ, (float("nan"),)),
        (Op.EQ, (2**63,)),
    ):
        with pytest.raises(ModelError):
            Constraint("region", op, values)
    assert Constraint("region", Op.IN, ("eu", "EU")).values == ("eu",)


def test_worker_attributes() -> None:
    assert parse_attributes("") == {}
    assert parse_attributes("Region=EU, pool=a ,n=4") == {"region": "eu", "pool": "a", "n": 4}
    for text in ("region", "a=1,A=2", "=x", "a=1,,b=2"):
        with pytest.raises(ModelError):
            parse_attributes(text)
    with pytest.raises(ModelError):
        canonical_attributes({"a": 1, "A": 2})


def test_device_constraints_follow_from_the_request() -> None:
    assert device_constraints(Resources(1000)) == ()
    gpus = Resources(device=Device("gpu", "H100", 8))
    assert [str(c) for c in device_constraints(gpus)] == ["device-type=gpu", "device-variant=h100"]
    any_gpu = Resources(device=Device("gpu", "", 1))
    assert [str(c) for c in device_constraints(any_gpu)] == ["device-type=gpu"]
    tpu = Resources(device=Device("tpu", "v5litepod-16", 4))
    either = device_constraints(tpu, ["v5litepod-16", "v6e-16"])
    assert either[1].op is Op.IN
    assert either[1].matches({DEVICE_VARIANT: "v6e-16"})


def test_an_explicit_constraint_replaces_the_derived_one_on_its_key() -> None:
    derived = device_constraints(Resources(device=Device("gpu", "H100", 8)))
    user = (parse_constraint("zone=a"), parse_constraint("Device-Variant=h200,h100"))
    merged = merge_constraints(user, derived)
    assert [c.key for c in merged] == ["zone", DEVICE_VARIANT, DEVICE_TYPE]
    assert merged[1].op is Op.IN


@pytest.mark.parametrize(
    "text", ["gpu-count=many", "tpu-worker-id=1.5", "preemptible=maybe", "preemptible=1", "region>3", "zone<=2"]
)
def test_a_well_known_attribute_is_of_its_kind(text: str) -> None:
    with pytest.raises(ModelError):
        check_well_known(parse_constraint(text))
    if "=" in text and ">" not in text and "<" not in text:
        with pytest.raises(ModelError):
            canonical_attributes(dict([text.split("=")]))


@pytest.mark.parametrize(
    "text", ["gpu-count>=4", "tpu-worker-id=0,1", "preemptible!=TRUE", "region=3", "!preemptible", "mine>3"]
)
def test_what_a_well_known_attribute_can_be_is_let_through(text: str) -> None:
    check_well_known(parse_constraint(text))
