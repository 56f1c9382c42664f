"""`explain` in every output format: lines and tables for people, one object for machines, the funnel as CSV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iris_core.cli import output
from iris_core.cli.tables import Column, render
from iris_core.live.explained import constraints, facts, tables
from iris_core.model.text import one_line

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from iris_core.wire.gen.iris.v1 import explain_pb2 as pb

STEP_FIELDS = ("name", "wants", "left", "more", "needed", "most_free", "most_total", "suggestion")


def text(found: pb.Explanation, how: output.Format, what: str = "Job", *, headers: bool = True) -> str:
    """The explanation in that format. `what` is what the subject is called."""
    if how == "name":
        return f"{found.subject}\n"
    if how == "json":
        return output.as_json(as_object(found)) + "\n"
    if how == "jsonl":
        return output.as_json_line(as_object(found)) + "\n"
    if how == "csv":
        head: list[list[object]] = [list(STEP_FIELDS)] if headers else []
        return output.csv_text([*head, *([getattr(step, name) for name in STEP_FIELDS] for step in found.funnel)])
    lines = [(what, one_line(found.subject)), *facts(found)]
    parts = ["".join(f"{label}: {words}\n" for label, words in lines)]
    for table in tables(found):
        columns = [
            Column(
                title,
                "right" if title in table.right else "left",
                shrinks=title in ("INSTEAD", "HELD BY", "BLOCKED BY"),
            )
            for title in table.titles
        ]
        parts.append(render(columns, table.rows, headers=headers, cut=how == "table"))
    return "\n".join(parts)


def as_object(found: pb.Explanation) -> dict[str, Any]:
    """Every field under its name: numbers as numbers, also those that are 0; enums by name; constraints as they are typed."""
    result = _plain(found)
    result["verdict"] = str(result["verdict"]).removeprefix("EXPLAIN_VERDICT_").lower()
    result["constraints"] = constraints(found.constraints)
    return result


def _plain(message: Message) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.is_repeated:
            result[field.name] = [_value(field, item) for item in value]
        elif field.message_type is not None:
            result[field.name] = _plain(value) if message.HasField(field.name) else None
        else:
            result[field.name] = _value(field, value)
    return result


def _value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _plain(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else value
    return value
