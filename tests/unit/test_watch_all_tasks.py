"""Watch over the tasks of all jobs that have not ended: what comes, what goes with its job, what is told bit by bit."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from iris_controller.commits import Committed
from iris_controller.rpc.auth import Identity, Role, TaskClaims
from iris_controller.rpc.call import Call
from iris_controller.state import kernel, submit
from iris_controller.state.changes import Changes
from iris_controller.watching import followed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from iris_core.wire.services import method
from tests.unit.test_watch import TASKS, Rig, Viewer, rig

pytestmark = pytest.mark.asyncio


def every(**values: Any) -> controller_pb2.WatchSelector:
    return controller_pb2.WatchSelector(id="t", kind=TASKS, **values)


def of_model(r: Rig) -> dict[str, str]:
    """The tasks that there are, with the reason why each waits."""
    return {t.task_id: r.model.reasons.get(t.job_id, "") for tasks in r.model.tasks.values() for t in tasks}


def seen(viewer: Viewer) -> dict[str, str]:
    return {name: task.pending_reason for name, task in viewer.rows.items()}


async def settled(r: Rig, viewer: Viewer) -> None:
    """Reads until the viewer has everything; the last revision says so."""
    async with asyncio.timeout(60):
        while viewer.revision.n < r.loop.n or seen(viewer) != of_model(r):
            await viewer.read()


async def test_tasks_come_with_their_job_and_go_with_it() -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=3)
        await r.launch("/u/b", tasks=2)
        viewer = Viewer(r, every())
        assert await viewer.read() == "snapshot"
        assert len(viewer.rows) == 5 and viewer.messages[0].snapshot.total_count == 5
        await r.launch("/u/c", tasks=1)
        await r.cancel("/u/a")
        await viewer.until(r.loop.n)
        assert set(viewer.rows) == {"/u/b/0", "/u/b/1", "/u/c/0"}


async def test_a_smaller_job_of_the_same_name_leaves_no_task_of_the_larger_one() -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=4)
        viewer = Viewer(r, every())
        await viewer.read()
        await viewer.close()
        revision = common_pb2.Revision(boot_id=viewer.revision.boot_id, n=viewer.revision.n)
        await r.cancel("/u/a")
        await r.launch("/u/a", tasks=2)
        again = Viewer(r, every(resume=revision))
        again.rows = viewer.rows
        await again.until(r.loop.n)
        assert set(again.rows) == {"/u/a/0", "/u/a/1"}
        assert all(m.WhichOneof("event") == "delta" for m in again.messages)


async def test_only_rows_that_were_shown_are_taken_away_again() -> None:
    async with rig() as r:
        viewer = Viewer(r, every(filter="job:/u/b"))
        await viewer.read()
        await r.launch("/u/a", tasks=3)
        await r.launch("/u/b", tasks=2)
        await viewer.until(r.loop.n)
        assert set(viewer.rows) == {"/u/b/0", "/u/b/1"}
        await r.cancel("/u/a")
        await r.cancel("/u/b")
        await viewer.until(r.loop.n)
        assert viewer.rows == {}
        gone = [name for m in viewer.messages for rows in m.delta.rows for name in rows.removed]
        assert sorted(gone) == ["/u/b/0", "/u/b/1"]


async def test_a_filter_and_a_resume_send_everything_anew() -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=2)
        viewer = Viewer(r, every(filter="job:/u/a"))
        await viewer.read()
        await viewer.close()
        again = Viewer(r, every(filter="job:/u/a", resume=viewer.revision))
        assert [await again.read(), await again.read()] == ["resync", "snapshot"]
        assert set(again.rows) == {"/u/a/0", "/u/a/1"}


async def test_a_task_sees_the_tasks_below_its_own_job() -> None:
    claims = TaskClaims("u", "/u/a", "/u/a", "0" * 16)
    identity = Identity("u", Role.TASK, "token", "127.0.0.1:1", task=claims)
    call = Call(identity, method("ControllerService/Watch"), identity.peer)
    async with rig() as r:
        await r.launch("/u/a")
        await r.launch("/u/ab")
        viewer = Viewer(r, every(), call=call)
        await viewer.read()
        assert set(viewer.rows) == {"/u/a/0"}
        await r.launch("/u/a/kid")
        await r.launch("/v/b")
        await viewer.until(r.loop.n)
        assert set(viewer.rows) == {"/u/a/0", "/u/a/kid/0"}


async def test_reasons_are_told_bit_by_bit_and_no_revision_before_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "OWED_ROWS", 7)
    async with rig() as r:
        await r.launch("/u/a", tasks=20)
        viewer = Viewer(r, every())
        await viewer.read()
        await settled(r, viewer)
        before, reached = len(viewer.messages), viewer.revision.n
        r.model.reasons["/u/a"] = "something else"
        r.hub._publish(_reasons(r, "/u/a"))
        await settled(r, viewer)
        parts = [m.delta for m in viewer.messages[before:] if m.HasField("delta")]
        assert [len(rows.tasks) for part in parts for rows in part.rows] == [7, 7, 6]
        assert [part.revision.n for part in parts] == [reached, reached, reached + 1]


async def test_a_reason_that_changes_while_it_is_told_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "OWED_ROWS", 7)
    async with rig() as r:
        await r.launch("/u/a", tasks=20)
        viewer = Viewer(r, every())
        await viewer.read()
        await settled(r, viewer)
        for reason in ("one thing", "another"):
            r.model.reasons["/u/a"] = reason
            r.hub._publish(_reasons(r, "/u/a"))
            await viewer.read()
        await settled(r, viewer)
        assert set(seen(viewer).values()) == {"another"}


def _reasons(r: Rig, *job_ids: str) -> Committed:

    r.loop.n += 1
    return Committed(r.loop.n, Changes(), 0, set(job_ids))


async def test_a_job_that_is_replaced_in_one_step_is_told_in_one() -> None:
    async with rig() as r:
        await r.launch("/u/a", tasks=4)
        viewer = Viewer(r, every())
        await viewer.read()

        def again(o: Any, now_ms: int) -> None:
            spec = r.model.jobs["/u/a"].spec
            kernel.cancel(o, "/u/a", "t", "r", now_ms)
            o.delete_job("/u/a")
            submit.admit(o, submit.NewJob("/u/a", "u", 1, spec), now_ms)

        await r.loop.submit("again", again)
        await viewer.until(r.loop.n)
        assert set(viewer.rows) == {"/u/a/0"}
