"""What `job run` can be told: every option, declared once, and the values they become.

Must never check more than a word's own form: what options mean together is settled in `submit` and `placement`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from iris_core.cli.options import Seconds, Whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

F = TypeVar("F", bound="Callable[..., Any]")

POLICIES: Final = ("replace", "error", "keep", "recreate")
CHILDREN: Final = ("terminate-children", "preserve-children")
MAX_REPLICAS: Final = 10_000


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the options of `job run` said; a name is that of its option."""

    command: Sequence[str]
    env_vars: Sequence[tuple[str, str]]
    cpu: str
    memory: str
    disk: str
    gpu: str
    tpu: str
    enable_extra_resources: bool
    replicas: int | None
    processes_per_task: int
    group_by: str | None
    regions: Sequence[str]
    zone: str
    constraints: Sequence[str]
    preferences: Sequence[str]
    preemptible: bool | None
    reserve: Sequence[str]
    priority: str
    system_reason: str
    max_retries: int
    max_retries_failure: int | None
    max_retries_preemption: int | None
    max_task_failures: int | None
    timeout_s: float
    scheduling_timeout_s: float
    ports: Sequence[str]
    task_image: str
    container_profile: str
    job_name: str | None
    user: str | None
    existing_job: str
    preemption_policy: str
    no_sync: bool
    sync_packages: Sequence[str]
    extras: Sequence[str]


def _count(name: str, most: int, help_text: str, **more: Any) -> Callable[[F], F]:
    return click.option(name, type=Whole(0, most), metavar="N", help=help_text, **more)


def _seconds(name: str, parameter: str, help_text: str) -> Callable[[F], F]:
    return click.option(name, parameter, type=Seconds(), default=0, metavar="S", help=help_text)


def _many(name: str, parameter: str, metavar: str, help_text: str) -> Callable[[F], F]:
    return click.option(name, parameter, multiple=True, metavar=metavar, help=help_text)


_OPTIONS: Final[tuple[Callable[[Any], Any], ...]] = (
    click.option(
        "-e",
        "--env-vars",
        nargs=2,
        multiple=True,
        metavar="KEY VALUE",
        help="An environment variable of the tasks (repeatable). Nothing else of yours travels.",
    ),
    click.option(
        "--cpu", default="0.1", show_default=True, metavar="CORES", help="Cores of each task, as 0.5 or 500m."
    ),
    click.option("--memory", default="1GB", show_default=True, metavar="SIZE", help="Memory of each task."),
    click.option("--disk", default="5GB", show_default=True, metavar="SIZE", help="Disk of each task."),
    click.option("--gpu", default="", metavar="SPEC", help="GPUs of each task: VARIANTxN, N or VARIANT."),
    click.option(
        "--tpu", default="", metavar="TYPE[,TYPE]", help="A TPU slice, or alternatives with as many machines."
    ),
    click.option(
        "--enable-extra-resources", is_flag=True, help="Needed for --gpu, --tpu, memory from 4GB and disk from 10GB."
    ),
    click.option(
        "--replicas",
        type=Whole(1, MAX_REPLICAS),
        metavar="N",
        help="Tasks. Default: 1, or the machines of a TPU slice.",
    ),
    click.option(
        "--processes-per-task",
        type=Whole(1, 64),
        default=1,
        show_default=True,
        metavar="N",
        help="Run the command so many times in each task, each with its share of the task's GPUs.",
    ),
    click.option(
        "--group-by",
        metavar="ATTRIBUTE",
        help="Run all tasks at once, on workers that share this attribute; `none` = each by itself. Default: tpu-name"
        " for a slice of several machines, pool for several GPU tasks.",
    ),
    _many("--region", "regions", "REGION", "Run in this region (repeatable: in any of them)."),
    click.option("--zone", default="", metavar="ZONE", help="Run in this zone."),
    _many(
        "--constraint", "constraints", "EXPR", "What a worker must have, as 'pool=a,b' or 'gpu-count>=4' (repeatable)."
    ),
    _many("--prefer", "preferences", "EXPR", "What a worker had better have; the same form (repeatable)."),
    click.option(
        "--preemptible/--no-preemptible",
        default=None,
        help="Prefer machines that may be taken away, or stay off them. Default: a small CPU job prefers those that stay.",
    ),
    _many(
        "--reserve",
        "reserve",
        "[N:]DEVICE",
        "Run only in a zone where this accelerator has been obtained (repeatable). Holds no capacity; N is not looked at.",
    ),
    click.option(
        "--priority",
        default="",
        metavar="BAND",
        help="system, production, interactive or batch. Default: interactive; of a child job, its parent's.",
    ),
    click.option(
        "--system-reason", default="", metavar="TEXT", help="Why it is system work: names hero, finelog or iris."
    ),
    _count(
        "--max-retries",
        10_000,
        "Failures of a task that are retried, and --max-task-failures where that is not given.",
        default=0,
        show_default=True,
    ),
    _count("--max-retries-failure", 10_000, "The same, and leaves --max-task-failures alone."),
    _count(
        "--max-retries-preemption", 10_000, "Preemptions and lost workers of a task that are retried. Default: 100."
    ),
    _count(
        "--max-task-failures", 1_000_000, "Failed tasks with which the job still succeeds. Default: as --max-retries."
    ),
    _seconds("--timeout", "timeout_s", "Seconds a task may run, 0 = no limit."),
    _seconds("--scheduling-timeout", "scheduling_timeout_s", "Seconds tasks may wait for a worker, 0 = no limit."),
    _many("--port", "ports", "NAME", "A port on the worker, as $IRIS_PORT_<NAME> (repeatable)."),
    click.option("--task-image", default="", metavar="IMAGE", help="Container image. Default: the cluster's."),
    click.option(
        "--container-profile",
        default="default",
        show_default=True,
        metavar="PROFILE",
        help="What the container may do: default, restricted, gvisor; docker_access and privileged need an admin.",
    ),
    click.option("--job-name", metavar="NAME", help="Default: iris-run-<script>-<date>-<time>."),
    click.option("--user", metavar="NAME", help="Owner of the job. Default: $IRIS_USER, else your login."),
    click.option(
        "--existing-job",
        type=click.Choice(POLICIES),
        default="replace",
        show_default=True,
        help="If the name is taken: replace a finished job, error always, keep a running one, or recreate (cancel it first).",
    ),
    click.option(
        "--preemption-policy",
        type=click.Choice(CHILDREN),
        default=None,
        help="What a retry does to child jobs. Default: a single task ends them, several keep them.",
    ),
    click.option("--no-sync", is_flag=True, help="No setup step; else `uv sync` where there is a pyproject.toml."),
    _many("--sync-package", "sync_packages", "NAME", "Sync only this member of the workspace (repeatable)."),
    _many("--extra", "extras", "NAME", "Sync with this extra of the project (repeatable)."),
)


def run_options(function: F) -> F:
    """Adds all options, in the order in which help shows them."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function
