"""What the machines are, who uses them and what is served: scale groups, workers, users, endpoints."""

from __future__ import annotations

from typing import Final

from iris_tui.actions.base import Action

_TASKS_THERE: Final = (
    "iris-core {at} query \"SELECT task_id FROM tasks WHERE current_worker_id = 'WORKER' AND finished_at_ms IS NULL\""
)

CAPACITY: Final[tuple[Action, ...]] = (
    Action(
        id="capacity.describe", title="Describe: reasons in full", keys=("d",), command="describe-capacity",
        cli="iris-core {at} cluster vm status", menu="d", footer=30, kinds=("scale group", "slice", "machine"),
    ),
    Action(
        id="capacity.machine_log", title="Show what the machine logged", keys=("l",), command="machine-log",
        cli="iris-core {at} cluster vm logs {id}", menu="l", footer=20, kinds=("machine",),
    ),
    Action(
        id="capacity.tasks", title="Show the tasks that run there", keys=("t",), command="tasks-there", cli=_TASKS_THERE,
        menu="t", kinds=("slice", "machine"),
    ),
    Action(
        id="capacity.preempt", title="Preempt: its tasks, which are tried again", tier=2, mutates=True, command="preempt-slice",
        arguments="[SLICE]", cli="iris-core {at} attempt preempt {id}", menu="p", kinds=("slice", "machine"),
    ),
    Action(
        id="capacity.create_slice", title="Create a slice of: one beside what the autoscaler makes", tier=2, mutates=True,
        command="create-slice", arguments="[GROUP]", cli="iris-core {at} cluster create-slice --scale-group {id}", menu="n",
        kinds=("scale group",),
    ),
    Action(
        id="capacity.delete_slice", title="Delete: the slice; its tasks are tried elsewhere", tier=3, mutates=True,
        command="delete-slice", arguments="[SLICE]", cli="iris-core {at} cluster delete-slice {id}", menu="D", kinds=("slice",),
    ),
)  # fmt: skip

WORKERS: Final[tuple[Action, ...]] = (
    Action(
        id="workers.open", title="Open the worker's page", keys=("enter",), command="open-worker", cli="iris-core {at} rpc controller list-workers",
        footer=10, kinds=("worker",),
    ),
    Action(
        id="workers.machine_log", title="Show what the machine logged", keys=("l",), command="worker-machine-log",
        cli="iris-core {at} cluster vm logs {id}", menu="l", footer=20, kinds=("worker",),
    ),
    Action(
        id="workers.tasks", title="Show the tasks that run there", keys=("t",), command="worker-tasks", cli=_TASKS_THERE,
        menu="t", kinds=("worker",),
    ),
    Action(
        id="workers.backends", title="Show the backends: capacity, why tasks wait, workers that take none", keys=("b",),
        command="backends", cli="iris-core {at} rpc controller get-provider-status", footer=30,
    ),
    Action(
        id="workers.preempt", title="Preempt: its tasks, which are tried again", tier=2, mutates=True, command="preempt-worker",
        arguments="[WORKER…]", cli="iris-core {at} attempt preempt {id}", menu="p", kinds=("worker",),
    ),
)  # fmt: skip

WORKER: Final[tuple[Action, ...]] = (
    Action(
        id="worker.open", title="Open the task's page, or the profile", keys=("enter",), command="open-there",
        cli="iris-core {at} task describe {id}", footer=10, kinds=("task",),
    ),
    Action(
        id="worker.process_log", title="Show the worker's own log", keys=("L",), command="worker-log",
        cli="iris-core {at} process logs -t /system/worker/WORKER", footer=20,
    ),
    Action(
        id="worker.machine_log", title="Show what its machine logged", keys=("M",), command="log-of-machine",
        cli="iris-core {at} cluster vm logs WORKER",
    ),
    Action(
        id="worker.profile_worker", title="Profile the worker's own process", keys=("T",), command="profile-worker", arguments="[KIND]",
        cli="iris-core {at} process profile threads -t /system/worker/WORKER",
    ),
    Action(
        id="worker.preempt_all", title="Preempt all: the worker's tasks, which are tried again", tier=2, mutates=True, command="preempt-all",
        cli="iris-core {at} attempt preempt {id}", menu="A", kinds=("task",),
    ),
)  # fmt: skip

USERS: Final[tuple[Action, ...]] = (
    Action(
        id="users.open", title="Show the user's jobs", keys=("enter",), command="jobs-of-user", cli="iris-core {at} job list",
        footer=10, kinds=("user",),
    ),
    Action(
        id="users.set_budget", title="Set the budget of: what a user may spend", tier=1, mutates=True, command="set-budget", arguments="[USER LIMIT BAND]",
        cli="iris-core {at} user budget set {id} --limit {limit} --max-band {band}", menu="b", kinds=("user",),
    ),
)  # fmt: skip

ENDPOINTS: Final[tuple[Action, ...]] = (
    Action(
        id="endpoints.open", title="Open the task that serves it", keys=("enter",), command="open-server",
        cli="iris-core {at} task describe TASK", footer=10, kinds=("endpoint",),
    ),
    Action(
        id="endpoints.show", title="Show its URL, address and metadata", keys=("d",), command="show-endpoint",
        cli="iris-core {at} endpoints list {id} -o wide", menu="d", footer=30, kinds=("endpoint",),
    ),
    Action(
        id="endpoints.copy_url", title="Copy the URL", keys=("c",), command="copy-url", cli="iris-core {at} endpoints list {id} -o wide",
        menu="i", footer=20, kinds=("endpoint",),
    ),
    Action(
        id="endpoints.unregister", title="Unregister: its name is free again", tier=1, mutates=True, command="unregister",
        arguments="[ID…]", cli="iris-core {at} rpc controller unregister-endpoint --endpoint-id {id}", menu="u", kinds=("endpoint",),
    ),
)  # fmt: skip
