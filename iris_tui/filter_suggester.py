"""Completes a filter while it is typed: names of fields, and the words that a field can be. Tab takes what is shown.

It suggests nothing that the filter's grammar would not understand, and never looks at rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from textual.suggester import Suggester

from iris_core.model.filter import Field, FieldType

_TERM: Final = re.compile(r"(?P<not>!?)(?P<field>[a-z_]+)(?:(?P<operator>!=|[:=])(?P<values>[^\s\"]*))?\Z")
_OPERATORS: Final = {
    FieldType.TEXT: ":",
    FieldType.WORD: ":",
    FieldType.NUMBER: ">=",
    FieldType.SIZE: ">=",
    FieldType.DURATION: ">",
    FieldType.TIME: ">",
}
"""What mostly follows a field of a type."""


def completed(text: str, fields: Mapping[str, FieldType | Field]) -> str | None:
    """The text with its last term completed, None if there is nothing to add to it."""
    if text.count('"') % 2 or not text or text[-1].isspace():
        return None
    found = _TERM.match(text, text.rfind(" ") + 1)
    if found is None:
        return None
    name = found["field"]
    if found["operator"] is None:
        field = next((field for field in sorted(fields) if field.startswith(name)), None)
        if field is None:
            return None
        kind = fields[field]
        return f"{text}{field[len(name) :]}{_OPERATORS[kind.type if isinstance(kind, Field) else kind]}"
    known = fields.get(name)
    if not isinstance(known, Field):
        return None
    begun = found["values"].rpartition(",")[2]
    word = next((word for word in known.words if begun and word.startswith(begun) and word != begun), None)
    return None if word is None else text + word[len(begun) :]


class FilterSuggester(Suggester):
    """For the prompt of a list with these fields."""

    def __init__(self, fields: Mapping[str, FieldType | Field]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._fields = fields

    async def get_suggestion(self, value: str) -> str | None:
        return completed(value, self._fields)
