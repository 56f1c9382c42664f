"""Where a job may run: the constraints, the gang and the band that the options of `job run` mean (control-plane §2.2, §2.5).

Must never look at the fleet: whether any worker is like that is the controller's to say.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from iris_core.contracts import UsageFailed
from iris_core.model.bands import PriorityBand, is_system_reason, parse_band
from iris_core.model.constraints import (
    AVAILABILITY,
    MAX_CONSTRAINTS,
    PREEMPTIBLE,
    REGION,
    TPU_NAME,
    ZONE,
    Constraint,
    Mode,
    Op,
    canonical_key,
    check_well_known,
    parse_constraint,
    place_constraint,
    preemptible_constraint,
)
from iris_core.model.errors import ModelError, did_you_mean, shown
from iris_core.model.resources import parse_gpu_spec
from iris_core.model.tpu import parse_tpu_spec

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from iris_core.cli.run_options import RunOptions

POOL: Final = "pool"
"""Of GPU workers that a gang may span."""
NONE: Final = "none"
SMALL_CPU_MILLICORES: Final = 1_000
SMALL_MEMORY: Final = 4_000_000_000
_COUNTED = re.compile(r"[0-9]{1,9}:(.+)")


def constraints_of(options: RunOptions, cpu_millicores: int, memory_bytes: int) -> list[Constraint]:
    """What the options ask of workers. Raises UsageFailed, ModelError."""
    asked = [parsed_constraint(text, "--constraint", Mode.REQUIRED) for text in options.constraints]
    asked += [parsed_constraint(text, "--prefer", Mode.PREFERRED) for text in options.preferences]
    if options.regions:
        asked.append(place_constraint(REGION, options.regions))
    if options.zone:
        asked.append(place_constraint(ZONE, [options.zone]))
    asked += [Constraint(AVAILABILITY + _variant(text), Op.EXISTS) for text in options.reserve]
    if options.preemptible is not None:
        asked.append(preemptible_constraint(options.preemptible))
    elif (
        _is_small(options, cpu_millicores, memory_bytes)
        and all(c.key != PREEMPTIBLE for c in asked)
        and len(asked) < MAX_CONSTRAINTS  # a preference is no reason to refuse a job
    ):
        # A small CPU job is usually what steers larger ones: it had better not vanish.
        asked.append(Constraint(PREEMPTIBLE, Op.NE, ("true",), Mode.PREFERRED))
    return asked


def parsed_constraint(text: str, option: str = "--constraint", mode: Mode = Mode.REQUIRED) -> Constraint:
    """One constraint as it was typed behind that option. Raises ModelError."""
    try:
        constraint = parse_constraint(text, mode=mode)
        check_well_known(constraint)
    except ModelError as error:
        raise ModelError(error.message, field=option, position=error.position, hint=error.hint) from None
    return constraint


def _is_small(options: RunOptions, cpu_millicores: int, memory_bytes: int) -> bool:
    accelerated = options.gpu or options.tpu
    return not accelerated and cpu_millicores <= SMALL_CPU_MILLICORES and memory_bytes < SMALL_MEMORY


def _variant(text: str) -> str:
    """The accelerator of `[N:]DEVICE`."""
    counted = _COUNTED.fullmatch(text.strip())
    name = counted[1] if counted is not None else text.strip()
    try:
        variant = parse_gpu_spec(name).variant
    except ModelError as error:
        try:
            return parse_tpu_spec(name).name
        except ModelError as other:
            hint = error.hint if error.hint.startswith("did") else other.hint
            raise UsageFailed(f"--reserve {shown(text)} names no accelerator", hint=hint) from None
    if not variant:
        raise UsageFailed(f"--reserve {shown(text)} names no accelerator", hint="as in --reserve H100 or v5litepod-16")
    return variant


def check_places(options: RunOptions, regions: Iterable[str], zones: Iterable[str]) -> None:
    """Against what a cluster file knows. Raises UsageFailed: it names regions or zones, and none is the one asked for."""
    for option, asked, known in (("--region", options.regions, regions), ("--zone", [options.zone], zones)):
        names = sorted({name.lower() for name in known if name})
        for place in asked:
            if names and place and place.strip().lower() not in names:
                near = did_you_mean(place.strip(), names)
                raise UsageFailed(
                    f"{option} {shown(place)} is no place of this cluster", hint=near or f"one of {', '.join(names)}"
                )


def group_of(options: RunOptions, slice_machines: int, tasks: int) -> str:
    """The attribute that the workers of a gang share, "" = each task is placed by itself. Raises ModelError."""
    if options.group_by is not None:
        return "" if options.group_by == NONE else canonical_key(options.group_by)
    if options.tpu and slice_machines > 1:
        return TPU_NAME
    return POOL if options.gpu and tasks > 1 else ""


def check_replicas(options: RunOptions, slice_machines: int) -> None:
    """Raises UsageFailed: a gang on one slice has as many tasks as that has machines."""
    if (
        options.tpu
        and options.group_by is None
        and slice_machines > 1
        and options.replicas not in (None, slice_machines)
    ):
        raise UsageFailed(
            f"a {options.tpu} slice has {slice_machines} machines, and --replicas is {options.replicas}",
            hint="leave --replicas out, or say --group-by none if the tasks may run apart",
        )


def band_of(options: RunOptions) -> PriorityBand:
    """The band; INHERIT when none was given. Raises UsageFailed, ModelError."""
    band = parse_band(options.priority) if options.priority else PriorityBand.INHERIT
    if band is PriorityBand.SYSTEM and not is_system_reason(options.system_reason):
        raise UsageFailed(
            "--priority system needs --system-reason with the word hero, finelog or iris",
            hint="system work comes before everybody's: production is the band for critical work",
        )
    if options.system_reason and band is not PriorityBand.SYSTEM:
        raise UsageFailed("--system-reason goes with --priority system")
    return band


def places_of(groups: Iterable[tuple[str, str]]) -> tuple[Sequence[str], Sequence[str]]:
    """Regions and zones of (region, zone) pairs."""
    pairs = list(groups)
    return [region for region, _ in pairs], [zone for _, zone in pairs]
