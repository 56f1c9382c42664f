"""ListUsers: who has work here now (control-plane §5). There is no table of users: owners of live jobs are counted when asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.rpc.auth import Role
from iris_core.model.states import JobState, TaskState, job_label, label
from iris_core.wire.gen.iris.v1 import budgets_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.state.model import Model
    from iris_controller.state.records import Job


class UserService:
    """See the module. `admin_users` are those of the cluster file; roles are resolved from it alone."""

    def __init__(self, loop: ControllerLoop, admin_users: Iterable[str]) -> None:
        self._model = loop.model
        self._admins = frozenset(admin_users)

    def register(self, router: Router) -> None:
        router.add("ControllerService/ListUsers", self.list_users)

    async def list_users(self, request: budgets_pb2.ListUsersRequest, call: Call) -> budgets_pb2.ListUsersResponse:
        users = summaries(live_jobs(self._model), self._admins)
        users.sort(key=lambda user: (-user.active_jobs, -user.running_tasks, user.user_id))
        return budgets_pb2.ListUsersResponse(users=users)


def live_jobs(model: Model) -> list[Job]:
    """The jobs that have not ended."""
    # The model holds tasks of exactly these.
    return [model.jobs[job_id] for job_id in model.tasks]


def summaries(live: Iterable[Job], admins: frozenset[str]) -> list[budgets_pb2.UserSummary]:
    """One for each owner of a job among `live`, which have not ended."""
    jobs: dict[str, list[int]] = {}
    tasks: dict[str, list[int]] = {}
    for job in live:
        states = jobs.setdefault(job.user_id, [0] * len(JobState))
        states[job.state] += 1
        sums = tasks.setdefault(job.user_id, [0] * len(job.counts))
        tasks[job.user_id] = [a + b for a, b in zip(sums, job.counts, strict=True)]
    return [
        budgets_pb2.UserSummary(
            user_id=user,
            role=role_of(user, admins),
            active_jobs=sum(states),
            running_tasks=tasks[user][TaskState.RUNNING],
            jobs_by_state={job_label(state): count for state, count in enumerate(states) if count},
            tasks_by_state={label(TaskState(state)): count for state, count in enumerate(tasks[user]) if count},
        )
        for user, states in jobs.items()
    ]


def role_of(user: str, admins: frozenset[str]) -> str:
    """The word for what a user is."""
    return str(Role.ADMIN if user in admins else Role.USER)
