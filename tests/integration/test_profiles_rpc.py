"""The RPCs about profiles at a real controller: who may ask, what goes down to a worker, what comes up from one by itself."""

from __future__ import annotations

import asyncio
import gzip
import time
from typing import TYPE_CHECKING

import pytest

from iris_core.auth.keys import load_key
from iris_core.auth.tokens import TokenSigner
from iris_core.contracts import Denied, RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, profiles_pb2, worker_pb2
from providers.fake.worker import run_on
from tests.integration.controller_rig import CONFIG, Rig, connect, rig

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from iris_core.client.aio import GrpcAsyncClient

pytestmark = pytest.mark.asyncio

Options = profiles_pb2.ProfileOptions
THREADS = profiles_pb2.PROFILE_TYPE_THREADS
CPU = profiles_pb2.PROFILE_TYPE_CPU


async def profile(
    client: GrpcAsyncClient, target: str, kind: profiles_pb2.ProfileType = THREADS, **values: object
) -> profiles_pb2.ProfileTaskResponse:
    options = Options(type=kind, **values)  # type: ignore[arg-type]
    request = profiles_pb2.ProfileTaskRequest(target=target, options=options)
    return await client.call("ControllerService/ProfileTask", request, profiles_pb2.ProfileTaskResponse, timeout_s=60)


async def refused(client: GrpcAsyncClient, target: str, **values: object) -> RpcFailed:
    with pytest.raises(RpcFailed) as caught:
        await profile(client, target, **values)  # type: ignore[arg-type]
    return caught.value


async def until(true: Callable[[], bool], timeout_s: float = 90) -> None:
    """Waits for what nobody can signal us about: a file."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline, "it did not come about in time"
        await asyncio.sleep(0.01)


def stored(tmp_path: Path) -> list[bytes]:
    """What lies in the object store, unpacked."""
    return [gzip.decompress(path.read_bytes()) for path in sorted(tmp_path.rglob("profiles/2*/*.gz"))]


async def running(r: Rig, name: str) -> str:
    """A job of one task that runs; the uid of its attempt."""
    await r.launch(name)
    await r.until_state(name, common_pb2.JOB_STATE_RUNNING)
    return (await r.task(f"{name}/0")).task.attempt_uid


async def test_a_request_goes_to_the_worker_and_its_answer_comes_in_parts(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on) as w:
        assert w.welcome.profile_interval_ms == 600_000
        uid = await running(r, "/u/a")
        asking = asyncio.create_task(profile(r.client, "/u/a/0", CPU, duration_seconds=3, native=True))
        await w.until(lambda _: bool(w.requests))
        (request,) = w.requests
        asked = request.profile
        assert (asked.attempt_uid, asked.requested_by) == (uid, "local_admin")
        assert (asked.options.duration_seconds, asked.options.rate_hz) == (3, 20)
        data = gzip.compress(b"samples" * 1000)
        record = profiles_pb2.ProfileRecord(
            source="/u/a/0", attempt_uid=uid, vm_id="w1", type=CPU, format=profiles_pb2.PROFILE_FORMAT_RAW,
            trigger=profiles_pb2.PROFILE_TRIGGER_ON_DEMAND, captured_at_ms=1, size_bytes=7000,
        )  # fmt: skip
        for part in (
            profiles_pb2.ProfilePart(data=data[:10]),
            profiles_pb2.ProfilePart(data=data[10:], last=True, record=record, notes=["said"]),
        ):
            reply = worker_pb2.WorkerReply(request_id=request.request_id, profile=part)
            w.send(worker_pb2.AttachRequest(reply=reply))
        answer = await asking
        assert answer.profile_data == b"samples" * 1000
        assert list(answer.notes) == ["said"]
        assert answer.record.profile_id
        assert answer.record.incarnation == (await r.job("/u/a")).incarnation
        assert stored(tmp_path) == [b"samples" * 1000]

        failing = asyncio.create_task(refused(r.client, "/u/a/0"))
        await w.until(lambda _: len(w.requests) == 2)
        part = profiles_pb2.ProfilePart(
            last=True, error="process 7 is stopped", hint="kill -CONT 7", code="target_stopped"
        )
        reply = worker_pb2.WorkerReply(request_id=w.requests[1].request_id, profile=part)
        w.send(worker_pb2.AttachRequest(reply=reply))
        error = await failing
        assert (error.status, error.message, error.hint) == (
            "FAILED_PRECONDITION",
            "process 7 is stopped",
            "kill -CONT 7",
        )
        assert error.code == "target_stopped"

        leaving = asyncio.create_task(profile(r.client, "/u/a/0"))
        await w.until(lambda _: len(w.requests) == 3)
        leaving.cancel()
        await w.until(lambda _: len(w.requests) == 4)
        assert w.requests[3].give_up == w.requests[2].request_id


async def test_what_a_worker_sends_by_itself_is_kept_if_the_attempt_is_its_own(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on) as honest, r.worker("w2", run_on) as liar:
        uid = await running(r, "/u/a")
        owner = (await r.task("/u/a/0")).task.worker_id
        own, other = (honest, liar) if owner == "w1" else (liar, honest)
        for worker, kind, text in ((other, THREADS, b"a lie"), (own, 99, b"unheard of"), (own, THREADS, b"the truth")):
            record = profiles_pb2.ProfileRecord(
                source="/someone/else/0", attempt_uid=uid, type=kind, format=profiles_pb2.PROFILE_FORMAT_TEXT,  # type: ignore[arg-type]
            )  # fmt: skip
            capture = worker_pb2.ProfileCapture(record=record, data=gzip.compress(text))
            worker.send(worker_pb2.AttachRequest(capture=capture))
            worker.heartbeat()
        await until(lambda: b"the truth" in stored(tmp_path))
        assert stored(tmp_path) == [b"the truth"]


async def test_a_profile_whose_attempt_ends_while_it_is_taken_is_found_under_its_job(tmp_path: Path) -> None:
    """Asked for, and taken by the worker itself: what the state forgets with the end is not what says whose it is."""
    async with rig(tmp_path) as r, r.worker("w1", run_on) as w:
        uid = await running(r, "/u/a")
        asking = asyncio.create_task(profile(r.client, "/u/a/0", CPU, duration_seconds=20))
        await w.until(lambda _: bool(w.requests))
        (request,) = w.requests
        w.report([w.observation(uid, common_pb2.TASK_STATE_SUCCEEDED, exit_code=0)])
        incarnation = (await r.until_state("/u/a", common_pb2.JOB_STATE_SUCCEEDED)).incarnation
        await forgotten(r, uid)
        record = profiles_pb2.ProfileRecord(
            source="/someone/else/0", attempt_uid=uid, type=CPU, format=profiles_pb2.PROFILE_FORMAT_RAW,
            trigger=profiles_pb2.PROFILE_TRIGGER_ON_DEMAND, captured_at_ms=1,
        )  # fmt: skip
        part = profiles_pb2.ProfilePart(data=gzip.compress(b"asked for"), last=True, record=record)
        w.send(worker_pb2.AttachRequest(reply=worker_pb2.WorkerReply(request_id=request.request_id, profile=part)))
        kept = (await asking).record
        assert (kept.source, kept.attempt_uid, kept.attempt_id, kept.vm_id) == ("/u/a/0", uid, 0, "w1")
        assert kept.incarnation == incarnation

        capture = worker_pb2.ProfileCapture(record=record, data=gzip.compress(b"by itself"))
        w.send(worker_pb2.AttachRequest(capture=capture))
        listing = profiles_pb2.ListProfilesRequest(prefix="/u/a", min_incarnation=incarnation)
        found = await listed(r, listing, 2)
        assert {(one.source, one.attempt_uid, one.attempt_id, one.incarnation) for one in found} == {
            ("/u/a/0", uid, 0, incarnation)
        }
        assert {one.trigger for one in found} == {
            profiles_pb2.PROFILE_TRIGGER_ON_DEMAND,
            profiles_pb2.PROFILE_TRIGGER_PERIODIC,
        }


async def forgotten(r: Rig, uid: str) -> None:
    """Waits on commits until the model has no such attempt any more."""
    async with asyncio.timeout(60):
        while uid in r.controller.model.attempts:
            await r.controller.loop.next_commit(0.5)


async def listed(r: Rig, request: profiles_pb2.ListProfilesRequest, count: int) -> Sequence[profiles_pb2.ProfileRecord]:
    """What is listed once the log store has so many, which nobody can signal us about."""
    async with asyncio.timeout(90):
        while True:
            found = (await r.call("ListProfiles", request, profiles_pb2.ListProfilesResponse)).profiles
            if len(found) >= count:
                return found
            await asyncio.sleep(0.05)


async def test_who_may_look_into_what(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, r.worker("w1", run_on):
        uid = await running(r, "/u/a")
        await running(r, "/v/b")
        signer = TokenSigner(load_key(tmp_path / "signing.key"))
        task = connect(r.controller, signer.task_token("u", "/u/a", "/u/a", uid))
        user = connect(r.controller, signer.user_token("v"))
        viewer = connect(r.controller, signer.user_token("eve", dashboard=True))
        try:
            for client, target in (
                (task, "/v/b/0"),
                (task, ""),
                (task, "/system/worker/w1"),
                (user, "/u/a/0"),
                (viewer, "/u/a/0"),
            ):
                assert isinstance(await refused(client, target), Denied), target
            assert isinstance(await refused(user, "/system/controller", locals=True), Denied)
            for target, status in (
                ("/u/a", "INVALID_ARGUMENT"),
                ("/u/a/7", "NOT_FOUND"),
                ("/u/a/0:5", "FAILED_PRECONDITION"),
                ("/system/worker/none", "NOT_FOUND"),
            ):
                assert (await refused(r.client, target)).status == status
            bad = await refused(r.client, "/u/a/0", kind=CPU, rate_hz=5000)
            assert (bad.status, bad.field) == ("INVALID_ARGUMENT", "options.rate_hz")
            with pytest.raises(Denied):
                listing = profiles_pb2.ListProfilesRequest(prefix="/v/b")
                await task.call("ControllerService/ListProfiles", listing, profiles_pb2.ListProfilesResponse)
            unknown = profiles_pb2.GetProfileRequest(
                profile_id="20260101-0123456789ab", type=CPU, format=profiles_pb2.PROFILE_FORMAT_RAW
            )
            with pytest.raises(RpcFailed, match="no longer in"):
                await user.call("ControllerService/GetProfile", unknown, profiles_pb2.GetProfileResponse)
        finally:
            for client in (task, user, viewer):
                await client.close()


async def test_the_controller_looks_at_itself_by_itself_and_when_asked(tmp_path: Path) -> None:
    config = CONFIG.replace("port: 0}", "port: 0}, profile_interval_seconds: 1")
    async with rig(tmp_path, config) as r, r.worker() as w:
        assert w.welcome.profile_interval_ms == 1_000
        await until(lambda: bool(stored(tmp_path)))
        assert b"run_until_complete" in stored(tmp_path)[0]
        secret = await profile(r.client, "/system/process", locals=True)
        assert b"Locals:" in secret.profile_data
        assert not secret.record.profile_id
        assert list(secret.notes) == ["the dump is not kept: its local variables may hold secrets"]
        answer = await profile(r.client, "/system/process")
        assert b"run_until_complete" in answer.profile_data
        assert (answer.record.source, answer.record.vm_id) == ("/system/controller", "controller-self")
