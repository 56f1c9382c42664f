"""A real worker asked for profiles of its attempts and of itself, and its periodic loop, under a scripted controller."""

from __future__ import annotations

import asyncio
import gzip
import sys
from typing import TYPE_CHECKING

import pytest

from iris_core.wire.gen.iris.v1 import profiles_pb2, worker_pb2
from providers.fake.controller import FakeController
from tests.integration.test_worker_attempts import RUNNING, Worker, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

import pytest_asyncio

from iris_controller.worker import procs
from iris_controller.worker.profiling import targets

pytestmark = pytest.mark.asyncio

THREADS = profiles_pb2.PROFILE_TYPE_THREADS
CPU = profiles_pb2.PROFILE_TYPE_CPU
LOOP = "def very_hot_function():\n    while True: pass\nvery_hot_function()"


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[tuple[FakeController, Worker]]:
    async with FakeController() as controller:
        controller.profile_interval_ms = 1_000
        worker = Worker(controller, tmp_path / "cache", "--no-cgroups")
        worker.start()
        try:
            await controller.attached()
            yield controller, worker
        finally:
            await worker.stop()


def asked(uid: str, kind: profiles_pb2.ProfileType, **values: object) -> worker_pb2.WorkerRequest:
    options = profiles_pb2.ProfileOptions(type=kind, **values)  # type: ignore[arg-type]
    return worker_pb2.WorkerRequest(
        profile=profiles_pb2.ProfileRequest(attempt_uid=uid, options=options, requested_by="ann")
    )


def long_ones(worker: Worker) -> list[int]:
    """The profilers that run for the ten minutes which only a test asks for; the loop has shorter ones."""
    assert worker.process is not None
    ours = [proc.pid for proc in procs.snapshot() if proc.ppid == worker.process.pid]
    return [pid for pid in ours if "--duration 600" in " ".join(targets.words(pid))]


async def test_a_worker_answers_looks_by_itself_and_lets_go(world: tuple[FakeController, Worker]) -> None:
    controller, worker = world
    uid = controller.run([sys.executable, "-c", LOOP], task_id="/u/job/3", attempt_id=2)
    await controller.observed(uid, RUNNING)

    # By itself, and first of all the threads.
    await controller.until(lambda: controller.captures, 60)
    record = controller.captures[0].record
    assert (record.source, record.attempt_id, record.attempt_uid, record.vm_id) == ("/u/job/3", 2, uid, "w1")
    assert (record.type, record.trigger) == (THREADS, profiles_pb2.PROFILE_TRIGGER_PERIODIC)
    assert b"very_hot_function" in gzip.decompress(controller.captures[0].data)

    # Whoever asks comes before the loop.
    reply = await controller.ask(asked(uid, CPU, duration_seconds=1, native=False))
    assert not reply.profile.error
    assert b"very_hot_function" in gzip.decompress(reply.profile.data)
    assert reply.profile.record.trigger == profiles_pb2.PROFILE_TRIGGER_ON_DEMAND

    # Itself, without what it runs.
    reply = await controller.ask(asked("", THREADS))
    dump = gzip.decompress(reply.profile.data)
    assert reply.profile.record.source == "/system/worker/w1"
    assert b"very_hot_function" not in dump
    assert b"MainThread" in dump

    # Nobody waits any more.
    request = asked(uid, CPU, duration_seconds=600, native=False)
    asking = asyncio.create_task(controller.ask(request))
    await until(lambda: long_ones(worker))
    refused = await controller.ask(asked(uid, THREADS))
    assert "is being profiled already (cpu, by ann" in refused.profile.error
    controller.give_up(request)
    await until(lambda: not long_ones(worker))
    asking.cancel()

    assert "not running" in (await controller.ask(asked("0" * 16, THREADS))).error
    bad = await controller.ask(asked(uid, CPU, rate_hz=9999))
    assert (bad.profile.code, bad.profile.data) == ("bad_options", b"")


async def test_a_stream_that_breaks_ends_the_profilers_it_asked_for(world: tuple[FakeController, Worker]) -> None:
    controller, worker = world
    uid = controller.run([sys.executable, "-c", LOOP])
    await controller.observed(uid, RUNNING)
    asking = asyncio.create_task(controller.ask(asked(uid, CPU, duration_seconds=600, native=False)))

    await until(lambda: long_ones(worker))
    controller.drop()
    await until(lambda: not long_ones(worker))
    asking.cancel()
