"""`checkpoint list`: what is there, what is wrong with the rest, and where it looks."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from iris_controller.checkpoint.listing import listed, root_of
from iris_controller.checkpoint.opening import unpacked
from iris_core.cli import reads
from iris_core.cli.main import run
from iris_core.wire.gen.iris.v1 import controller_pb2
from providers.objects import open_store
from tests.unit.checkpoint_world import T0, add_machines, checkpoint, make_state
from tests.unit.cli_world import captured


def iris(*argv: str) -> tuple[int, str, str]:
    with captured() as (out, err):
        code = run(list(argv))
        return code, out().decode(), err().decode()


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """A state dir with two valid checkpoints, one without a manifest, one that was cut, and a folder that is none."""
    folder = tmp_path / "remote"
    state = make_state(tmp_path / "state", jobs=3)
    for n in range(4):
        checkpoint(state, open_store(f"file://{folder}"), T0 + n)
    (folder / "controller-state" / str(T0 + 1) / "manifest.json").unlink()
    packed = folder / "controller-state" / str(T0 + 2) / "controller.sqlite3.zst"
    packed.write_bytes(packed.read_bytes()[:-5])
    (folder / "controller-state" / "notes").mkdir()
    return folder


def test_each_is_listed_newest_first_with_what_is_wrong(remote: Path) -> None:
    code, out, err = iris("checkpoint", "list", str(remote), "-o", "json")
    assert code == 0, err
    rows = json.loads(out)
    assert [row["epoch_ms"] for row in rows] == [T0 + 3, T0 + 2, T0 + 1, T0]
    assert [row["state"] == "valid" for row in rows] == [True, False, False, True]
    assert "its manifest says" in rows[1]["state"] and "never finished" in rows[2]["state"]
    assert (rows[0]["jobs"], rows[0]["tasks"], rows[1]["jobs"]) == (3, 3, None)
    code, out, _ = iris("checkpoint", "list", str(remote))
    assert code == 0 and len(out.splitlines()) == 5 and out.startswith("EPOCH MS")


def test_a_name_is_what_the_option_takes(remote: Path) -> None:
    code, out, _ = iris("checkpoint", "list", str(remote), "-o", "name")
    assert code == 0
    code, jobs, err = iris("--checkpoint", out.splitlines()[0], "job", "list", "-o", "name")
    assert (code, len(jobs.splitlines())) == (0, 3), err


def test_ages_are_those_of_the_moment_at_which_it_was_taken(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state", jobs=0)
    add_machines(state)
    made = checkpoint(state, open_store(f"file://{tmp_path}/remote"), T0 + 5 * 86_400_000)
    place = f"{tmp_path}/remote/controller-state/{made.epoch_ms}"
    code, out, err = iris("--checkpoint", place, "cluster", "vm", "status")
    assert code == 0 and "made 5d ago" in out, (out, err)
    before = time.time_ns() // 1_000_000
    assert reads.now_ms() >= before, "time passes again behind it"


def test_what_is_unpacked_is_said(remote: Path) -> None:
    unpacked(str(remote)).close()
    assert [row.unpacked for row in listed(str(remote))] == [True, False, False, True], (
        "the same bytes are the same entry"
    )


def test_the_place_may_be_inside(remote: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"file://{remote}"
    inside = f"{url}/controller-state/{T0}"
    for place in (url, f"{url}/", f"{url}/controller-state", inside, f"{inside}/controller.sqlite3.zst", str(remote)):
        assert root_of(place) == url
    assert root_of("gs://b/controller-state") == "gs://b"
    assert root_of("gs://b/controller-state-of-mine") == "gs://b/controller-state-of-mine"
    monkeypatch.chdir(remote)
    assert root_of(".") == url
    assert iris("--checkpoint", inside, "checkpoint", "list", "-o", "name")[1].count("\n") == 4


def test_without_a_place_it_is_that_of_the_cluster_file(remote: Path, tmp_path: Path) -> None:
    config = tmp_path / "lab.yaml"
    config.write_text(f"name: lab\nplatform: {{local: }}\nstorage: {{remote_state_dir: 'file://{remote}'}}\n")
    code, out, err = iris("--config", str(config), "checkpoint", "list", "-o", "name")
    assert (code, out.count("\n")) == (0, 4), err
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "iris" / "clusters"
    folder.mkdir(parents=True)
    (folder / "lab.yaml").write_text(config.read_text())
    assert iris("--cluster", "lab", "checkpoint", "list", "-o", "name")[1] == out


def test_without_a_place_in_the_file_the_controller_of_this_machine_is_asked(remote: Path) -> None:
    from iris_core.cli.session import Session

    class Answers:
        url = "http://127.0.0.1:1"

        def call(self, method: str, request: object, response: object, *, timeout_s: float = 30.0) -> object:
            assert method == "ControllerService/GetClusterStatus"
            return controller_pb2.GetClusterStatusResponse(state_dir=str(remote))

        def close(self) -> None:
            pass

    from iris_core.cli.checkpoints import _place

    here = Session(opener=lambda target, transport, note: Answers())  # type: ignore[arg-type,return-value]
    here.controller_url = "http://127.0.0.1:1"
    assert _place(here) == str(remote)
    code, _, err = iris("--controller-url", "http://10.0.0.1:10000", "checkpoint", "list")
    assert code == 2 and "not known here" in err


def test_an_empty_place_and_one_that_is_none_are_one_line(tmp_path: Path) -> None:
    code, out, err = iris("checkpoint", "list", str(tmp_path))
    assert (code, out) == (0, "") and "there are no checkpoints in" in err
    assert iris("checkpoint", "list", str(tmp_path), "-o", "json")[1].strip() == "[]"
    code, _, err = iris("checkpoint", "list", "s3://bucket/x")
    assert code == 2 and "file://, gs:// and ssh://" in err and err.count("\n") == 1


def test_of_machines_it_says_what_it_holds_and_names_what_it_does_not(tmp_path: Path) -> None:
    state = make_state(tmp_path / "state", jobs=3)
    add_machines(state)
    checkpoint(state, open_store(f"file://{tmp_path}/remote"), T0)
    place = str(tmp_path / "remote")
    code, out, err = iris("--checkpoint", place, "cluster", "vm", "status")
    assert code == 0 and out.splitlines()[:4] == [
        "cpu",
        "  slices        2 of 2 ready, at most -",
        "  demand        -",
        "  availability  -",
    ]
    assert out.count("  ready, made ") == 2 and "cpu-1-w-0" in out
    assert "this controller" not in err and "not in a checkpoint: " in err
    code, out, _ = iris("--checkpoint", place, "cluster", "vm", "status", "-o", "json")
    (group,) = json.loads(out)["groups"]
    assert group["current_slices"] == 2 and not {"max_slices", "demand", "num_vms", "target_slices"} & group.keys()
    code, out, err = iris("--checkpoint", place, "cluster", "status")
    assert (code, [line.split() for line in out.splitlines() if line.startswith("cpu ")]) == (
        0,
        [["cpu", "0", "0", "2", "0", "-"]],
    ), err
    assert "taken as healthy: how it was is not in a checkpoint" in out and "dry run" not in out
    code, out, _ = iris("--checkpoint", place, "job", "explain", "/u/wide")
    assert code == 0 and "Note" in out and "every worker is taken as healthy" in out
    assert "which machines could be made is not counted" in out


def test_a_checkpoint_without_machines_says_that_it_cannot_name_all_scale_groups(remote: Path) -> None:
    code, out, err = iris("--checkpoint", str(remote), "cluster", "vm", "status")
    assert (code, out) == (0, "") and "scale groups that never grew or failed" in err
    code, _, err = iris("--checkpoint", str(remote), "cluster", "vm", "status", "--scale-group", "tpu")
    assert code == 2 and "there is no scale group tpu" in err and "not in a checkpoint" in err
