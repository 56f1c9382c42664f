"""Whose a submission is, and what of it may be whose business (control-plane §1.8, §1.9, §5)."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from iris_core.auth.keys import load_key
from iris_core.auth.tokens import TokenSigner
from iris_core.client.aio import GrpcAsyncClient
from iris_core.contracts import Denied, IrisError, RpcFailed
from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from tests.integration.controller_rig import Rig, connect, launch_request, rig

pytestmark = pytest.mark.asyncio

LAUNCH = "ControllerService/LaunchJob"


@asynccontextmanager
async def user(r: Rig, state_dir: Path, name: str) -> AsyncIterator[GrpcAsyncClient]:
    """A client with the credential of a user who is no admin."""
    client = connect(r.controller, TokenSigner(load_key(state_dir / "signing.key")).user_token(name))
    try:
        yield client
    finally:
        await client.close()


async def launch(client: GrpcAsyncClient, name: str) -> controller_pb2.LaunchJobResponse:
    return await client.call(LAUNCH, launch_request(name), controller_pb2.LaunchJobResponse)


async def test_a_users_root_job_is_theirs_whatever_they_wrote_and_children_need_the_owner(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, user(r, tmp_path, "ann") as ann, user(r, tmp_path, "bob") as bob:
        assert (await launch(ann, "/root/Train")).job_id == "/ann/Train"
        job = await r.job("/ann/Train")
        assert (job.user_id, job.submitting_user, job.name) == ("ann", "ann", "train"), (
            "the id keeps its case, the name not"
        )
        with pytest.raises(Denied, match="belongs to ann, you are bob"):
            await launch(bob, "/ann/Train/kid")
        assert (await launch(ann, "/ann/Train/kid")).job_id == "/ann/Train/kid"
        by_admin = await r.launch("/ann/Train/other")
        assert (await r.job(by_admin.job_id)).submitting_user == "ann", "children inherit the root's"
        assert (await r.launch("/ann/admins")).job_id == "/ann/admins", "an admin may submit for others"
        assert (await r.job("/ann/admins")).submitting_user == "local_admin"


async def test_only_owner_and_admin_end_a_job(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, user(r, tmp_path, "ann") as ann, user(r, tmp_path, "bob") as bob:
        for name in ("/ann/a", "/ann/b", "/ann/c"):
            await r.launch(name)
        cancel = controller_pb2.TerminateJobRequest(job_id="/ann/a")
        complete = controller_pb2.CompleteJobRequest(job_id="/ann/b")
        with pytest.raises(Denied, match="belongs to ann"):
            await bob.call("ControllerService/TerminateJob", cancel, controller_pb2.TerminateJobResponse)
        with pytest.raises(Denied, match="belongs to ann"):
            await bob.call("ControllerService/CompleteJob", complete, controller_pb2.CompleteJobResponse)
        assert (await r.job("/ann/a")).state == (await r.job("/ann/b")).state == common_pb2.JOB_STATE_PENDING
        await ann.call("ControllerService/TerminateJob", cancel, controller_pb2.TerminateJobResponse)
        await ann.call("ControllerService/CompleteJob", complete, controller_pb2.CompleteJobResponse)
        assert (await r.job("/ann/a")).state == common_pb2.JOB_STATE_KILLED
        assert (await r.job("/ann/b")).state == common_pb2.JOB_STATE_SUCCEEDED
        assert await r.cancel("/ann/c") == ["/ann/c"]


async def test_a_child_of_a_job_that_is_not_there_or_over_is_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        with pytest.raises(RpcFailed, match="no parent job /u/gone") as caught:
            await r.launch("/u/gone/kid")
        assert caught.value.status == "FAILED_PRECONDITION"
        await r.launch("/u/over")
        await r.cancel("/u/over")
        with pytest.raises(RpcFailed, match="has ended as killed") as caught:
            await r.launch("/u/over/kid")
        assert caught.value.status == "FAILED_PRECONDITION"


async def test_a_bundle_is_what_its_name_says_and_no_larger_than_allowed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:

        async def put(bundle_id: str, data: bytes) -> None:
            request = controller_pb2.PutBundleRequest(bundle_id=bundle_id, data=data)
            await r.call("PutBundle", request, controller_pb2.PutBundleResponse)

        for data, name, said in (
            (b"x", "0" * 64, "not the sha256 of the data"),
            (b"x", "short", "not a sha256 in hex"),
            (bytes(25 * 1024 * 1024 + 1), None, "at most 26214400 are allowed"),
        ):
            with pytest.raises(IrisError, match=said) as caught:
                await put(name or hashlib.sha256(data).hexdigest(), data)
            assert isinstance(caught.value, RpcFailed) and caught.value.status == "INVALID_ARGUMENT"
        with pytest.raises(RpcFailed, match="is not stored here") as missing:
            await r.launch("/u/a", bundle_id="0" * 64)
        assert (missing.value.status, missing.value.code) == ("FAILED_PRECONDITION", "bundle_missing")
        with pytest.raises(RpcFailed, match="no job"):
            await r.job("/u/a")


async def test_targets_of_a_kick_that_name_no_task_are_refused_one_by_one(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        await r.launch("/u/a")
        request = controller_pb2.KickTasksRequest(
            targets=["/u/a:0", "/u/a/0:x", "u/a/0", "/u/a/0"], desired_state=common_pb2.TASK_STATE_PREEMPTED
        )
        answer = await r.call("KickTasks", request, controller_pb2.KickTasksResponse)
        assert [k.queued for k in answer.results] == [False] * 4
        assert all(k.detail for k in answer.results)
        assert answer.results[3].detail == "it is pending, on no worker"
