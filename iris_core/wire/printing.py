"""Messages printed as proto3 JSON, as `google.protobuf.json_format` prints them, in a quarter of its time.

`json_format` asks each field of each message anew what it is. Here that is asked once: for each field a function is made that prints it,
its name included, and the message's own list of what is set picks them. What it prints is the same as that of
`MessageToDict(message, preserving_proto_field_name=True)` on one line; a test compares the two over every message that the wire has.

What iris.v1 does not use is left to the library: types of `google.protobuf`, which have a JSON of their own, floats of four bytes, enums
without room for unknown values, and extensions. Must never decide on anything that the library decides otherwise.
"""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable
from functools import cache
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any

from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, EnumDescriptor
    from google.protobuf.message import Message

Printer = Callable[[Any], str]

_QUOTED_INTEGERS = {FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64}
_INTEGERS = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32}
_LIBRARY = "google.protobuf"


def json_text(message: Message) -> str:
    """The message as one JSON object without line breaks, fields in the order of their numbers, those that are not set left out."""
    return _of_message(message.DESCRIPTOR)(message)


class _Fields(dict[FieldDescriptor, Printer]):
    """How each field that was ever set is printed, its name included."""

    def __missing__(self, field: FieldDescriptor) -> Printer:
        made = self[field] = _named(field)
        return made


_fields = _Fields()


@cache
def _of_message(kind: Descriptor) -> Printer:
    if not _plain(kind):
        return _by_library

    def printed(message: Message) -> str:
        return "{" + ",".join([_fields[field](value) for field, value in message.ListFields()]) + "}"

    return printed


def _by_library(message: Message) -> str:
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def _plain(kind: Descriptor) -> bool:
    """Whether all that may be set in it directly is of a kind that is printed here."""
    if kind.file.package == _LIBRARY or kind.is_extendable:
        return False
    return not any(
        field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT
        or (field.enum_type is not None and (field.enum_type.is_closed or field.enum_type.file.package == _LIBRARY))
        for field in kind.fields
    )


def _named(field: FieldDescriptor) -> Printer:
    name = quoted(field.name) + ":"
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        entry = field.message_type.fields_by_name
        key, item = _map_key(entry["key"]), _value(entry["value"])
        return lambda found: f"{name}{{{','.join([f'{key(k)}:{item(v)}' for k, v in found.items()])}}}"
    one = _value(field)
    if field.is_repeated:
        return lambda found: f"{name}[{','.join(map(one, found))}]"
    # The usual kinds in one step, in C where that can be had.
    if one is quoted:
        return lambda found: name + quoted(found)
    if field.cpp_type in _QUOTED_INTEGERS:
        return (name + '"{}"').format
    if field.cpp_type in _INTEGERS:
        return (name + "{}").format
    return lambda found: name + one(found)


def _map_key(field: FieldDescriptor) -> Printer:
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return lambda value: '"true"' if value else '"false"'
    return lambda value: quoted(str(value))


def _value(field: FieldDescriptor) -> Printer:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_MESSAGE:
        return _of_message(field.message_type)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        return _base64 if field.type == FieldDescriptor.TYPE_BYTES else quoted
    if kind in _QUOTED_INTEGERS:
        return '"{}"'.format
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return lambda value: "true" if value else "false"
    if field.enum_type is not None:
        return _enum(field.enum_type)
    if kind == FieldDescriptor.CPPTYPE_DOUBLE:
        return _double
    return str


def _enum(kind: EnumDescriptor) -> Printer:
    names = {number: quoted(value.name) for number, value in kind.values_by_number.items()}
    # A newer peer may know values that are not known here: their numbers.
    return lambda value: names.get(value) or str(value)


def _base64(value: bytes) -> str:
    return f'"{b64encode(value).decode()}"'


def _double(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    return '"NaN"' if math.isnan(value) else '"Infinity"' if value > 0 else '"-Infinity"'
