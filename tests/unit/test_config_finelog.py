"""What a cluster file says of the log store, and what its command is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from iris_controller.options import ServeOptions
from iris_controller.rpc.pipeline import problems
from iris_core.config.cluster import parse_config
from iris_core.contracts import UsageFailed
from iris_core.wire.gen.iris.v1.pipeline_pb2 import GetPipelineHealthResponse, ShippingHealth, StoreHealth

HEAD = "name: a\nplatform: {local: }\n"


def options(text: str, *, dry_run: bool = False) -> list[str]:
    return ServeOptions(parse_config(HEAD + text), Path("/s"), "127.0.0.1", dry_run=dry_run).finelog_options


def test_segments_are_shipped_where_the_cluster_has_a_remote_place() -> None:
    assert options("") == []
    remote = "storage: {remote_state_dir: 'gs://b/c'}\n"
    assert options(remote) == ["--remote=gs://b/c/finelog", "--ship-seconds=60"]
    more = "finelog: {max_bytes: 1GiB, remote_dir: 'file:///r/', ship_after: {seconds: 5}, local_bytes: 1GB}\n"
    told = ["--max-bytes=1073741824", "--remote=file:///r", "--ship-seconds=5", "--local-bytes=1000000000"]
    assert options(remote + more) == told


def test_how_long_lines_are_kept_is_told() -> None:
    told = options("finelog: {max_bytes: 1GiB, max_age: {seconds: 2592000}, max_segments: 500}\n")
    assert told == ["--max-bytes=1073741824", "--max-age-seconds=2592000", "--max-segments=500"]


def test_a_dry_run_does_not_take_the_place_of_the_store_that_ships() -> None:
    text = "storage: {remote_state_dir: 'gs://b/c'}\nfinelog: {max_bytes: 1GiB}\n"
    assert options(text, dry_run=True) == ["--max-bytes=1073741824"]


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{max_byte: 1GiB}", "max_bytes"),
        ("{max_bytes: 5}", "too few"),
        ("{max_segments: 1}", "2"),
        ("{max_age: {seconds: 1}}", "60000"),
        ("{remote_dir: here}", "is not an object store"),
        ("{ship_after: 10}", "outside 1000.."),
    ],
)
def test_a_wrong_section_is_named(section: str, said: str) -> None:
    with pytest.raises(UsageFailed) as refused:
        parse_config(f"{HEAD}finelog: {section}\n")
    assert said in f"{refused.value.message} {refused.value.hint}"


def test_keys_of_other_releases_are_accepted_and_told() -> None:
    assert parse_config(HEAD + "finelog: {config: marin, relay_address: 'x:1'}\n").unused == (
        "finelog.config",
        "finelog.relay_address",
    )


def test_what_a_lost_disk_would_take_is_a_problem_once_it_is_much() -> None:
    def told(shipping: ShippingHealth) -> list[str]:
        return problems(
            GetPipelineHealthResponse(store=StoreHealth(state="serving", shipping=shipping), now_ms=1_000_000_000)
        )

    assert told(ShippingHealth(state="shipping", unshipped_since_ms=1_000_000_000 - 299_000)) == []
    behind = ShippingHealth(state="behind", problem="no answer", unshipped_since_ms=1_000_000_000 - 660_000)
    assert told(behind) == [
        "logs and stats of the last 11 min would be lost with the disk of the log store (no answer)"
    ]
    stopped = ShippingHealth(state="stopped", problem="restored elsewhere")
    assert told(stopped) == [
        "logs and stats are not shipped any more, and would be lost with the disk: restored elsewhere"
    ]
