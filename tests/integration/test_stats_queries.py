"""Registered tables and SQL over a real finelog: what was acknowledged is seen, within limits, through kills and damage."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import uvloop

from iris_controller.finelog.catalog import Catalog
from iris_controller.finelog.tables.keeper import Keeper
from iris_controller.finelog.tables.service import StatsService
from iris_controller.finelog.tables.store import TableStore
from iris_core.model.namespaces import NAMESPACES, PROFILE, TASK_EVENT
from iris_core.wire.gen.iris.v1 import common_pb2, logs_pb2
from iris_core.wire.gen.iris.v1 import stats_pb2 as pb
from iris_core.wire.rows import batch_of, rows_of, table_to_wire
from tests.integration.finelog_process import DEADLINE, Finelog, finelog
from tests.unit.tables_world import EVERYTHING, METRIC, metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

UID = "0123456789abcdef"
ENDLESS = "SELECT count(*) FROM range(50000) a, range(50000) b, range(50000) c WHERE a.range + b.range + c.range = 7"

MANUAL = [
    """SELECT attempt_id, ts, type, reason, message, source, count
  FROM "iris.task_event"
  WHERE task_id='/user/job/0' AND attempt_uid='<uid from iris task describe>'
  ORDER BY ts ASC;""",
    """SELECT cluster, ts, task_id, attempt_id, pod_name, node_name,
         node_uid, node_provider_id, node_boot_id, node_system_uuid,
         reason, message, pod_conditions_json, node_taints_json,
         node_conditions_json
  FROM "iris.task_event"
  WHERE source='k8s/disruption' AND reason='DeletionByTaintManager'
  ORDER BY ts DESC;""",
    """SELECT source, type, format, count(*) FROM "iris.profile"
  WHERE source LIKE '/user/job/%' AND type='cpu' GROUP BY 1,2,3""",
]
"""Every statement of the operators' manual on these tables, as printed there."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Finelog]:
    with finelog(tmp_path_factory.mktemp("stats")) as running:
        yield running


def write(store: Finelog, *batches: pb.RowBatch) -> pb.WriteRowsResponse:
    answer: pb.WriteRowsResponse = store.call("StatsService/WriteRows")(pb.WriteRowsRequest(batches=batches))
    return answer


def query(store: Finelog, sql: str, **fields: Any) -> pb.QueryResponse:
    fields.setdefault("timeout_ms", 60_000)
    answer: pb.QueryResponse = store.call("StatsService/Query")(pb.QueryRequest(sql=sql, **fields))
    return answer


def rows(store: Finelog, sql: str, **fields: Any) -> list[dict[str, Any]]:
    return list(rows_of(query(store, sql, **fields).columns))


def refusal(store: Finelog, sql: str, **fields: Any) -> tuple[str, common_pb2.ErrorDetail, str]:
    with pytest.raises(grpc.RpcError) as error:
        query(store, sql, **fields)
    call: Any = error.value
    (detail,) = [value for key, value in call.trailing_metadata() if key == "iris-error-detail-bin"]
    assert "\n" not in call.details()
    return call.code().name, common_pb2.ErrorDetail.FromString(detail), call.details()


def event(ts: int, **more: Any) -> dict[str, Any]:
    row = {"task_id": "/user/job/0", "attempt_id": 1, "ts": ts, "type": "Warning", "reason": "DeletionByTaintManager"}
    return row | {"message": '{"pod": "p"}', "source": "k8s/disruption", "count": 1, "attempt_uid": UID} | more


def children(store: Finelog) -> set[int]:
    """The processes that finelog started and that are alive."""
    folder = Path(f"/proc/{store.process.pid}/task")
    return {int(pid) for one in folder.iterdir() for pid in (one / "children").read_text().split()}


def until(condition: Any) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        pause.wait(0.02)


def test_the_statements_of_the_manual_run_as_printed(store: Finelog) -> None:
    now = time.time_ns() // 1_000_000
    profile = {
        "source": "/user/job/0", "vm_id": "w1", "captured_at": now, "duration_seconds": 10, "type": "cpu",
        "format": "speedscope", "trigger": "periodic", "size_bytes": 3, "profile_data": b"\x00\xff{",
    }  # fmt: skip
    other = event(now, attempt_uid="<uid from iris task describe>", source="iris/controller")
    write(
        store,
        batch_of(TASK_EVENT, "manual", 0, [event(now + 1), other, event(now + 2)]),
        batch_of(PROFILE, "manual", 0, [profile, profile]),
    )
    first, second, third = (rows(store, sql) for sql in MANUAL)
    assert [row["source"] for row in first] == ["iris/controller"]
    assert [row["ts"] - now for row in second] == [2, 1]
    assert third == [{"source": "/user/job/0", "type": "cpu", "format": "speedscope", "count_star()": 2}]
    # The words of the other dialect that operators use.
    found = rows(
        store,
        "SELECT json_get(message, 'pod') AS pod, json_get(message, 'x') AS x, json_get('no json', 'x') AS n,"
        " prefix(task_id, '/user/') AS p, contains(reason, 'Taint') AS c, regexp_matches(reason, 'T..nt') AS r,"
        " extract(epoch FROM now()) > 1e9 AS e FROM iris.task_event WHERE ts > now() - INTERVAL '5 minutes'"
        " QUALIFY row_number() OVER (PARTITION BY task_id ORDER BY ts DESC) = 1",
    )
    assert found == [{"pod": "p", "x": None, "n": None, "p": True, "c": True, "r": True, "e": True}]
    (blob,) = rows(store, "SELECT profile_data FROM iris.profile LIMIT 1")
    assert blob == {"profile_data": b"\x00\xff{"}


def test_what_was_acknowledged_is_seen_beside_the_log(store: Finelog) -> None:
    store.call("StatsService/RegisterTable")(pb.RegisterTableRequest(schema=table_to_wire(METRIC)))
    entry = logs_pb2.LogEntry(number=0, epoch_ms=5, source="stdout", data="m1 \x1b[31m says \x00")
    store.push(logs_pb2.LogBatch(producer="seen", key="/u/j/0:0", attempt_uid=UID, entries=[entry]))
    first = write(store, metrics(0, 5))
    assert (first.stored, first.repeated_rows, first.marks[0].next_number) == (5, 0, 5)
    # The acknowledgement was lost: the producer sends it all again.
    again = write(store, metrics(0, 7))
    assert (again.stored, again.repeated_rows, again.missing) == (2, 5, 0)
    sql = "SELECT m.name, m.value, l.data, l.attempt_uid FROM test.metric m JOIN log l ON prefix(l.data, m.name) ORDER BY m.value"
    answer = query(store, sql)
    assert list(answer.tables) == ["log", "test.metric"]
    assert [(row["name"], row["value"], row["data"], row["attempt_uid"]) for row in rows_of(answer.columns)] == [
        ("m1", 1.0, "m1 \x1b[31m says \x00", UID), ("m1", 4.0, "m1 \x1b[31m says \x00", UID),
    ]  # fmt: skip
    listed = store.call("StatsService/ListNamespaces")(pb.ListNamespacesRequest())
    assert [one.table for one in listed.tables] == ["log", *sorted([METRIC.name, *(one.name for one in NAMESPACES)])]
    assert next(one.rows for one in listed.tables if one.table == METRIC.name) == 7
    schema = store.call("StatsService/GetTableSchema")(pb.GetTableSchemaRequest(table="log")).schema
    assert [column.name for column in schema.columns][:4] == ["key", "producer", "number", "epoch_ms"]
    status = store.call("StatsService/GetTableStatus")(
        pb.GetTableStatusRequest(table=METRIC.name, producers=["p0", "x"])
    )
    assert [(mark.producer, mark.next_number) for mark in status.marks] == [("p0", 7), ("x", 0)]


def test_a_value_of_every_type_comes_back_as_it_was(tmp_path: Path) -> None:
    rows_in: list[dict[str, Any]] = [
        {
            "string": "a", "int64": -(1 << 63), "int32": -(1 << 31), "float64": float("inf"), "bool": True,
            "timestamp_ms": 1, "bytes": b"\x00\xff", "map": {"k": "v", "é": ""}, "float64_list": [1.5, -0.0],
            "int64_list": [1 << 62],
        },
        {"string": "é\x00\x1b"},
        {"string": "", "map": {}, "float64_list": [], "int64_list": [], "timestamp_ms": 253_402_300_799_999},
    ]  # fmt: skip
    sql = f"SELECT * EXCLUDE seq FROM {EVERYTHING.name} ORDER BY seq"

    async def main() -> None:
        store = TableStore(tmp_path / "stats", Catalog(tmp_path / "tables"), namespaces=(EVERYTHING,))
        service = StatsService(store)
        try:
            batch = batch_of(EVERYTHING, "p", 0, rows_in)
            await service.write_rows(pb.WriteRowsRequest(batches=[batch]).SerializeToString())
            # From the write-ahead file, then from a segment.
            for segments in (0, 1):
                answer = await service.query(pb.QueryRequest(sql=sql, timeout_ms=60_000).SerializeToString())
                assert isinstance(answer, pb.QueryResponse)
                for found, given in zip(rows_of(answer.columns), rows_in, strict=True):
                    assert found == {column.name: given.get(column.name) for column in EVERYTHING.columns}
                assert store.status(EVERYTHING.name).segments == segments
                store.close_file()
                Keeper(store).keep(0)
        finally:
            await service.close()
            store.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_an_answer_is_bounded_and_says_so(store: Finelog) -> None:
    answer = query(store, "SELECT range AS n FROM range(100000)", max_rows=3)
    assert [row["n"] for row in rows_of(answer.columns)] == [0, 1, 2]
    assert (answer.row_count, answer.capped, answer.capped_reason) == (3, True, "only the first 3 rows are given")
    assert query(store, "SELECT 1 FROM range(2)", max_rows=1).capped_reason == "only the first row is given"
    answer = query(store, "SELECT repeat('x', 1000000) AS x FROM range(100)")
    assert answer.capped and 8 < answer.row_count < 13
    assert answer.capped_reason == "an answer has at most 12 MiB"


@pytest.mark.parametrize(
    ("sql", "status", "code", "words"),
    [
        (ENDLESS, "RESOURCE_EXHAUSTED", "query_limit", "longer than 1 s"),
        ("SELECT list(a.range) FROM range(300000000) a", "RESOURCE_EXHAUSTED", "query_limit", "memory"),
        ('DROP VIEW "iris.task_event"', "FAILED_PRECONDITION", "query_refused", "it is not a SELECT"),
        ("SELECT nope FROM\n  iris.worker", "INVALID_ARGUMENT", "query_syntax", '"nope" not found'),
        ("SELECT * FROM iris.taskevent", "INVALID_ARGUMENT", "unknown_table", "no table 'iris.taskevent'"),
    ],
)
def test_what_does_not_run_is_said_in_one_line(store: Finelog, sql: str, status: str, code: str, words: str) -> None:
    found, detail, message = refusal(store, sql, timeout_ms=1000 if sql is ENDLESS else 60_000)
    assert (found, detail.code, detail.field) == (status, code, "sql")
    assert words in message
    if status == "INVALID_ARGUMENT":
        assert detail.position == sql.index("nope" if "nope" in sql else "iris.taskevent")
    assert "/" not in message


def test_a_table_of_the_controller_s_database_is_pointed_at_the_command_that_has_it(store: Finelog) -> None:
    _, detail, _ = refusal(store, "SELECT * FROM jobs")
    assert detail.code == "unknown_table" and "are asked with `iris-core query`" in detail.hint


@pytest.mark.parametrize(
    ("sql", "fields", "words"),
    [
        ("", {}, "the query is empty"),
        ("SELECT 1" + " " * 1_000_000, {}, "1000008 characters"),
        ("SELECT \0", {}, "NUL"),
        ("SELECT 1", {"max_rows": -1}, "max_rows -1"),
        ("SELECT 1", {"timeout_ms": 100_000}, "timeout_ms 100000"),
    ],
)
def test_what_is_refused_before_a_process_starts(store: Finelog, sql: str, fields: dict[str, int], words: str) -> None:
    status, _, message = refusal(store, sql, **fields)
    assert status == "INVALID_ARGUMENT"
    assert words in message


def test_a_caller_that_leaves_ends_its_query(store: Finelog) -> None:
    assert not children(store)
    call = store.stub("StatsService/Query").future(pb.QueryRequest(sql=ENDLESS, timeout_ms=60_000), timeout=DEADLINE)
    until(lambda: children(store))
    call.cancel()
    until(lambda: not children(store))
    assert not list((store.data_dir / "stats").glob("queries/*"))


def test_kills_and_damage_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    store = Finelog(tmp_path)
    store.start()
    try:
        store.call("StatsService/RegisterTable")(pb.RegisterTableRequest(schema=table_to_wire(METRIC)))
        write(store, metrics(0, 40))
        running = store.stub("StatsService/Query").future(pb.QueryRequest(sql=ENDLESS), timeout=DEADLINE)
        until(lambda: children(store))
        (child,) = children(store)
        store.kill()
        running.cancel()
        # A query does not outlive the store.
        until(lambda: not Path(f"/proc/{child}").exists() or "zombie" in Path(f"/proc/{child}/status").read_text())
        store.start()
        assert write(store, metrics(35, 10)).stored == 5
        total = "SELECT count(*) AS n, count(DISTINCT value) AS d, count(DISTINCT seq) AS s FROM test.metric"
        assert rows(store, total) == [{"n": 45, "d": 45, "s": 45}]
        # What the last process wrote is a segment by now, or will be.
        until(lambda: list((store.data_dir / "tables" / METRIC.name).glob("*.parquet")))
        # A stop does not wait for a query.
        running = store.stub("StatsService/Query").future(pb.QueryRequest(sql=ENDLESS), timeout=DEADLINE)
        until(lambda: children(store))
        assert store.stop() == 0
        running.cancel()
        (segment,) = (store.data_dir / "tables" / METRIC.name).glob("*.parquet")
        whole = segment.read_bytes()
        # The first page of the first column, of which the footer knows nothing.
        segment.write_bytes(whole[:4] + b"\xff" * 60 + whole[64:])
        store.start()
        answer = query(store, total)
        assert list(answer.notes) == [f"the segment {METRIC.name}/{segment.name} is damaged and left out"]
        assert [row["n"] for row in rows_of(answer.columns)] == [5]
        assert write(store, metrics(0, 46)).stored == 1, "its producer is remembered all the same"
    finally:
        if store.is_running:
            store.kill()
