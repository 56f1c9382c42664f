"""Budgets over the wire, bands at submit, and what the scheduler's state says of both, against a real controller."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from iris_core.auth.keys import load_key
from iris_core.auth.tokens import TokenSigner
from iris_core.contracts import Denied, RpcFailed, UsageFailed
from iris_core.wire.gen.iris.v1 import backends_pb2, budgets_pb2, common_pb2, controller_pb2
from providers.fake.worker import run_on
from tests.integration.controller_rig import CONFIG, Rig, connect, launch_request, rig, start

pytestmark = pytest.mark.asyncio

BATCH, INTERACTIVE = common_pb2.PRIORITY_BAND_BATCH, common_pb2.PRIORITY_BAND_INTERACTIVE
PRODUCTION, SYSTEM = common_pb2.PRIORITY_BAND_PRODUCTION, common_pb2.PRIORITY_BAND_SYSTEM
INHERIT = common_pb2.PRIORITY_BAND_INHERIT
TASK_RUNNING = common_pb2.TASK_STATE_RUNNING
TIERS = CONFIG + (
    "user_budgets:\n- {user_ids: [ann, bob], budget_limit: 50}\n- {user_ids: [bob], budget_limit: 5, max_band: batch}\n"
    "auth: {admin_users: [root]}\n"
)


@asynccontextmanager
async def calling(r: Rig, state_dir: Path, user: str) -> AsyncIterator[Rig]:
    """The same controller, called by a user with a token."""
    client = connect(r.controller, TokenSigner(load_key(state_dir / "signing.key")).user_token(user))
    try:
        yield Rig(r.controller, client)
    finally:
        await client.close()


def asking(name: str, tasks: int, cores: int = 0, **values: object) -> controller_pb2.LaunchJobRequest:
    request = launch_request(name, **values)
    request.replicas = tasks
    if cores:
        request.resources.cpu_millicores = cores * 1_000
    return request


async def submit(r: Rig, request: controller_pb2.LaunchJobRequest) -> None:
    await r.call("LaunchJob", request, controller_pb2.LaunchJobResponse)


async def runs(r: Rig, job_id: str, tasks: int = 1) -> None:
    await r.until(job_id, lambda j: sum(c.count for c in j.task_counts if c.state == TASK_RUNNING) == tasks)


async def set_budget(r: Rig, user: str, limit: int, **values: object) -> budgets_pb2.UserBudget:
    request = budgets_pb2.SetUserBudgetRequest(user_id=user, budget_limit=limit, **values)  # type: ignore[arg-type]
    return (await r.call("SetUserBudget", request, budgets_pb2.SetUserBudgetResponse)).budget


async def get_budget(r: Rig, user: str) -> budgets_pb2.UserBudget:
    request = budgets_pb2.GetUserBudgetRequest(user_id=user)
    return (await r.call("GetUserBudget", request, budgets_pb2.GetUserBudgetResponse)).budget


async def state(r: Rig, **values: object) -> controller_pb2.GetSchedulerStateResponse:
    request = controller_pb2.GetSchedulerStateRequest(**values)  # type: ignore[arg-type]
    return await r.call("GetSchedulerState", request, controller_pb2.GetSchedulerStateResponse)


async def users(r: Rig) -> list[budgets_pb2.UserSummary]:
    answer = await r.call("ListUsers", budgets_pb2.ListUsersRequest(), budgets_pb2.ListUsersResponse)
    return list(answer.users)


def rows(state_dir: Path) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(state_dir / "db" / "controller.sqlite3")) as database:
        return database.execute("SELECT user_id, budget_limit, max_band FROM user_budgets ORDER BY user_id").fetchall()


async def test_a_budget_is_set_read_and_listed_and_survives_a_restart(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        first = await set_budget(r, "ann@example.org", 7, request_id="same")
        assert (first.budget_limit, first.max_band, first.budget_spent) == (7, INTERACTIVE, 0)
        assert await set_budget(r, "ann@example.org", 7, request_id="same") == first, "a repeat gets the first answer"
        assert await get_budget(r, "ann@example.org") == first
        second = await set_budget(r, "ann@example.org", 0, max_band=PRODUCTION)
        assert second.updated_at_ms > first.updated_at_ms
        listed = await r.call(
            "ListUserBudgets", budgets_pb2.ListUserBudgetsRequest(), budgets_pb2.ListUserBudgetsResponse
        )
        assert list(listed.budgets) == [second]
        assert (listed.defaults.budget_limit, listed.defaults.max_band) == (1_000, INTERACTIVE)
        assert rows(tmp_path) == [("ann@example.org", 0, 2)]
    async with rig(tmp_path) as r:
        assert await get_budget(r, "ann@example.org") == second


BAD_BUDGETS: list[tuple[dict[str, object], str, str]] = [
    ({"user_id": ""}, "user_id", "a user is empty"),
    ({"user_id": "a b"}, "user_id", "' '"),
    ({"user_id": "system"}, "user_id", "system"),
    ({"user_id": "local_admin"}, "user_id", "charged to the owner of the job"),
    ({"user_id": "ann", "budget_limit": -1}, "budget_limit", "budget limit -1 is outside 0"),
    ({"user_id": "ann", "budget_limit": 2**62}, "budget_limit", "is outside 0"),
    ({"user_id": "ann", "max_band": 77}, "max_band", "priority band 77 is unknown"),
]


async def test_a_bad_budget_is_refused_with_its_field(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        for values, field, message in BAD_BUDGETS:
            with pytest.raises(RpcFailed) as caught:
                request = budgets_pb2.SetUserBudgetRequest(**values)  # type: ignore[arg-type]
                await r.call("SetUserBudget", request, budgets_pb2.SetUserBudgetResponse)
            assert message in caught.value.message, values
            assert (caught.value.field, caught.value.status) == (field, "INVALID_ARGUMENT"), values
        assert rows(tmp_path) == []


async def test_who_has_no_budget_is_told_which_defaults_apply(tmp_path: Path) -> None:
    config = CONFIG + "defaults: {user_budget: {budget_limit: 77, max_band: batch}}\n"
    async with rig(tmp_path, config) as r:
        await set_budget(r, "anna", 1)
        with pytest.raises(RpcFailed) as caught:
            await get_budget(r, "ann")
        assert caught.value.status == "NOT_FOUND"
        assert caught.value.message == (
            "user ann has no budget of their own; limit 77 (0 spent now) and max band batch apply, as to everybody without one"
        )
        assert (
            caught.value.hint
            == "did you mean 'anna'? Otherwise give one: iris user budget set ann --limit 77 --max-band batch"
        )


async def test_only_an_admin_sets_budgets_and_everybody_reads_them(tmp_path: Path) -> None:
    async with rig(tmp_path, TIERS) as r, calling(r, tmp_path, "ann") as ann, calling(r, tmp_path, "root") as root:
        with pytest.raises(Denied, match="user may not call ControllerService/SetUserBudget"):
            await set_budget(ann, "ann", 0)
        assert (await set_budget(root, "ann", 9)).budget_limit == 9
        assert (await get_budget(ann, "bob")).budget_limit == 5


async def test_the_cluster_file_sets_budgets_at_every_start(tmp_path: Path) -> None:
    async with rig(tmp_path, TIERS) as r:
        await set_budget(r, "eve", 2)
        assert rows(tmp_path) == [("ann", 50, 3), ("bob", 5, 4), ("eve", 2, 3)]
        await set_budget(r, "ann", 1)
    async with rig(tmp_path, TIERS) as r:
        await r.launch("/eve/a")
        assert (await get_budget(r, "ann")).budget_limit == 50
        assert rows(tmp_path) == [("ann", 50, 3), ("bob", 5, 4), ("eve", 2, 3)]


async def test_a_budget_that_cannot_be_understood_fails_the_boot_with_one_line(tmp_path: Path) -> None:
    bad = CONFIG + "user_budgets: [{user_ids: [ann], budget_limit: 1, max_band: prodction}]\n"
    with pytest.raises(UsageFailed) as caught:
        await start(tmp_path, bad)
    assert caught.value.message == "config:5: user_budgets[0].max_band: no priority band 'prodction'"
    assert "production" in caught.value.hint


# Bands ------------------------------------------------------------------------------------------------------------------


SUBMITS = [
    ("root", SYSTEM, ""),
    ("root", PRODUCTION, ""),
    ("ann", INTERACTIVE, ""),
    ("ann", BATCH, ""),
    ("bob", BATCH, ""),
    ("bob", INTERACTIVE, "band interactive is above the highest band of bob, which is batch"),
    ("bob", INHERIT, "band interactive is above the highest band of bob, which is batch"),
    ("ann", PRODUCTION, "band production is for admins, and the highest band of ann is interactive"),
    ("ann", SYSTEM, "band system is for admins, and the highest band of ann is interactive"),
]


async def test_a_band_is_given_or_refused_and_never_lowered(tmp_path: Path) -> None:
    async with rig(tmp_path, TIERS) as r:
        for n, (caller, band, refusal) in enumerate(SUBMITS):
            name = f"/{caller}/a{n}"
            request = launch_request(name, priority_band=band)
            if band == SYSTEM:
                request.system_reason = "iris"
            async with calling(r, tmp_path, caller) as user:
                if refusal:
                    with pytest.raises(Denied, match=refusal) as caught:
                        await submit(user, request)
                    assert caught.value.code == "band_denied"
                    if caller == "bob":
                        assert caught.value.hint == (
                            "submit in band batch, or have an admin raise it:"
                            " iris user budget set bob --limit 5 --max-band interactive"
                        )
                    assert name not in r.controller.model.jobs
                else:
                    await submit(user, request)
                    assert (await r.job(name)).priority_band == band


async def test_a_child_has_its_parents_band_and_may_not_ask_for_more(tmp_path: Path) -> None:
    async with rig(tmp_path, TIERS) as r, calling(r, tmp_path, "ann") as ann:
        await r.launch("/ann/p", priority_band=PRODUCTION)
        await r.launch("/ann/b", priority_band=BATCH)
        await ann.launch("/ann/p/inherits")
        await ann.launch("/ann/b/inherits")
        assert (await r.job("/ann/p/inherits")).priority_band == PRODUCTION
        assert (await r.job("/ann/b/inherits")).priority_band == BATCH
        with pytest.raises(Denied, match="band production is for admins"):
            await ann.launch("/ann/b/more", priority_band=PRODUCTION)


async def test_a_local_admin_submits_within_the_owners_highest_band(tmp_path: Path) -> None:
    async with rig(tmp_path, TIERS) as r:
        with pytest.raises(Denied, match="above the highest band of bob"):
            await r.launch("/bob/a")
        await set_budget(r, "bob", 5)
        await r.launch("/bob/a")


# The scheduler's state --------------------------------------------------------------------------------------------------


async def test_the_scheduler_state_shows_spend_bands_and_the_queue(tmp_path: Path) -> None:
    async with rig(tmp_path, TIERS) as r, r.worker(script=run_on, cpu_millicores=20_000):
        await submit(r, asking("/ann/run", 2, 6))
        await runs(r, "/ann/run", 2)
        wide = asking("/ann/wait", 3, 64)
        wide.constraints.add(key="region", op=common_pb2.CONSTRAINT_OP_EQ).values.add(text="mars")
        await submit(r, wide)
        await r.until("/ann/wait", lambda j: bool(j.pending_reason) and "waiting for" not in j.pending_reason)
        seen = await state(r)
        assert (seen.total_pending, seen.total_running) == (3, 2)
        (bucket,) = seen.running_buckets
        assert (bucket.band, bucket.user_id, bucket.worker_id, bucket.job_id, bucket.backend_id, bucket.count) == (
            INTERACTIVE, "ann", "w1", "/ann/run", "default", 2,
        )  # fmt: skip
        (pending,) = seen.pending_buckets
        assert (pending.user_id, pending.job_id, pending.count) == ("ann", "/ann/wait", 3)
        (entry,) = seen.pending_queue
        assert (entry.position, entry.count, entry.resources.cpu_millicores) == (1, 3, 64_000)
        assert [c.key for c in entry.constraints] == ["region"] and entry.reason
        budgets = {b.user_id: b for b in seen.user_budgets}
        assert budgets.keys() == {"ann", "bob"}
        # Two tasks of 6 cores: 2 x 30 is over ann's 50.
        assert (budgets["ann"].budget_spent, budgets["ann"].effective_band) == (60, BATCH)
        assert budgets["ann"].utilization_percent == 120.0
        assert (pending.band, entry.band, entry.requested_band) == (BATCH, BATCH, INTERACTIVE)
        await set_budget(r, "ann", 0)
        again = await state(r)
        assert again.pending_queue[0].band == INTERACTIVE and again.user_budgets[0].utilization_percent == 0
        assert not again.queue_capped and not again.running_capped


async def test_tasks_keep_the_band_they_were_placed_in(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker(script=run_on):
        await set_budget(r, "u", 5)
        await submit(r, asking("/u/a", 4, 1))
        await runs(r, "/u/a", 4)

        async def placed() -> list[tuple[int, int]]:
            return [(bucket.band, bucket.count) for bucket in (await state(r)).running_buckets]

        # A task of one core costs 5: the third comes when 10 are spent, over the limit, and batch work costs nothing.
        assert await placed() == [(INTERACTIVE, 2), (BATCH, 2)]
        listed = await r.call(
            "ListTasks", controller_pb2.ListTasksRequest(job_id="/u/a"), controller_pb2.ListTasksResponse
        )
        told = [(task.priority_band, task.placed_band) for task in listed.tasks]
        assert sorted(told) == [(INTERACTIVE, INTERACTIVE)] * 2 + [(INTERACTIVE, BATCH)] * 2
        demoted = next(task.task_id for task in listed.tasks if task.placed_band == BATCH)
        explained = await r.call(
            "ExplainTask", controller_pb2.ExplainTaskRequest(task_id=demoted), controller_pb2.ExplainTaskResponse
        )
        assert explained.explanation.cause.endswith(", placed as batch (submitted as interactive)")
        assert (await get_budget(r, "u")).budget_spent == 10
        await set_budget(r, "u", 0)
        assert await placed() == [(INTERACTIVE, 2), (BATCH, 2)]
    async with rig(tmp_path) as r:
        budget = (await state(r)).user_budgets[0]
        assert (budget.user_id, budget.budget_spent) == ("u", 10), "a restart knows in which band each was placed"


async def test_a_cap_on_the_state_says_that_it_cut(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        for n in range(3):
            await submit(r, asking(f"/u/a{n}", 2))
        seen = await state(r, max_queue=2)
        assert [(e.job_id, e.position) for e in seen.pending_queue] == [("/u/a0", 1), ("/u/a1", 3)]
        assert seen.queue_capped and len(seen.pending_buckets) == 3 and seen.total_pending == 6
        assert not (await state(r, max_queue=3)).queue_capped
        with pytest.raises(RpcFailed, match="max_queue -1 is negative"):
            await state(r, max_queue=-1)
        async with r.worker("w1", run_on), r.worker("w2", run_on):
            for n in range(3):
                await runs(r, f"/u/a{n}", 2)
            capped = await state(r, max_running_buckets=1)
            assert len(capped.running_buckets) == 1 and capped.running_capped


async def test_the_state_is_the_same_over_http_and_for_a_dashboard(tmp_path: Path) -> None:
    async with rig(tmp_path, TIERS) as r:
        await r.launch("/ann/a")
        status, found = await r.post("GetSchedulerState", {})
        assert status == 200
        assert found["total_pending"] == "1"
        assert found["user_budgets"][0] == {
            "user_id": "ann", "budget_limit": "50", "max_band": "PRIORITY_BAND_INTERACTIVE",
            "effective_band": "PRIORITY_BAND_INTERACTIVE", "updated_at_ms": found["user_budgets"][0]["updated_at_ms"],
        }  # fmt: skip
        status, bad = await r.post(
            "SetUserBudget", {"user_id": "ann", "budget_limit": "1", "max_band": "PRIORITY_BAND_PRODCTION"}
        )
        assert status == 400 and "max_band" in bad["message"] + bad.get("field", "")


# Users, backends, the provider ------------------------------------------------------------------------------------------


async def test_users_are_counted_by_their_live_jobs(tmp_path: Path) -> None:
    async with rig(tmp_path, TIERS) as r, r.worker(script=run_on):
        assert await users(r) == []
        await submit(r, asking("/ann/a", 2))
        await runs(r, "/ann/a", 2)
        await set_budget(r, "bob", 0)
        await r.launch("/eve/a")
        await r.launch("/root/a", priority_band=PRODUCTION)
        for job in ("/eve/a", "/root/a"):
            await runs(r, job)
        await submit(r, asking("/bob/a", 1, 999))
        await r.launch("/bob/b")
        await runs(r, "/bob/b")
        found = await users(r)
        assert [(u.user_id, u.role, u.active_jobs, u.running_tasks) for u in found] == [
            ("bob", "user", 2, 1), ("ann", "user", 1, 2), ("eve", "user", 1, 1), ("root", "admin", 1, 1),
        ]  # fmt: skip
        assert dict(found[0].jobs_by_state) == {"pending": 1, "running": 1}
        assert dict(found[1].tasks_by_state) == {"running": 2}
        await r.cancel("/ann/a")
        assert [u.user_id for u in await users(r)] == ["bob", "eve", "root"]


async def test_the_backend_says_what_it_offers_and_holds(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        request, response = backends_pb2.ListBackendsRequest(), backends_pb2.ListBackendsResponse
        (empty,) = (await r.call("ListBackends", request, response)).backends
        assert empty.detail == "there are no workers"
        async with r.worker("w1", run_on, attributes={"region": "eu"}), r.worker("w2", run_on, cpu_millicores=2_000):
            await submit(r, asking("/u/a", 2))
            await runs(r, "/u/a", 2)
            (backend,) = (await r.call("ListBackends", request, response)).backends
            assert (backend.backend_id, backend.name, backend.kind) == ("default", "rig", "worker_daemon")
            assert (backend.workers_total, backend.workers_healthy, backend.running_tasks) == (2, 2, 2)
            assert (backend.total.cpu_millicores, backend.committed.cpu_millicores) == (6_000, 200)
            assert [v.text for v in backend.attributes["region"].values] == ["eu"]
            assert backend.detail == ""


async def test_the_provider_says_why_work_waits_and_which_workers_do_not_work(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        request, response = backends_pb2.GetProviderStatusRequest(), backends_pb2.GetProviderStatusResponse
        async with r.worker("w2", run_on):
            for name in ("a", "b"):
                await submit(r, asking(f"/u/{name}", 2, 64))
                await r.until(f"/u/{name}", lambda j: "64" in j.pending_reason)
        async with asyncio.timeout(60):
            while True:
                seen = await r.call("GetProviderStatus", request, response)
                if seen.problems:
                    break
                await r.controller.loop.next_commit(0.5)
        (problem,) = seen.problems
        assert problem.worker_id == "w2" and problem.reason and seen.problems_total == 1
        (event,) = seen.scheduling_events
        assert (event.jobs, event.tasks, event.example_job_id) == (2, 4, "/u/a") and event.reason
        (group,) = seen.capacity
        assert (group.workers_total, group.workers_healthy, group.total.cpu_millicores) == (2, 1, 4_000)
        assert (seen.platform, seen.backend_id) == ("local", "default")
