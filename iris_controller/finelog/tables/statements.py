"""Queries: each runs in a process of its own (`sql_child.py`), and this is who starts it, feeds it, and ends it.

The process says what the statement reads before it gets a file, so nothing is prepared for a statement that is refused. A caller that
goes away ends it. Two run at once; more wait, and too many are refused at once. Must never let a process live longer than its call.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iris_controller.children import Child
from iris_controller.finelog.tables.sources import first_damaged
from iris_controller.rpc.errors import RpcError, exhausted, invalid
from iris_core.model.errors import did_you_mean, shown
from iris_core.wire.gen.iris.v1 import stats_pb2

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from concurrent.futures import Executor

    from iris_controller.finelog.tables.sources import Sources, TableSources

MAX_SQL = 100_000
DEFAULT_ROWS, MAX_ROWS = 10_000, 500_000
DEFAULT_MS, MAX_MS = 20_000, 60_000
MAX_ANSWER_BYTES = 12 << 20
AT_ONCE = 2
MOST_WAITING = 16
DAMAGED = 8
"""So many damaged segments are left out of a query one after the other; then it is refused."""
GRACE_SECONDS = 3.0
END_SECONDS = 1.0


class Statements:
    """Runs statements over `sources`, whose files are prepared on `executor`."""

    def __init__(self, sources: TableSources, executor: Executor) -> None:
        self._sources = sources
        self._executor = executor
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def run(self, request: stats_pb2.QueryRequest) -> stats_pb2.QueryResponse:
        """The answer to a query. Raises RpcError: refused, no SQL, or it needs too much."""
        question = _checked(request)
        if self._waiting >= MOST_WAITING:
            raise exhausted(f"{self._waiting} queries wait already", code="busy", retry_after_ms=1000)
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        try:
            return await self._answer(question)
        finally:
            self._slots.release()

    async def _answer(self, question: dict[str, Any]) -> stats_pb2.QueryResponse:
        left_out: list[str] = []
        while True:
            sources: Sources | None = None
            async with AsyncExitStack() as stack:
                child = await stack.enter_async_context(_child(question["seconds"]))
                said = await child.ask(question)
                if "error" not in said:
                    sources = await stack.enter_async_context(self._opened(said["tables"]))
                    for path in left_out:
                        sources.leave_out(path)
                    said = await child.ask({"tables": sources.told()})
                if sources is not None and "error" not in said:
                    response = stats_pb2.QueryResponse.FromString(await child.read(said["bytes"]))
                    response.notes.extend(sources.notes)
                    return response
                damaged = await self._damaged(said, sources)
                if not damaged or len(left_out) == DAMAGED:
                    raise self._error(said, question)
                left_out.append(damaged)

    @asynccontextmanager
    async def _opened(self, names: list[str]) -> AsyncIterator[Sources]:
        loop = asyncio.get_running_loop()
        opened = self._sources.open(names, secrets.token_hex(8))
        entering = loop.run_in_executor(self._executor, opened.__enter__)
        try:
            yield await asyncio.shield(entering)
        finally:
            # Also where the caller went away meanwhile: what was opened is let go of.
            with suppress(Exception):
                await asyncio.shield(entering)
                await asyncio.shield(loop.run_in_executor(self._executor, opened.__exit__, None, None, None))

    async def _damaged(self, said: dict[str, Any], sources: Sources | None) -> str:
        """The file that the engine could not read, "" if the error is about something else."""
        if sources is None or said["error"] != "engine":
            return ""
        files = [path for one in sources.tables.values() for path in one.files]
        named = next((path for path in files if path in str(said["message"])), "")
        return named or await asyncio.get_running_loop().run_in_executor(self._executor, first_damaged, files)

    def _error(self, said: dict[str, Any], question: dict[str, Any]) -> RpcError:
        kind, message, position = said["error"], str(said["message"]), said.get("position")
        if kind == "refused":
            return RpcError(
                "FAILED_PRECONDITION",
                f"the query was refused: {message}",
                code="query_refused",
                field="sql",
                position=position,
                hint="only a single SELECT over the tables is allowed",
            )
        if kind == "limit":
            return exhausted(message, code="query_limit", field="sql", hint="ask for less: bound the time and the key")
        if kind == "table":
            near = did_you_mean(message, list(self._sources.names))
            return invalid(
                "sql",
                f"SQL: there is no table {shown(message)}",
                code="unknown_table",
                position=position,
                hint=near
                or "`iris-core stats tables` lists them; jobs, tasks and workers are asked with `iris-core query`",
            )
        if kind == "fault":
            return RpcError("INTERNAL", f"the query's process failed: {message}", code="query_failed", field="sql")
        return invalid("sql", f"SQL: {message}", code="query_syntax", position=position)


def _checked(request: stats_pb2.QueryRequest) -> dict[str, Any]:
    sql = request.sql
    if not sql.strip():
        raise invalid("sql", "the query is empty")
    if len(sql) > MAX_SQL:
        raise invalid("sql", f"the query has {len(sql)} characters, at most {MAX_SQL} are allowed")
    if "\0" in sql:
        raise invalid("sql", "SQL: there is a NUL character in the text", code="query_syntax", position=sql.index("\0"))
    if not 0 <= request.max_rows <= MAX_ROWS:
        raise invalid("max_rows", f"max_rows {request.max_rows} is outside 0..{MAX_ROWS}")
    if not 0 <= request.timeout_ms <= MAX_MS:
        raise invalid("timeout_ms", f"timeout_ms {request.timeout_ms} is outside 0..{MAX_MS}")
    return {
        "sql": sql,
        "max_rows": request.max_rows or DEFAULT_ROWS,
        "max_bytes": MAX_ANSWER_BYTES,
        "seconds": (request.timeout_ms or DEFAULT_MS) / 1000,
        "threads": max(1, min(4, (os.cpu_count() or 1) // 2)),
        "parent": os.getpid(),
    }


class _Child:
    """The process of one query, and the time that it has left."""

    def __init__(self, child: Child, seconds: float) -> None:
        self._child = child
        self._seconds = seconds
        self._deadline = asyncio.get_running_loop().time() + seconds + GRACE_SECONDS

    async def ask(self, message: dict[str, Any]) -> dict[str, Any]:
        """Says something and gives what the process says then; that it says nothing more is an answer too."""
        try:
            async with asyncio.timeout_at(self._deadline):
                self._child.stdin.write(json.dumps(message).encode() + b"\n")
                await self._child.stdin.drain()
                line = await self._child.stdout.readline()
        except TimeoutError:
            return {"error": "limit", "message": f"the query ran longer than {self._seconds:g} s"}
        except (ConnectionError, ValueError, RuntimeError):
            # It is gone; the loop says so in more than one way.
            line = b""
        try:
            said = json.loads(line)
        except ValueError:
            return {"error": "limit", "message": "the query needs more memory or time than it may use"}
        return said if isinstance(said, dict) else {"error": "limit", "message": "the query gave no answer"}

    async def read(self, size: int) -> bytes:
        """The bytes of the answer. Raises RpcError."""
        try:
            async with asyncio.timeout_at(self._deadline):
                return await self._child.stdout.readexactly(size)
        except (TimeoutError, asyncio.IncompleteReadError):
            raise exhausted("the query ended before it had given its answer", code="query_limit", field="sql") from None


@asynccontextmanager
async def _child(seconds: float) -> AsyncIterator[_Child]:
    words = [sys.executable, "-I", str(Path(__file__).with_name("sql_child.py"))]
    child = await Child.start(words, env={"TZ": "UTC"}, cwd="/")
    try:
        yield _Child(child, seconds)
        # One that gave its answer ends by itself.
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await child.wait()
    finally:
        await asyncio.shield(child.end())
