"""The profiles that are kept: their bytes in the object store by day, a row about each in `iris.profile` (cli-auth-logs §4.4).

Bytes and rows lie apart, so that a listing of a busy week never reads a profile. The bytes are durable before the row is written:
a row always has a profile behind it, until both are over their time. Must never keep the caller of a profile waiting for the log
store, and never touch an object that does not lie under a day.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import logging
import re
import secrets
import zlib
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from iris_controller.by_day import keep_removing, remove_expired
from iris_controller.rpc.errors import RpcError, not_found
from iris_controller.rpc.passthrough import PassThrough
from iris_core.contracts import ObjectMissing
from iris_core.live.clock import SystemClock
from iris_core.model.namespaces import PROFILE
from iris_core.wire.gen.iris.v1 import profiles_pb2, stats_pb2
from iris_core.wire.profiles import FORMATS, TRIGGERS, TYPES, number_of, suffix
from iris_core.wire.rows import rows_of
from iris_core.wire.services import method

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from iris_core.contracts import ObjectStore
    from iris_core.live.clock import Clock
    from iris_core.model.tables import Table

log = logging.getLogger("iris.profiles")

FOLDER: Final = "profiles"
KEPT_DAYS: Final = 7
DAY_MS: Final = 86_400_000
FIRST_S: Final = 120.0
UNPACKED_BYTES: Final = 56 * 2**20
"""What an answer can carry."""
QUERY_S: Final = 30.0
PAGE: Final = 100
MOST: Final = 200_000

_ID: Final = re.compile(r"\d{8}-[0-9a-f]{12}")
_COLUMNS: Final = (
    "profile_id, source, attempt_id, attempt_uid, incarnation, vm_id, captured_at, duration_seconds, type, format, "
    '"trigger", size_bytes, rate_hz, native, leaks, locals_dump'
)


class ProfileStore:
    """See the module.

    objects   under which the bytes lie, by day
    write     takes a row, at once and without fail
    query     answers one statement of the log store; raises RpcError
    may_write raises when this controller stores nothing
    """

    def __init__(
        self,
        objects: ObjectStore,
        write: Callable[[Table, Mapping[str, Any]], None],
        query: Callable[[stats_pb2.QueryRequest], Awaitable[stats_pb2.QueryResponse]],
        may_write: Callable[[], None],
        now_ms: Callable[[], int],
        clock: Clock | None = None,
    ) -> None:
        self._objects = objects
        self._write = write
        self._query = query
        self._may_write = may_write
        self._now_ms = now_ms
        self._clock = clock or SystemClock()

    async def keep(self, record: profiles_pb2.ProfileRecord, packed: bytes) -> profiles_pb2.ProfileRecord:
        """Keeps a profile (gzip); the record comes back with its id. Raises IrisError, RpcError."""
        self._may_write()
        kept = profiles_pb2.ProfileRecord()
        kept.CopyFrom(record)
        day = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        kept.profile_id = f"{day:%Y%m%d}-{secrets.token_hex(6)}"
        await asyncio.to_thread(self._objects.put, _name(kept), packed)
        self._write(PROFILE, _row(kept))
        return kept

    def named(
        self, profile_id: str, kind: profiles_pb2.ProfileType, shape: profiles_pb2.ProfileFormat
    ) -> profiles_pb2.ProfileRecord:
        """Enough of a record to `load` it. Raises RpcError: that is no id."""
        _check(profile_id)
        return profiles_pb2.ProfileRecord(profile_id=profile_id, type=kind, format=shape)

    async def find(self, profile_id: str) -> profiles_pb2.ProfileRecord:
        """The record of a kept profile. Raises RpcError."""
        _check(profile_id)
        request = stats_pb2.QueryRequest(
            sql=f"SELECT {_COLUMNS} FROM \"iris.profile\" WHERE profile_id = '{profile_id}' LIMIT 1"
        )
        answer = await self._query(request)
        for row in rows_of(answer.columns):
            return _record(row)
        raise not_found(profile_id, f"there is no profile {profile_id}", hint=f"they are kept for {KEPT_DAYS} days")

    async def load(self, record: profiles_pb2.ProfileRecord) -> bytes:
        """Its bytes, unpacked. Raises IrisError, RpcError."""
        return await asyncio.to_thread(self._load, record)

    def _load(self, record: profiles_pb2.ProfileRecord) -> bytes:
        try:
            return unpacked(self._objects.get(_name(record)))
        except ObjectMissing:
            raise not_found(
                record.profile_id,
                f"the bytes of profile {record.profile_id} are no longer in {self._objects.url}",
                hint=f"they are kept for {KEPT_DAYS} days",
            ) from None
        except (OSError, EOFError, zlib.error, ValueError) as error:
            raise RpcError(
                "DATA_LOSS", f"the bytes of profile {record.profile_id} are damaged: {error}", subject=record.profile_id
            ) from None

    async def list(self, request: profiles_pb2.ListProfilesRequest) -> profiles_pb2.ListProfilesResponse:
        """The newest that the request names. Raises RpcError."""
        size = min(request.page_size or PAGE, MOST)
        answer = await self._query(stats_pb2.QueryRequest(sql=statement(request, size + 1), max_rows=size + 1))
        records = [_record(row) for row in rows_of(answer.columns)]
        return profiles_pb2.ListProfilesResponse(
            profiles=records[:size], capped=len(records) > size or answer.capped, notes=answer.notes
        )

    async def run(self) -> None:
        """Removes what is over its time, for ever."""
        await keep_removing(self.remove_expired, "profiles", self._clock, FIRST_S)

    def remove_expired(self) -> int:
        """Blocking. How many went. Raises IrisError."""
        return remove_expired(self._objects, KEPT_DAYS * DAY_MS, self._now_ms())


class Asking:
    """Puts statements to the log store at `address()`."""

    def __init__(self, address: Callable[[], str]) -> None:
        self._store = PassThrough(address, "the log store")

    async def __call__(self, request: stats_pb2.QueryRequest) -> stats_pb2.QueryResponse:
        """The answer. Raises RpcError."""
        answer, _ = await self._store.unary(method("StatsService/Query"), request.SerializeToString(), QUERY_S)
        return stats_pb2.QueryResponse.FromString(answer)

    async def close(self) -> None:
        """Ends the connection."""
        await self._store.close()


def statement(request: profiles_pb2.ListProfilesRequest, limit: int) -> str:
    """The SELECT for what a request names, newest first."""
    where = ["profile_id IS NOT NULL"]
    if request.source:
        where.append(f"source = {_quoted(request.source)}")
    if request.prefix:
        below = _quoted(request.prefix.rstrip("/") + "/")
        where.append(f"(source = {_quoted(request.prefix)} OR starts_with(source, {below}))")
    if request.types:
        named = ", ".join(_quoted(TYPES.get(kind, "")) for kind in request.types)
        where.append(f"type IN ({named})")
    if request.trigger:
        where.append(f'"trigger" = {_quoted(TRIGGERS.get(request.trigger, ""))}')
    if request.since_ms > 0:
        where.append(f"captured_at >= epoch_ms({int(request.since_ms)}::BIGINT)")
    if request.min_incarnation > 0:
        where.append(f"incarnation >= {int(request.min_incarnation)}")
    newest = " QUALIFY row_number() OVER (PARTITION BY source, type ORDER BY captured_at DESC) = 1"
    return (
        f'SELECT {_COLUMNS} FROM "iris.profile" WHERE {" AND ".join(where)}'
        f"{newest if request.latest_only else ''} ORDER BY captured_at DESC, profile_id LIMIT {limit}"
    )


def _check(profile_id: str) -> None:
    if not _ID.fullmatch(profile_id):
        raise not_found(profile_id, "a profile id is a day and twelve hex digits", hint="see: iris profile list")


def unpacked(packed: bytes) -> bytes:
    """The bytes behind gzip. Raises ValueError when they are more than an answer carries, OSError, EOFError, zlib.error."""
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
        data = file.read(UNPACKED_BYTES + 1)
    if len(data) > UNPACKED_BYTES:
        raise ValueError(f"they have more than {UNPACKED_BYTES} bytes")
    return data


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _name(record: profiles_pb2.ProfileRecord) -> str:
    return f"{record.profile_id[:8]}/{record.profile_id}.{suffix(record.type, record.format)}.gz"


def _row(record: profiles_pb2.ProfileRecord) -> dict[str, Any]:
    return {
        "profile_id": record.profile_id,
        "source": record.source,
        "attempt_id": record.attempt_id if record.HasField("attempt_id") else None,
        "attempt_uid": record.attempt_uid or None,
        "incarnation": record.incarnation or None,
        "vm_id": record.vm_id,
        "captured_at": record.captured_at_ms,
        "duration_seconds": record.duration_seconds,
        "type": TYPES[record.type],
        "format": FORMATS[record.format],
        "trigger": TRIGGERS[record.trigger],
        "size_bytes": record.size_bytes,
        "rate_hz": record.rate_hz or None,
        "native": record.native,
        "leaks": record.leaks,
        "locals_dump": record.locals,
    }


def _record(row: Mapping[str, Any]) -> profiles_pb2.ProfileRecord:
    record = profiles_pb2.ProfileRecord(
        profile_id=row["profile_id"],
        source=row["source"],
        attempt_uid=row["attempt_uid"] or "",
        incarnation=row["incarnation"] or 0,
        vm_id=row["vm_id"],
        captured_at_ms=row["captured_at"],
        duration_seconds=row["duration_seconds"],
        type=number_of(TYPES, row["type"]),  # type: ignore[arg-type]
        format=number_of(FORMATS, row["format"]),  # type: ignore[arg-type]
        trigger=number_of(TRIGGERS, row["trigger"]),  # type: ignore[arg-type]
        size_bytes=row["size_bytes"],
        rate_hz=row["rate_hz"] or 0,
        native=bool(row["native"]),
        leaks=bool(row["leaks"]),
        locals=bool(row["locals_dump"]),
    )
    if row["attempt_id"] is not None:
        record.attempt_id = row["attempt_id"]
    return record
