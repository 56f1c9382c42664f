"""Rows of scale groups, slices and the autoscaler's latest decisions, as GetAutoscalerStatus tells them.

Where nothing makes machines, a checkpoint above all, what the state keeps of groups and slices is told all the same. Must never
ask the provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_controller.rpc.autoscaler_view import actions, by_group, group_status, kept_groups, slice_status
from iris_controller.watching.source import apart
from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from iris_controller.autoscaling.groups import GroupState
    from iris_controller.autoscaling.runner import Autoscaler
    from iris_controller.state.model import Model
    from iris_controller.state.slices import Slice

STEADY_MS: Final = 2_000
"""Readings of since when a slice is idle differ by less, as long as it is the same idleness."""


class Capacity:
    """Looks at all three. `scaler` gives the autoscaler, None where there is none."""

    def __init__(self, model: Model, scaler: Callable[[], Autoscaler | None], now_ms: Callable[[], int]) -> None:
        self._model = model
        self._scaler = scaler
        self._now_ms = now_ms
        self._idle_since: dict[str, int] = {}

    async def groups(self, task_ids: frozenset[str]) -> list[pb.ScaleGroupStatus]:
        scaler, slices = self._scaler(), list(self._model.slices.values())
        if scaler is None:
            return kept_groups(self._model.scaling_groups.values(), slices)
        return await apart(len(slices), _groups, scaler, scaler.states(), slices, self._model, self._now_ms())

    async def slices(self, task_ids: frozenset[str]) -> list[pb.SliceStatus]:
        scaler, slices = self._scaler(), list(self._model.slices.values())
        rows = await apart(len(slices), slice_rows, scaler, slices, self._model)
        now_ms, before = self._now_ms(), self._idle_since
        self._idle_since = {}
        for row in rows:
            if row.idle_ms:
                since = now_ms - row.idle_ms
                known = before.get(row.slice_id, 0)
                row.idle_since_ms = self._idle_since[row.slice_id] = known if abs(known - since) < STEADY_MS else since
                # It grows all the time, and whoever watches has a clock.
                row.idle_ms = 0
        return rows

    async def actions(self, task_ids: frozenset[str]) -> list[pb.AutoscalerAction]:
        scaler = self._scaler()
        return actions(scaler) if scaler is not None else []


def _groups(
    scaler: Autoscaler, states: Sequence[GroupState], slices: Iterable[Slice], model: Model, now_ms: int
) -> list[pb.ScaleGroupStatus]:
    placed = by_group(slices)
    return [group_status(scaler, state, placed.get(state.name, []), model, now_ms) for state in states]


def slice_rows(scaler: Autoscaler | None, slices: Iterable[Slice], model: Model) -> list[pb.SliceStatus]:
    """All slices that have a row, oldest first."""
    rows = sorted(slices, key=lambda row: (row.created_at_ms, row.slice_id))
    return [slice_status(scaler, row, model) for row in rows]
