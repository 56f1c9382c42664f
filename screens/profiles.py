"""Profiles: what was captured in the last week, and capturing now.

The list is read again every so often: captures are kept by the log store and not watched. A capture goes on when the screen is left;
while it runs its progress is in the title, and what it gave opens by itself if the screen is still shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from iris_core.contracts import IrisError
from iris_core.live import capture
from iris_core.live.polled import Polled
from iris_core.live.profile_columns import PROFILES
from iris_core.live.profile_filters import PROFILE_FIELDS, PROFILE_WORDS, profile_row
from iris_core.live.rows import Changes, ChangeSet, Row, RowStore
from iris_core.live.wording import Tone
from iris_core.model.errors import ModelError
from iris_core.model.resources import format_duration
from iris_core.model.text import one_line
from iris_tui import changes
from iris_tui.actions import BY_ID
from iris_tui.change_requests import KEPT_AS
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import ListScreen, SpecCells
from iris_tui.pages import TextPage
from iris_tui.tabbed import polled_status
from iris_tui.widgets.prompt import Question

if TYPE_CHECKING:
    from iris_core.analysis.stacks import Stacks
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
    from iris_tui.app import IrisApp
    from iris_tui.pages import Lines
    from iris_tui.session import Session
    from iris_tui.widgets.pane import Status
    from iris_tui.widgets.virtual_table import Cells

MOST: Final = 1000
EVERY_S: Final = 30.0
LIST_S: Final = 60.0
COLUMNS: Final = (
    "source",
    "type",
    "captured_at",
    "duration_seconds",
    "size_bytes",
    "trigger",
    "format",
    "vm_id",
    "profile_id",
)


class ProfileSource:
    """The kept profiles as rows: `ListScreen`'s source."""

    def __init__(self, session: Session) -> None:
        self.store: RowStore[Any] = RowStore(("profile",))
        self.capped = False
        self.notes: tuple[str, ...] = ()
        self.polled: Polled[Any] = Polled(self._load, every_s=EVERY_S)
        self._session = session
        self._version = 0
        self._changes = ChangeSet()

    @property
    def loaded(self) -> bool:
        """Whether it was read once."""
        return self.polled.loaded

    async def _load(self) -> Any:
        from iris_core.wire.gen.iris.v1 import profiles_pb2

        request = profiles_pb2.ListProfilesRequest(page_size=MOST)
        return await self._session.client.call(
            "ControllerService/ListProfiles", request, profiles_pb2.ListProfilesResponse, timeout_s=LIST_S
        )

    def take_changes(self) -> ChangeSet:
        """What changed since the last call."""
        answer = self.polled.value
        if answer is not None and self.polled.version != self._version:
            self._version = self.polled.version
            self.capped, self.notes = answer.capped, tuple(answer.notes)
            rows = [
                Row(record.profile_id, "profile", record, natural=-record.captured_at_ms)
                for record in answer.profiles
                if (known := self.store.get(record.profile_id)) is None or known.value != record
            ]
            present = {record.profile_id for record in answer.profiles}
            gone = [name for name in self.store.rows if name not in present]
            self._changes.merge(self.store.apply(Changes(rows, gone)))
            self.store.dirty = True
        found, self._changes = self._changes, ChangeSet()
        return found


@dataclass(slots=True)
class Running:
    """A capture that goes on."""

    capture: capture.Capture
    began_s: float


class ProfilesScreen(ListScreen):
    """One cluster's kept profiles."""

    SCOPES: ClassVar[tuple[str, ...]] = ("profiles", "list")
    BINDINGS = bindings("profiles", "list")
    CSS_PATH = "profiles.tcss"
    NOUN = "profile"
    TITLE = "Profiles"
    FIELDS = PROFILE_FIELDS
    WORDS = PROFILE_WORDS
    MARKABLE = ("profile",)

    source: ProfileSource

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.running: list[Running] = []
        self._captured: list[str] = []

    def make_source(self) -> ProfileSource:
        return ProfileSource(self.session)

    def make_cells(self) -> Cells:
        return SpecCells([PROFILES[name] for name in COLUMNS])

    def filter_values(self, value: Any, now_ms: int) -> Any:
        return profile_row(value, now_ms)

    def empty_words(self) -> tuple[str, ...]:
        return (
            "No profiles are kept.",
            "The workers take threads and CPU of every running task each ten minutes; :capture /ada/train/0 cpu 10 takes one now.",
        )

    def partial_words(self) -> str:
        if self.source.capped:
            return f"the newest {MOST:,}, there are more"
        return one_line(self.source.notes[0]) if self.source.notes else ""

    def status(self) -> Status:
        polled, empty = self.source.polled, self.nothing_words()
        return polled_status(self, polled, "profiles", empty=empty, partial=self.partial_words())

    def detail_runs(self, row: Row[Any]) -> list[Run]:
        record = row.value
        parts = [record.profile_id]
        if record.rate_hz:
            parts.append(f"{record.rate_hz} samples a second")
        if record.native:
            parts.append("with compiled frames")
        if record.leaks:
            parts.append("what was not freed")
        if record.attempt_uid:
            parts.append(f"attempt {record.attempt_uid}")
        return [Run(" " + one_line("   ".join(parts)), Tone.DIM)]

    # --- live --------------------------------------------------------------------------------------------------------

    def flush(self) -> None:
        clock, polled = self.session.clock, self.source.polled
        if polled.due(clock.monotonic()):
            work = polled.read(clock.monotonic(), clock.now_ms())
            self.run_worker(work, name="read profiles", group="profiles", exit_on_error=False)
        super().flush()

    def reload(self) -> None:
        self.source.polled.want()

    def title_runs(self) -> tuple[list[Run], list[Run]]:
        left, right = super().title_runs()
        now = self.session.clock.monotonic()
        for one in self.running:
            passed = max(now - one.began_s, 0.0)
            said = f"capturing {one.capture.text}: {format_duration(int(passed) * 1000)}"
            if one.capture.seconds:
                left_s = one.capture.expected_s - passed
                said += f" of {format_duration(one.capture.seconds * 1000)}, " + (
                    f"about {format_duration(int(left_s) * 1000)} left" if left_s > 0 else "the worker makes the report"
                )
            left.append(Run(f"  {one_line(said)}", Tone.BUSY))
        return left, right

    # --- doing -------------------------------------------------------------------------------------------------------

    def do_open(self) -> None:
        row = self.table.row
        if row is not None:
            self.table.touch()
            self.console.go("profile", row.id)

    def do_capture(self, text: str) -> None:
        """Capture what was named, or ask what is meant: the selected row's target to begin with."""
        if text:
            self.begin(capture.parse(text))
            return
        row = self.table.row
        self.ask(row.value.source if row is not None else capture.CONTROLLER)

    def ask(self, target: str) -> None:
        """Ask what of a target is to be captured."""
        question = Question(
            "capture", self._asked, check=capture.parse, cancel=self.table.take_focus, history=self._captured
        )
        self.prompt.ask(question, f"{target} cpu {capture.SECONDS}")

    def _asked(self, text: str) -> None:
        self.table.take_focus()
        self.begin(capture.parse(text))

    def begin(self, wanted: capture.Capture) -> None:
        """Capture it; the work goes on when the screen is left."""
        self.console.run_worker(
            self._capture(wanted), name=f"capture {one_line(wanted.text)}", group="capture", exit_on_error=False
        )

    async def _capture(self, wanted: capture.Capture) -> None:
        running = Running(wanted, self.session.clock.monotonic())
        self.running.append(running)
        try:
            operation = await changes.change(
                self.console, self.session, BY_ID["profiles.capture"], [wanted.target], options=capture.options(wanted),
                kind="profile", what=wanted.kind,
            )  # fmt: skip
        finally:
            self.running.remove(running)
        self.source.polled.want()
        result = operation.results[0] if operation is not None and operation.results else None
        if result is not None and result.done and result.words.startswith(KEPT_AS) and self.is_current:
            self.console.go("profile", result.words.removeprefix(KEPT_AS))

    def do_compare(self) -> None:
        names = sorted(self.store.marks, key=lambda name: self.store.rows[name].value.captured_at_ms)
        if len(names) != 2:
            raise ModelError("two profiles are compared", hint="mark two with Space")
        records = [self.store.rows[name].value for name in names]
        titles = [f"{one_line(record.source)} {record.profile_id}" for record in records]

        async def load() -> Lines:
            found = [await stacks(self.session, record) for record in records]
            return capture.difference(found[0], found[1], titles)

        self.app.push_screen(TextPage(self.session, "Compare profiles", load))


async def stacks(session: Session, record: pb.ProfileRecord) -> Stacks:
    """The stacks of a kept CPU profile. Raises IrisError: it cannot be had, or holds none."""
    from iris_core.cli.profile_summary import stacks_of
    from iris_core.wire.gen.iris.v1 import profiles_pb2
    from iris_tui.threads import in_thread

    request = profiles_pb2.GetProfileRequest(profile_id=record.profile_id, type=record.type, format=record.format)
    answer = await session.client.call(
        "ControllerService/GetProfile", request, profiles_pb2.GetProfileResponse, timeout_s=LIST_S
    )
    try:
        return await in_thread(lambda: stacks_of(record, answer.profile_data), name="read stacks")
    except ValueError as error:
        raise IrisError(f"{record.profile_id}: {error}") from None


def open_capture(console: IrisApp, target: str, wanted: capture.Capture | None) -> None:
    """Go to the profiles and capture what is wanted, or ask what of a target is to be captured."""
    console.go("profiles")
    screen = console.console_screen
    if isinstance(screen, ProfilesScreen):
        screen.when_mounted(lambda: screen.ask(target) if wanted is None else screen.begin(wanted))


__all__ = ["ProfileSource", "ProfilesScreen", "open_capture", "stacks"]
