"""Sampled stacks as a tree that is looked at frame by frame: who is how heavy, where each box lies, and what a search finds.

The heaviest child stands first, so that the way down the left edge is the way of most of the time. A box is as wide as its share, in
whole cells; what would be narrower than a cell is left out and counted. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from iris_core.analysis.stacks import Frame, library

if TYPE_CHECKING:
    from iris_core.analysis.stacks import Stack

ALL: Final = "all"


class Origin(StrEnum):
    """Whose code a frame is: the job's own Python, a package or the standard library, or compiled."""

    OWN = "own"
    LIBRARY = "library"
    NATIVE = "native"


@dataclass(slots=True, eq=False)
class Node:
    """A frame in one place of the tree. `weight` is of it and all below it, `own` of it alone."""

    frame: Frame
    parent: Node | None = None
    depth: int = 0
    weight: float = 0.0
    own: float = 0.0
    below: dict[Frame, Node] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """`name (file)`."""
        return self.frame.label

    @property
    def children(self) -> list[Node]:
        """The heaviest first."""
        return sorted(self.below.values(), key=lambda node: (-node.weight, node.label))

    @property
    def path(self) -> list[Node]:
        """From the root to it."""
        found = [self]
        while (above := found[-1].parent) is not None:
            found.append(above)
        return found[::-1]

    def walk(self) -> Iterator[Node]:
        """It and everything below it."""
        todo = [self]
        while todo:
            node = todo.pop()
            yield node
            todo += node.below.values()


class Box(NamedTuple):
    """Where a node is drawn: the cells from `left` on, `width` of them."""

    node: Node
    left: int
    width: int


class Layout(NamedTuple):
    """Rows of boxes from the top down, each from left to right, and how many nodes are too narrow to be drawn."""

    rows: list[list[Box]]
    left_out: int

    def box_of(self, node: Node) -> Box | None:
        """Where a node is drawn, None if it is not."""
        return next((box for row in self.rows for box in row if box.node is node), None)


class Function(NamedTuple):
    """A function wherever it was seen. `total` counts each stack once, also where it calls itself."""

    label: str
    own: float
    total: float


def tree(stacks: Mapping[Stack, float]) -> Node:
    """The tree of all stacks, below a node that stands for all of them."""
    root = Node(Frame(ALL))
    for stack, weight in stacks.items():
        root.weight += weight
        node = root
        for frame in stack:
            child = node.below.get(frame)
            if child is None:
                child = node.below[frame] = Node(frame, node, node.depth + 1)
            child.weight += weight
            node = child
        node.own += weight
    return root


def layout(top: Node, width: int) -> Layout:
    """The boxes when `top` takes the whole width: what is above it, it, and what is below it."""
    rows = [[Box(node, 0, width)] for node in top.path]
    left_out = 0
    while True:
        row: list[Box] = []
        for box in rows[-1]:
            if box.node.depth < top.depth:
                continue
            scale = box.width / box.node.weight if box.node.weight else 0.0
            passed = 0.0
            for child in box.node.children:
                start, passed = round(passed * scale), passed + child.weight
                cells = round(passed * scale) - start
                if cells > 0:
                    row.append(Box(child, box.left + start, cells))
                else:
                    left_out += 1
        if not row:
            return Layout(rows, left_out)
        rows.append(row)


def matching(root: Node, needle: str) -> tuple[list[Node], float]:
    """The nodes whose label has the text (case does not matter), the heaviest first, and how much of all was seen in them.

    What is below a match counts with it and not again.
    """
    wanted = needle.lower()
    if not wanted:
        return [], 0.0
    found: list[Node] = []
    weight = 0.0
    todo = [(node, False) for node in root.below.values()]
    while todo:
        node, inside = todo.pop()
        hit = wanted in node.label.lower()
        if hit:
            found.append(node)
            weight += 0.0 if inside else node.weight
        todo += [(child, inside or hit) for child in node.below.values()]
    found.sort(key=lambda node: (-node.weight, node.depth, node.label))
    return found, weight


def functions(root: Node) -> list[Function]:
    """All functions, those with most time of their own first."""
    own: dict[str, float] = {}
    total: dict[str, float] = {}
    todo: list[tuple[Node, frozenset[str]]] = [(node, frozenset()) for node in root.below.values()]
    while todo:
        node, above = todo.pop()
        label = node.label
        own[label] = own.get(label, 0.0) + node.own
        if label not in above:
            total[label] = total.get(label, 0.0) + node.weight
            above = above | {label}
        todo += [(child, above) for child in node.below.values()]
    found = [Function(label, own[label], total[label]) for label in own]
    return sorted(found, key=lambda one: (-one.own, -one.total, one.label))


def origin(frame: Frame) -> Origin:
    """Whose code it is."""
    if not frame.python:
        return Origin.NATIVE
    if "/site-packages/" in frame.file or "/dist-packages/" in frame.file or frame.file.startswith("<frozen"):
        return Origin.LIBRARY
    return Origin.LIBRARY if library(frame) == "python standard library" else Origin.OWN
