"""What tasks leave in `$IRIS_OUTPUT_DIR`, from the task to the operator, on a real local cluster."""

from __future__ import annotations

import io
import json
import tarfile

import zstandard

from tests.integration.local_cluster import LocalCluster


def test_outputs_of_success_and_of_an_error_are_kept_and_fetched(cluster: LocalCluster) -> None:
    for name, code in (("out-good", 0), ("out-bad", 3)):
        script = f'mkdir "$IRIS_OUTPUT_DIR/d"; echo {name} > "$IRIS_OUTPUT_DIR/d/told"; exit {code}'
        assert cluster.job(name, "sh", "-c", script, options=("--cpu", "0.1")).code == (1 if code else 0)
        shown = cluster.cli("attempt", "describe", f"/t/{name}/0:0").out
        assert "Outputs: uploaded: 2 entries of " in shown and "kept until" in shown
        found = json.loads(cluster.cli("attempt", "describe", f"/t/{name}/0:0", "-o", "json").out)
        assert found["outputs"]["status"] == "TASK_OUTPUTS_STATUS_UPLOADED"
        saved = cluster.empty / f"{name}.tar.zst"
        assert cluster.cli("attempt", "outputs", f"/t/{name}/0:0", "--save", str(saved)).code == 0
        data = zstandard.ZstdDecompressor().decompressobj().decompress(saved.read_bytes())
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            told = tar.extractfile("d/told")
            assert told is not None and told.read() == f"{name}\n".encode()
        again = cluster.cli("attempt", "outputs", f"/t/{name}/0:0", "--save", str(saved))
        assert again.code == 2 and "--force" in again.err
        assert "[iris outputs] 2 entries" in cluster.cli("job", "logs", f"/t/{name}").out
    sql = "SELECT archive_json FROM task_attempt_outputs WHERE task_id = '/t/out-good/0'"
    (row,) = json.loads(cluster.cli("query", sql, "-f", "json").out)
    assert json.loads(row["archive_json"])["status"] == "uploaded"


def test_no_outputs_and_a_stopped_task_say_so(cluster: LocalCluster) -> None:
    assert cluster.job("out-none", "true", options=("--cpu", "0.1")).code == 0
    assert "Outputs: empty" in cluster.cli("attempt", "describe", "/t/out-none/0:0").out
    nothing = cluster.cli("attempt", "outputs", "/t/out-none/0:0")
    assert (nothing.code, nothing.out) == (1, "empty\n")
    script = 'echo half > "$IRIS_OUTPUT_DIR/half"; echo ready; sleep 600'
    assert cluster.job("out-stopped", "sh", "-c", script, options=("--cpu", "0.1"), wait=False).code == 0
    cluster.until("job", "logs", "/t/out-stopped", has="ready")
    assert cluster.cli("job", "cancel", "/t/out-stopped").code == 0
    cluster.until("attempt", "describe", "/t/out-stopped/0:0", has="killed")
    assert "Outputs" not in cluster.cli("attempt", "describe", "/t/out-stopped/0:0").out
    assert "did not end by itself" in cluster.cli("attempt", "outputs", "/t/out-stopped/0:0").out
