"""Rows of users and of endpoints: ListUsers with ListUserBudgets, and ListEndpoints, as rows that are watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.rpc.budgets import budget_view
from iris_controller.rpc.endpoints import of_the_cluster, position, registered
from iris_controller.rpc.users import live_jobs, role_of, summaries
from iris_controller.watching.source import apart
from iris_core.wire.gen.iris.v1 import budgets_pb2, watch_rows_pb2

if TYPE_CHECKING:
    from iris_controller.places import Places
    from iris_controller.state.model import Model
    from iris_core.wire.gen.iris.v1 import endpoints_pb2


class Users:
    """Looks at everybody who has a budget of their own, spends, or owns a job that has not ended."""

    def __init__(self, model: Model, admins: frozenset[str], max_active_tasks: int) -> None:
        self._model = model
        self._admins = admins
        self._max_active_tasks = max_active_tasks

    async def look(self, task_ids: frozenset[str]) -> list[watch_rows_pb2.UserRow]:
        model, jobs = self._model, live_jobs(self._model)
        owners = {found.user_id: found for found in await apart(len(jobs), summaries, jobs, self._admins)}
        return [
            watch_rows_pb2.UserRow(
                user_id=user,
                budget=budget_view(model, model.budget_of(user)),
                summary=owners.get(user) or budgets_pb2.UserSummary(user_id=user, role=role_of(user, self._admins)),
                active_tasks=model.active.get(user, 0),
                max_active_tasks=self._max_active_tasks,
            )
            for user in sorted(model.budgets.keys() | model.spent.keys() | owners.keys())
        ]


class EndpointRows:
    """Looks at what is registered and at the cluster's own."""

    def __init__(self, model: Model, places: Places) -> None:
        self._model = model
        self._places = places

    async def look(self, task_ids: frozenset[str]) -> list[endpoints_pb2.Endpoint]:
        rows = registered(self._places, sorted(self._model.endpoints.by_name)) + of_the_cluster(self._places)
        return sorted(rows, key=position)
