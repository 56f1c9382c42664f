"""Mutated requests over every RPC (S1): whatever comes, the answer is a clean code and soon, and the port goes on serving.

20,000 in `make test`, a million in `make soak`; the seeds are fixed, and a failure names the request that caused it.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from iris_core.wire.services import methods
from tests.integration.port_env import run, serving

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

    from iris_core.wire.services import Method

CLEAN = {"OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED"}
CLEAN_HTTP = {200, 400, 413, 415, 501}
WORDS = ("", "/a/b", "/a/b/0:1", "..", "\0", "\u202e", "é" * 50, "x" * 3000, "\x1b[2J", "a\nevent=x", "%s%n", "'; --")


def filled(kind: Any, chance: random.Random, depth: int = 0) -> Any:
    """A message of random, well-formed fields."""
    message = kind()
    fields: list[FieldDescriptor] = list(kind.DESCRIPTOR.fields)
    for field in chance.sample(fields, chance.randint(0, len(fields))):
        if depth > 4:
            break
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value = field.message_type.fields_by_name["value"]
            if value.message_type is None:
                getattr(message, field.name)[chance.choice(WORDS)] = plain(value, chance)
            continue
        count = chance.randint(0, 3) if field.is_repeated else 1
        for _ in range(count):
            if field.message_type is not None:
                made = filled(
                    type(getattr(message, field.name)) if not field.is_repeated else maker(field), chance, depth + 1
                )
                if field.is_repeated:
                    getattr(message, field.name).append(made)
                else:
                    getattr(message, field.name).CopyFrom(made)
            elif field.is_repeated:
                getattr(message, field.name).append(plain(field, chance))
            else:
                setattr(message, field.name, plain(field, chance))
    return message


def maker(field: FieldDescriptor) -> Any:
    from google.protobuf import message_factory

    descriptor: Descriptor | None = field.message_type
    assert descriptor is not None
    return message_factory.GetMessageClass(descriptor)


def plain(field: Any, chance: random.Random) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_STRING if field.type == field.TYPE_BYTES:
            return chance.randbytes(chance.choice((0, 1, 5000)))
        case field.CPPTYPE_STRING:
            return chance.choice(WORDS)
        case field.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case field.CPPTYPE_DOUBLE | field.CPPTYPE_FLOAT:
            return chance.choice((0.0, -1.5, float("inf"), float("nan")))
        case field.CPPTYPE_UINT32 | field.CPPTYPE_UINT64:
            return chance.choice((0, 1, 2**32 - 1))
        case _:
            return chance.choice((0, 1, -1, 7, 2**31 - 1, -(2**31)))


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Some damage: flipped, cut, doubled or foreign bytes; nesting without end; nothing at all."""
    found = bytearray(data)
    for _ in range(chance.randint(0, 4)):
        at = chance.randint(0, len(found))
        match chance.randint(0, 6):
            case 0 if at < len(found):
                found[at] ^= 1 << chance.randint(0, 7)
            case 1:
                del found[at : at + chance.randint(1, 20)]
            case 2:
                found[at:at] = found[: chance.randint(0, 50)]
            case 3:
                found[at:at] = chance.randbytes(chance.randint(1, 20))
            case 4:
                # A length that promises more than there is.
                found[at:at] = b"\x0a\xff\xff\xff\xff\x07"
            case 5:
                nested = b""
                for _ in range(chance.choice((3, 100, 1000))):
                    nested = b"\x0a" + varint(len(nested)) + nested
                found[at:at] = nested
            case _:
                # Groups that open and never close.
                found[at:at] = b"\x0b" * chance.choice((1, 101, 1000))
    return bytes(found)


def varint(value: int) -> bytes:
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def mutated_json(message: Any, chance: random.Random) -> bytes:
    from google.protobuf import json_format

    text = json_format.MessageToJson(message, preserving_proto_field_name=chance.random() < 0.5, indent=None)
    found = bytearray(text.encode())
    for _ in range(chance.randint(0, 3)):
        at = chance.randint(0, len(found))
        found[at : at + chance.randint(0, 3)] = chance.choice(
            (
                b"",
                b"[",
                b"}",
                b"null",
                b'"',
                b"1e999",
                b"\\ud800",
                b"\xff",
                b'{"a":' * 1000,
                b"[" * 5000,
                b"9" * 5000,
                b",",
            )
        )
    return bytes(found)


async def over_grpc(channel: Any, known: Method, data: bytes, seen: set[str]) -> None:
    started = time.monotonic()
    code = "OK"
    try:
        if known.client_streaming:
            call = channel.stream_stream(known.path)()
            await call.write(data)
            await call.done_writing()
            while await call.read() is not grpc.aio.EOF:  # type: ignore[attr-defined]
                pass
            code = (await call.code()).name
        elif known.server_streaming:
            call = channel.unary_stream(known.path)(data)
            async for _ in call:
                pass
        else:
            await channel.unary_unary(known.path)(data)
    except (grpc.aio.AioRpcError, asyncio.InvalidStateError) as error:
        code = error.code().name if isinstance(error, grpc.aio.AioRpcError) else "INVALID_ARGUMENT"
    seen.add(code)
    assert code in CLEAN, (known.full_name, code, data.hex())
    assert time.monotonic() - started < 60, (known.full_name, data.hex())


async def over_http(port: int, batch: list[tuple[Method, bytes]], seen: set[str]) -> None:
    """A batch on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    for known, body in batch:
        writer.write(
            f"POST {known.path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        status = int(head.split(" ", 2)[1])
        seen.add(str(status))
        assert status in CLEAN_HTTP, (known.full_name, status, body)
        if "content-length: " in head:
            answer = await reader.readexactly(int(head.partition("content-length: ")[2].split("\r\n")[0]))
        else:
            answer = (await reader.readuntil(b"0\r\n\r\n")).split(b"\r\n")[1]
        fields = json.loads(answer or b"{}")
        assert status == 200 or (fields["message"].isprintable() and len(fields["message"]) < 1300), fields
    writer.close()


async def attach(requests: Any, call: Any) -> Any:
    async for _ in requests:
        yield b""


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
def test_no_request_is_more_than_refused(seed: int, soak: bool, caplog: pytest.LogCaptureFixture) -> None:
    total = 250_000 if soak else 5_000
    chance = random.Random(seed)
    known = methods()
    seen: set[str] = set()

    async def main() -> None:
        async with serving({"WorkerService/Attach": attach}) as env, env.channel() as channel:
            done = 0
            while done < total:
                calls = []
                for _ in range(64):
                    found = chance.choice(known)
                    data = mutated(filled(found.request, chance).SerializeToString(), chance)
                    calls.append(over_grpc(channel, found, data, seen))
                batch = []
                for _ in range(16):
                    found = chance.choice(known)
                    batch.append((found, mutated_json(filled(found.request, chance), chance)))
                await asyncio.gather(*calls, over_http(env.port.port, batch, seen))
                done += len(calls) + len(batch)
            # And it is as well as before.
            await channel.unary_unary("/iris.v1.ControllerService/ListJobs")(b"", timeout=5)
            assert env.port.connections <= 2

    run(main(), seconds=6000 if soak else 100)
    # It did try both sides of every rule.
    assert {"OK", "INVALID_ARGUMENT", "200", "400"} <= seen
    assert not [record for record in caplog.records if record.name == "iris.rpc"], "a fault of ours"


@pytest.mark.soak
def test_mutated_connections_break_nothing(soak: bool) -> None:
    """Not requests but bytes: damaged prefaces, frames and heads."""
    chance = random.Random(7)
    starts = (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
        b"POST /iris.v1.ControllerService/ListJobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n{}",
        b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
    )

    async def one(port: int, data: bytes) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            if chance.random() < 0.7:
                writer.write_eof()
                await asyncio.wait_for(reader.read(), 30)
        except (ConnectionError, BrokenPipeError):
            pass
        finally:
            writer.close()

    async def main() -> None:
        async with serving(first_bytes_s=2.0) as env, env.channel() as channel:
            for _ in range(2000 if soak else 40):
                datas = [mutated(chance.choice(starts), chance) for _ in range(25)]
                await asyncio.gather(*(one(env.port.port, data) for data in datas))
            await channel.unary_unary("/iris.v1.ControllerService/ListJobs")(b"", timeout=5)
            async with asyncio.timeout(30):
                while env.port.connections > 1:  # noqa: ASYNC110 (connections end by themselves)
                    await asyncio.sleep(0.05)

    run(main(), seconds=6000 if soak else 100)
