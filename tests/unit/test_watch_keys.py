"""The table of rows that the console's subscription goes by, against what the wire can bring."""

from __future__ import annotations

from iris_core.live.watch_keys import KIND_FIELDS, ROW_IDS, count, each
from iris_core.wire.gen.iris.v1 import controller_pb2


def test_every_kind_has_its_field_and_every_field_its_id() -> None:
    fields = {f.name for f in controller_pb2.WatchRows.DESCRIPTOR.fields} - {"selector_id", "removed"}
    assert set(ROW_IDS) == fields
    kinds = {v.number: v.name.removeprefix("WATCH_KIND_").lower() for v in controller_pb2.WatchKind.DESCRIPTOR.values}
    del kinds[0]
    kinds[controller_pb2.WATCH_KIND_AUTOSCALER_ACTIONS] = "actions"
    assert kinds == KIND_FIELDS


def test_a_row_is_named_by_its_id() -> None:
    rows = controller_pb2.WatchRows()
    for field in ROW_IDS:
        row = getattr(rows, field).add()
        names = [f.name for f in row.DESCRIPTOR.fields]
        setattr(row, next(n for n in names if ROW_IDS[field](_named(row, n)) == "x"), "x")
    assert count(rows) == len(ROW_IDS)
    assert {(field, row_id) for field, row_id, _ in each(rows)} == {(field, "x") for field in ROW_IDS}
    rows.endpoints.add(name="/system/log-server")
    assert [row_id for field, row_id, _ in each(rows) if field == "endpoints"] == ["x", "/system/log-server"]


def _named(row: object, name: str) -> object:
    copy = type(row)()
    try:
        setattr(copy, name, "x")
    except (TypeError, AttributeError, ValueError):
        return copy
    return copy
