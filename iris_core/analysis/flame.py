"""A flame graph as one SVG file that needs nothing else: no script, no font, no network (cli-auth-logs §4.5).

1,400 pixels wide, rows of 16, the outermost frame at the bottom. Each box says its frame, weight and share when pointed at.
What would be narrower than a third of a pixel is left out and counted. Names come from workloads and are escaped. Pure.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from xml.sax.saxutils import escape

from iris_core.model.text import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.analysis.stacks import Stack

WIDTH: Final = 1400
ROW: Final = 16
_MARGIN: Final = 10
_HEAD: Final = 40
_NARROWEST: Final = 1 / 3
_LETTER: Final = 6.6
_STYLE: Final = (
    "text{font:11px monospace;fill:#111;pointer-events:none}.t{font:15px sans-serif}.n{font:11px sans-serif;fill:#555}"
    "rect{stroke:#fff;stroke-width:.4}rect:hover{stroke:#000;stroke-width:1}"
)


@dataclass(slots=True)
class _Node:
    weight: float = 0.0
    below: dict[str, _Node] = field(default_factory=dict)


def svg(stacks: Mapping[Stack, float], unit: str, title: str = "CPU") -> str:
    """The picture. `unit` names what the weights count."""
    root = _Node()
    for stack, weight in stacks.items():
        root.weight += weight
        node = root
        for frame in stack:
            node = node.below.setdefault(frame.label, _Node())
            node.weight += weight
    boxes: list[tuple[int, float, float, str, float]] = []
    left_out = 0
    scale = (WIDTH - 2 * _MARGIN) / root.weight if root.weight else 0.0
    todo: list[tuple[_Node, str, int, float]] = [(root, "all", 0, float(_MARGIN))]
    while todo:
        node, name, depth, left = todo.pop()
        wide = node.weight * scale
        boxes.append((depth, left, wide, name, node.weight))
        for label, child in sorted(node.below.items()):
            if child.weight * scale < _NARROWEST:
                left_out += 1
            else:
                todo.append((child, label, depth + 1, left))
            left += child.weight * scale
    rows = max(depth for depth, *_ in boxes) + 1
    height = _HEAD + rows * ROW + 2 * _MARGIN
    parts = [
        f'<?xml version="1.0" encoding="UTF-8"?>\n<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}"><style>{_STYLE}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="#fdfdf6"/><text class="t" x="{_MARGIN}" y="20">{_text(title)}</text>'
        f'<text class="n" x="{_MARGIN}" y="34">{root.weight:.4g} {_text(unit)}, {len(stacks)} distinct stacks'
        + (f"; {left_out} boxes narrower than a third of a pixel are left out" if left_out else "")
        + "</text>\n"
    ]
    for depth, left, wide, name, weight in boxes:
        top = height - _MARGIN - (depth + 1) * ROW
        share = 100 * weight / root.weight if root.weight else 100.0
        parts.append(
            f"<g><title>{_text(name)} ({weight:.4g} {_text(unit)}, {share:.2f}%)</title>"
            f'<rect x="{left:.2f}" y="{top}" width="{wide:.2f}" height="{ROW - 1}" fill="{_colour(name)}"/>'
        )
        letters = int((wide - 6) / _LETTER)
        if letters >= 3:
            shown = name if len(name) <= letters else name[: letters - 1] + "…"
            parts.append(f'<text x="{left + 3:.2f}" y="{top + 11}">{_text(shown)}</text>')
        parts.append("</g>\n")
    parts.append("</svg>\n")
    return "".join(parts)


def _text(text: str) -> str:
    return escape(visible(text), {'"': "&quot;"})


def _colour(name: str) -> str:
    """The same for the same frame in every picture, warm like a flame."""
    number = zlib.crc32(name.encode("utf-8", "replace"))
    return f"rgb({205 + number % 50},{80 + (number >> 8) % 140},{(number >> 16) % 60})"
