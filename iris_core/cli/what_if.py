"""What may be thought of as different about a job, as the words of a command line: `--gpu H100x4 --region us-central1`.

`job explain` takes them as options; the console's form makes the same words, so that both ask for the same and the console can show
the command line that does.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, TypeVar

import click

from iris_core.cli.options import Whole
from iris_core.cli.run_options import MAX_REPLICAS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from iris_core.wire.gen.iris.v1 import explain_pb2

F = TypeVar("F", bound="Callable[..., Any]")

NO_DEVICE = "none"


def what_if_options(function: F) -> F:
    """What may be thought of as different."""
    for option in reversed(
        (
            click.option("--cpu", metavar="CORES", help="As if each task asked for so many cores."),
            click.option("--memory", metavar="SIZE", help="As if each task asked for so much memory."),
            click.option("--gpu", metavar="SPEC", help="As if for these GPUs, as H100x8; none = no accelerators."),
            click.option("--tpu", metavar="TYPE", help="As if for this TPU type; none = no accelerators."),
            click.option("--region", "regions", multiple=True, metavar="REGION", help="As if there (repeatable: any)."),
            click.option("--zone", metavar="ZONE", help="As if in this zone."),
            click.option(
                "--constraint",
                "constraints",
                multiple=True,
                metavar="EXPR",
                help="As if with this constraint, in place of those on the same attribute (repeatable).",
            ),
            click.option(
                "--without",
                multiple=True,
                metavar="ATTRIBUTE",
                help="As if without its constraints on this (repeatable).",
            ),
            click.option("--priority", metavar="BAND", help="As if in this band."),
            click.option("--replicas", type=Whole(1, MAX_REPLICAS), metavar="N", help="As if with so many tasks."),
        )
    ):
        function = option(function)
    return function


def what_if(
    cpu: str | None,
    memory: str | None,
    gpu: str | None,
    tpu: str | None,
    regions: Sequence[str],
    zone: str | None,
    constraints: Sequence[str],
    without: Sequence[str],
    priority: str | None,
    replicas: int | None,
) -> explain_pb2.WhatIf | None:
    """The changes that the options name, None when there are none. Raises UsageFailed, ModelError."""
    from iris_core.cli.placement import parsed_constraint
    from iris_core.model.bands import parse_band
    from iris_core.model.constraints import REGION, ZONE, canonical_key, place_constraint
    from iris_core.model.quantities import parse_cpu, parse_size
    from iris_core.wire.convert import constraint_to_wire
    from iris_core.wire.gen.iris.v1 import explain_pb2

    changes = explain_pb2.WhatIf()
    if cpu is not None:
        changes.cpu_millicores = parse_cpu(cpu, field="--cpu")
    if memory is not None:
        changes.memory_bytes = parse_size(memory, field="--memory")
    _device(changes, gpu, tpu)
    asked = [parsed_constraint(text) for text in constraints]
    asked += [place_constraint(REGION, regions)] if regions else []
    asked += [place_constraint(ZONE, [zone])] if zone else []
    changes.constraints.extend(constraint_to_wire(constraint) for constraint in asked)
    changes.without.extend(canonical_key(key) for key in without)
    if priority is not None:
        changes.priority_band = parse_band(priority).value  # type: ignore[assignment]
    changes.replicas = replicas or 0
    return changes if changes.ByteSize() else None


def _device(changes: explain_pb2.WhatIf, gpu: str | None, tpu: str | None) -> None:
    from iris_core.contracts import UsageFailed
    from iris_core.model.resources import parse_gpu_spec, parse_tpu_spec, tpu_device

    if gpu and tpu:
        raise UsageFailed("--gpu and --tpu exclude each other", hint="give one of them")
    if NO_DEVICE in (gpu, tpu):
        changes.device.count = 0
        changes.device.SetInParent()
        return
    if not gpu and not tpu:
        return
    device = parse_gpu_spec(gpu) if gpu else tpu_device(parse_tpu_spec(tpu or ""))
    changes.device.kind = device.kind
    changes.device.variant = device.variant
    changes.device.count = device.count


@click.command("what-if", add_help_option=False)
@what_if_options
def _words(**values: Any) -> None:
    """Only its parser is used."""


def from_words(words: Sequence[str]) -> explain_pb2.WhatIf | None:
    """The changes that the words of a command line ask for, None when there are none. Raises ModelError."""
    from iris_core.contracts import UsageFailed
    from iris_core.model.errors import ModelError

    try:
        context = _words.make_context("what-if", list(words))
        return what_if(**context.params)
    except click.ClickException as error:
        raise ModelError(error.format_message()) from None
    except UsageFailed as error:
        raise ModelError(error.message, hint=error.hint) from None


def split(text: str) -> list[str]:
    """A text as words of a command line. Raises ModelError for an open quote."""
    from iris_core.model.errors import ModelError

    try:
        return shlex.split(text)
    except ValueError as error:
        raise ModelError(f"{error}".lower()) from None
