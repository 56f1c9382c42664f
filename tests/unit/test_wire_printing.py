"""Printing messages as JSON: letter by letter what `json_format` prints, for every message of the wire."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, struct_pb2, wrappers_pb2
from google.protobuf.descriptor import FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st

from iris_core.wire.gen.iris.v1 import common_pb2, controller_pb2
from iris_core.wire.printing import json_text
from iris_core.wire.services import methods

if TYPE_CHECKING:
    from collections.abc import Iterable

    from google.protobuf.message import Message

Draw = Callable[[st.SearchStrategy[Any]], Any]
Field = Any
"""A field's descriptor, of either of protobuf's two classes for it."""

DEPTH = 3
KINDS = {kind.DESCRIPTOR.full_name: kind for method in methods() for kind in (method.response, method.request)}
INTEGERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, (1 << 32) - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, (1 << 64) - 1),
}
TEXT = st.text(st.characters(codec="utf-8"), max_size=8)


def made_of(kind: Any) -> Message:
    return message_factory.GetMessageClass(kind)()


def by_library(message: Message) -> str:
    fields = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":"))


def scalar(draw: Draw, field: Field) -> Any:
    if field.enum_type is not None:
        return draw(st.sampled_from([*field.enum_type.values_by_number, 9_999, -1]))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return draw(st.binary(max_size=8) if field.type == FieldDescriptor.TYPE_BYTES else TEXT)
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return draw(st.booleans())
    if field.cpp_type == FieldDescriptor.CPPTYPE_DOUBLE:
        return draw(st.floats())
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return draw(st.floats(width=32))
    return draw(INTEGERS[field.cpp_type])


def fill(draw: Draw, message: Message, depth: int) -> None:
    """Sets some of the fields, those with presence also to their default."""
    fields = [field for field in message.DESCRIPTOR.fields if depth or field.message_type is None]
    for field in draw(st.lists(st.sampled_from(fields), max_size=6, unique=True)) if fields else ():
        inner = field.message_type
        if inner is None and not field.is_repeated:
            setattr(message, field.name, scalar(draw, field))
        elif inner is None:
            getattr(message, field.name).extend(scalar(draw, field) for _ in range(draw(st.integers(0, 3))))
        elif inner.GetOptions().map_entry:
            entries = getattr(message, field.name)
            for _ in range(draw(st.integers(0, 3))):
                key, value = scalar(draw, inner.fields_by_name["key"]), inner.fields_by_name["value"]
                if value.message_type is None:
                    entries[key] = scalar(draw, value)
                else:
                    fill(draw, entries[key], depth - 1)
        elif field.is_repeated:
            for _ in range(draw(st.integers(0, 3))):
                fill(draw, getattr(message, field.name).add(), depth - 1)
        else:
            getattr(message, field.name).SetInParent()
            fill(draw, getattr(message, field.name), depth - 1)


@given(st.data())
def test_every_message_is_printed_as_the_library_prints_it(data: st.DataObject) -> None:
    message = KINDS[data.draw(st.sampled_from(sorted(KINDS)))]()
    fill(data.draw, message, DEPTH)
    assert json_text(message) == by_library(message)


def every_field(kind: Any, seen: set[str]) -> Iterable[Field]:
    seen.add(kind.full_name)
    for field in kind.fields:
        yield field
        if field.message_type is not None and field.message_type.full_name not in seen:
            yield from every_field(field.message_type, seen)


def set_alone(message: Message, field: Field, value: Any) -> None:
    """Sets one field to the value, whatever shape it has; a message is there and empty."""
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        text = inner.fields_by_name["key"].cpp_type == FieldDescriptor.CPPTYPE_STRING
        entries, key = getattr(message, field.name), '"k"\n' if text else 1
        if inner.fields_by_name["value"].message_type is None:
            entries[key] = value
        else:
            entries.get_or_create(key)
    elif field.is_repeated:
        getattr(message, field.name).extend([made_of(inner) if inner is not None else value])
    elif inner is not None:
        getattr(message, field.name).SetInParent()
    else:
        setattr(message, field.name, value)


def test_every_field_of_the_wire_is_printed_as_the_library_prints_it() -> None:
    samples: tuple[Any, ...] = (0, 1, -1, (1 << 31) - 1, (1 << 63) - 1, 0.1, -0.0, math.inf, -math.inf, math.nan)
    samples += (True, False, "", 'a"\\\n\u2028é\x7f\0😀', b"", b"\xff\xfe?")
    seen: set[str] = set()
    fields = {field.full_name: field for kind in KINDS.values() for field in every_field(kind.DESCRIPTOR, seen)}
    printed = 0
    for field in fields.values():
        if field.containing_type.GetOptions().map_entry:
            continue
        tried = 0
        for value in samples:
            message = made_of(field.containing_type)
            try:
                set_alone(message, field, value)
            except (TypeError, ValueError):
                continue
            assert json_text(message) == by_library(message), (field.full_name, value)
            tried += 1
        assert tried, field.full_name
        printed += 1
    assert printed > 300


def test_what_is_set_to_its_default_is_printed_only_where_presence_counts() -> None:
    assert json_text(controller_pb2.TaskStatus(task_id="/a/b/0", exit_code=0, task_index=0)) == (
        '{"task_id":"/a/b/0","exit_code":0}'
    )
    assert json_text(common_pb2.AttributeValue(number=-0.0)) == '{"number":-0.0}'
    assert json_text(controller_pb2.ListTasksResponse()) == "{}"


@pytest.mark.parametrize(
    "message",
    [
        wrappers_pb2.Int64Value(value=5),
        struct_pb2.Struct(fields={"a": struct_pb2.Value(list_value=struct_pb2.ListValue(values=[struct_pb2.Value()]))}),
        descriptor_pb2.FieldDescriptorProto(name="a", type=descriptor_pb2.FieldDescriptorProto.TYPE_INT32),
    ],
)
def test_types_of_the_library_are_left_to_it(message: Message) -> None:
    assert json_text(message) == by_library(message)


def test_what_the_wire_does_not_use_is_left_to_the_library() -> None:
    file = descriptor_pb2.FileDescriptorProto(name="printing.proto", package="printing", syntax="proto3")
    file.dependency.append("google/protobuf/struct.proto")
    odd = file.message_type.add(name="Odd")
    kind = descriptor_pb2.FieldDescriptorProto
    one = kind.LABEL_OPTIONAL
    odd.field.add(name="single", number=1, type=kind.TYPE_FLOAT, label=one)
    odd.field.add(name="nothing", number=2, type=kind.TYPE_ENUM, label=one, type_name=".google.protobuf.NullValue")
    odd.field.add(name="anything", number=3, type=kind.TYPE_MESSAGE, label=one, type_name=".google.protobuf.Value")
    odd.field.add(name="inner_one", number=4, type=kind.TYPE_MESSAGE, label=one, type_name=".printing.Odd")
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    made: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("printing.Odd"))
    message = made(single=0.1, inner_one=made(single=-math.inf))
    message.anything.string_value = "é"
    assert json_text(message) == by_library(message)
    assert json.loads(json_text(message))["single"] == 0.1
