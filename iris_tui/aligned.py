"""A small table as lines of text: columns as wide as they need, for pages that are read and not worked with."""

from __future__ import annotations

from collections.abc import Container, Sequence

from iris_core.live.wording import Tone
from iris_core.model.text import cell_width


def aligned(titles: Sequence[str], right: Container[str], rows: Sequence[Sequence[str]]) -> list[tuple[str, Tone]]:
    """Headings and rows; the texts must be safe for a terminal. `right` names the headings of columns that stand right."""
    widths = [max(cell_width(text) for text in column) for column in zip(titles, *rows, strict=True)]

    def line(texts: Sequence[str]) -> str:
        cells = [
            " " * (width - cell_width(text)) + text if title in right else text + " " * (width - cell_width(text))
            for text, width, title in zip(texts, widths, titles, strict=True)
        ]
        return "  ".join(cells).rstrip()

    return [(line(titles), Tone.DIM), *((line(row), Tone.PLAIN) for row in rows)]
