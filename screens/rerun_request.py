"""What the form of a rerun comes to: the request with what was changed, and the words of `job rerun` that do the same.

Only what was changed is in it; everything else, secret values included, the server takes from the original. A secret word of the
command is shown as a marker and stays what it is while the command is left alone. Pure. Must never send a marker.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.live.placed_again import others_of, parse_constraints, place_of, placed_again
from iris_core.live.run_line import seconds_text
from iris_core.model.bands import band_label, parse_band
from iris_core.model.constraints import REGION, ZONE, Mode
from iris_core.model.errors import ModelError, shown
from iris_core.model.ids import check_component
from iris_core.model.quantities import format_cpu, format_size, parse_cpu, parse_size

if TYPE_CHECKING:
    from iris_core.model.constraints import Constraint
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

MARKER: Final = "[redacted"
PREEMPTIONS: Final = 100
"""Retries after a preemption of a job that does not say."""


@dataclass(frozen=True, slots=True)
class Rerun:
    """What the form came to: the request, and the words of the command line that does the same."""

    request: pb.LaunchJobRequest
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """A line of the form: its name is that of the option, but for `name`, `command` and `env`."""

    id: str
    label: str


FIELDS: Final = (
    Field("name", "Name"),
    Field("command", "Command"),
    Field("env", "Variables: KEY=VALUE, -KEY"),
    Field("replicas", "Tasks"),
    Field("cpu", "CPU cores of each"),
    Field("memory", "Memory of each"),
    Field("disk", "Disk of each"),
    Field("priority", "Band"),
    Field("region", "Regions, with commas"),
    Field("zone", "Zone"),
    Field("constraint", "A worker must have"),
    Field("prefer", "A worker had better have"),
    Field("max-retries-failure", "Retries after failures"),
    Field("max-retries-preemption", "Retries after preemptions"),
    Field("max-task-failures", "Failed tasks it outlives"),
    Field("timeout", "Seconds it may run, 0 = any"),
    Field("scheduling-timeout", "Seconds it may wait, 0 = any"),
)
_COUNTS: Final = {
    "replicas": ("replicas", 1),
    "max-retries-failure": ("max_retries_failure", 0),
    "max-retries-preemption": ("max_retries_preemption", 0),
    "max-task-failures": ("max_task_failures", 0),
}
"""Fields of the request, and the least that each can be."""
_SECONDS: Final = {"timeout": "timeout_ms", "scheduling-timeout": "scheduling_timeout_ms"}
_SIZES: Final = {"cpu": "cpu_millicores", "memory": "memory_bytes", "disk": "disk_bytes"}


def texts_of(name: str, before: pb.LaunchJobRequest) -> dict[str, str]:
    """What the form shows when it opens, by field."""
    resources, constraints = before.resources, constraints_of(before)
    preemptions = before.max_retries_preemption if before.HasField("max_retries_preemption") else PREEMPTIONS
    return {
        "name": name.rpartition("/")[2],
        "command": shlex.join(before.entrypoint.run_command.argv),
        "env": "",
        "replicas": str(before.replicas or 1),
        "cpu": format_cpu(resources.cpu_millicores),
        "memory": format_size(resources.memory_bytes, exact=True),
        "disk": format_size(resources.disk_bytes, exact=True),
        "priority": band_label(before.priority_band) if before.priority_band else "",
        "region": place_of(constraints, REGION),
        "zone": place_of(constraints, ZONE),
        "constraint": " ".join(others_of(constraints, Mode.REQUIRED)),
        "prefer": " ".join(others_of(constraints, Mode.PREFERRED)),
        "max-retries-failure": str(before.max_retries_failure),
        "max-retries-preemption": str(preemptions),
        "max-task-failures": str(before.max_task_failures),
        "timeout": seconds_text(before.timeout_ms),
        "scheduling-timeout": seconds_text(before.scheduling_timeout_ms),
    }


def constraints_of(before: pb.LaunchJobRequest) -> list[Constraint]:
    """What the original asked of workers."""
    from iris_core.wire.convert import constraint_from_wire

    return [constraint_from_wire(message) for message in before.constraints]


def request_of(plain: pb.LaunchJobRequest, before: pb.LaunchJobRequest, texts: dict[str, str]) -> Rerun:
    """What is sent for these texts. Raises ModelError with the field."""
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    at_first = texts_of(plain.name, before)
    changed = {name: text.strip() for name, text in texts.items() if text.strip() != at_first[name]}
    request = pb.LaunchJobRequest()
    request.CopyFrom(plain)
    name = check_component(texts["name"].strip(), what="job name", field="name")
    request.name = f"{plain.name.rpartition('/')[0]}/{name}"
    if "command" in changed:
        request.entrypoint.run_command.argv.extend(_command(changed["command"]))
    _fill_numbers(request, before, changed)
    if changed.get("priority"):
        band: Any = parse_band(changed["priority"]).value
        request.priority_band = band
    placing = _place(request, before, changed)
    words = ["--job-name", name]
    for option in ("replicas", "cpu", "memory", "disk", "priority", *list(_COUNTS)[1:], *_SECONDS):
        if changed.get(option):
            words += [f"--{option}", changed[option]]
    words += [*placing, *_variables(request, texts["env"])]
    if "command" in changed:
        words += ["--", *request.entrypoint.run_command.argv]
    return Rerun(request, tuple(words))


def _fill_numbers(request: pb.LaunchJobRequest, before: pb.LaunchJobRequest, changed: dict[str, str]) -> None:
    """Resources are replaced as a whole: what was not changed is what it was."""
    if any(name in changed for name in _SIZES):
        request.resources.CopyFrom(before.resources)
    for name, field in _SIZES.items():
        if name in changed:
            parse = parse_cpu if name == "cpu" else parse_size
            setattr(request.resources, field, parse(changed[name], field=name))
    for name, (field, least) in _COUNTS.items():
        if name in changed:
            _set(request, field, _number(changed[name], name, least))
    for name, field in _SECONDS.items():
        if name in changed:
            _set(request, field, _number(changed[name], name, 0) * 1000)


def _set(request: pb.LaunchJobRequest, field: str, value: int) -> None:
    """A number, or that the original's is to be left out."""
    setattr(request, field, value)
    if not value:
        request.rerun.clear.append(field)


def _place(request: pb.LaunchJobRequest, before: pb.LaunchJobRequest, changed: dict[str, str]) -> list[str]:
    """Put where it may run into the request; the options that say so."""
    from iris_core.wire.convert import constraint_to_wire

    if not changed.keys() & {"region", "zone", "constraint", "prefer"}:
        return []
    regions = [part for text in changed["region"].split(",") if (part := text.strip())] if "region" in changed else None
    required, preferred = _parsed(changed, "constraint"), _parsed(changed, "prefer")
    placed = placed_again(
        constraints_of(before), regions=regions, zone=changed.get("zone"), required=required, preferred=preferred
    )
    request.constraints.extend(constraint_to_wire(constraint) for constraint in placed)
    if not placed:
        request.rerun.clear.append("constraints")
    words: list[str] = []
    for option, values in (("region", regions), ("zone", None if "zone" not in changed else [changed["zone"]])):
        words += [word for value in (values or [""] if values is not None else []) for word in (f"--{option}", value)]
    for option, constraints in (("constraint", required), ("prefer", preferred)):
        texts = [str(constraint) for constraint in constraints] if constraints is not None else []
        words += [word for text in (texts or [""] if constraints is not None else []) for word in (f"--{option}", text)]
    return words


def _parsed(changed: dict[str, str], name: str) -> Sequence[Constraint] | None:
    if name not in changed:
        return None
    return parse_constraints(changed[name], Mode.REQUIRED if name == "constraint" else Mode.PREFERRED, name)


def _command(text: str) -> list[str]:
    words = _split(text, "command")
    if not words:
        raise ModelError("there is no command to run", field="command")
    if any(MARKER in word for word in words):
        raise ModelError(
            "a secret word of the command is hidden here",
            field="command",
            hint="write it anew, or leave the command alone",
        )
    return words


def _variables(request: pb.LaunchJobRequest, text: str) -> list[str]:
    said: list[str] = []
    for word in _split(text, "env"):
        name, equals, value = word.partition("=")
        if word.startswith("-") and not equals:
            request.rerun.remove_env.append(word[1:])
            said += ["--remove-env", word[1:]]
        elif equals and name:
            request.environment.env_vars[name] = value
            said += ["-e", name, value]
        else:
            raise ModelError(f"{shown(word)} is neither KEY=VALUE nor -KEY", field="env")
    return said


def _split(text: str, field: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise ModelError(f"{field}: {error}", field=field) from None


def _number(text: str, field: str, least: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= 1_000_000_000:
        raise ModelError(f"{field} is a whole number from {least}, not {shown(text)}", field=field)
    return int(text)
