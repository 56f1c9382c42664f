"""Messages as proto JSON, for callers that speak HTTP.

Output keeps the field names of the protos; input takes those and the camelCase ones, and an unknown field is an error that names it.
Whatever a body holds, the outcome is a message or INVALID_ARGUMENT. Large messages are converted in a thread, because this codec is
pure Python and would hold the event loop. Printing is `iris_core.wire.printing`.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pool, json_format

from iris_controller.rpc.errors import invalid
from iris_core.model.errors import did_you_mean, shown
from iris_core.wire.printing import json_text

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from iris_controller.rpc.errors import RpcError

_IN_A_THREAD_BYTES = 32 * 1024
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]*={0,2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_UNKNOWN = re.compile(r'has no field named "(?P<name>.*?)" at "(?P<place>[^"]*)"', re.S)
_ENUM = re.compile(r"Invalid enum value (?P<value>.*) for enum type (?P<enum>[\w.]+) at (?P<place>[\w.\[\]]*\w)", re.S)


async def from_json(body: bytes, kind: type[Message]) -> Message:
    """The message in `body`; an empty body is an empty message. Raises INVALID_ARGUMENT."""
    if len(body) > _IN_A_THREAD_BYTES:
        return await asyncio.to_thread(_parse, body, kind)
    return _parse(body, kind)


async def to_json(message: Message) -> bytes:
    """The message on one line, without a line end."""
    if message.ByteSize() > _IN_A_THREAD_BYTES:
        return await asyncio.to_thread(_print, message)
    return _print(message)


def _print(message: Message) -> bytes:
    return json_text(message).encode()


def _parse(body: bytes, kind: type[Message]) -> Message:
    message = kind()
    if not body.strip():
        return message
    name = kind.DESCRIPTOR.full_name
    try:
        fields = json.loads(body.decode(), object_pairs_hook=_unique)
        if _SURROGATE.search(body):
            # Pairs have become characters; one that is alone breaks the descriptors' own look-up of a name.
            json.dumps(fields, ensure_ascii=False).encode()
        _check(fields, kind.DESCRIPTOR, kind.DESCRIPTOR.name)
        json_format.ParseDict(fields, message, ignore_unknown_fields=False)
    except json_format.ParseError as error:
        raise _refused(str(error), kind) from error
    except json.JSONDecodeError as error:
        raise invalid("", f"the body is not JSON: {error.msg}", code="bad_json", position=error.pos) from error
    except UnicodeEncodeError as error:
        raise invalid("", "the body holds a lone surrogate, which is no character", code="bad_json") from error
    except UnicodeDecodeError as error:
        raise invalid("", f"the body is not UTF-8 at byte {error.start}", code="bad_json") from error
    except RecursionError as error:
        raise invalid("", "the body is nested too deeply", code="bad_json") from error
    except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError) as error:
        # The codec leaves some kinds of nonsense to Python, such as digits without end.
        raise invalid("", f"the body is not a JSON {name}: {shown(str(error), 200)}", code="bad_json") from error
    return message


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in fields if names.count(name) > 1)
        raise invalid(twice, f"the field {shown(twice)} is there twice", code="bad_json")
    return fields


def _check(value: Any, kind: Any, place: str) -> None:
    """Refuses what the codec would silently read as something else: a list for a message, bytes that are not base64.

    `kind` is the message's descriptor, of either of protobuf's two classes for it.
    """
    if not isinstance(value, dict):
        raise invalid("", f"{place} must be a JSON object", code="bad_json")
    for name, item in value.items():
        field = kind.fields_by_name.get(name) or kind.fields_by_camelcase_name.get(name)
        if field is None or item is None:
            continue
        here = f"{place}.{name}"
        inner, items = field, [item]
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            inner = field.message_type.fields_by_name["value"]
            items = list(item.values()) if isinstance(item, dict) else []
        elif field.is_repeated:
            items = item if isinstance(item, list) else []
        for each in items:
            if inner.message_type is not None:
                _check(each, inner.message_type, here)
            elif inner.type == inner.TYPE_BYTES and not (isinstance(each, str) and _BASE64.fullmatch(each)):
                raise invalid(field.name, f"{here} must be base64", code="bad_json")


def _refused(why: str, kind: type[Message]) -> RpcError:
    found = _UNKNOWN.search(why)
    if found is None:
        enum = _ENUM.search(why)
        if enum is not None:
            return _no_such_value(**enum.groupdict())
        first = why.splitlines()[0] if why else "it cannot be read"
        return invalid("", f"the body is not a JSON {kind.DESCRIPTOR.full_name}: {first}", code="bad_json")
    name, place = found["name"], found["place"]
    # `place` is LaunchJobRequest.resources[0].name: the path of the message that lacks the field, and the field.
    inside = place.removesuffix(name).rstrip(".")
    return invalid(
        name,
        f"unknown field {shown(name)} in {shown(inside or kind.DESCRIPTOR.full_name)}",
        code="unknown_field",
        hint=did_you_mean(name, kind.DESCRIPTOR.fields_by_name),
    )


def _no_such_value(value: str, enum: str, place: str) -> RpcError:
    """Also the short form of a name is worth a suggestion: `EQ` for `CONSTRAINT_OP_EQ`."""
    names: list[str] = [known.name for known in descriptor_pool.Default().FindEnumTypeByName(enum).values][1:]
    ending = [name for name in names if name.endswith(f"_{value.upper()}")]
    near = f"did you mean {ending[0]!r}?" if ending else did_you_mean(value, names)
    hint = near or f"one of {', '.join(names)}"
    return invalid(place.rpartition(".")[2], f"{place} has no value {shown(value)}", code="bad_json", hint=hint)
