"""Machines that are made and deleted on demand, a slice at a time. Must never say what a task is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Protocol

from iris_core.contracts.errors import IrisError

if TYPE_CHECKING:
    from iris_core.model.resources import Resources


class SliceState(StrEnum):
    """What the provider says of one slice."""

    CREATING = "creating"
    READY = "ready"
    """Every machine of it runs; its workers attach on their own."""
    FAILED = "failed"
    """It will never become ready; `SliceInfo.error` says why."""
    DELETING = "deleting"
    PREEMPTED = "preempted"
    """It was ready and the provider took it back."""
    UNKNOWN = "unknown"
    """The provider answers, and what it says of this slice makes no sense yet."""


class VmState(IntEnum):
    """One machine of a slice (control-plane §3.1)."""

    BOOTING = 1
    INITIALIZING = 2
    READY = 3
    UNHEALTHY = 4
    STOPPING = 5
    TERMINATED = 6
    FAILED = 7
    PREEMPTED = 8
    REQUESTING = 9


@dataclass(frozen=True, slots=True)
class SliceSpec:
    """A slice to be made, named by the controller: asking twice for one `slice_id` makes one slice."""

    slice_id: str
    """`<scale group>-<8 hex digits>`."""
    scale_group: str
    num_vms: int
    resources: Resources
    """Of one machine; a zero is "whatever the machine has"."""
    attributes: Mapping[str, str | int | float] = field(default_factory=dict)
    """Of each worker, canonical, the well-known ones included."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Kept by the provider beside the slice, and given back by `list`."""
    zone: str = ""
    preemptible: bool = False
    cache_dir: str = ""
    """Where its workers keep bundles and work directories, "" = their default."""
    options: Mapping[str, object] = field(default_factory=dict)
    """The provider's own part of the group's `slice_template` (`gcp`, `manual`, `local` …), as configured."""

    @property
    def worker_ids(self) -> tuple[str, ...]:
        """The workers this slice will have, in the order of its machines: `<slice id>-w-<i>`."""
        return tuple(f"{self.slice_id}-w-{index}" for index in range(self.num_vms))


@dataclass(frozen=True, slots=True)
class VmInfo:
    """One machine of a slice."""

    vm_id: str
    worker_id: str
    """The id under which its worker attaches, "" = not known yet."""
    address: str = ""
    """host:port of its `/health`, "" = none."""
    state: VmState = VmState.BOOTING
    error: str = ""


@dataclass(frozen=True, slots=True)
class SliceInfo:
    """A slice as its provider sees it."""

    slice_id: str
    scale_group: str
    state: SliceState
    vms: tuple[VmInfo, ...] = ()
    """As many as are known: fewer than `num_vms` while it is made, or where only part of it came."""
    created_at_ms: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


class MachinesFailed(IrisError):
    """The provider refused or broke. `retryable` false = the same request can never succeed.

    QuotaExceeded    a limit of the project or account: the operator has to act
    StockOut         the provider has none of these machines now
    """

    def __init__(self, reason: str, *, retryable: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        """The provider's own words, unchanged."""
        self.retryable = retryable


class QuotaExceeded(MachinesFailed):
    """A limit of the project or account is used up."""


class StockOut(MachinesFailed):
    """The provider has none of these machines at the moment."""


class Machines(Protocol):
    """Where slices come from. Knows nothing of jobs, tasks or why a slice is wanted.

    Every call may take minutes and may be cancelled; all but `create` and `delete` change nothing. Raises
    MachinesFailed and its kinds; any other exception counts as MachinesFailed.
    """

    async def create(self, spec: SliceSpec) -> SliceInfo:
        """Asks for a slice and returns once the request is accepted, long before it is ready. Repeating a request
        returns the slice that is there.
        """
        ...

    async def list(self) -> Sequence[SliceInfo]:
        """Every slice of this cluster, those that are being deleted included."""
        ...

    async def describe(self, slice_id: str) -> SliceInfo | None:
        """None = there is no such slice."""
        ...

    async def delete(self, slice_id: str) -> None:
        """Asks for the end of a slice; it is gone when `list` no longer has it. Deleting what is absent is no error."""
        ...

    async def vm_logs(self, vm_id: str, lines: int) -> Sequence[str]:
        """The last lines of a machine's boot or worker log, oldest first. Raises MachinesFailed: no such machine."""
        ...

    def reachable(self, address: str) -> bool:
        """Whether the controller can open a connection to that address of a machine: decides if `/health` is asked."""
        ...
