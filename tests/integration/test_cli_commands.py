"""The commands that a first day needs, against a real cluster: run, look, exec, logs, query, cancel."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.local_cluster import LocalCluster


def texts(out: str) -> list[str]:
    return [line.partition(" | ")[2] for line in out.splitlines() if " | " in line]


def test_a_job_s_output_streams_and_its_success_is_the_command_s(cluster: LocalCluster) -> None:
    done = cluster.cli("job", "run", "--", "python3", "-c", "print('hello')")
    assert (done.code, texts(done.out)) == (0, ["hello"])
    job = done.out.splitlines()[0]
    assert re.fullmatch(r"/t/iris-run-job-[0-9]{8}-[0-9]{6}", job)
    assert cluster.cli("job", "logs", job).out.endswith(" | hello\n")


def test_an_exit_code_is_shown_and_the_command_fails(cluster: LocalCluster) -> None:
    done = cluster.job("exits3", "python3", "-c", "import sys; sys.exit(3)")
    assert done.code == 1
    assert "exit code 3" in done.err
    described = cluster.cli("job", "describe", "/t/exits3")
    assert "exit 3" in described.out
    assert re.search(r"^/t/exits3/0 +failed +3 ", described.out, re.M)
    assert json.loads(cluster.cli("job", "describe", "/t/exits3", "-o", "json").out)["job"]["exit"] == 3


def test_replicas_are_tasks(cluster: LocalCluster) -> None:
    done = cluster.job("four", "sh", "-c", 'echo "i am $IRIS_TASK_ID of $IRIS_NUM_TASKS"', options=("--replicas", "4"))
    assert done.code == 0
    assert sorted(texts(done.out)) == [f"i am /t/four/{n}:0 of 4" for n in range(4)]
    assert cluster.cli("task", "list", "/t/four", "-o", "name").out.split() == [f"/t/four/{n}" for n in range(4)]


@pytest.mark.parametrize(
    ("name", "words", "reason"),
    [
        ("killed9", ("sh", "-c", "kill -9 $$"), "SIGKILL"),
        ("plain137", ("sh", "-c", "exit 137"), "exit code 137"),
        ("nocommand", ("no-such-command-at-all",), "no-such-command-at-all"),
    ],
)
def test_every_way_to_end_has_its_own_reason(
    cluster: LocalCluster, name: str, words: tuple[str, ...], reason: str
) -> None:
    done = cluster.job(name, *words)
    assert done.code == 1
    assert reason in done.err
    assert reason in cluster.cli("job", "describe", f"/t/{name}").out
    assert reason in cluster.cli("job", "list", "--prefix", f"/t/{name}").out


def test_options_behind_the_dashes_belong_to_the_command(cluster: LocalCluster) -> None:
    script = "import sys; print(sys.argv)"
    done = cluster.job("argv", "python3", "-c", script, "--", "-v", "--version", "-h", "--cluster=x", "--no-wait")
    assert texts(done.out) == ["['-c', '--', '-v', '--version', '-h', '--cluster=x', '--no-wait']"]


def test_exec_runs_beside_the_task_and_returns_its_code(cluster: LocalCluster) -> None:
    cluster.job("execme", "sleep", "600", options=("-e", "MARK", "seen"), wait=False)
    cluster.until("task", "list", "/t/execme", has="running")
    done = cluster.cli("task", "exec", "/t/execme/0", "--", "sh", "-c", 'printf "$MARK\\377"; echo err >&2; exit 7')
    assert (done.code, done.raw, done.err) == (7, b"seen\xff", "err\n")
    echoed = cluster.cli(
        "task", "exec", "/t/execme/0", "--", "sh", "-c", 'echo "$@"', "sh", "--", "--help", "--timeout", "5"
    )
    assert (echoed.code, echoed.out) == (0, "-- --help --timeout 5\n")
    stale = cluster.cli("task", "exec", "/t/execme/0:5", "--", "true")
    assert (stale.code, stale.err.count("\n")) == (1, 1)
    late = cluster.cli("task", "exec", "/t/execme/0", "--timeout", "1", "--", "sleep", "50")
    assert late.code == 1
    assert late.seconds < 45
    deadline = time.monotonic() + 60
    while "entity=/t/execme/0" not in cluster.cli("process", "logs", "--substring", "event=task_exec").out:
        assert time.monotonic() < deadline


def test_what_exec_left_in_the_background_ends_with_the_attempt(cluster: LocalCluster) -> None:
    cluster.job("nohup", "sleep", "601", wait=False)
    cluster.until("task", "list", "/t/nohup", has="running")
    done = cluster.cli("task", "exec", "/t/nohup/0", "--", "sh", "-c", "nohup sleep 602 >/dev/null 2>&1 & echo $!")
    assert done.code == 0
    left = int(done.out)
    os.kill(left, 0)
    assert cluster.cli("job", "cancel", "/t/nohup").code == 0
    assert cluster.cli("job", "wait", "/t/nohup").out == "killed\n"
    deadline = time.monotonic() + 60
    while os.path.exists(f"/proc/{left}"):
        assert time.monotonic() < deadline, "the background process outlived its attempt"
        time.sleep(0.05)


def test_logs_are_filtered_by_the_server(cluster: LocalCluster) -> None:
    script = "for i in 1 2 3; do echo rank0 step $i train/loss 0.$i; echo rank7 step $i; done; echo ERROR bad >&2"
    cluster.job("filter", "sh", "-c", script)
    assert texts(cluster.cli("job", "logs", "/t/filter", "--regex", "rank[01].*loss", "--max-lines", "2").out) == [
        "rank0 step 2 train/loss 0.2", "rank0 step 3 train/loss 0.3",
    ]  # fmt: skip
    assert len(texts(cluster.cli("job", "logs", "/t/filter", "--substring", "rank7").out)) == 3
    worst = cluster.cli("job", "logs", "/t/filter", "--level", "error", "--no-tail", "-o", "jsonl").out.splitlines()
    assert any(json.loads(line)["level"] == "error" for line in worst)
    bad = cluster.cli("job", "logs", "/t/filter", "--regex", "[")
    assert (bad.code, bad.out) == (2, "")
    assert "position 0" in bad.err


def test_ranks_come_in_the_order_of_time_and_always_the_same(cluster: LocalCluster) -> None:
    script = (
        "import os,time\n"
        "r=int(os.environ['IRIS_TASK_ID'].rsplit('/',1)[1].split(':')[0]); t0=int(time.time()/5)*5+5\n"
        "for k in range(10):\n"
        "    time.sleep(max(0,t0+k*.4+r*.1-time.time())); print('seq',k*4+r,flush=True)"
    )
    followed = cluster.job("order", "python3", "-c", script, options=("--replicas", "4"))
    assert texts(followed.out) == [f"seq {n}" for n in range(40)]
    for _ in range(3):
        assert texts(cluster.cli("job", "logs", "/t/order", "--no-tail").out) == [f"seq {n}" for n in range(40)]
    assert texts(cluster.cli("job", "logs", "/t/order", "--max-lines", "10").out) == [f"seq {n}" for n in range(30, 40)]
    assert texts(cluster.cli("job", "logs", "/t/order", "--max-lines", "7", "--regex", "seq").out) == [
        f"seq {n}" for n in range(33, 40)
    ]


def test_output_of_every_kind_arrives_and_is_saved_byte_for_byte(cluster: LocalCluster, tmp_path: Path) -> None:
    script = (
        "import sys; w=sys.stdout.buffer.write\n"
        "w(b'\\x1b]0;title\\x07\\x1b[31mred\\n'); w(b'bad \\xff utf8\\n'); w(b'x'*1_000_000+b'\\n'); w(b'no newline')"
    )
    done = cluster.job("bytes", "python3", "-c", script)
    assert done.code == 0
    assert "\x1b]0;" not in done.out
    long = max(texts(done.out), key=len)
    assert long == "x" * 1_000_000
    assert texts(done.out)[-1] == "no newline"
    target = tmp_path / "saved"
    assert cluster.cli("job", "logs", "/t/bytes", "--save", str(target)).code == 0
    assert target.read_bytes() == b"\x1b]0;title\x07\x1b[31mred\nbad \xff utf8\n" + b"x" * 1_000_000 + b"\nno newline"


def test_what_waits_answers_at_once_and_says_why(cluster: LocalCluster) -> None:
    cluster.job("wait512", "true", options=("--cpu", "512"), wait=False)
    for words in ("job logs /t/wait512", "task logs /t/wait512/0", "job logs /t/wait512 --regex loss"):
        done = cluster.cli(*words.split())
        assert (done.code, done.out) == (0, "")
        assert "is pending: " in done.err
        assert "512" in done.err
    missing = cluster.cli("attempt", "logs", "/t/wait512/0:0")
    assert missing.code == 1
    assert "there is no attempt 0" in missing.err
    follow = cluster.popen("--cluster=local", "job", "logs", "/t/wait512", "-f")
    assert follow.stderr is not None and b"512" in follow.stderr.readline(), "why it waits"
    assert follow.poll() is None
    follow.send_signal(signal.SIGINT)
    follow.communicate(timeout=60)
    assert follow.returncode == 130
    cluster.cli("job", "cancel", "/t/wait512")


def test_query_reads_and_only_reads(cluster: LocalCluster) -> None:
    cluster.job("queried", "true", options=("--replicas", "2"))
    done = cluster.cli(
        "query", "SELECT state, count(*) FROM jobs WHERE job_id='/t/queried' GROUP BY state", "-f", "csv"
    )
    assert (done.code, done.out) == (0, "state,count(*)\n4,1\n")
    both = "SELECT j.job_id, t.task_id AS job_id, NULL AS n, 9007199254740993 AS big, x'00ff' AS b FROM jobs j JOIN tasks t ON t.job_id=j.job_id WHERE j.job_id='/t/queried'"
    rows = json.loads(cluster.cli("query", both, "-f", "json").out)
    assert rows[0] | {"b": ""} == {
        "job_id": "/t/queried",
        "job_id_2": "/t/queried/0",
        "n": None,
        "big": 9007199254740993,
        "b": "",
    }
    wrong = cluster.cli("query", "SELEC 1")
    assert (wrong.code, wrong.err.count("\n")) == (2, 1)
    assert "position 0" in wrong.err
    for sql in ("DELETE FROM jobs", "ATTACH '/tmp/x' AS y", "PRAGMA user_version=3", "VACUUM INTO '/tmp/never'"):
        refused = cluster.cli("query", sql)
        assert refused.code in (1, 2), sql
        assert refused.err.count("\n") == 1
    assert not os.path.exists("/tmp/never")


def test_rpc_names_every_method(cluster: LocalCluster) -> None:
    state = json.loads(cluster.cli("rpc", "controller", "get-scheduler-state").out)
    assert {"total_pending", "total_running", "pending_buckets"} <= set(state)
    assert "launch-job" in cluster.cli("rpc", "controller", "--help").out


def test_status_and_processes(cluster: LocalCluster) -> None:
    done = cluster.until("cluster", "status", has="2/2 healthy")
    assert re.search(r"^Running:   yes\nHealthy:   (yes|no)$", done.out, re.M), done.out
    controller = cluster.cli("process", "status")
    assert re.search(r"^PID: +[0-9]+$", controller.out, re.M)
    workers = cluster.cli("query", "SELECT worker_id FROM workers", "-f", "csv").out.split()[1:]
    assert len(workers) == 2
    assert re.search(
        r"^PID: +[0-9]+$", cluster.cli("process", "status", "-t", f"/system/worker/{workers[0]}").out, re.M
    )
    cluster.job("audited", "true")
    deadline = time.monotonic() + 60
    while "entity=/t/audited" not in cluster.cli("process", "logs", "--substring", "event=job_submitted").out:
        assert time.monotonic() < deadline


def test_names_collide_cleanly(cluster: LocalCluster) -> None:
    words = ("--cluster=local", "job", "run", "--no-sync", "--no-wait", "--job-name", "twin", "--", "sleep", "617")
    both = [cluster.popen(*words) for _ in range(2)]
    ended = [(process.communicate(timeout=60), process.returncode) for process in both]
    assert sorted(code for _, code in ended) == [0, 1]
    for (out, err), code in ended:
        assert b"Traceback" not in err
        assert out == (b"/t/twin\n" if code == 0 else b"")
        # How far the first one has come by then is not for the test to say.
        assert code == 0 or re.search(rb"/t/twin exists and is (pending|running)", err), err
    assert cluster.cli("job", "cancel", "/t/twin").code == 0


def test_cancel_by_name_takes_exactly_that_one(cluster: LocalCluster) -> None:
    for name in ("keep1", "keep1-lp", "keep10"):
        cluster.job(name, "sleep", "615", wait=False)
    missed = cluster.cli("job", "cancel", "/t/keep")
    assert missed.code == 1
    assert "/t/keep1" in missed.err
    assert cluster.cli("job", "cancel", "/t/keep1").out == "cancelled /t/keep1\n"
    assert "Error: cancelled by local_admin\n" in cluster.cli("job", "describe", "/t/keep1").out
    left = cluster.cli("job", "list", "--prefix", "/t/keep", "-o", "jsonl").out.splitlines()
    assert {row["job_id"]: row["state"] for row in map(json.loads, left)} == {
        "/t/keep1": "killed", "/t/keep1-lp": "running", "/t/keep10": "running",
    }  # fmt: skip
    selected = cluster.cli("query", "SELECT job_id FROM jobs WHERE job_id LIKE '/t/keep1_%' AND state=3", "-f", "csv")
    assert "would cancel 2 jobs" in cluster.cli("job", "cancel", "--stdin", "--dry-run", stdin=selected.raw).err
    assert cluster.cli("job", "cancel", "--stdin", stdin=selected.raw).code == 0


def test_complete_ends_a_job_as_succeeded(cluster: LocalCluster) -> None:
    cluster.job("completeme", "sleep", "616", wait=False)
    cluster.until("task", "list", "/t/completeme", has="running")
    assert cluster.cli("job", "complete", "/t/completeme").code == 0
    done = cluster.cli("job", "wait", "/t/completeme")
    assert (done.code, done.out) == (0, "succeeded\n")


def test_a_child_job_is_submitted_from_inside_a_task(cluster: LocalCluster) -> None:
    done = cluster.job("parent", "iris-core", "job", "run", "--job-name", "child", "--", "echo", "from below")
    assert done.code == 0, done
    assert any("from below" in line for line in texts(done.out))
    assert "/t/parent/child" in cluster.cli("job", "list", "--prefix", "/t/parent", "-o", "name").out.split()


@pytest.mark.parametrize(
    "words", ["job logs /t/watched -f", "job wait /t/watched", "job list --watch", "process logs -f"]
)
def test_ctrl_c_while_watching_leaves_the_job_alone(cluster: LocalCluster, words: str) -> None:
    if "/t/watched" not in cluster.cli("job", "list", "-o", "name").out.split():
        cluster.job("watched", "sh", "-c", "while :; do echo tick; sleep .3; done", wait=False)
    cluster.until("task", "list", "/t/watched", has="running")
    process = cluster.popen("-v", "--cluster=local", *words.split())
    assert process.stderr is not None
    while b"Service/" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert "running" in cluster.cli("job", "describe", "/t/watched").out


def test_ctrl_c_in_job_run_cancels_its_own_job(cluster: LocalCluster) -> None:
    process = cluster.popen(
        "--cluster=local", "job", "run", "--no-sync", "--job-name", "own", "--", "sh", "-c", "echo up; sleep 617"
    )
    assert process.stdout is not None
    while b"up" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err.decode().endswith("cancelled /t/own\n")
    assert cluster.cli("job", "wait", "/t/own").out == "killed\n"


def test_a_secret_is_seen_by_the_task_alone(cluster: LocalCluster) -> None:
    secret = "hunter2-5318008"
    process = cluster.popen(
        "-v", "--cluster=local", "job", "run", "--no-sync", "--job-name", "secret", "-e", "API_TOKEN", secret, "-e", "STAGE", "LIVE",
        "--", "sh", "-c", 'echo "DELIVERY ${#API_TOKEN}"; sleep 6',
    )  # fmt: skip
    assert process.stdout is not None
    first = process.stdout.readline(), process.stdout.readline()
    shown = [
        cluster.cli(*words).out
        for words in (
            ("job", "describe", "/t/secret", "-o", "json"),
            ("rpc", "controller", "get-job-status", "--job-id", "/t/secret"),
            ("process", "logs", "--max-lines", "5000"),
            ("query", "SELECT * FROM job_config"),
            ("query", "SELECT * FROM jobs"),
        )
    ]
    with open(f"/proc/{process.pid}/cmdline", "rb") as file:
        assert secret.encode() not in file.read()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"DELIVERY 15" in first[1] + out
    assert not any(secret in text for text in [*shown, out.decode(), err.decode()])
    assert "[redacted:API_TOKEN]" in shown[0]
    assert "LIVE" in shown[0]


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


@pytest.mark.usefixtures("needs_git")
def test_the_git_tree_arrives_as_git_lists_it_with_its_links(cluster: LocalCluster, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "data").mkdir()
    for name in ("data/keep.json", "data/big.bin", "tracked.log", "sp ace.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / ".gitignore").write_text("data/*\n!data/keep.json\n*.log\n")
    git(tmp_path, "add", "-f", "tracked.log")
    for name, target in (
        ("latest", "data"),
        ("loop", "."),
        ("up", "../"),
        ("dangling", "missing"),
        ("abs", "/etc/hostname"),
    ):
        (tmp_path / name).symlink_to(target)
    (tmp_path / "sub").mkdir()
    script = "find . -not -path './.git*' | sort; cat latest/keep.json; readlink loop dangling"
    done = cluster.cli("job", "run", "--job-name", "tree", "--", "sh", "-c", script, cwd=tmp_path / "sub")
    assert done.code == 0
    assert texts(done.out) == [
        ".", "./dangling", "./data", "./data/keep.json", "./latest", "./loop", "./sp ace.txt", "./tracked.log",
        "data/keep.json.", "missing",
    ]  # fmt: skip
    assert "leaves out abs: a link to /etc/hostname" in done.err
    assert "leaves out up: a link to ../" in done.err


def test_a_workspace_of_nothing_is_a_folder_to_work_in(cluster: LocalCluster) -> None:
    done = cluster.job("nothing", "sh", "-c", "ls -A | wc -l; touch made && echo writable")
    assert (done.code, texts(done.out)) == (0, ["0", "writable"])
    assert "bundle: 0 files" in done.err


def test_a_large_bundle_travels_and_too_large_a_one_is_refused_at_once(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "blob").write_bytes(os.urandom(20_000_000))
    done = cluster.cli("job", "run", "--job-name", "large", "--", "sh", "-c", "wc -c <blob", cwd=tmp_path)
    assert (done.code, texts(done.out)) == (0, ["20000000"])
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(10**12)
    refused = cluster.cli("job", "run", "--job-name", "huge", "--", "true", cwd=tmp_path)
    assert refused.code == 2
    assert "huge 1TB" in refused.err
    assert refused.seconds < 45


@pytest.mark.parametrize("transport", ["grpc", "http"])
def test_every_command_works_over_either_transport(cluster: LocalCluster, transport: str) -> None:
    name = f"over-{transport}"
    words = ("--transport", transport, "--cluster=local")
    done = cluster.run(*words, "job", "run", "--job-name", name, "--", "echo", transport)
    assert (done.code, texts(done.out)) == (0, [transport])
    assert cluster.run(*words, "job", "describe", f"/t/{name}").code == 0
    missing = cluster.run(*words, "job", "describe", "/t/nope")
    assert (missing.code, missing.err.count("\n")) == (1, 1)
    bad = cluster.run(*words, "job", "list", "--filter", "nosuchfield=1")
    assert bad.code == 2
    assert texts(cluster.run(*words, "job", "logs", f"/t/{name}", "--max-lines", "5000").out) == [transport]


def test_read_only_changes_nothing(cluster: LocalCluster) -> None:
    refused = cluster.run(
        "--cluster=local", "--read-only", "job", "run", "--no-wait", "--job-name", "readonly", "--", "true"
    )
    assert refused.code == 1
    assert refused.err.count("\n") == 2
    assert cluster.cli("job", "describe", "/t/readonly").code == 1
    assert cluster.run("--cluster=local", "--read-only", "job", "list").code == 0
