"""Slices of real worker processes without a controller: made, adopted, lost, deleted, and nothing of them left."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_controller.worker.sweep import sweep_folder
from iris_core.contracts import MachinesFailed, SliceInfo, SliceSpec, SliceState, VmState
from iris_core.model.resources import Device, Resources
from providers.local import vm as local_vm
from providers.local.machines import LocalMachines, worker_words
from providers.local.processes import Known, read_record
from providers.local.vm import recorded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

NOBODY = "http://127.0.0.1:1"
SPEC = SliceSpec(
    "tpu-0a1b2c3d",
    "tpu",
    2,
    Resources(500, 1 << 30, 0, Device("tpu", "v5litepod-16", 4)),
    attributes={"region": "here", "preemptible": "true"},
    labels={"owner": "test"},
)


def again(_: Sequence[SliceInfo], ended: Sequence[SliceInfo]) -> list[SliceSpec]:
    return [replace(SPEC, slice_id=info.slice_id, attributes={"rack": "b"}) for info in ended]


def never(_: Sequence[SliceInfo], ended: Sequence[SliceInfo]) -> list[SliceSpec]:
    return []


class Home:
    """A state directory, and the machines of one controller after the other on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines = LocalMachines(folder, NOBODY, sweep_folder)

    def process(self, worker_id: str, name: str) -> Known:
        found = recorded(self.folder / "workers" / worker_id / f"{name}.json")
        assert found is not None, f"{worker_id} has no live {name}"
        return found

    def command(self, worker_id: str) -> list[str]:
        pid = self.process(worker_id, "worker").pid
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")

    def assert_nothing_left(self) -> None:
        for path in self.folder.glob("workers/*/*.json"):
            assert recorded(path) is None, f"left behind: {path}"

    def begin_attempt(self, worker_id: str, uid: str) -> subprocess.Popen[bytes]:
        """A process as an attempt of that worker, with its record."""
        (self.folder / "workers" / worker_id / "attempts" / f"{uid}.json").write_text("{}")
        return subprocess.Popen(["sleep", "600"], env={**os.environ, "IRIS_ATTEMPT_UID": uid}, start_new_session=True)

    async def until(self, slice_id: str, wanted: Callable[[SliceInfo | None], bool]) -> SliceInfo | None:
        """Waits until the slice is as wanted; fails after 30 s."""
        info = None
        try:
            async with asyncio.timeout(30):
                while not wanted(info := await self.machines.describe(slice_id)):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
        except TimeoutError:
            pytest.fail(f"still {info}")
        return info

    async def until_ready(self, slice_id: str) -> SliceInfo:
        info = await self.until(
            slice_id, lambda s: s is not None and all(vm.state is VmState.READY and vm.address for vm in s.vms)
        )
        assert info is not None
        return info


@asynccontextmanager
async def home(folder: Path) -> AsyncIterator[Home]:
    """Ends what runs at the end, and proves it."""
    made = Home(folder)
    running = asyncio.create_task(made.machines.run())
    try:
        yield made
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.to_thread(made.machines.stop, 10.0)
        made.assert_nothing_left()


@pytest.mark.asyncio
async def test_a_slice_is_made_once_and_goes_without_a_trace(tmp_path: Path) -> None:
    async with home(tmp_path) as here:
        made, again = await asyncio.gather(here.machines.create(SPEC), here.machines.create(SPEC))
        assert (made.state, made.labels) == (SliceState.CREATING, {"owner": "test"})
        assert again.created_at_ms == made.created_at_ms
        assert [vm.worker_id for vm in made.vms] == ["tpu-0a1b2c3d-w-0", "tpu-0a1b2c3d-w-1"]
        ready = await here.until_ready(SPEC.slice_id)
        assert [s.slice_id for s in await here.machines.list()] == [SPEC.slice_id]
        for vm in ready.vms:
            assert here.machines.reachable(vm.address)
            host, _, port = vm.address.partition(":")
            _, writer = await asyncio.open_connection(host, int(port))
            writer.close()
        assert any("worker_started" in line for line in await here.machines.vm_logs("tpu-0a1b2c3d-w-1", 50))
        assert len(await here.machines.vm_logs("tpu-0a1b2c3d-w-1", 1)) == 1
        with pytest.raises(MachinesFailed, match="no machine 'tpu-0'"):
            await here.machines.vm_logs("tpu-0", 5)
        supervisor = here.process("tpu-0a1b2c3d-w-1", "supervisor")
        await here.machines.delete(SPEC.slice_id)
        deleting = await here.machines.describe(SPEC.slice_id)
        assert deleting is None or deleting.state is SliceState.DELETING
        await here.machines.delete(SPEC.slice_id)
        assert await here.until(SPEC.slice_id, lambda s: s is None) is None
        assert not supervisor.alive
        assert list((tmp_path / "slices").iterdir()) == list((tmp_path / "workers").iterdir()) == []
        await here.machines.delete("tpu-unknown")


@pytest.mark.asyncio
async def test_a_killed_worker_comes_back_and_a_killed_supervisor_is_replaced(tmp_path: Path) -> None:
    async with home(tmp_path) as here:
        await here.machines.create(SPEC)
        await here.until_ready(SPEC.slice_id)
        name = "tpu-0a1b2c3d-w-0"
        supervisor, worker = here.process(name, "supervisor"), here.process(name, "worker")
        worker.signal(signal.SIGKILL)
        await here.until(
            SPEC.slice_id, lambda s: recorded(tmp_path / "workers" / name / "worker.json") not in (None, worker)
        )
        assert here.process(name, "supervisor") == supervisor
        worker = here.process(name, "worker")
        supervisor.signal(signal.SIGKILL)
        await here.until(
            SPEC.slice_id, lambda s: recorded(tmp_path / "workers" / name / "supervisor.json") not in (None, supervisor)
        )
        info = await here.until_ready(SPEC.slice_id)
        assert (info.state, info.error) == (SliceState.READY, "")
        assert here.process(name, "worker") == worker, "the new supervisor takes over the worker that lives"


@pytest.mark.asyncio
async def test_a_machine_that_lost_both_is_lost_with_its_attempts_and_its_slice_can_still_be_deleted(
    tmp_path: Path,
) -> None:
    async with home(tmp_path) as here:
        await here.machines.create(SPEC)
        await here.until_ready(SPEC.slice_id)
        name = "tpu-0a1b2c3d-w-0"
        attempt = here.begin_attempt(name, "ab" * 8)
        for process in ("supervisor", "worker"):
            here.process(name, process).signal(signal.SIGKILL)
        info = await here.until(SPEC.slice_id, lambda s: s is not None and s.vms[0].state is VmState.FAILED)
        assert info is not None
        assert (info.state, info.vms[1].state) == (SliceState.READY, VmState.READY), (
            "what was ready is not called failed"
        )
        assert info.error == f"{name}: its worker and the supervisor are gone"
        assert await asyncio.to_thread(attempt.wait, 10) == -signal.SIGKILL
        await here.machines.delete(SPEC.slice_id)
        await here.until(SPEC.slice_id, lambda s: s is None)


@pytest.mark.asyncio
async def test_a_worker_that_can_never_start_fails_its_slice(tmp_path: Path) -> None:
    async with home(tmp_path) as here:
        await here.machines.create(replace(SPEC, attributes={"=": "no name"}))
        info = await here.until(SPEC.slice_id, lambda s: s is not None and s.state is SliceState.FAILED)
        assert info is not None
        assert "its supervisor ended with code 2: " in info.error


@pytest.mark.asyncio
async def test_the_next_controller_adopts_and_finishes_what_was_begun(tmp_path: Path) -> None:
    first = Home(tmp_path)
    other = replace(SPEC, slice_id="tpu-ffffffff", num_vms=1)
    await first.machines.create(SPEC)
    await first.machines.create(other)
    await first.until_ready(SPEC.slice_id)
    await first.until_ready(other.slice_id)
    worker = first.process("tpu-0a1b2c3d-w-0", "worker")
    # It dies right after it has begun to end one.
    await first.machines.delete(other.slice_id)
    async with home(tmp_path) as second:
        await asyncio.to_thread(second.machines.adopt, never)
        await second.until(other.slice_id, lambda s: s is None)
        ready = await second.until_ready(SPEC.slice_id)
        assert (ready.labels, ready.scale_group) == ({"owner": "test"}, "tpu")
        assert second.process("tpu-0a1b2c3d-w-0", "worker") == worker
    # `home` ended everything and kept the record: the next ones start it again, or forget it where nobody wants it.
    async with home(tmp_path) as third:
        await asyncio.to_thread(third.machines.adopt, again)
        ready = await third.until_ready(SPEC.slice_id)
        assert ready.labels == {"owner": "test"}
        command = third.command("tpu-0a1b2c3d-w-1")
        assert "rack=b" in command and "region=here" not in command, "as the group is now"
    async with home(tmp_path) as fourth:
        await asyncio.to_thread(fourth.machines.adopt, never)
        assert await fourth.machines.list() == []
        assert list((tmp_path / "slices").iterdir()) == list((tmp_path / "workers").iterdir()) == []
    assert first.machines.stop(0.0) == []


@pytest.mark.asyncio
async def test_a_folder_in_the_way_fails_the_slice_and_a_later_one_is_made(tmp_path: Path) -> None:
    (tmp_path / "workers").write_text("in the way")
    async with home(tmp_path) as here:
        info = await here.machines.create(SPEC)
        assert info.state is SliceState.FAILED
        assert "cannot be started: " in info.error
        (tmp_path / "workers").unlink()
        await here.machines.delete(SPEC.slice_id)
        await here.until(SPEC.slice_id, lambda s: s is None)
        await here.machines.create(SPEC)
        await here.until_ready(SPEC.slice_id)


@pytest.mark.asyncio
async def test_a_torn_record_is_no_slice_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "slices").mkdir()
    (tmp_path / "slices" / "tpu-1.json").write_text('{"slice_id": "tpu-1"')
    (tmp_path / "slices" / "tpu-2.json").write_text('{"slice_id": "tpu-2", "workers": 3}')
    async with home(tmp_path) as here:
        await asyncio.to_thread(here.machines.adopt, again)
        assert await here.machines.list() == []


def test_what_a_worker_is_told_of_its_machine() -> None:
    words = worker_words(SPEC, 1)
    assert words[:4] == ("--slice-id", "tpu-0a1b2c3d", "--scale-group", "tpu")
    assert words[4:12] == ("--cpu", "500m", "--memory", str(1 << 30), "--tpu", "v5litepod-16", "--tpu-chips", "4")
    attributes = {word for before, word in itertools.pairwise(words) if before == "--attribute"}
    assert attributes == {
        "region=here", "preemptible=true", "tpu-name=tpu-0a1b2c3d", "tpu-worker-id=1", "tpu-vm-count=2", "tpu-topology=4x4",
    }  # fmt: skip
    gpu = replace(SPEC, resources=Resources(device=Device("gpu", "h100", 8)), attributes={})
    assert worker_words(gpu, 0)[4:] == ("--gpu", "h100x8")


@pytest.mark.parametrize("variant", ["", "v5litepod-17", "nonsense"])
def test_a_tpu_that_does_not_exist_can_never_be_made(variant: str) -> None:
    spec = replace(SPEC, resources=Resources(device=Device("tpu", variant, 4)))
    with pytest.raises(MachinesFailed, match="scale group tpu: no TPU type") as caught:
        worker_words(spec, 0)
    assert not caught.value.retryable


def test_the_machines_are_told_to_hurry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does not react to the first TERM within the grace is told again, then killed."""
    machines = LocalMachines(tmp_path, NOBODY, sweep_folder)
    asyncio.run(machines.create(replace(SPEC, num_vms=1)))
    path = tmp_path / "workers" / "tpu-0a1b2c3d-w-0" / "worker.json"
    never = threading.Event()
    while not read_record(path).get("health_port"):
        assert not never.wait(0.02)
    worker, supervisor = recorded(path), recorded(path.with_name("supervisor.json"))
    assert worker is not None and supervisor is not None
    supervisor.signal(signal.SIGSTOP)
    monkeypatch.setattr(Known, "ask_to_end", lambda self: self.signal(signal.SIGTERM))  # it stays deaf
    monkeypatch.setattr(local_vm, "HURRY_S", 0.2)
    assert machines.stop(0.2) == ["tpu-0a1b2c3d-w-0"]
    assert not worker.alive and not supervisor.alive
    with pytest.raises(MachinesFailed, match="end with its controller"):
        asyncio.run(machines.create(replace(SPEC, slice_id="tpu-late")))
    assert not (tmp_path / "slices" / "tpu-late.json").exists()


@pytest.mark.asyncio
async def test_a_machine_that_was_stopped_ends_as_any_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever froze it would otherwise have its tasks run on, beside those that replace them, until it is killed."""
    monkeypatch.setattr(local_vm, "END_S", float("inf"))
    async with home(tmp_path) as here:
        await here.machines.create(SPEC)
        await here.until_ready(SPEC.slice_id)
        frozen, keeper = here.process("tpu-0a1b2c3d-w-0", "worker"), here.process("tpu-0a1b2c3d-w-1", "supervisor")
        log = os.open(tmp_path / "workers" / "tpu-0a1b2c3d-w-0" / "worker.log", os.O_RDONLY)
        for process in (frozen, keeper):
            process.signal(signal.SIGSTOP)
        await here.machines.delete(SPEC.slice_id)
        assert await here.until(SPEC.slice_id, lambda s: s is None) is None
        with os.fdopen(log) as said:
            assert "event=worker_stopping" in said.read(), "it was asked, not killed"


@pytest.mark.asyncio
@pytest.mark.parametrize("kept", [True, False])
async def test_supervisors_that_have_not_named_themselves_yet_are_the_next_controller_s(
    tmp_path: Path, kept: bool
) -> None:
    """The controller is killed while its slice boots, and another starts at once."""
    first = LocalMachines(tmp_path, NOBODY, sweep_folder)
    await first.create(SPEC)
    vms = [vm for item in first._slices.values() for vm in item.vms]
    booting = [vm.supervisor for vm in vms]
    for known in booting:
        assert known is not None
        known.signal(signal.SIGSTOP)
    for vm in vms:
        _unname(vm.folder)
    async with home(tmp_path) as here:
        await asyncio.to_thread(here.machines.adopt, never)
        assert await here.machines.describe(SPEC.slice_id) is not None
        here.machines.tend()
        for known in booting:
            assert known is not None and known.alive
            known.signal(signal.SIGCONT)
        if kept:
            await here.until_ready(SPEC.slice_id)
            assert [vm.supervisor for vm in vms] == booting
        await here.machines.delete(SPEC.slice_id)
        assert await here.until(SPEC.slice_id, lambda s: s is None) is None
    assert not any(vm.alive for vm in vms)


def _unname(folder: Path) -> None:
    """As if the supervisor had been stopped a moment earlier, however slow the test is."""
    (folder / "supervisor.json").unlink(missing_ok=True)
