"""TPU slice types: how many chips and virtual machines a name such as ``v5litepod-16`` means.

Computed by rule, family by family, because the names follow rules and a table
of hundreds of literals would hide a wrong one. A family counts either chips or
tensor cores (two per chip) in its names; a slice that fits one machine may
have 1, 4 or 8 chips where the family offers such machines, and larger ones are made of
machines with four chips.

Source: Google's public documentation of TPU configurations, as published for v2 to v6e.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from iris_core.model.errors import ModelError, did_you_mean, shown

_CHIPS_PER_VM: Final = 4


@dataclass(frozen=True, slots=True)
class TpuSpec:
    """One slice type.

    Attributes:
        name: The canonical name, lower case, such as ``v4-2048``.
        chips: Chips in the whole slice.
        vm_count: Machines (and so tasks) the slice consists of.
        chips_per_vm: Chips on each machine.
    """

    name: str
    chips: int
    vm_count: int
    chips_per_vm: int
    topology: str = ""
    """How the chips lie beside each other, as ``4x4`` or ``2x2x4``; empty where several shapes are usual."""


@dataclass(frozen=True, slots=True)
class _Family:
    """``cores_per_chip`` is what one chip counts for in the name; ``torus3d``
    families grow in cubes of 64 chips beyond the first, the others double."""

    cores_per_chip: int
    single_host_chips: tuple[int, ...]
    max_chips: int
    torus3d: bool = False

    def chip_counts(self) -> list[int]:
        counts = list(self.single_host_chips)
        chips = 8 if self.torus3d else 16
        while chips <= self.max_chips:
            counts.append(chips)
            chips = chips + 64 if self.torus3d and chips >= 64 else chips * 2
        return counts

    def topology(self, chips: int) -> str:
        if chips & (chips - 1) or (self.torus3d and chips > 64):
            return ""
        sides = [1, 1, 1] if self.torus3d else [1, 1]
        while math.prod(sides) < chips:
            sides[sides.index(min(sides))] *= 2
        return "x".join(str(side) for side in sorted(sides, key=lambda side: (side == 1, side)))


_FAMILIES: Final[dict[str, _Family]] = {
    "v2": _Family(2, (4,), 256),
    "v3": _Family(2, (4,), 1024),
    "v4": _Family(2, (4,), 2048, torus3d=True),
    "v5litepod": _Family(1, (1, 4, 8), 256),
    "v5p": _Family(2, (4,), 6144, torus3d=True),
    "v6e": _Family(1, (1, 4, 8), 256),
}
_NICKNAMES: Final = {"v5e": "v5litepod", "v5lite": "v5litepod", "v5": "v5p", "v6": "v6e"}

_NAME_RE = re.compile(r"([a-z][a-z0-9]{0,15})-([0-9]{1,9})")


def is_tpu(name: str) -> bool:
    """Whether that is the name of a slice type."""
    try:
        parse_tpu_spec(name)
    except ModelError:
        return False
    return True


def parse_tpu_spec(text: str) -> TpuSpec:
    """Look up a slice type such as ``v5litepod-16``; case does not matter.

    Raises:
        ModelError: no such family or size; the hint has the closest names.
    """
    name = text.strip().lower()
    match = _NAME_RE.fullmatch(name)
    family = _FAMILIES.get(match[1]) if match is not None else None
    if match is None or family is None:
        raise _unknown(text, name)
    size = int(match[2])
    counts = family.chip_counts()
    if size % family.cores_per_chip or size // family.cores_per_chip not in counts:
        raise ModelError(
            f"no TPU type {shown(text)}",
            field="tpu",
            hint=_nearest_sizes(match[1], size, [n * family.cores_per_chip for n in counts]),
        )
    chips = size // family.cores_per_chip
    per_vm = chips if chips in family.single_host_chips else _CHIPS_PER_VM
    return TpuSpec(f"{match[1]}-{size}", chips, chips // per_vm, per_vm, family.topology(chips))


def parse_tpu_specs(text: str) -> tuple[TpuSpec, ...]:
    """Parse a comma list of alternatives, best first; all must have the same ``vm_count``.

    Raises:
        ModelError: an unknown type, a type named twice, or types of different ``vm_count``.
    """
    specs = tuple(parse_tpu_spec(part) for part in text.split(","))
    if len(set(specs)) != len(specs):
        raise ModelError(f"{shown(text)} names a TPU type twice", field="tpu")
    if len({spec.vm_count for spec in specs}) > 1:
        sizes = ", ".join(f"{spec.name} has {spec.vm_count}" for spec in specs)
        raise ModelError(
            f"alternative TPU types must have the same number of machines: {sizes}"[:400],
            field="tpu",
        )
    return specs


def tpu_types() -> list[str]:
    """Every known slice type, by family and size (for completion)."""
    return [
        f"{name}-{chips * family.cores_per_chip}"
        for name, family in _FAMILIES.items()
        for chips in family.chip_counts()
    ]


def _nearest_sizes(family: str, size: int, sizes: list[int]) -> str:
    below = [n for n in sizes if n < size]
    above = [n for n in sizes if n > size]
    near = [f"{family}-{n}" for n in below[-1:] + above[:1]]
    return f"the nearest are {' and '.join(near)}" if len(near) > 1 else f"the nearest is {near[0]}"


def _unknown(text: str, name: str) -> ModelError:
    family, dash, size = name.partition("-")
    known = _NICKNAMES.get(family)
    hint = f"did you mean {known + dash + size!r}?" if known and len(size) < 10 else ""
    return ModelError(
        f"no TPU type {shown(text)}",
        field="tpu",
        hint=hint or did_you_mean(name, tpu_types()) or f"families are {', '.join(_FAMILIES)}",
    )
