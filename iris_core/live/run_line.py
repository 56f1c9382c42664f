"""The command line that submits a job like another one again, from its request: `iris-core … job run … -- COMMAND`.

What was typed is kept beside a job only if a command line submitted it; this says the same of any job. Secret values are markers
in every request that the server hands out, and they stay markers here. What no option can say is named beside it.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Final

from iris_core.live.asked import constraint_text
from iris_core.model.bands import PriorityBand, band_label
from iris_core.model.resources import format_cpu, format_size

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

_EXTRA_MEMORY: Final = 4_000_000_000
_EXTRA_DISK: Final = 10_000_000_000
_MARKER: Final = re.compile(r"[\[<]redacted")


def run_line(request: pb.LaunchJobRequest, selector: str) -> tuple[str, list[str]]:
    """The command line on one line, and what it leaves out, one sentence each."""
    owner, _, name = request.name.lstrip("/").partition("/")
    words = ["iris-core", *shlex.split(selector), "job", "run", "--user", owner, "--job-name", name.rpartition("/")[2]]
    left_out: list[str] = []
    words += _resources(request, left_out)
    words += _place(request)
    words += _limits(request)
    for key, value in sorted(request.environment.env_vars.items()):
        words += ["-e", key, value]
    hidden = sorted(key for key, value in request.environment.env_vars.items() if _MARKER.match(value))
    if hidden:
        left_out.append(f"the values of {', '.join(hidden)} are sealed on the server: give them anew")
    if not request.environment.setup_scripts:
        words.append("--no-sync")
    else:
        left_out.append("the setup steps are those of the folder in which it is run")
    if request.bundle_id:
        left_out.append("the files are those of the folder in which it is run")
    if request.entrypoint.workdir_files or request.entrypoint.workdir_file_refs:
        count = len(request.entrypoint.workdir_files) + len(request.entrypoint.workdir_file_refs)
        left_out.append(f"{count} file{'' if count == 1 else 's'} that the request itself carries")
    if name.count("/"):
        left_out.append(f"it was a child of /{owner}/{name.rpartition('/')[0]}; this submits a job of its own")
    words += ["--", *request.entrypoint.run_command.argv]
    return shlex.join(words), left_out


def _resources(request: pb.LaunchJobRequest, left_out: list[str]) -> list[str]:
    resources = request.resources
    words = [
        "--cpu", format_cpu(resources.cpu_millicores),
        "--memory", format_size(resources.memory_bytes, exact=True),
        "--disk", format_size(resources.disk_bytes, exact=True),
    ]  # fmt: skip
    device = resources.device
    if device.count and device.kind == "gpu":
        words += ["--gpu", f"{device.variant}x{device.count}" if device.variant else str(device.count)]
    elif device.count and device.kind == "tpu":
        words += ["--tpu", device.variant]
    elif device.count:
        left_out.append(f"its {device.kind} {device.variant}")
    if device.count or resources.memory_bytes >= _EXTRA_MEMORY or resources.disk_bytes >= _EXTRA_DISK:
        words.append("--enable-extra-resources")
    if request.replicas != 1:
        words += ["--replicas", str(request.replicas)]
    if request.processes_per_task > 1:
        words += ["--processes-per-task", str(request.processes_per_task)]
    return words


def _place(request: pb.LaunchJobRequest) -> list[str]:
    words: list[str] = []
    if request.coscheduling.group_by:
        words += ["--group-by", request.coscheduling.group_by]
    for constraint in request.constraints:
        text = constraint_text(constraint)
        plain = text.removesuffix(" (preferred)")
        words += ["--prefer" if plain != text else "--constraint", plain]
    if request.priority_band not in (0, PriorityBand.INTERACTIVE):
        words += ["--priority", band_label(request.priority_band)]
    if request.system_reason:
        words += ["--system-reason", request.system_reason]
    if request.task_image:
        words += ["--task-image", request.task_image]
    return words


def seconds_text(milliseconds: int) -> str:
    """A limit as its option takes it: whole digits however long it is, and no more of them than it has."""
    return f"{milliseconds / 1000:.3f}".rstrip("0").rstrip(".")


def _limits(request: pb.LaunchJobRequest) -> list[str]:
    words: list[str] = []
    if request.max_retries_failure:
        words += ["--max-retries-failure", str(request.max_retries_failure)]
    if request.HasField("max_retries_preemption"):
        words += ["--max-retries-preemption", str(request.max_retries_preemption)]
    if request.max_task_failures:
        words += ["--max-task-failures", str(request.max_task_failures)]
    if request.timeout_ms:
        words += ["--timeout", seconds_text(request.timeout_ms)]
    if request.scheduling_timeout_ms:
        words += ["--scheduling-timeout", seconds_text(request.scheduling_timeout_ms)]
    for port in request.ports:
        words += ["--port", port]
    return words
