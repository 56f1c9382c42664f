"""One cluster that exists only in memory and has something for every screen: jobs, a gang that failed, machines, a queue, logs, profiles,
an audit log, a pulse, and a database that answers statements. For pictures, and for tests that take every screen there is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from providers.fake.fleet_samples import put_pulse
from providers.fake.machine_samples import GANG as WAITING
from providers.fake.machine_samples import SLICE, add_machines
from providers.fake.profile_samples import FakeProfiles
from providers.fake.query_samples import AUDITED, KEPT_IN, FakeDatabase
from providers.fake.task_samples import GANG, answer, troubled

if TYPE_CHECKING:
    from iris_core.wire.gen.iris.v1 import profiles_pb2
    from providers.fake.client import FakeClient
    from providers.fake.clock import FakeClock

LOG: Final = "/ada/train-llama"
QUERY: Final = (
    "SELECT t.task_id, t.state, w.worker_id FROM tasks t\n"
    "JOIN workers w ON t.current_worker_id = w.worker_id\n"
    "WHERE w.slice_id = 's-7' AND t.state IN (2, 3, 9)"
)
SUBJECTS: Final = {
    "job": GANG,
    "task": f"{GANG}/3",
    "logs": LOG,
    "explain": WAITING,
    "worker": f"{SLICE}-w-1",
    "profile": "p-cpu-1",
    "query": QUERY,
    "checkpoints": KEPT_IN,
}
"""What the screens that are about one thing are about, and what the others are given to show."""


def whole(clock: FakeClock) -> FakeClient:
    """The cluster; its times are relative to the clock."""
    client: Any = troubled(clock)
    of_task, stats = client._list_profiles, client._query
    profiles = FakeProfiles(client).attach()
    FakeDatabase(client).attach()
    client._query = stats  # measurements and events, which the pages of jobs and tasks read

    def list_profiles(request: profiles_pb2.ListProfilesRequest) -> profiles_pb2.ListProfilesResponse:
        found: profiles_pb2.ListProfilesResponse = (of_task if request.source else profiles.list_profiles)(request)
        return found

    answer(client, "ListProfiles", list_profiles)
    add_machines(client, clock)
    put_pulse(client)
    client.log("/system/controller", *AUDITED, epoch_ms=client.now_ms - 90_000)
    for step in range(60):
        text = f"step {step} loss {4 * 0.98**step:.4f}" if step != 41 else "WARNING gradient norm is high: 118.2"
        client.log(f"{LOG}/1:0", text, epoch_ms=client.now_ms - (60 - step) * 900, level=3 if step == 41 else 2)
    found: FakeClient = client
    return found
