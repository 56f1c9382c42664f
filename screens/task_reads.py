"""What the page of a task reads beside its stream: the attempts in full, events, measurements, profiles, endpoints, and what it says.

All of it is of the task of that name that is there now: of an earlier job's of the same name nothing is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from iris_core.live import measured
from iris_core.live.polled import Polled
from iris_core.model.states import TERMINAL

if TYPE_CHECKING:
    from iris_core.live.attempt_feed import AttemptFeed
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_core.wire.gen.iris.v1 import endpoints_pb2, profiles_pb2
    from iris_tui.session import Session

MOST_PROFILES: Final = 200
MOST_PAGES: Final = 5
"""Pages of endpoints that are looked through for those of the task."""


class TaskReads:
    """Read what is due."""

    def __init__(self, session: Session, feed: AttemptFeed, task_id: str) -> None:
        self._session = session
        self._feed = feed
        self._task_id = task_id
        self.found: Polled[pb.GetTaskStatusResponse] = Polled(self._read_task)
        self.events: Polled[measured.Events] = Polled(self._read_events)
        self.usage: Polled[measured.Usage] = Polled(self._read_usage)
        self.profiles: Polled[profiles_pb2.ListProfilesResponse] = Polled(self._read_profiles, every_s=30)
        self.endpoints: Polled[list[endpoints_pb2.Endpoint]] = Polled(self._read_endpoints)
        self.said: Polled[str] = Polled(self._read_said)

    async def _read_task(self) -> pb.GetTaskStatusResponse:
        return await self._session.tree.task_status(self._task_id)

    async def _incarnation(self) -> int:
        task = self._feed.task or (await self._read_task()).task
        return int(task.incarnation)

    async def _where(self) -> str:
        return measured.whose(self._task_id, await self._incarnation(), task=True)

    async def _read_events(self) -> measured.Events:
        return await measured.events(self._session.client, await self._where())

    async def _read_said(self) -> str:
        return await measured.said(self._session.client, await self._where())

    async def _read_usage(self) -> measured.Usage:
        task = self._feed.task or (await self._read_task()).task
        ended = int(task.state) in TERMINAL and task.finished_at_ms
        until = task.finished_at_ms if ended else self._session.clock.now_ms()
        attempts = self.found.value.attempts if self.found.value is not None else ()
        started = min((one.started_at_ms for one in attempts if one.started_at_ms), default=task.submitted_at_ms)
        return await measured.usage(self._session.client, await self._where(), started, until)

    async def _read_profiles(self) -> profiles_pb2.ListProfilesResponse:
        from iris_core.wire.gen.iris.v1 import profiles_pb2

        request = profiles_pb2.ListProfilesRequest(
            source=self._task_id, page_size=MOST_PROFILES, min_incarnation=await self._incarnation()
        )
        return await self._session.client.call(
            "ControllerService/ListProfiles", request, profiles_pb2.ListProfilesResponse, timeout_s=60.0
        )

    async def _read_endpoints(self) -> list[endpoints_pb2.Endpoint]:
        from iris_core.wire.gen.iris.v1 import endpoints_pb2

        root = "/".join(self._task_id.split("/")[:3])
        found: list[endpoints_pb2.Endpoint] = []
        token = ""
        for _ in range(MOST_PAGES):
            answer = await self._session.client.call(
                "ControllerService/ListEndpoints",
                endpoints_pb2.ListEndpointsRequest(prefix=f"{root}/", page_token=token),
                endpoints_pb2.ListEndpointsResponse,
            )
            found += [one for one in answer.endpoints if one.task_id == self._task_id]
            token = answer.next_page_token
            if not token:
                break
        return found
