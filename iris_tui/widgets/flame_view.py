"""A flame graph in the terminal: boxes as wide as their share, the outermost frame on top, a cursor on one of them.

Boxes are told apart by the bar at their left edge and the line that fills them, so that the picture can be read without colours;
colours say whose code it is. Only rows on the screen are drawn. Names come from workloads: one line, literal, never markup.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, ClassVar, Final

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from iris_core.analysis.flame_tree import Box, Layout, Node, Origin, layout, matching, origin, tree
from iris_core.live.wording import Tone
from iris_core.model.text import one_line
from iris_tui.drawing import cut, strip_of
from iris_tui.keymap import bindings
from iris_tui.scope import ActionHost
from iris_tui.themes import mixed
from iris_tui.widgets.line import Painted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from textual import events

    from iris_core.analysis.stacks import Stack
    from iris_tui.glyphs import Glyphs

_TONES: Final = {Origin.OWN: Tone.WARN, Origin.LIBRARY: Tone.BUSY, Origin.NATIVE: Tone.DIM}
_EDGE: Final = 2
"""From this width on a box has its bar at the left."""


class FlameView(ActionHost, ScrollView, Painted, can_focus=True, inherit_bindings=False):
    """Give it stacks with `show`. `node` is under the cursor, `top` is what takes the whole width."""

    DEFAULT_CSS = """
    FlameView { height: 1fr; overflow-x: hidden; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """
    SCOPES: ClassVar[tuple[str, ...]] = ("flame",)
    BINDINGS = bindings("flame")

    class Moved(Message):
        """The cursor, the zoom or the search changed."""

    class Left(Message):
        """Escape, where there is nothing to zoom out of and nothing is searched."""

    class FindWanted(Message):
        """A text to search is to be asked for."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.root: Node = tree({})
        self.top: Node = self.root
        self.node: Node = self.root
        self.needle = ""
        self.hits: list[Node] = []
        self.hit_weight = 0.0
        self._hit_set: set[Node] = set()
        self._glyphs = glyphs
        self._width = 80
        """Cells of a row, as of the last time it was shown."""
        self._layout: Layout = Layout([], 0)
        self._layout_for: tuple[Node, int] | None = None
        self._styles: dict[tuple[str, Origin, int], Style] = {}

    def show(self, stacks: Mapping[Stack, float]) -> None:
        """Show other stacks; see `show_tree`."""
        self.show_tree(tree(stacks))

    def show_tree(self, root: Node) -> None:
        """Show another tree, all of it, with the cursor on the heaviest frame of the first row."""
        self.root = root
        self.top = self.root
        children = self.root.children
        self.node = children[0] if children else self.root
        self.find(self.needle)
        self._arrange()

    @property
    def layout_now(self) -> Layout:
        """The boxes at the present width."""
        wanted = (self.top, self._width)
        if self._layout_for is None or self._layout_for[0] is not self.top or self._layout_for[1] != wanted[1]:
            self._layout = layout(self.top, wanted[1])
            self._layout_for = wanted
        return self._layout

    def _arrange(self) -> None:
        self._layout_for = None
        if self.layout_now.box_of(self.node) is None:
            self.node = self.top
        self.virtual_size = Size(self._width, len(self.layout_now.rows))
        self._keep_visible()
        self._moved()

    def _moved(self) -> None:
        self.refresh()
        self.post_message(self.Moved())

    def on_resize(self) -> None:
        if self.room > 1:
            self._width = self.room
        self._arrange()

    # --- the cursor --------------------------------------------------------------------------------------------------

    def go_to(self, node: Node) -> None:
        """Put the cursor on a frame, zooming out as far as it takes to see it."""
        self.node = node
        if self.layout_now.box_of(node) is None:
            top = node
            while top.parent is not None and layout(top.parent, self._width).box_of(node) is not None:
                top = top.parent
            self.top = top
        self._arrange()

    def _row_and_place(self) -> tuple[int, int]:
        for number, row in enumerate(self.layout_now.rows):
            for place, box in enumerate(row):
                if box.node is self.node:
                    return number, place
        return 0, 0

    def _choose(self, box: Box) -> None:
        self.node = box.node
        self._keep_visible()
        self._moved()

    def _keep_visible(self) -> None:
        row, _ = self._row_and_place()
        top, height = self.scroll_offset.y, max(self.size.height, 1)
        if row < top:
            self._scroll(row)
        elif row >= top + height:
            self._scroll(row - height + 1)

    def _scroll(self, row: int) -> None:
        self.scroll_to(y=max(row, 0), animate=False, force=True)

    def do_down(self) -> None:
        children = {child for child in self.node.below.values()}
        row, _ = self._row_and_place()
        rows = self.layout_now.rows
        below = rows[row + 1] if row + 1 < len(rows) else []
        candidates = [box for box in below if box.node in children]
        if candidates:
            self._choose(max(candidates, key=lambda box: (box.width, -box.left)))

    def do_up(self) -> None:
        if self.node.parent is not None:
            self.node = self.node.parent
            self._keep_visible()
            self._moved()

    def _step(self, by: int) -> None:
        row, place = self._row_and_place()
        boxes = self.layout_now.rows[row] if self.layout_now.rows else []
        if 0 <= place + by < len(boxes):
            self._choose(boxes[place + by])

    def do_left(self) -> None:
        self._step(-1)

    def do_right(self) -> None:
        self._step(1)

    def do_page_down(self) -> None:
        for _ in range(max(self.size.height - 1, 1)):
            self.do_down()

    def do_page_up(self) -> None:
        for _ in range(max(self.size.height - 1, 1)):
            self.do_up()

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset_capture(self)
        rows = self.layout_now.rows
        number = at.y + self.scroll_offset.y
        for box in rows[number] if number < len(rows) else []:
            if box.left <= at.x < box.left + box.width:
                self._choose(box)

    # --- zoom --------------------------------------------------------------------------------------------------------

    def do_zoom(self) -> None:
        self.top = self.node
        self._arrange()

    def do_out(self) -> None:
        if self.top.parent is not None:
            self.top = self.top.parent
            self._arrange()

    def do_whole(self) -> None:
        self.top = self.root
        self._arrange()

    def do_leave(self) -> None:
        if self.needle:
            self.find("")
        elif self.top.parent is not None:
            self.do_out()
        else:
            self.post_message(self.Left())

    # --- search ------------------------------------------------------------------------------------------------------

    def find(self, needle: str) -> None:
        """Highlight every frame whose name or file has the text."""
        self.needle = needle
        self.hits, self.hit_weight = matching(self.root, needle)
        self._hit_set = set(self.hits)
        self._moved()

    def do_find(self, text: str) -> None:
        if text:
            self.find(text)
            self.do_next()
        else:
            self.post_message(self.FindWanted(self.needle))

    def do_next(self) -> None:
        self._seek(1)

    def do_previous(self) -> None:
        self._seek(-1)

    def _seek(self, by: int) -> None:
        if not self.hits:
            return
        at = self.hits.index(self.node) + by if self.node in self._hit_set else 0 if by > 0 else -1
        self.go_to(self.hits[at % len(self.hits)])

    @property
    def hit_number(self) -> int:
        """Which hit the cursor is on, from 1; 0 = none."""
        return self.hits.index(self.node) + 1 if self.node in self._hit_set else 0

    # --- drawing -----------------------------------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """What is drawn, all rows, for tests and plain output."""
        return "\n".join(self._row(row).text.rstrip() for row in self.layout_now.rows)

    def render_line(self, y: int) -> Strip:
        number = y + self.scroll_offset.y
        rows = self.layout_now.rows
        return self._row(rows[number]) if number < len(rows) else strip_of([], self.room, self.paint)

    def _row(self, boxes: list[Box]) -> Strip:
        base = self.paint.base
        segments: list[Segment] = []
        at = 0
        for box in boxes:
            if box.left > at:
                segments.append(Segment(" " * (box.left - at), base))
            segments.append(Segment(self._words(box), self._style(box.node)))
            at = box.left + box.width
        return Strip(segments).adjust_cell_length(max(self.room, at), base)

    def _words(self, box: Box) -> str:
        """The name as far as it fits, between a bar and a line that fills the box."""
        bar = "▏" if self._glyphs.rule != "-" else "|"
        if box.width < _EDGE:
            return bar
        name = cut(one_line(box.node.label), box.width - 1)
        return f"{bar}{name}{self._glyphs.rule * (box.width - 1 - cell_len(name))}"

    def _style(self, node: Node) -> Style:
        look, plain = self.paint, self.app.current_theme.ansi
        if node is self.node:
            return look.base + (look.cursor if plain else Style(reverse=True, bold=True))
        if node in self._hit_set:
            return look.base + (Style(bold=True, underline=True) if plain else look.hit)
        if node.depth < self.top.depth or node is self.root:
            return look.base + (look.tones[Tone.DIM] if plain else look.idle_cursor)
        return look.base + (look.tones[_TONES[origin(node.frame)]] if plain else self._colour(node))

    def _colour(self, node: Node) -> Style:
        shade = zlib.crc32(node.label.encode("utf-8", "replace")) % 3
        key = (self.paint.generation, origin(node.frame), shade)
        style = self._styles.get(key)
        if style is None:
            theme = self.app.current_theme
            under = theme.background or "#121212"
            over = {Origin.OWN: theme.warning, Origin.LIBRARY: theme.primary, Origin.NATIVE: theme.secondary}[key[1]]
            style = self._styles[key] = Style(bgcolor=mixed(over or under, under, 0.55 + 0.09 * shade))
        return style
