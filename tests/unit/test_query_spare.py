"""The process that is started ahead of the next query: used once, bounded as any, and gone when nobody asks."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.children import Child
from iris_controller.rpc import query
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.query import QueryService
from iris_controller.rpc.query_children import QueryChildren
from iris_controller.store.database import migrate, open_writer
from iris_controller.store.query_child import MEMORY_BYTES
from iris_core.wire.gen.iris.v1 import controller_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

ANY: Any = None
DEADLINE_S = 30.0
QUESTION = json.dumps({"uri": "file::memory:", "sql": "SELECT 7", "max_rows": 1, "seconds": 5.0}).encode()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Child]:
    """Every process that is started."""
    found: list[Child] = []
    original = Child.start

    async def spy(*words: Any, **options: Any) -> Child:
        assert options["env"] == {}
        child = await original(*words, **options)
        found.append(child)
        return child

    monkeypatch.setattr(Child, "start", spy)
    return found


@contextlib.asynccontextmanager
async def kept(keep: Callable[[], Awaitable[None]]) -> AsyncIterator[None]:
    keeping = asyncio.ensure_future(keep())
    try:
        yield
        assert not keeping.done()
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


async def ask(children: QueryChildren) -> Any:
    return json.loads(await children.ask(QUESTION, DEADLINE_S))["rows"]


def test_a_query_takes_the_spare_and_another_one_takes_its_place(started: list[Child]) -> None:
    async def main() -> None:
        children = QueryChildren()
        async with kept(children.keep_spare):
            await asyncio.sleep(0)
            assert not started, "none before somebody asked"
            assert await ask(children) == ["[7]"]
            await until(lambda: len(started) == 2)
            for number in (2, 3):
                assert started[-1].returncode is None
                assert await ask(children) == ["[7]"]
                assert started[number - 1].returncode == 0, "one process, one query"
                await until(lambda number=number: len(started) == number + 1)  # type: ignore[misc]
        assert all(process.returncode is not None for process in started)

    asyncio.run(main())


def test_two_at_once_have_a_process_each(started: list[Child]) -> None:
    async def main() -> None:
        children = QueryChildren()
        async with kept(children.keep_spare):
            await ask(children)
            await until(lambda: len(started) == 2)
            assert list(await asyncio.gather(ask(children), ask(children))) == [["[7]"], ["[7]"]]
            await until(lambda: len(started) == 4)
        assert len({process.pid for process in started}) == 4

    asyncio.run(main())


def test_a_spare_that_was_killed_fails_no_query(started: list[Child]) -> None:
    async def main() -> None:
        children = QueryChildren()
        async with kept(children.keep_spare):
            await ask(children)
            await until(lambda: len(started) == 2)
            started[1].kill()
            await started[1].wait()
            assert await ask(children) == ["[7]"]

    asyncio.run(main())


def test_an_unused_spare_goes(started: list[Child]) -> None:
    async def main() -> None:
        children = QueryChildren(unused_s=0.01)
        async with kept(children.keep_spare):
            await ask(children)
            await until(lambda: len(started) == 2 and started[1].returncode is not None)
            assert await ask(children) == ["[7]"]

    asyncio.run(main())


def test_the_spare_has_the_limits_of_any(started: list[Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        monkeypatch.setattr(query, "SECONDS", 1.0)
        path = tmp_path / "controller.sqlite3"
        connection = open_writer(path)
        migrate(connection, 1)
        service = QueryService(path)

        async def asked(sql: str) -> controller_pb2.ExecuteRawQueryResponse:
            return await service.execute_raw_query(controller_pb2.ExecuteRawQueryRequest(sql=sql), ANY)

        endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n) SELECT max(i) FROM n"
        async with kept(service.run):
            await asked("SELECT 1")
            await until(lambda: len(started) == 2)
            for sql, status in (
                (endless, "RESOURCE_EXHAUSTED"),
                ("DELETE FROM jobs", "FAILED_PRECONDITION"),
                ("SELECT * FROM request_ids", "FAILED_PRECONDITION"),
            ):
                before = len(started)
                assert started[-1].returncode is None
                limits = Path(f"/proc/{started[-1].pid}/limits")
                await until(lambda limits=limits: f" {MEMORY_BYTES} " in limits.read_text())  # type: ignore[misc]
                with pytest.raises(RpcError) as caught:
                    await asked(sql)
                assert caught.value.status == status, caught.value
                await until(lambda before=before: len(started) == before + 1)  # type: ignore[misc]
            # What was committed after it was started is seen by it.
            connection.execute("CREATE TABLE t AS SELECT 5 AS a")
            assert (await asked("SELECT a FROM t")).rows == ["[5]"]
        connection.close()

    asyncio.run(main())
