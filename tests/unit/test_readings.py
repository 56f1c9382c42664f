"""What is kept of readings beside the state: bounded, and gone with what it is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller import readings as readings_module
from iris_controller.commits import Committed
from iris_controller.readings import Readings
from iris_core.model.states import TaskState
from iris_core.wire.gen.iris.v1 import controller_pb2, worker_pb2
from tests.unit.kernel_world import JOB, World

if TYPE_CHECKING:
    import pytest

    from iris_controller.state.changes import Changes
    from iris_controller.state.overlay import Overlay


class Measured(World):
    """A world whose batches the readings follow."""

    def __init__(self) -> None:
        super().__init__()
        self.readings = Readings(self.model, {})

    def commit(self, o: Overlay) -> Changes:
        changes = super().commit(o)
        self.readings.note(Committed(1, changes, self.now_ms))
        return changes

    def shown(self, job_id: str, uid: str) -> controller_pb2.TaskStatus:
        status = controller_pb2.TaskStatus(job_id=job_id, attempt_uid=uid)
        self.readings.onto(status)
        return status


def usage(uid: str, memory: int, peak: int) -> worker_pb2.AttemptUsage:
    return worker_pb2.AttemptUsage(attempt_uid=uid, memory_bytes=memory, memory_peak_bytes=peak)


def test_the_last_reading_of_an_attempt_that_was_lost_stays_its_peak() -> None:
    world = Measured()
    world.add_worker()
    world.submit(tasks=2)
    uid = world.running(0)
    assert world.readings.take("w", [usage(uid, 5, 9), usage("unknown", 1, 1)]) == [(JOB, 0)]
    assert world.readings.take("other", [usage(uid, 7, 7)]) == []
    world.observe(uid, TaskState.MISSING)
    assert (world.shown(JOB, uid).memory_bytes, world.shown(JOB, uid).memory_peak_bytes) == (0, 9)
    assert world.readings.take("w", [usage(uid, 5, 99)]) == [], "a late heartbeat changes nothing"


def test_when_there_is_too_much_peaks_of_ended_jobs_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings_module, "MAX_PEAKS", 3)
    world = Measured()
    world.add_worker(cpu=100)
    uids: dict[str, list[str]] = {}
    for name, tasks in (("/u/live", 3), ("/u/one", 1), ("/u/two", 1)):
        world.submit(name, tasks=tasks)
        uids[name] = [world.running(index, name) for index in range(min(tasks, 2))]
        for uid in uids[name]:
            world.observe(uid, TaskState.SUCCEEDED, memory_peak_bytes=7)
    assert [world.shown("/u/live", uid).memory_peak_bytes for uid in uids["/u/live"]] == [7, 7]
    assert world.shown("/u/one", uids["/u/one"][0]).memory_peak_bytes == 0
    assert world.shown("/u/two", uids["/u/two"][0]).memory_peak_bytes == 7


def test_what_an_attempt_says_of_itself_is_shown_until_it_ends() -> None:
    world = Measured()
    world.add_worker()
    world.submit()
    uid = world.running()
    assert world.readings.say(uid, "step 1") == [(JOB, 0)] and world.readings.say("unknown", "x") == []
    assert world.shown(JOB, uid).status_md == "step 1"
    world.observe(uid, TaskState.FAILED)
    assert world.shown(JOB, uid).status_md == "" and world.readings.say(uid, "too late") == []
