"""One profile: as a flame graph and as a table of functions, or as text, whichever it can be shown as.

What a terminal cannot show (a page for the browser, memray's own file) is said to be so, and can be saved. A profile never changes: it
is fetched once. Parsing is done in a thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.containers import Vertical

from iris_core.analysis import flame, flame_tree
from iris_core.contracts import IrisError
from iris_core.live.function_columns import FUNCTIONS, FunctionRow
from iris_core.live.polled import Polled
from iris_core.live.rows import Changes, Row, RowStore
from iris_core.live.wording import Tone, age
from iris_core.model.errors import ModelError
from iris_core.model.resources import format_size
from iris_core.model.text import counted, one_line, visible
from iris_tui.drawing import Run
from iris_tui.keymap import bindings
from iris_tui.list_screen import SpecCells
from iris_tui.screen import ConsoleScreen
from iris_tui.tabbed import PartText, polled_status
from iris_tui.threads import in_thread
from iris_tui.widgets.flame_view import FlameView
from iris_tui.widgets.line import Line
from iris_tui.widgets.pane import Pane
from iris_tui.widgets.prompt import Question
from iris_tui.widgets.virtual_table import VirtualTable

if TYPE_CHECKING:
    from textual.widget import Widget

    from iris_core.analysis.stacks import Stacks
    from iris_core.live.capture import Lines
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
    from iris_tui.glyphs import Glyphs
    from iris_tui.session import Session
    from iris_tui.widgets.line import Painted

FETCH_S: Final = 120.0
FLAME: Final = "flame graph"
LIST: Final = "functions"
TEXT: Final = "text"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A fetched profile: its bytes, and its stacks with what follows from them, or the lines that stand for it."""

    record: pb.ProfileRecord
    data: bytes
    stacks: Stacks | None
    lines: Lines
    tree: flame_tree.Node = field(default_factory=lambda: flame_tree.tree({}))
    functions: tuple[Row[FunctionRow], ...] = ()


class ProfileScreen(ConsoleScreen):
    """One profile by its id."""

    SCOPES: ClassVar[tuple[str, ...]] = ("viewer",)
    BINDINGS = bindings("viewer")
    CSS_PATH = "profile.tcss"

    def __init__(self, session: Session, subject: str) -> None:
        super().__init__(session)
        self.profile_id = subject
        self.polled: Polled[Loaded] = Polled(self._load, every_s=0)
        self.store: RowStore[FunctionRow] = RowStore(("function",))
        self.view = FLAME
        self.flame: FlameView = None  # type: ignore[assignment]
        self.table: VirtualTable = None  # type: ignore[assignment]
        self.text = PartText("profile")
        self.pane: Pane = None  # type: ignore[assignment]
        self.detail = Line(id="profile-detail")
        self._filled = 0
        self._history: list[str] = []

    # --- building ----------------------------------------------------------------------------------------------------

    def body(self) -> Iterable[Widget]:
        glyphs = self.console.glyphs
        self.flame = FlameView(glyphs)
        self.table = VirtualTable(self.store, SpecCells(list(FUNCTIONS.values())), glyphs)
        self.pane = Pane(Vertical(self.flame, self.table.header, self.table, self.text))
        self._show_view()
        yield self.pane
        yield self.detail

    def on_mount(self) -> None:
        self.flame.take_focus()

    def title_text(self) -> str:
        return "profile"

    @property
    def views(self) -> tuple[str, ...]:
        """What this profile can be shown as."""
        loaded = self.polled.value
        return (FLAME, LIST) if loaded is None or loaded.stacks is not None else (TEXT,)

    # --- reading -----------------------------------------------------------------------------------------------------

    async def _load(self) -> Loaded:
        from iris_core.wire.gen.iris.v1 import profiles_pb2

        answer = await self.session.client.call(
            "ControllerService/GetProfile",
            profiles_pb2.GetProfileRequest(profile_id=self.profile_id),
            profiles_pb2.GetProfileResponse,
            timeout_s=FETCH_S,
        )
        glyphs = self.console.glyphs
        return await in_thread(lambda: read(answer.record, answer.profile_data, glyphs), name="read profile")

    def reload(self) -> None:
        """Try again if it could not be fetched."""
        if not self.polled.loaded:
            self.polled.want()

    def flush(self) -> None:
        clock, polled = self.session.clock, self.polled
        if polled.due(clock.monotonic()):
            work = polled.read(clock.monotonic(), clock.now_ms())
            self.run_worker(work, name="fetch profile", group="profile", exit_on_error=False)
        if polled.value is not None and self._filled != polled.version:
            self._filled = polled.version
            self._fill(polled.value)
        self.pane.set_status(polled_status(self, polled, "profile"))
        self._say()

    def _fill(self, loaded: Loaded) -> None:
        if loaded.stacks is None:
            self.text.show(loaded.lines)
        else:
            self.flame.show_tree(loaded.tree)
            self.store.apply(Changes(list(loaded.functions)))
            self.store.reorder(force=True)
            self.table.reordered()
        self.show_view(self.view if self.view in self.views else self.views[0])

    # --- views -------------------------------------------------------------------------------------------------------

    def show_view(self, name: str) -> None:
        """Show it as a flame graph, functions, or text, and give that the keys."""
        self.view = name
        self._show_view()
        parts: dict[str, Painted] = {FLAME: self.flame, LIST: self.table, TEXT: self.text}
        parts[name].take_focus()

    def _show_view(self) -> None:
        for widget, name in ((self.flame, FLAME), (self.table.header, LIST), (self.table, LIST), (self.text, TEXT)):
            if widget.display != (name == self.view):
                widget.display = name == self.view

    def _say(self) -> None:
        loaded = self.polled.value
        if loaded is None:
            self.pane.update_title([Run(f"Profile {one_line(self.profile_id)}")])
            self.detail.show([])
            return
        record, now_ms = loaded.record, self.session.clock.now_ms()
        left = [
            Run(f"{_kind(record)} {one_line(record.source)}"),
            Run(f"   {age(record.captured_at_ms, now_ms)} ago", Tone.DIM),
        ]
        for name in self.views if len(self.views) > 1 else ():
            left.append(
                Run(f"  [{name}]" if name == self.view else f"  {name}", Tone.BUSY if name == self.view else Tone.DIM)
            )
        self.pane.update_title(left, self._facts(loaded))
        self.detail.show(self._detail(loaded))

    def _facts(self, loaded: Loaded) -> list[Run]:
        if loaded.stacks is None:
            return [Run(format_size(len(loaded.data)), Tone.DIM)]
        view = self.flame
        right = []
        if view.needle:
            share = 100 * view.hit_weight / view.root.weight if view.root.weight else 0.0
            right.append(
                Run(f"/{one_line(view.needle)} {view.hit_number}/{len(view.hits)}, {share:.1f}% of all  ", Tone.WARN)
            )
        narrow = view.layout_now.left_out
        if narrow and self.view == FLAME:
            right.append(Run(f"{narrow:,} too narrow  ", Tone.DIM))
        right.append(Run(f"{view.root.weight:.1f} s in {counted(len(loaded.stacks), 'stack')}", Tone.DIM))
        return right

    def _detail(self, loaded: Loaded) -> list[Run]:
        """What is under the cursor, in numbers."""
        if loaded.stacks is None:
            return []
        whole = self.flame.root.weight
        if self.view == LIST:
            row = self.table.row
            return (
                [Run(f" {one_line(row.id)}   Enter shows it in the flame graph", Tone.DIM)] if row is not None else []
            )
        node = self.flame.node
        samples = f" ({node.weight * loaded.record.rate_hz:,.0f} samples)" if loaded.record.rate_hz else ""
        runs = [
            Run(f" {_share(node.weight, whole)}", Tone.WARN),
            Run(f" {node.weight:.2f} s{samples}, itself {_share(node.own, whole)}", Tone.PLAIN),
        ]
        if node.parent is not None and node.parent is not self.flame.root:
            runs.append(Run(f", {_share(node.weight, node.parent.weight)} of its caller", Tone.DIM))
        return [*runs, Run(f"   {one_line(node.label)}", Tone.PLAIN)]

    # --- doing -------------------------------------------------------------------------------------------------------

    def do_next_view(self) -> None:
        names = self.views
        self.show_view(names[(names.index(self.view) + 1) % len(names)] if self.view in names else names[0])
        self.flush_now()

    def do_open(self) -> None:
        row = self.table.row
        if self.view == LIST and row is not None:
            self.show_view(FLAME)
            self.flame.find(row.id)
            self.flame.do_next()

    def do_save(self, name: str) -> None:
        from iris_core.wire.profiles import suffix

        loaded = self._loaded()
        record = loaded.record
        suggested = f"profile-{record.profile_id}.{suffix(record.type, record.format)}"
        self.console.save_bytes(loaded.data, f"the profile ({format_size(len(loaded.data))})", suggested, name)

    def do_save_svg(self, name: str) -> None:
        loaded = self._loaded()
        if loaded.stacks is None:
            raise ModelError("this profile has no stacks to draw")
        picture = flame.svg(loaded.stacks, "seconds", f"{loaded.record.source}: CPU time")
        suggested = f"profile-{loaded.record.profile_id}.svg"
        self.console.save_bytes(picture.encode(), "the flame graph", suggested, name)

    def _loaded(self) -> Loaded:
        if self.polled.value is None:
            raise ModelError("the profile is not here yet")
        return self.polled.value

    def do_close(self) -> None:
        self.console.go_back()

    def on_flame_view_left(self) -> None:
        self.console.go_back()

    def on_flame_view_moved(self) -> None:
        self._say()

    def on_flame_view_find_wanted(self, event: FlameView.FindWanted) -> None:
        view = self.flame

        def end(text: str) -> None:
            view.take_focus()
            view.find(text)
            view.do_next()

        def leave() -> None:
            view.find("")
            view.take_focus()

        question = Question("/ frame", end, change=view.find, cancel=leave, history=self._history)
        self.prompt.ask(question, event.text)

    # --- how it was left ---------------------------------------------------------------------------------------------

    def view_state(self) -> dict[str, Any]:
        state: dict[str, Any] = {"view": self.view}
        if self.flame.needle:
            state["search"] = self.flame.needle
        return state

    def restore(self, state: dict[str, Any]) -> None:
        if state.get("view") in self.views:
            self.show_view(str(state["view"]))
        self.flame.find(str(state.get("search", "")))


def _kind(record: pb.ProfileRecord) -> str:
    from iris_core.wire.profiles import TYPES

    return {"cpu": "CPU", "memory": "Memory", "thread": "Threads"}.get(TYPES.get(record.type, ""), "Profile")


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "0%"


def read(record: pb.ProfileRecord, data: bytes, glyphs: Glyphs) -> Loaded:
    """What a profile holds. Raises IrisError: it is damaged."""
    from iris_core.cli.profile_summary import stacks_of
    from iris_core.live.capture import allocation_lines
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
    from iris_core.wire.profiles import FORMATS, is_text

    shape = FORMATS.get(record.format, str(int(record.format)))
    try:
        if record.type == pb.PROFILE_TYPE_CPU and record.format in (
            pb.PROFILE_FORMAT_SPEEDSCOPE,
            pb.PROFILE_FORMAT_RAW,
        ):
            return _with_stacks(record, data, stacks_of(record, data))
        if record.format == pb.PROFILE_FORMAT_STATS:
            return Loaded(record, data, None, allocation_lines(data, glyphs.done, glyphs.pending))
    except ValueError as error:
        raise IrisError(f"profile {record.profile_id} cannot be read: {error}") from None
    if is_text(record.type, record.format):
        text = visible(data.decode("utf-8", "replace"), keep_newlines=True)
        return Loaded(record, data, None, [(line, Tone.PLAIN) for line in text.split("\n")])
    lines: Lines = [
        (f"A profile in the format {shape} is not for a terminal.", Tone.PLAIN),
        ("^s saves it in a file.", Tone.DIM),
    ]
    return Loaded(record, data, None, lines)


def _with_stacks(record: pb.ProfileRecord, data: bytes, stacks: Stacks) -> Loaded:
    root = flame_tree.tree(stacks)
    rows = []
    for place, one in enumerate(flame_tree.functions(root)):
        name, _, file = one.label.rpartition(" (") if one.label.endswith(")") else (one.label, "", "")
        value = FunctionRow(name or one.label, file.removesuffix(")"), one.own, one.total, root.weight)
        rows.append(Row(one.label, "function", value, natural=place))
    return Loaded(record, data, stacks, [], root, tuple(rows))
