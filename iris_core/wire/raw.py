"""Parts of large answers written down as the wire has them.

A message is the sum of the encodings of its fields, in any order, so that an answer of ten thousand entries that are alike but for a word
need not be ten thousand messages first. For such answers alone: everything else is made of messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.message import Message

_LENGTH_DELIMITED = 2


def tag(kind: type[Message], field: str) -> bytes:
    """What a field of that name begins with: one of text, of bytes, or of messages."""
    found = kind.DESCRIPTOR.fields_by_name[field]
    assert found.cpp_type in (found.CPPTYPE_STRING, found.CPPTYPE_MESSAGE), field
    return _varint(found.number << 3 | _LENGTH_DELIMITED)


def delimited(tag: bytes, value: bytes) -> bytes:
    """One such field with its value: encoded text, bytes, or an encoded message."""
    length = len(value)
    return b"%b%c%b" % (tag, length, value) if length < 0x80 else tag + _varint(length) + value


def _varint(value: int) -> bytes:
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
