"""StatsService over gRPC: bytes in, bytes out, errors with their detail, as `LogService` has them.

Must never do file work on the loop.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from iris_controller.finelog.groups import Groups, disk_error
from iris_controller.finelog.tables import admission
from iris_controller.finelog.tables.keeper import Keeper
from iris_controller.finelog.tables.sources import TableSources
from iris_controller.finelog.tables.statements import Statements
from iris_controller.rpc.errors import as_rpc_error, invalid
from iris_core.model.errors import ModelError
from iris_core.model.tables import LOG
from iris_core.wire.gen.iris.v1 import stats_pb2
from iris_core.wire.rows import table_from_wire, table_to_wire
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from iris_controller.finelog.tables.admission import Rows
    from iris_controller.finelog.tables.log_table import LogTable
    from iris_controller.finelog.tables.store import TableStore

log = logging.getLogger("iris.finelog")

THREADS = 3
SERVICE = "iris.v1.StatsService"

M = TypeVar("M", bound=Message)


class StatsService:
    """The methods, on one event loop. `close` ends it; the store stays open."""

    def __init__(self, store: TableStore, log_table: LogTable | None = None) -> None:
        self._store = store
        self._log = log_table
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="finelog-tables")
        self._groups: Groups[Rows] = Groups(
            store, self._parse, self._stored, what="StatsService/WriteRows", rows="rows"
        )
        self._statements = Statements(TableSources(store, log_table, store.folder / "queries"), self._threads)
        self._keeper = Keeper(store)
        self._keeper.start()

    # Writing -----------------------------------------------------------------------------------------------------

    async def register_table(self, raw: bytes) -> Message:
        request = _decoded(stats_pb2.RegisterTableRequest, raw)
        try:
            table = table_from_wire(request.schema)
        except ModelError as error:
            raise invalid(f"schema.{error.field}", error.message, code="schema", hint=error.hint) from None
        now, created, added = await self._in_thread(self._store.register, table)
        return stats_pb2.RegisterTableResponse(schema=table_to_wire(now), created=created, added_columns=added)

    async def write_rows(self, raw: bytes) -> Message:
        batches = await self._groups.store(raw)
        refused = next((rows.refused for rows in batches if rows.refused is not None), None)
        if refused is not None:
            raise refused
        places = dict.fromkeys((rows.message.table, rows.message.producer) for rows in batches)
        given = sum(rows.message.rows for rows in batches)
        stored = sum(rows.stored for rows in batches)
        return stats_pb2.WriteRowsResponse(
            marks=[self._mark(*place) for place in places],
            stored=stored,
            repeated_rows=given - stored,
            missing=sum(rows.missing for rows in batches),
        )

    def _parse(self, raw: bytes, _: int) -> list[Rows]:
        return admission.parse(raw, self._store.tables)

    def _stored(self, _: set[str]) -> None:
        if self._store.closed_files():
            self._keeper.wake()

    def wake_keeper(self) -> None:
        """A write-ahead file was closed: it is to become segments now."""
        self._keeper.wake()

    def _mark(self, table: str, producer: str) -> stats_pb2.TableMark:
        return stats_pb2.TableMark(table=table, producer=producer, next_number=self._store.mark(table, producer))

    async def drop_table(self, raw: bytes) -> Message:
        request = _decoded(stats_pb2.DropTableRequest, raw)
        rows, size = await self._in_thread(self._store.drop, request.table)
        log.warning("table %s was dropped, with %d rows", request.table, rows)
        return stats_pb2.DropTableResponse(removed_rows=rows, removed_bytes=size)

    # Reading -----------------------------------------------------------------------------------------------------

    async def query(self, raw: bytes) -> Message:
        return await self._statements.run(_decoded(stats_pb2.QueryRequest, raw))

    async def list_namespaces(self, raw: bytes) -> Message:
        _decoded(stats_pb2.ListNamespacesRequest, raw)
        names = [*([LOG] if self._log is not None else ()), *sorted(self._store.tables)]
        return stats_pb2.ListNamespacesResponse(
            tables=await self._in_thread(lambda: [self._status(name) for name in names])
        )

    async def get_table_schema(self, raw: bytes) -> Message:
        request = _decoded(stats_pb2.GetTableSchemaRequest, raw)
        if request.table == LOG and self._log is not None:
            return stats_pb2.GetTableSchemaResponse(schema=self._log.schema())
        table = self._store.tables.get(request.table)
        if table is None:
            raise admission.no_table(request.table, self._store.tables)
        return stats_pb2.GetTableSchemaResponse(schema=table_to_wire(table))

    async def get_table_status(self, raw: bytes) -> Message:
        request = _decoded(stats_pb2.GetTableStatusRequest, raw)
        # Before the rows are counted: all rows below a mark are among them.
        marks = [self._mark(request.table, producer) for producer in request.producers]
        status = await self._in_thread(self._status, request.table)
        return stats_pb2.GetTableStatusResponse(status=status, marks=marks)

    def _status(self, name: str) -> stats_pb2.TableStatus:
        return self._log.status() if name == LOG and self._log is not None else self._store.status(name)

    # Serving -----------------------------------------------------------------------------------------------------

    def handlers(self) -> grpc.GenericRpcHandler[Any, Any]:
        """What a gRPC server is given."""
        calls: dict[str, Callable[[bytes], Awaitable[Message]]] = {
            "StatsService/RegisterTable": self.register_table,
            "StatsService/WriteRows": self.write_rows,
            "StatsService/Query": self.query,
            "StatsService/ListNamespaces": self.list_namespaces,
            "StatsService/GetTableSchema": self.get_table_schema,
            "StatsService/GetTableStatus": self.get_table_status,
            "StatsService/DropTable": self.drop_table,
        }
        found = {
            method(name).name: grpc.unary_unary_rpc_method_handler(_guard(name, call)) for name, call in calls.items()
        }
        return grpc.method_handlers_generic_handler(SERVICE, found)

    async def _in_thread(self, call: Callable[..., Any], *given: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, call, *given)

    async def close(self) -> None:
        """Stores what waits and ends the threads. Call it when no request is under way any more."""
        await self._groups.close()
        await asyncio.to_thread(self._keeper.close)
        await asyncio.to_thread(self._threads.shutdown)


def _decoded(kind: type[M], raw: bytes) -> M:
    try:
        return kind.FromString(raw)
    except DecodeError as error:
        raise invalid("", f"this is no {kind.DESCRIPTOR.name}", code="malformed") from error


def _guard(name: str, call: Callable[[bytes], Awaitable[Message]]) -> Callable[..., Awaitable[bytes]]:
    async def handle(raw: bytes, context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        try:
            return (await call(raw)).SerializeToString()
        except asyncio.CancelledError:
            raise
        except OSError as error:
            log.warning("%s: %s", name, error)
            fault = disk_error(error, "free space where the log store keeps its data")
            await context.abort(fault.grpc_code(), fault.message, fault.metadata())
        except Exception as error:
            fault = as_rpc_error(error, name)
            await context.abort(fault.grpc_code(), fault.message, fault.metadata())
        raise AssertionError("abort always raises")

    return handle
