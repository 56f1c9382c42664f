"""Placement constraints: which workers a job may, or would rather, run on.

A constraint compares one worker attribute with values. All constraints of a job must
hold; a PREFERRED one only ranks (control-plane §2.5).

Attributes and values meet in one canonical form, made by ``canonical``, so that
equality is plain ``==`` and values can be keys of an index: text is trimmed and
lower-cased, and text that is exactly how a number is written is that number. An
operator's ``region=EU`` and a worker's ``eu`` are equal, and so are ``4`` and ``"4"``.
Keys are lower case too; ``canonical_attributes`` prepares a worker's whole mapping.

``NE`` is the negation of ``EQ``: it also holds for a worker without the attribute. The ordering operators
want numbers and never hold for text or for a missing attribute.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from iris_core.model.errors import ModelError, shown
from iris_core.model.quoting import quote, read_quoted

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from iris_core.model.resources import Resources


DEVICE_TYPE: Final = "device-type"
DEVICE_VARIANT: Final = "device-variant"
PREEMPTIBLE: Final = "preemptible"
REGION: Final = "region"
ZONE: Final = "zone"
TPU_NAME: Final = "tpu-name"
TPU_WORKER_ID: Final = "tpu-worker-id"
TPU_TOPOLOGY: Final = "tpu-topology"
TPU_VM_COUNT: Final = "tpu-vm-count"
GPU_VARIANT: Final = "gpu-variant"
GPU_COUNT: Final = "gpu-count"

WELL_KNOWN: Final = (
    DEVICE_TYPE,
    DEVICE_VARIANT,
    PREEMPTIBLE,
    REGION,
    ZONE,
    TPU_NAME,
    TPU_WORKER_ID,
    TPU_TOPOLOGY,
    TPU_VM_COUNT,
    GPU_VARIANT,
    GPU_COUNT,
)
"""Attributes whose meaning Iris knows; a worker may have any others."""

AVAILABILITY: Final = "availability:"
"""`availability:<variant>` marks the workers of a zone where that accelerator has been obtained (control-plane §3.8)."""

ROUTING_KEYS: Final = frozenset({DEVICE_TYPE, DEVICE_VARIANT, PREEMPTIBLE, REGION, ZONE})
"""Attributes that scale groups are chosen by as well as workers."""

MAX_CONSTRAINTS: Final = 100
"""Of one job: each is held against every worker."""
MAX_VALUES: Final = 256
MAX_TEXT: Final = 256
"""Longest key and longest text value, in characters."""


class Op(IntEnum):
    """How an attribute is compared."""

    EQ = 1
    NE = 2
    EXISTS = 3
    NOT_EXISTS = 4
    GT = 5
    GE = 6
    LT = 7
    LE = 8
    IN = 9


class Mode(IntEnum):
    """Whether a constraint excludes workers or ranks them."""

    REQUIRED = 1
    PREFERRED = 2


_NUMBERS: Final = frozenset({TPU_WORKER_ID, TPU_VM_COUNT, GPU_COUNT})
_ORDERING: Final = frozenset({Op.GT, Op.GE, Op.LT, Op.LE})
_SYMBOLS: Final = {Op.EQ: "=", Op.NE: "!=", Op.GT: ">", Op.GE: ">=", Op.LT: "<", Op.LE: "<=", Op.IN: "="}
_INTEGER_RE = re.compile(r"-?[1-9][0-9]{0,18}|0")
_FLOAT_RE = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:e[+-][0-9]{2,3})?")
_DECIMAL_RE = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?")
_KEY_RE = re.compile(r"[a-z0-9_][a-z0-9_.:/@+-]*")
_PLAIN_VALUE_RE = re.compile(r'[^\s",=<>!]+')
_TEXT_RE = re.compile(r"\s*(!?)\s*([A-Za-z0-9_][A-Za-z0-9_.:/@+-]*)\s*(!=|==|>=|<=|=|>|<|\Z)")


@dataclass(frozen=True, slots=True)
class Constraint:
    """One comparison with a worker attribute; key and values are canonical after construction.

    Raises:
        ModelError: a malformed key, the wrong number of values for the operator
            (none for EXISTS and NOT_EXISTS, at least one for IN, else exactly one), text where an
            ordering wants a number, or a value that is not finite or too long.
    """

    key: str
    op: Op
    values: tuple[str | int | float, ...] = ()
    mode: Mode = Mode.REQUIRED

    def __post_init__(self) -> None:
        key = canonical_key(self.key)
        values = tuple(_checked(value, key) for value in self.values)
        if self.op is Op.IN:
            values = tuple(dict.fromkeys(values))
        _check_arity(key, self.op, values)
        object.__setattr__(self, "key", key)
        object.__setattr__(self, "values", values)

    def matches(self, attributes: Mapping[str, str | int | float]) -> bool:
        """Whether the worker with these attributes satisfies this constraint.

        Keys of ``attributes`` must be canonical (see ``canonical_attributes``); values may be raw.
        """
        raw = attributes.get(self.key)
        op = self.op
        if raw is None:
            return op is Op.NOT_EXISTS or op is Op.NE
        if op is Op.EXISTS or op is Op.NOT_EXISTS:
            return op is Op.EXISTS
        value = canonical(raw)
        if op in _ORDERING:
            return _ordered(op, value, self.values[0])
        return (value in self.values) is not (op is Op.NE)

    def __str__(self) -> str:
        """The text form, which ``parse_constraint`` reads back (without the mode)."""
        if self.op is Op.EXISTS:
            return self.key
        if self.op is Op.NOT_EXISTS:
            return f"!{self.key}"
        values = ",".join(_value_text(value) for value in self.values)
        comma = "," if self.op is Op.IN and len(self.values) == 1 else ""
        return f"{self.key}{_SYMBOLS[self.op]}{values}{comma}"


def canonical(value: str | int | float) -> str | int | float:
    """Return the one form in which equal attribute values are ``==`` and hash alike."""
    if isinstance(value, str):
        return _canonical_text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def canonical_key(key: str) -> str:
    """Trim and lower-case an attribute's name.

    Raises:
        ModelError: empty, too long, or a character no attribute name has.
    """
    name = key.strip().lower()
    if _KEY_RE.fullmatch(name) and len(name) <= MAX_TEXT:
        return name
    raise ModelError(
        f"{shown(key)} is not an attribute name",
        field="constraint",
        hint="use letters, digits and _.:/@+-",
    )


def canonical_attributes(attributes: Mapping[str, str | int | float]) -> dict[str, str | int | float]:
    """Prepare a worker's attributes for ``matches`` and for an index.

    Raises:
        ModelError: a malformed key or value, two keys that differ only in case, or a value that a well-known attribute
            cannot have.
    """
    result: dict[str, str | int | float] = {}
    for key, value in attributes.items():
        name = canonical_key(key)
        if name in result:
            raise ModelError(f"the attribute {shown(name)} is given twice", field="attributes")
        result[name] = _checked(value, name)
        _check_kind(name, (result[name],), "attributes")
    return result


def parse_attributes(text: str) -> dict[str, str | int | float]:
    """Parse a worker's ``k=v,k2=v2``. The empty text has no attributes.

    Raises:
        ModelError: a part without ``=``, a malformed key, or a key given twice.
    """
    result: dict[str, str | int | float] = {}
    for part in text.split(",") if text.strip() else ():
        key, equals, value = part.partition("=")
        name = canonical_key(key)
        if not equals or name in result:
            problem = "is given twice" if equals else "has no value"
            raise ModelError(f"the attribute {shown(name)} {problem}", field="attributes", hint="write k=v,k2=v2")
        result[name] = _checked(value, name)
    return result


def parse_constraint(text: str, *, mode: Mode = Mode.REQUIRED) -> Constraint:
    """Parse the text form: ``region=eu``, ``region=eu,us`` (any of), ``region!=eu``,
    ``gpu-count>=4``, ``tpu-name`` (exists), ``!tpu-name`` (does not).

    A value with a blank, a comma, an operator character or a quote is put in double quotes. A trailing comma
    keeps a single value a list.

    Raises:
        ModelError: not of that form, or a constraint that ``Constraint`` refuses.
    """
    match = _TEXT_RE.match(text)
    if match is None:
        raise _bad_text(text, "it does not start with an attribute name and an operator", 0)
    negated, key, symbol = match.groups()
    if not symbol:
        return Constraint(key, Op.NOT_EXISTS if negated else Op.EXISTS, (), mode)
    if negated:
        raise _bad_text(text, "'!' goes before a name alone", match.start(1), f"write {key}!=…")
    values, is_list = _read_values(text, match.end())
    if symbol in ("=", "=="):
        return Constraint(key, Op.IN if is_list else Op.EQ, values, mode)
    op = next(op for op, sign in _SYMBOLS.items() if sign == symbol)
    if is_list:
        raise _bad_text(text, f"{symbol} takes one value", match.start(3), "write one constraint per value")
    return Constraint(key, op, values, mode)


def device_constraints(resources: Resources, alternatives: Sequence[str] = ()) -> tuple[Constraint, ...]:
    """Constraints that follow from the accelerators asked for.

    CPU work gets none: it fits anywhere. ``alternatives`` are TPU types any of which will
    do; without them the device's own variant counts, if it has one.
    """
    device = resources.device
    if device is None or device.count <= 0:
        return ()
    derived = [Constraint(DEVICE_TYPE, Op.EQ, (device.kind,))]
    variants = tuple(alternatives) or ((device.variant,) if device.variant else ())
    if len(variants) == 1:
        derived.append(Constraint(DEVICE_VARIANT, Op.EQ, variants))
    elif variants:
        derived.append(Constraint(DEVICE_VARIANT, Op.IN, variants))
    return tuple(derived)


def place_constraint(key: str, places: Sequence[str]) -> Constraint:
    """One region or zone is EQ, several are IN (control-plane §2.5).

    Raises:
        ModelError: a place that no attribute can have.
    """
    return Constraint(key, Op.EQ if len(places) == 1 else Op.IN, tuple(places))


def preemptible_constraint(wanted: bool) -> Constraint:
    """Machines that may be taken away: wanted ranks them first, unwanted rules them out (control-plane §2.5).

    A machine that says nothing about it counts as one that stays.
    """
    if wanted:
        return Constraint(PREEMPTIBLE, Op.EQ, ("true",), Mode.PREFERRED)
    return Constraint(PREEMPTIBLE, Op.NE, ("true",))


def check_well_known(constraint: Constraint) -> None:
    """Whether the values can be those of the attribute, where that is one whose meaning is known.

    Raises:
        ModelError: text where the attribute is a number, an order of what has none, or not a truth value.
    """
    key = constraint.key
    if key not in WELL_KNOWN:
        return
    if key not in _NUMBERS and constraint.op in _ORDERING:
        raise ModelError(f"{key} is text and has no order", field="constraint", hint=f"write {key}=VALUE")
    _check_kind(key, constraint.values, "constraint")


def _check_kind(key: str, values: Sequence[str | int | float], field: str) -> None:
    for value in values:
        if key in _NUMBERS and not isinstance(value, int):
            raise ModelError(f"{key} is a whole number, not {shown(str(value))}", field=field)
        if key == PREEMPTIBLE and value not in ("true", "false"):
            raise ModelError(f"{key} is true or false, not {shown(str(value))}", field=field)


def merge_constraints(user: Iterable[Constraint], derived: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Join both, the user's first in their order; one on a key replaces all derived on that key."""
    asked = tuple(user)
    keys = {constraint.key for constraint in asked}
    return asked + tuple(constraint for constraint in derived if constraint.key not in keys)


@lru_cache(maxsize=4096)
def _canonical_text(text: str) -> str | int | float:
    trimmed = text.strip().lower()
    if _INTEGER_RE.fullmatch(trimmed) and -(2**63) <= int(trimmed) < 2**63:
        return int(trimmed)
    if _FLOAT_RE.fullmatch(trimmed) and str(float(trimmed)) == trimmed:
        return float(trimmed)
    return trimmed


def _number(value: str | int | float) -> int | float | None:
    if not isinstance(value, str):
        return value
    return float(value) if _DECIMAL_RE.fullmatch(value) else None


def _ordered(op: Op, value: str | int | float, bound: str | int | float) -> bool:
    left, right = _number(value), _number(bound)
    if left is None or right is None:
        return False
    if op is Op.GT:
        return left > right
    if op is Op.GE:
        return left >= right
    if op is Op.LT:
        return left < right
    return left <= right


def _checked(value: str | int | float, key: str) -> str | int | float:
    result = canonical(value)
    if isinstance(result, str):
        if len(result) > MAX_TEXT:
            raise ModelError(f"the value of {key} is longer than {MAX_TEXT} characters", field="constraint")
        if not result.isprintable():
            raise ModelError(f"the value {shown(result)} of {key} has unprintable characters", field="constraint")
    elif not math.isfinite(result) or (isinstance(result, int) and not -(2**63) <= result < 2**63):
        raise ModelError(f"the value of {key} is out of range", field="constraint")
    return result


def _check_arity(key: str, op: Op, values: tuple[str | int | float, ...]) -> None:
    if op in (Op.EXISTS, Op.NOT_EXISTS):
        if values:
            raise ModelError(f"the constraint on {key} takes no value", field="constraint")
        return
    if not values or (len(values) > 1 and op is not Op.IN) or len(values) > MAX_VALUES:
        wanted = f"1 to {MAX_VALUES} values" if op is Op.IN else "exactly one value"
        raise ModelError(f"the constraint on {key} takes {wanted}, not {len(values)}", field="constraint")
    if op in _ORDERING and _number(values[0]) is None:
        raise ModelError(
            f"the constraint on {key} compares with {shown(str(values[0]))}, which is not a number",
            field="constraint",
        )


def _value_text(value: str | int | float) -> str:
    if not isinstance(value, str):
        return str(value)
    return value if _PLAIN_VALUE_RE.fullmatch(value) else quote(value)


def _read_values(text: str, position: int) -> tuple[tuple[str, ...], bool]:
    """Read a comma list from ``position`` to the end; also whether it is a list."""
    values: list[str] = []
    is_list = False
    while True:
        while text[position : position + 1].isspace():
            position += 1
        if text[position : position + 1] == '"':
            value, _, position = read_quoted(text, position, "constraint")
        else:
            end = text.find(",", position)
            value, position = (text[position:], len(text)) if end < 0 else (text[position:end], end)
            value = value.strip()
            if not value:
                raise _bad_text(text, "a value is missing", position)
        values.append(value)
        rest = text[position:].lstrip()
        if not rest:
            return tuple(values), is_list
        if rest[0] != ",":
            raise _bad_text(text, "something follows a quoted value", len(text) - len(rest))
        is_list = True
        position = len(text) - len(rest) + 1
        if not text[position:].strip():
            return tuple(values), True


def _bad_text(text: str, problem: str, position: int, hint: str = "") -> ModelError:
    return ModelError(
        f"{shown(text)} is not a constraint: {problem}",
        field="constraint",
        position=position,
        hint=hint or "write it as region=eu,us or gpu-count>=4",
    )
