"""What counts as an answer to `/health`, from real servers."""

from __future__ import annotations

import asyncio

import pytest

from iris_controller.autoscaling import probes

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize(
    ("answer", "well"),
    [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nok\n", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", True),
        (b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n", False),
        (b"HTTP/1.1 302 Found\r\nlocation: /\r\ncontent-length: 0\r\n\r\n", False),
        (b"no HTTP at all\r\n\r\n", False),
        (b"", False),
    ],
)
async def test_only_success_counts(answer: bytes, well: bool) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    assert await probes.probe({"w": address}) == {"w": well}
    server.close()


async def test_silence_nobody_and_nonsense_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "TIMEOUT_S", 0.2)

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    asked = {"silent": address, "nobody": "127.0.0.1:1", "nonsense": "::::", "empty": ""}
    assert await probes.probe(asked) == dict.fromkeys(asked, False)
    server.close()
