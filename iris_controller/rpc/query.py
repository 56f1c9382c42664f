"""ExecuteRawQuery: an admin's SQL, run in a child process that can only read (`store/query_child.py`)."""

from __future__ import annotations

import asyncio
import json
import re
import sqlite3
from pathlib import Path
from typing import Any

from iris_controller.rpc.call import Call
from iris_controller.rpc.dispatch import Router
from iris_controller.rpc.errors import RpcError, exhausted, invalid
from iris_controller.rpc.query_children import QueryChildren
from iris_core.wire.gen.iris.v1 import controller_pb2

SECONDS = 20.0
CHILDREN = 2
MAX_ROWS = 100_000
DEFAULT_ROWS = 10_000
MAX_SQL = 100_000
NEAR = re.compile(r'near "(.+?)": syntax error', re.S)
NAMED = re.compile(r"no such (?:column|table|function): ([^\s]+)|unrecognized token: \"(.+?)\"?$", re.S)


class QueryService:
    """See the module. At most two queries at once; a third waits."""

    def __init__(self, database: Path) -> None:
        self._uri = database.absolute().as_uri()
        self._slots = asyncio.Semaphore(CHILDREN)
        self._children = QueryChildren()

    def register(self, router: Router) -> None:
        router.add("ControllerService/ExecuteRawQuery", self.execute_raw_query)

    async def run(self) -> None:
        """Makes queries quicker while it runs, which it does for ever."""
        await self._children.keep_spare()

    async def execute_raw_query(
        self, request: controller_pb2.ExecuteRawQueryRequest, call: Call
    ) -> controller_pb2.ExecuteRawQueryResponse:
        if request.database not in ("", "main"):
            raise invalid("database", f"there is no database {request.database!r}, only main")
        if not request.sql.strip():
            raise invalid("sql", "the query is empty")
        if len(request.sql) > MAX_SQL:
            raise invalid("sql", f"the query has {len(request.sql)} characters, at most {MAX_SQL} are allowed")
        if request.max_rows < 0 or request.max_rows > MAX_ROWS:
            raise invalid("max_rows", f"max_rows {request.max_rows} is outside 0..{MAX_ROWS}")
        async with self._slots:
            answer = await self._run(request.sql, request.max_rows or DEFAULT_ROWS)
        if "error" in answer:
            raise self._error(str(answer["error"]), str(answer["message"]), request.sql)
        return controller_pb2.ExecuteRawQueryResponse(
            columns=[controller_pb2.QueryColumn(name=name, type=kind) for name, kind in answer["columns"]],
            rows=answer["rows"],
            total_count=len(answer["rows"]),
            truncated=bool(answer["truncated"]),
        )

    async def _run(self, sql: str, max_rows: int) -> dict[str, Any]:
        question = json.dumps({"uri": self._uri, "sql": sql, "max_rows": max_rows, "seconds": SECONDS}).encode()
        try:
            output = await self._children.ask(question, SECONDS * 1.1 + 2)
        except TimeoutError:
            return {"error": "limit", "message": f"the query ran longer than {SECONDS:g} s"}
        try:
            answer = json.loads(output)
        except ValueError:
            return {"error": "limit", "message": "the query needed more memory or time than it may use"}
        return answer if isinstance(answer, dict) else {"error": "limit", "message": "no answer"}

    @staticmethod
    def _error(kind: str, message: str, sql: str) -> RpcError:
        if kind == "refused":
            return RpcError(
                "FAILED_PRECONDITION",
                f"the query was refused: {message}",
                code="query_refused",
                field="sql",
                hint="only a single SELECT is allowed",
            )
        if kind == "limit":
            return exhausted(
                message, code="query_limit", field="sql", hint="ask for less, or query a checkpoint offline"
            )
        hint = (
            "log, iris.task and the other tables of the log store are asked with `stats query`"
            if "no such table" in message
            else ""
        )
        return invalid("sql", f"SQL: {message}", code="query_syntax", position=position_of(message, sql), hint=hint)


def position_of(message: str, sql: str) -> int | None:
    """Where in the text the error is, as far as SQLite's words tell; None when they do not."""
    found = NEAR.search(message) or NAMED.search(message)
    if found is not None:
        word = next(g for g in found.groups() if g)
        places = [m.start() for m in re.finditer(re.escape(word.split(".")[-1]), sql)]
        return places[0] if places else None
    if "incomplete input" in message or not sqlite3.complete_statement(sql.rstrip(";") + ";"):
        return len(sql)
    return None
