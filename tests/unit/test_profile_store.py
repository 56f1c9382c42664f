"""Kept profiles: the bytes lie by day and are durable before their row, both go after a week, and the log store is asked in safe words."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any

import pytest

from iris_controller.profile_store import KEPT_DAYS, UNPACKED_BYTES, ProfileStore, statement, unpacked
from iris_controller.rpc.errors import RpcError
from iris_core.contracts import IrisError
from iris_core.model.namespaces import PROFILE
from iris_core.wire.gen.iris.v1 import profiles_pb2, stats_pb2
from iris_core.wire.rows import batch_of
from providers.objects.file import FileStore

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from iris_core.model.tables import Table

DAY_MS = 86_400_000
NOW = 1_767_225_600_000 + 5 * DAY_MS
"""2026-01-06."""


class World:
    """A store over a real folder; rows are kept in a list, and a query gives all of them."""

    def __init__(self, folder: Path) -> None:
        self.rows: list[Mapping[str, Any]] = []
        self.asked: list[str] = []
        self.now_ms = NOW
        self.objects = FileStore(folder)
        self.refusal: IrisError | None = None
        self.store = ProfileStore(self.objects, self.write, self.query, self.may_write, lambda: self.now_ms)

    def may_write(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    def write(self, table: Table, row: Mapping[str, Any]) -> None:
        assert table is PROFILE
        name = next(info.name for info in self.objects.list("") if row["profile_id"] in info.name)
        assert name.startswith(row["profile_id"][:8] + "/")
        self.rows.append(row)

    async def query(self, request: stats_pb2.QueryRequest) -> stats_pb2.QueryResponse:
        self.asked.append(request.sql)
        columns = batch_of(PROFILE, "p", 0, self.rows).columns
        return stats_pb2.QueryResponse(columns=_complete(columns, len(self.rows)))


def _complete(columns: Any, rows: int) -> list[stats_pb2.ColumnValues]:
    """A query gives every column that was asked for, also one in which all is NULL."""
    there = {column.name for column in columns}
    empty = [
        stats_pb2.ColumnValues(name=name, type=stats_pb2.COLUMN_TYPE_INT64, nulls=range(rows), integers=[0] * rows)
        for name in (column.name for column in PROFILE.columns)
        if name not in there
    ]
    return [*columns, *empty]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path / "profiles")


def record(**values: Any) -> profiles_pb2.ProfileRecord:
    given = {
        "source": "/me/train/0",
        "vm_id": "w1",
        "captured_at_ms": NOW - 1000,
        "type": profiles_pb2.PROFILE_TYPE_CPU,
        "format": profiles_pb2.PROFILE_FORMAT_SPEEDSCOPE,
        "trigger": profiles_pb2.PROFILE_TRIGGER_PERIODIC,
        "size_bytes": 2,
        "attempt_id": 3,
        "attempt_uid": "u1",
        "incarnation": 7,
        "rate_hz": 20,
    }
    return profiles_pb2.ProfileRecord(**{**given, **values})


@pytest.mark.asyncio
async def test_what_is_kept_is_listed_and_comes_back(world: World) -> None:
    kept = await world.store.keep(record(), gzip.compress(b"{}"))
    assert kept.profile_id.startswith("20260106-")
    (row,) = world.rows
    assert (row["type"], row["format"], row["trigger"], row["size_bytes"]) == ("cpu", "speedscope", "periodic", 2)
    assert "profile_data" not in row
    assert list((await world.store.list(profiles_pb2.ListProfilesRequest())).profiles) == [kept]
    found = await world.store.find(kept.profile_id)
    assert found == kept
    assert await world.store.load(found) == b"{}"
    (name,) = (info.name for info in world.objects.list(""))
    assert name == f"20260106/{kept.profile_id}.speedscope.json.gz"


@pytest.mark.asyncio
async def test_a_page_says_when_there_is_more(world: World) -> None:
    for number in range(3):
        await world.store.keep(record(captured_at_ms=NOW + number), gzip.compress(b""))
    answer = await world.store.list(profiles_pb2.ListProfilesRequest(page_size=2))
    assert (len(answer.profiles), answer.capped) == (2, True)
    assert world.asked[-1].endswith("LIMIT 3")


@pytest.mark.asyncio
async def test_a_controller_that_may_not_write_keeps_nothing(world: World) -> None:
    world.refusal = IrisError("a dry run stores nothing")
    with pytest.raises(IrisError, match="dry run"):
        await world.store.keep(record(), b"")
    assert (list(world.objects.list("")), world.rows) == ([], [])


@pytest.mark.asyncio
async def test_profiles_of_finished_days_go_after_a_week_and_nothing_else_does(world: World) -> None:
    old = await world.store.keep(record(), gzip.compress(b"old"))
    world.objects.put("notes/20260101.txt", b"not a day")
    world.now_ms = NOW + KEPT_DAYS * DAY_MS
    new = await world.store.keep(record(), gzip.compress(b"new"))
    assert world.store.remove_expired() == 0
    world.now_ms += DAY_MS
    assert world.store.remove_expired() == 1
    assert await world.store.load(new) == b"new"
    with pytest.raises(RpcError, match="no longer in") as caught:
        await world.store.load(old)
    assert caught.value.status == "NOT_FOUND"
    assert world.objects.stat("notes/20260101.txt") is not None


@pytest.mark.asyncio
@pytest.mark.parametrize("profile_id", ["", "x", "../../etc/passwd", "20260106-0123456789ab' OR 1=1 --", "20260106-XX"])
async def test_what_is_no_id_is_never_asked_for(world: World, profile_id: str) -> None:
    with pytest.raises(RpcError) as caught:
        await world.store.find(profile_id)
    assert (caught.value.status, world.asked) == ("NOT_FOUND", [])
    with pytest.raises(RpcError):
        world.store.named(profile_id, profiles_pb2.PROFILE_TYPE_CPU, profiles_pb2.PROFILE_FORMAT_RAW)


@pytest.mark.asyncio
async def test_damaged_bytes_are_said(world: World) -> None:
    kept = await world.store.keep(record(), gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(RpcError, match="are damaged") as caught:
        await world.store.load(kept)
    assert caught.value.status == "DATA_LOSS"


def test_what_unpacks_to_more_than_an_answer_carries_is_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        unpacked(gzip.compress(bytes(UNPACKED_BYTES + 1), 1))


def test_the_statement_quotes_what_it_is_given() -> None:
    asked = profiles_pb2.ListProfilesRequest(
        source="/me/it's/0",
        prefix="/me/a_b",
        types=[profiles_pb2.PROFILE_TYPE_CPU, profiles_pb2.PROFILE_TYPE_THREADS],
        trigger=profiles_pb2.PROFILE_TRIGGER_ON_DEMAND,
        since_ms=5,
        min_incarnation=9,
        latest_only=True,
    )
    sql = statement(asked, 10)
    assert "source = '/me/it''s/0'" in sql
    assert "(source = '/me/a_b' OR starts_with(source, '/me/a_b/'))" in sql
    assert "type IN ('cpu', 'thread')" in sql
    assert "\"trigger\" = 'on_demand'" in sql
    assert "incarnation >= 9" in sql
    assert "QUALIFY" in sql
