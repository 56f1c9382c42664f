"""Slices on this machine: groups of supervised worker processes that come and go together (`Machines` of DESIGN §7).

A slice is a file below the state directory, written before its first process and removed after its last, so that the next
controller adopts exactly what this one made, and goes on with a deletion that it left half-way. Devices are declared, not
looked for. A machine that was lost stays lost: whether its slice is replaced is the autoscaler's decision, never ours.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from iris_core.contracts import MachinesFailed, SliceInfo, SliceSpec, SliceState, VmState
from iris_core.model.errors import ModelError
from iris_core.model.tpu import parse_tpu_spec
from providers.local.processes import read_record
from providers.local.vm import LocalVm, Sweep

log = logging.getLogger("iris.local")

TEND_S: Final = 1.0
BUSY_S: Final = 0.1
"""Between two looks while something starts or ends."""


class LocalSlice:
    """One slice: its record, and its machines."""

    def __init__(self, path: Path, record: dict[str, Any], workers: Path, sweep: Sweep) -> None:
        self.path = path
        self.slice_id = str(record["slice_id"])
        self.scale_group = str(record["scale_group"])
        self.created_at_ms = int(record["created_at_ms"])
        self.labels = {str(key): str(value) for key, value in record["labels"].items()}
        self.was_ready = bool(record["was_ready"])
        self.deleting = bool(record["deleting"])
        self.vms = [
            LocalVm(workers / str(item["worker_id"]), str(item["worker_id"]), tuple(item["words"]), sweep)
            for item in record["workers"]
        ]

    def save(self) -> None:
        """Writes the record, whole or not at all. Raises OSError."""
        record = {
            "slice_id": self.slice_id,
            "scale_group": self.scale_group,
            "created_at_ms": self.created_at_ms,
            "labels": self.labels,
            "was_ready": self.was_ready,
            "deleting": self.deleting,
            "workers": [{"worker_id": vm.worker_id, "words": list(vm.words)} for vm in self.vms],
        }
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w") as file:
            json.dump(record, file, indent=1)
        os.replace(temporary, self.path)

    def info(self) -> SliceInfo:
        """What is known of it now. A slice that was ready once and lost a machine stays READY, as a cloud has it."""
        vms = tuple(vm.info(deleting=self.deleting) for vm in self.vms)
        lost = [f"{vm.vm_id}: {vm.error}" for vm in vms if vm.error]
        if self.deleting:
            state = SliceState.DELETING
        elif self.was_ready or all(vm.state is VmState.READY for vm in vms):
            state = SliceState.READY
        else:
            state = SliceState.FAILED if lost else SliceState.CREATING
        error = "; ".join(lost)
        return SliceInfo(self.slice_id, self.scale_group, state, vms, self.created_at_ms, self.labels, error)


class LocalMachines:
    """`adopt` once, then `run` beside everything else; `stop` only where the machines end with the controller.

    `sweep` ends what is left of the attempts of a worker that is gone.
    """

    def __init__(self, state_dir: Path, controller_url: str, sweep: Sweep) -> None:
        self._records = state_dir / "slices"
        self._workers = state_dir / "workers"
        self._url = controller_url
        self._sweep = sweep
        self._slices: dict[str, LocalSlice] = {}
        self._lock = threading.Lock()
        self._changed = asyncio.Event()
        self._stopped = False

    # What blocks, each under the lock and off the loop ----------------------------------------------------------

    def adopt(self, again: Callable[[Sequence[SliceInfo], Sequence[SliceInfo]], Iterable[SliceSpec]]) -> None:
        """Takes over what earlier controllers made. `again` is asked which slices of which nothing is alive, such as after
        a restart of this computer, are to be made again in their folders: it is given those that live and those that
        ended, each oldest first, and answers how they are to be now. The others are forgotten.
        """
        with self._lock:
            found = sorted(self._load(), key=lambda item: (item.created_at_ms, item.slice_id))
            living = [item for item in found if any(vm.alive for vm in item.vms)]
            for item in living:
                self._slices[item.slice_id] = item
                self._start(vm for vm in item.vms if not vm.was_started)
            ended = {item.slice_id: item for item in found if item not in living}
            wanted = [item.info() for item in ended.values() if not item.deleting]
            for spec in again([item.info() for item in living], wanted):
                item = ended[spec.slice_id]
                log.info("starting slice %s again: nothing of it is alive", spec.slice_id)
                try:
                    self._make(spec, item.created_at_ms)
                except MachinesFailed as error:
                    log.error("slice %s cannot be started again: %s", spec.slice_id, error)
            for slice_id in ended.keys() - self._slices.keys():
                self._forget(ended[slice_id])

    def _load(self) -> Sequence[LocalSlice]:
        found = []
        for path in self._records.glob("*.json"):
            try:
                found.append(LocalSlice(path, read_record(path), self._workers, self._sweep))
            except (KeyError, TypeError, ValueError, AttributeError):
                log.error("the record %s cannot be read: its slice is not adopted", path)
        return found

    def _start(self, vms: Iterable[LocalVm]) -> None:
        for vm in vms:
            try:
                vm.start(self._url)
            except OSError as error:
                vm.lost = f"it cannot be started: {(error.strerror or str(error)).lower()}"
                log.error("machine %s: %s", vm.worker_id, vm.lost)

    def _forget(self, item: LocalSlice) -> None:
        for vm in item.vms:
            self._sweep(vm.folder)
            vm.remove()
        item.path.unlink(missing_ok=True)

    def tend(self) -> bool:
        """One look at every machine. Returns whether something is starting or ending."""
        busy = False
        with self._lock:
            for item in [] if self._stopped else list(self._slices.values()):
                try:
                    busy = self._tend(item) or busy
                except OSError as error:
                    log.error("slice %s cannot be looked after: %s", item.slice_id, error)
        return busy

    def _tend(self, item: LocalSlice) -> bool:
        if item.deleting:
            # Every machine gets its step, whatever the one before it said.
            if not all([vm.end() for vm in item.vms]):
                return True
            self._forget(item)
            del self._slices[item.slice_id]
            return False
        for vm in item.vms:
            vm.tend(self._url)
        return not item.was_ready and self._look_if_ready(item)

    @staticmethod
    def _look_if_ready(item: LocalSlice) -> bool:
        if any(vm.lost for vm in item.vms):
            return False
        if item.info().state is not SliceState.READY:
            return True
        item.was_ready = True
        try:
            item.save()
        except OSError as error:
            log.warning("the record of slice %s cannot be written: %s", item.slice_id, error)
        return False

    def _create(self, spec: SliceSpec) -> SliceInfo:
        with self._lock:
            made = self._slices.get(spec.slice_id)
            if made is not None:
                return made.info()
            if self._stopped:
                raise MachinesFailed("the machines of this computer end with its controller")
            return self._make(spec, time.time_ns() // 1_000_000).info()

    def _make(self, spec: SliceSpec, created_at_ms: int) -> LocalSlice:
        record = {
            "slice_id": spec.slice_id,
            "scale_group": spec.scale_group,
            "created_at_ms": created_at_ms,
            "labels": dict(spec.labels),
            "was_ready": False,
            "deleting": False,
            "workers": [
                {"worker_id": worker_id, "words": worker_words(spec, index)}
                for index, worker_id in enumerate(spec.worker_ids)
            ],
        }
        made = LocalSlice(self._records / f"{spec.slice_id}.json", record, self._workers, self._sweep)
        try:
            made.save()
        except OSError as error:
            raise MachinesFailed(f"cannot write {made.path}: {(error.strerror or str(error)).lower()}") from None
        self._slices[spec.slice_id] = made
        self._start(made.vms)
        return made

    def _list(self) -> Sequence[SliceInfo]:
        with self._lock:
            for item in self._slices.values():
                if not item.was_ready and not item.deleting:
                    # What was once called ready stays so.
                    self._look_if_ready(item)
            return [item.info() for item in self._slices.values()]

    def _delete(self, slice_id: str) -> None:
        with self._lock:
            item = self._slices.get(slice_id)
            if item is None or item.deleting:
                return
            item.deleting = True
            try:
                item.save()
            except OSError as error:
                log.warning("the record of slice %s cannot be written: %s", slice_id, error)
            for vm in item.vms:
                vm.end()

    def _tail(self, vm_id: str, lines: int) -> Sequence[str]:
        with self._lock:
            vm = next((vm for item in self._slices.values() for vm in item.vms if vm.worker_id == vm_id), None)
        if vm is None:
            raise MachinesFailed(f"no machine {vm_id!r} on this computer", retryable=False)
        return vm.log_tail(lines)

    def stop(self, grace_s: float, hurry: Callable[[], bool] = lambda: False) -> Sequence[str]:
        """Ends every machine and keeps the records, so that the next controller starts the same again. Tasks get their
        grace, `grace_s` at most, or none when `hurry` says so. Returns whose were cut short. Blocks; after `run` has
        ended.
        """
        with self._lock:
            self._stopped = True
            left = {vm.worker_id: vm for item in self._slices.values() for vm in item.vms}
            cut = []
            deadline = time.monotonic() + grace_s
            while left:
                hurrying = hurry() or time.monotonic() >= deadline
                for worker_id, vm in list(left.items()):
                    if vm.end(hurry=hurrying):
                        del left[worker_id]
                        if vm.hurried:
                            cut.append(worker_id)
                if left:
                    time.sleep(0.05)
        return cut

    # Machines -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Looks after the machines for ever."""
        while True:
            self._changed.clear()
            busy = await asyncio.to_thread(self.tend)
            try:
                async with asyncio.timeout(BUSY_S if busy else TEND_S):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def create(self, spec: SliceSpec) -> SliceInfo:
        """See `Machines`."""
        made = await asyncio.to_thread(self._create, spec)
        self._changed.set()
        return made

    async def list(self) -> Sequence[SliceInfo]:
        """See `Machines`."""
        return await asyncio.to_thread(self._list)

    async def describe(self, slice_id: str) -> SliceInfo | None:
        """See `Machines`."""
        return next((item for item in await self.list() if item.slice_id == slice_id), None)

    async def delete(self, slice_id: str) -> None:
        """See `Machines`."""
        await asyncio.to_thread(self._delete, slice_id)
        self._changed.set()

    async def vm_logs(self, vm_id: str, lines: int) -> Sequence[str]:
        """See `Machines`."""
        return await asyncio.to_thread(self._tail, vm_id, lines)

    def reachable(self, address: str) -> bool:
        """Every worker here listens on loopback."""
        return bool(address)


def worker_words(spec: SliceSpec, index: int) -> tuple[str, ...]:
    """The options of the worker on machine `index`. Raises MachinesFailed: no such machine can be had here."""
    words = ["--slice-id", spec.slice_id, "--scale-group", spec.scale_group]
    offered = spec.resources
    if offered.cpu_millicores:
        words += ["--cpu", f"{offered.cpu_millicores}m"]
    if offered.memory_bytes:
        words += ["--memory", str(offered.memory_bytes)]
    if offered.disk_bytes:
        words += ["--disk", str(offered.disk_bytes)]
    attributes = dict(spec.attributes)
    device = offered.device
    if device is not None and device.kind == "gpu":
        words += ["--gpu", f"{device.variant}x{device.count}" if device.variant else str(device.count)]
    elif device is not None:
        try:
            tpu = parse_tpu_spec(device.variant)
        except ModelError as error:
            text = f"scale group {spec.scale_group}: {error.message}{'; ' + error.hint if error.hint else ''}"
            raise MachinesFailed(text, retryable=False) from None
        words += ["--tpu", tpu.name, "--tpu-chips", str(device.count)]
        attributes |= {"tpu-name": spec.slice_id, "tpu-worker-id": index, "tpu-vm-count": spec.num_vms}
        if tpu.topology:
            attributes |= {"tpu-topology": tpu.topology}
    for key, value in attributes.items():
        words += ["--attribute", f"{key}={value}"]
    return tuple(words)
