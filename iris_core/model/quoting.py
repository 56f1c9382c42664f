"""The quoted word shared by the filter grammar and the text form of constraints.

``"…"`` holds anything. Inside, ``\\"`` is a quote and ``\\\\`` is a backslash;
before any other character a backslash is just itself, so that a regular
expression can be quoted without doubling (``"rank\\d+ loss"``).
"""

from __future__ import annotations

from iris_core.model.errors import ModelError


def read_quoted(text: str, start: int, field: str) -> tuple[str, list[int], int]:
    """Read the quoted word that opens at ``text[start]``.

    Returns:
        The word, the offset in ``text`` of each of its characters (to place errors found inside
        it), and the offset behind the closing quote.

    Raises:
        ModelError: the quote is not closed.
    """
    word: list[str] = []
    offsets: list[int] = []
    position = start + 1
    while position < len(text):
        character = text[position]
        if character == '"':
            return "".join(word), offsets, position + 1
        offsets.append(position)
        if character == "\\" and text[position + 1 : position + 2] in ('"', "\\"):
            position += 1
            character = text[position]
        word.append(character)
        position += 1
    raise ModelError(f"the quote at position {start} is not closed", field=field, position=start, hint='add a "')


def quote(word: str) -> str:
    """Return ``word`` as a quoted word that ``read_quoted`` turns back into it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
