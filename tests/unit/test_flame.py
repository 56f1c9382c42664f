"""The flame graph: boxes add up, zoom and search mean the same as in the numbers, and names of workloads cannot draw."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import App

from iris_core.analysis import allocations
from iris_core.analysis.flame_tree import Origin, functions, layout, matching, origin, tree
from iris_core.analysis.stacks import Frame
from iris_tui.glyphs import ASCII, UNICODE
from iris_tui.widgets.flame_view import FlameView

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.app import ComposeResult

    from iris_core.analysis.flame_tree import Node
    from iris_core.analysis.stacks import Stacks
    from iris_tui.glyphs import Glyphs

STACKS: Stacks = {
    (Frame("main", "/j/train.py"), Frame("step", "/j/train.py"), Frame("forward", "/j/model.py")): 6.0,
    (Frame("main", "/j/train.py"), Frame("step", "/j/train.py"), Frame("backward", "/j/model.py")): 3.0,
    (Frame("main", "/j/train.py"), Frame("load", "/j/data.py")): 0.9,
    (Frame("other", "/j/x.py"),): 0.1,
}

frames = st.builds(Frame, st.sampled_from("abcdef"), st.sampled_from(["/j/x.py", "/lib/python3.11/y.py", ""]))
some_stacks = st.dictionaries(
    st.lists(frames, min_size=1, max_size=6).map(tuple), st.floats(0.01, 100), min_size=1, max_size=20
)


def named(root: Node, name: str) -> Node:
    return next(node for node in root.walk() if node.frame.name == name)


# --- the tree --------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(some_stacks)
def test_weights_add_up_at_every_node(stacks: Stacks) -> None:
    root = tree(stacks)
    assert root.weight == pytest.approx(sum(stacks.values()))
    for node in root.walk():
        assert node.weight == pytest.approx(node.own + sum(child.weight for child in node.below.values()))
        assert [child.weight for child in node.children] == sorted(
            (c.weight for c in node.below.values()), reverse=True
        )


@settings(max_examples=40)
@given(some_stacks, st.integers(1, 120), st.integers(0, 30))
def test_boxes_lie_inside_of_their_callers_and_touch_no_other(stacks: Stacks, width: int, which: int) -> None:
    root = tree(stacks)
    nodes = list(root.walk())
    top = nodes[which % len(nodes)]
    found = layout(top, width)
    assert found.box_of(top) == (top, 0, width)
    drawn = 0
    for row in found.rows:
        at = 0
        for box in row:
            assert box.left >= at
            assert box.width >= 1
            at = box.left + box.width
            above = found.box_of(box.node.parent) if box.node.parent is not None else None
            if above is not None and box.node.depth > top.depth:
                assert above.left <= box.left
                assert at <= above.left + above.width
                exact = above.width * box.node.weight / box.node.parent.weight  # type: ignore[union-attr]
                assert abs(box.width - exact) <= 1
                drawn += 1
        assert at <= width
    assert drawn + found.left_out <= sum(1 for _ in top.walk()) - 1


@settings(max_examples=40)
@given(some_stacks, st.sampled_from("abcdef"))
def test_a_search_counts_each_stack_once(stacks: Stacks, name: str) -> None:
    found, weight = matching(tree(stacks), name + " (")
    plain = sum(w for stack, w in stacks.items() if any(frame.label.startswith(name + " (") for frame in stack))
    assert weight == pytest.approx(plain)
    assert all(name in node.label for node in found)


def test_functions_have_their_own_time_and_all_of_it_once() -> None:
    again = Frame("again", "/j/x.py")
    found = {one.label: one for one in functions(tree({(again, again, Frame("leaf", "/j/x.py")): 2.0, (again,): 1.0}))}
    assert found["again (/j/x.py)"][1:] == (1.0, 3.0)
    assert next(iter(found)) == "leaf (/j/x.py)"


@pytest.mark.parametrize(
    ("frame", "whose"),
    [
        (Frame("f", "/j/train.py"), Origin.OWN),
        (Frame("f", "/v/lib/python3.11/site-packages/torch/nn.py"), Origin.LIBRARY),
        (Frame("f", "/usr/lib/python3.11/threading.py"), Origin.LIBRARY),
        (Frame("malloc", "libc.so.6"), Origin.NATIVE),
    ],
)
def test_colours_say_whose_code_it_is(frame: Frame, whose: Origin) -> None:
    assert origin(frame) is whose


def test_allocations_that_are_none_are_refused() -> None:
    for data in (b"", b"[]", b'{"total_bytes_allocated": 1}', b"\xff"):
        with pytest.raises(ValueError, match="it is not memray's JSON"):
            allocations.parse(data)


# --- the widget ------------------------------------------------------------------------------------------------------


class FlameApp(App[None]):
    def __init__(self, glyphs: Glyphs = UNICODE) -> None:
        super().__init__()
        self.view = FlameView(glyphs)
        self.left = 0

    def compose(self) -> ComposeResult:
        yield self.view

    def on_mount(self) -> None:
        self.view.take_focus()

    def on_flame_view_left(self) -> None:
        self.left += 1

    def refusal(self, action: object) -> str:
        return ""

    def noted(self, action: object) -> None:
        """Nothing is kept of it."""

    def say(self, text: str, *, severity: str = "information") -> None:
        raise AssertionError(text)


def names(view: FlameView, row: int) -> Iterable[str]:
    return [box.node.frame.name for box in view.layout_now.rows[row]]


@pytest.mark.asyncio
async def test_the_cursor_goes_by_arrows_to_the_heaviest_and_enter_zooms() -> None:
    app = FlameApp()
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.show(STACKS)
        await pilot.pause()
        assert app.view.node.frame.name == "main"
        await pilot.press("down", "down")
        assert app.view.node.frame.name == "forward"
        await pilot.press("right")
        assert app.view.node.frame.name == "backward"
        await pilot.press("up", "enter")
        step = named(app.view.root, "step")
        assert app.view.top is step
        assert app.view.layout_now.box_of(step) == (step, 0, app.view.room)
        assert [list(names(app.view, row)) for row in range(4)] == [
            ["all"],
            ["main"],
            ["step"],
            ["forward", "backward"],
        ]
        await pilot.press("backspace")
        assert app.view.top.frame.name == "main"
        await pilot.press("escape", "escape")
        assert (app.view.top is app.view.root, app.left) == (True, 1)


@pytest.mark.asyncio
async def test_a_search_highlights_and_walks_by_weight_into_what_is_not_drawn() -> None:
    app = FlameApp()
    async with app.run_test(size=(20, 12)) as pilot:
        app.view.show(STACKS)
        await pilot.pause()
        other = named(app.view.root, "other")
        assert app.view.layout_now.box_of(other) is None
        assert app.view.layout_now.left_out
        app.view.find("model.py")
        assert app.view.hit_weight == 9.0
        await pilot.press("n")
        assert (app.view.node.frame.name, app.view.hit_number) == ("forward", 1)
        await pilot.press("n")
        assert app.view.node.frame.name == "backward"
        app.view.find("x.py")
        await pilot.press("n")
        assert app.view.node is other
        assert app.view.layout_now.box_of(other) is not None, "zoomed to where it can be seen"
        await pilot.press("escape")
        assert not app.view.needle


@pytest.mark.asyncio
async def test_boxes_can_be_told_apart_without_colours_and_in_ascii() -> None:
    app = FlameApp(ASCII)
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.show({**STACKS, (Frame("\x1b[31mevil\n[red]x", "/j/train.py"),): 5.0})
        await pilot.pause()
        text = app.view.text
        assert "\x1b" not in text
        assert "[red]x" in text
        assert text.split("\n")[3].count("|") >= 2
        assert "forward (/j/model.py)----" in text
        assert app.view.text.isascii() or "…" in text


@pytest.mark.asyncio
async def test_an_empty_profile_is_drawn_as_such() -> None:
    app = FlameApp()
    async with app.run_test(size=(80, 12)) as pilot:
        app.view.show({})
        await pilot.press("down", "up", "left", "enter", "n")
        assert app.view.text.startswith("▏all")
