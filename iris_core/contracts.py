"""The protocols between the floors of the house. All of them live here and nowhere else.

A protocol says what a neighbour may rely on: plain data in and out, the errors it raises, who closes it. Each has a shipped
fake in `providers/fake/` which the tests use. Must never import an implementation, a database or a user interface.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from iris_core.model.images import ImageRef
    from iris_core.model.resources import Resources

R = TypeVar("R", bound="Message")


class IrisError(Exception):
    """Any failure that an operator is told about in one line. `exit_code` is the command line's exit code for it.

    ConnectFailed    nobody answers there, or the connection broke          exit 1
    RpcFailed        the server answered with an error                      exit 1
      Denied         UNAUTHENTICATED or PERMISSION_DENIED                   exit 1
    UsageFailed      the caller's words are wrong                           exit 2

    The hint is not part of the text; a traceback shows it below.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if hint:
            self.add_note(hint)


class ConnectFailed(IrisError):
    """The endpoint did not answer; nothing is known about what it did with the request."""


class UsageFailed(IrisError):
    """The caller's input is wrong: nothing was sent."""

    exit_code = 2


class RpcFailed(IrisError):
    """The server answered with an error. `status` is the gRPC code's name (`NOT_FOUND`), the rest is `iris.v1.ErrorDetail`."""

    def __init__(
        self,
        status: str,
        message: str,
        *,
        code: str = "",
        subject: str = "",
        field: str = "",
        position: int | None = None,
        hint: str = "",
        retry_after_ms: int = 0,
    ) -> None:
        super().__init__(message, hint=hint)
        self.status = status
        self.code = code
        self.subject = subject
        self.field = field
        self.position = position
        self.retry_after_ms = retry_after_ms
        if status == "INVALID_ARGUMENT":
            self.exit_code = 2


class Denied(RpcFailed):
    """The caller is unknown or may not do this."""


class Client(Protocol):
    """A synchronous connection to a controller, for the command line and scripts.

    `method` is `Service/Name` (`iris_core.wire.services`). Raises ConnectFailed, RpcFailed, Denied. The generated request and
    response classes are those of the method. A mutation without a `request_id` gets one.
    """

    url: str

    def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R: ...

    def stream(self, method: str, request: Message, response: type[R]) -> Iterator[R]: ...

    def close(self) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class AsyncClient(Protocol):
    """The same connection for an event loop: the console."""

    url: str

    async def call(self, method: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R: ...

    def stream(self, method: str, request: Message, response: type[R]) -> AsyncIterator[R]: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One stored object. `generation` changes with every write and is what compare-and-set compares."""

    name: str
    size_bytes: int
    generation: str


class GenerationMismatch(IrisError):
    """The object is not at the expected generation: somebody else wrote it."""


class ObjectMissing(IrisError):
    """There is no such object."""


class ObjectStore(Protocol):
    """Flat objects under one root URL. Names are relative, `/`-separated, and never leave the root.

    Every method may raise IrisError: the store does not answer, or refuses.
    """

    url: str

    def put(self, name: str, data: bytes, *, if_generation: str | None = None) -> ObjectInfo:
        """Durable when it returns. `if_generation=""` = only if absent. Raises GenerationMismatch."""
        ...

    def put_file(self, name: str, path: Path, *, if_generation: str | None = None) -> ObjectInfo:
        """As `put`, for a file of any size, which is handed over: it is gone afterwards. Raises GenerationMismatch."""
        ...

    def get(self, name: str) -> bytes:
        """Raises ObjectMissing."""
        ...

    def chunks(self, name: str) -> Iterator[bytes]:
        """One version of an object of any size, in pieces of some MiB. Raises ObjectMissing."""
        ...

    def stat(self, name: str) -> ObjectInfo | None: ...

    def list(self, prefix: str) -> Iterator[ObjectInfo]: ...

    def delete(self, name: str) -> None:
        """Deleting what is absent is no error."""
        ...


@dataclass(frozen=True, slots=True)
class ControllerStatus:
    """What is known of a controller process without asking it.

    Attributes:
        running: Something is there that serves, or is kept being started until it does.
        url: Where it serves, "" while it does not.
        pid: Of the controller, 0 while there is none.
        detail: How it stands, in a few words.
        release: What it was started from, "" = not known.
        boot_id: Of the controller that serves, "" while none does.
        failures: How often in a row it ended by itself since it was started, or since it last served for a while.
    """

    running: bool
    url: str
    pid: int
    detail: str
    release: str = ""
    boot_id: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True)
class StagedRelease:
    """A release that lies where its host can start it: the folder of its modules, and the interpreter that has what they need."""

    id: str
    python: str
    lib: Path


class ControllerUnhealthy(IrisError):
    """A controller was started and does not serve; `lines` are the last that it wrote."""

    def __init__(self, message: str, *, hint: str = "", lines: Sequence[str] = ()) -> None:
        super().__init__(message, hint=hint)
        self.lines = tuple(lines)


class ControllerHost(Protocol):
    """A place where a controller runs: this machine now, SSH hosts, VMs and Kubernetes later.

    Every call may block for as long as it says, and may raise IrisError: the host cannot be reached, or refuses.
    """

    def stage(self, release: str) -> None:
        """Sees to it that a release can be started here, and that its interpreter loads it. Nothing that runs is touched."""
        ...

    def start(self, release: str) -> None:
        """Begins a controller of that release, and has it started again when it dies. Raises IrisError: one runs already."""
        ...

    def stop(self, kill_after_s: float | None = None) -> None:
        """Ends the controller, which drains first; workers and tasks stay. Nothing to end is no error.

        `kill_after_s`: one that hangs is killed after so long, None = after what it may take to drain.
        """
        ...

    def status(self) -> ControllerStatus: ...

    def await_healthy(self, timeout_s: float = 120.0) -> ControllerStatus:
        """Waits until it answers `/health`. Raises ControllerUnhealthy: not within the time, or it keeps ending by itself."""
        ...

    def logs(self, lines: int) -> Sequence[str]:
        """The last lines that controllers here wrote, oldest first."""
        ...

    def schema(self, release: str) -> Sequence[str]:
        """The migrations that a release knows, in order. Raises IrisError: it does not lie there."""
        ...

    def offline(self, release: str, words: Sequence[str], timeout_s: float = 600.0) -> str:
        """Runs `iris-controller WORDS` of a release where the state is, beside a controller that is stopped; what it printed.

        Raises IrisError, in its own words: it failed.
        """
        ...


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """What a registry holds under a reference.

    Attributes:
        ref: The image by its digest: what may be deployed.
        platforms: `linux/amd64` and so on, sorted; attestations, whose platform is unknown, are left out.
        is_index: Whether it is a list of images, one per platform, and not a single one.
        media_type: Of the manifest, as it was sent.
    """

    ref: ImageRef
    platforms: tuple[str, ...]
    is_index: bool
    media_type: str


class RegistryFailed(IrisError):
    """An image registry does not answer, or not as a registry does.

    ImageMissing      it has no such image
    RegistryDenied    it refuses whoever asks: no credentials, wrong ones, or no right to do this
    """


class ImageMissing(RegistryFailed):
    """The registry has no such image, tag or digest."""


class RegistryDenied(RegistryFailed):
    """The registry refuses whoever asks."""


class Registry(Protocol):
    """Where images lie. Every call may block for as long as its time-out, and may raise RegistryFailed and its kinds."""

    def inspect(self, image: ImageRef) -> ImageInfo:
        """What a tag or digest stands for now. Raises ImageMissing."""
        ...

    def tag(self, image: ImageRef, tag: str) -> ImageInfo:
        """Gives an image another tag in its repository, byte for byte. Raises ImageMissing; UsageFailed: the tag is `latest`, which
        nothing here moves.
        """
        ...

    def check_push(self, image: ImageRef) -> None:
        """Raises RegistryDenied: whoever runs this may not push there. No image is left behind."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ImageBuild:
    """One image to be built and pushed.

    Attributes:
        target: The stage of the Dockerfile: controller, worker or task.
        ref: Where it is pushed to, with its tag.
        platforms: What it is built for, sorted.
        profile: `fast` or `release`.
        base: The image that it stands on, by its digest.
        tree: The frozen tree's id, which the image says of itself.
        context: An export of that tree, which nobody else writes to.
        cache: Where layers are kept between builds, None = nowhere.
    """

    target: str
    ref: ImageRef
    platforms: tuple[str, ...]
    profile: str
    base: ImageRef
    tree: str
    context: Path
    cache: ImageRef | None = None


class ImageBuilder(Protocol):
    """Builds images and pushes them in the same step."""

    def check(self, platforms: Sequence[str]) -> None:
        """Raises IrisError: it cannot build here, or not for all of these platforms."""
        ...

    def build(self, build: ImageBuild, say: Callable[[str], None]) -> str:
        """Builds and pushes; returns the digest of what was pushed. `say` gets each line of its log. Raises IrisError."""
        ...


class Tunnel(Protocol):
    """A way to reach a controller that is not directly reachable; open for the life of the command."""

    url: str

    @property
    def alive(self) -> bool:
        """Whether it still carries anything. One that broke stays broken: another one has to be opened."""
        ...

    def problem(self) -> str:
        """Why nothing comes through, as far as the way itself says, in one line; "" if it says nothing."""
        ...

    def close(self) -> None: ...


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
