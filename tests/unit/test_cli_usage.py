"""Bad input: one clear line, the right exit code, nothing sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click
import pytest

from iris_core.cli.docs import PAGE, page
from iris_core.cli.main import root, run
from iris_core.contracts import ConnectFailed, Denied, RpcFailed
from iris_core.model.states import TaskState
from tests.unit.cli_world import World, captured

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("jbo list", "No such command 'jbo'; did you mean 'job'?"),
        ("job lsit", "No such command 'lsit'; did you mean 'list'?"),
        ("cancel /u/j", "No such command 'cancel'; did you mean 'job cancel'?"),
        ("logs /u/j", "No such command 'logs'; did you mean 'job logs' or 'task logs' or 'attempt logs'?\n"),
        ("nothing /u/j", "No such command 'nothing'"),
        ("job list --stat running", "No such option '--stat'; did you mean '--state'"),
        ("process logs -f --save x", "No such option '--save'; see iris-core process logs --help"),
        ("process logs --regex x", "No such option '--regex'; see iris-core process logs --help"),
        ("process logs --lvl error", "No such option '--lvl'; did you mean '--level'?"),
        ("process logs --out jsonl", "No such option '--out'; did you mean '--output'?"),
        ("job list --state runing", "no job state 'runing'; did you mean 'running'?"),
        ("job list --prefix t", "the prefix 't' does not start with '/'"),
        ("job list -o yaml", "'yaml' is not one of"),
        ("job list --limit -1", "-1 is not in the range"),
        ("job describe", "Missing argument 'JOB'"),
        ("job describe /u/j/0", "it names a task"),
        ("job describe relative", "it does not start with '/'"),
        ("job describe /u/..", "starts with '.'"),
        ("job describe /u/a\x1bb", r"has '\x1b' at position 4"),
        ("job describe /u/" + "x" * 10_000, "is longer than 128 characters"),
        ("task describe /u/j", "it names a job"),
        ("task describe /u/j/0:1", "use the attempt command"),
        ("attempt describe /u/j/0", "the attempt number is missing"),
        ("attempt logs /u/j/0:x", "is not a number"),
        ("task exec /u/j -- true", "is a job; name a task of it, such as /u/j/0"),
        ("task exec /u/j/0", "there is no command; write it after `--`"),
        ("task exec /u/j/0 true", "the command goes after `--`"),
        ("task exec /u/j/0 --timeout 0 -- true", "--timeout 0 leaves no time"),
        ("task exec /u/j/0 --timeout -2 -- true", "-2 is not in the range"),
        ("job logs /u/j --regex [", "missing ]: '[' at position 0"),
        ("job logs /u/j --since-ms 1 --since-seconds 1", "exclude each other"),
        ("job logs /u/j -f --save x", "exclude each other"),
        ("job logs /u/j --level loud", "'loud' is not one of"),
        ("job cancel", "no ids were given"),
        ("job cancel --stdin", "no ids were given"),
        ("job cancel --prefix ", "the prefix is empty"),
        ("job cancel --prefix /", "begins no id"),
        ("job cancel --prefix /u", "is too wide"),
        ("job cancel --prefix /u/", "is too wide"),
        ("job cancel --prefix /u/a /u/b", "exclude each other"),
        ("job cancel /u/j nonsense", "it does not start with '/'"),
        ("task preempt", "no ids were given"),
        ("task fail --stdin", "no ids were given"),
        ("task preempt /u/j", "it names a job"),
        ("task preempt /u/j/0:1", "use the attempt command"),
        ("attempt preempt", "no ids were given"),
        ("attempt fail /u/j/0", "the attempt number is missing"),
        ("attempt preempt /u/j:1", "an attempt number may only follow a task"),
        ("job run", "there is no command"),
        ("job run --", "there is no command"),
        ("job run python train.py", "the command goes after `--`: iris-core job run -- python train.py"),
        ("job run --ram 4GB -- true", "No such option '--ram'; did you mean '--memory'?"),
        ("job run --ram=4GB -- true", "No such option '--ram'; did you mean '--memory'?"),
        ("job run --memroy 4GB -- true", "No such option '--memroy'; did you mean '--memory'"),
        ("job run -e KEY -- true", '-e KEY has no value; write -e KEY "$VALUE", in quotes'),
        ("job run -e KEY --cpu 1 -- true", "-e KEY has no value"),
        ("job run -e -- true", "-e KEY has no value"),
        ("job run -e A=1 x -- true", "-e takes two words: write -e A VALUE"),
        ("job run -e 1A x -- true", "'1A' is not the name of an environment variable"),
        ("job run -e IRIS_TOKEN x -- true", "IRIS_TOKEN is set by Iris itself"),
        ("job run --cpu x -- true", "'x' is not a number of cores"),
        ("job run --memory 4QB -- true", "'4QB' is not a size"),
        ("job run --memory 4GB -- true", "needs --enable-extra-resources"),
        ("job run --disk 10GB -- true", "needs --enable-extra-resources"),
        ("job run --gpu H100 -- true", "--gpu needs --enable-extra-resources"),
        ("job run --gpu H10 --enable-extra-resources -- true", "'H10' is not a GPU spec"),
        ("job run --gpu 1 --tpu v4-8 --enable-extra-resources -- true", "exclude each other"),
        ("job run --replicas 0 -- true", "0 is not in the range"),
        ("job run --job-name a/b -- true", "has '/' at position 1"),
        ("job run --job-name .. -- true", "starts with '.'"),
        ("job run --user system -- true", "the user 'system' is reserved"),
        ("job run --user= -- true", "user is empty"),
        ("job run --job-name= -- true", "job name is empty"),
        ("job run --replicas 100001 -- true", "is not in the range"),
        ("job run --timeout nan -- true", "nan is no number"),
        ("job wait /u/j --timeout nan", "nan is no number"),
        (f"job explain /u/j --replicas {10**20}", "is not in the range"),
        (f"user budget set u --limit {10**20} --max-band batch", "is not in the range"),
        ("endpoints mint /u/j/web --ttl 0", "--ttl 0 is less than a second"),
        ("endpoints mint /u/j/web --ttl 999ms", "--ttl 999ms is less than a second"),
        (f"rpc controller set-user-budget --user-id u --budget-limit {10**20}", "not a SetUserBudgetRequest"),
        ("rpc controller get-schedule", "has no method 'get-schedule'"),
        ("rpc controller get-job-status --json {", "not a GetJobStatusRequest"),
        ("rpc controller get-job-status --json {\"jobb\":1}", "no field named \"jobb\""),
        ("rpc controller get-job-status --json {} --job-id /u/j", "exclude each other"),
        ("process logs -t /u/j/0", "has no process log"),
        ("process status -t /system/nothing", "there is no process"),
        ("cluster start", "cluster start --local"),
        ("completion tcsh", "'tcsh' is not one of"),
        ("query SELECT\udcff", r"'SELECT\udcff' is not UTF-8 text"),
        ("task exec /u/j/0 -- \udcff", r"'\udcff' is not UTF-8 text"),
        ("job run --task-image \udcff -- true", r"'\udcff' is not UTF-8 text"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_with_one_that_helps(world: World, line: str, said: str) -> None:
    words = line.split(" ") if line.endswith(" ") else line.split()
    done = world.cli(*words)
    assert done.out == ""
    assert said in done.err
    assert done.err.count("\n") == 1
    assert done.err.startswith("Error: ")
    assert "Traceback" not in done.err
    assert done.code == 2
    assert world.client.calls == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("--controller-url http://h:1 --config x job list", "exclude each other"),
        ("--controller-url http://h:1/path job list", "only scheme, host and port belong there"),
        ("--controller-url= job list", "--controller-url is empty"),
        (
            "--cluster nope job list",
            "no cluster named 'nope'; `cluster list` shows them; put its file into ~/.config/iris/clusters",
        ),
        ("--config /nonexistent.yaml job list", "cannot read /nonexistent.yaml"),
        ("--transport smoke job list", "'smoke' is not one of"),
        ("job list", "give --cluster NAME, --config FILE or --controller-url URL"),
    ],
)
def test_a_wrong_selector_is_a_usage_error(line: str, said: str) -> None:
    with captured() as (out, err):
        code = run(line.split())
    assert (code, out()) == (2, b"")
    assert said in err().decode()
    assert err().count(b"\n") == 1


def test_a_local_cluster_that_does_not_run_says_how_to_start_one() -> None:
    with captured() as (_, err):
        assert run(["--cluster=local", "job", "list"]) == 1
    assert (
        err().decode() == "Error: the local cluster is not running; start one with `iris-core cluster start --local`\n"
    )


def test_without_a_command_there_is_help_on_standard_error() -> None:
    with captured() as (out, err):
        assert run([]) == 2
    assert out() == b""
    assert b"Usage: iris-core" in err()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (RpcFailed("NOT_FOUND", "there is no job /u/j", hint="did you mean /u/k?"), 1, "Error: there is no job /u/j; did you mean /u/k?\n"),
        (RpcFailed("INVALID_ARGUMENT", "bad filter", field="filter", position=3), 2, "Error: bad filter (at position 3)\n"),
        (Denied("PERMISSION_DENIED", "you may not"), 1, "Error: you may not\n"),
        (ConnectFailed("cannot connect to http://x: connection refused"), 1, "Error: cannot connect to http://x: connection refused\n"),
        (RpcFailed("INTERNAL", "evil \x1b]0;title\x07 TOKEN=hunter2"), 1, "Error: evil ␛]0;title␇ TOKEN=[redacted:TOKEN]\n"),
        (ValueError("surprise"), 1, "Error: internal error: ValueError: surprise; this is a fault of the program; run it again with --traceback and report what it prints\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)  # fmt: skip
def test_every_failure_is_one_line_and_a_code(world: World, error: BaseException, code: int, said: str) -> None:
    world.client.answer("GetJobStatus", error)
    done = world.cli("job", "describe", "/u/j")
    assert (done.code, done.out, done.err) == (code, "", said)


def test_a_cluster_that_does_not_answer_is_said_not_to_run_in_the_word_for_one_that_does(world: World) -> None:
    world.client.answer("GetClusterStatus", ConnectFailed("nobody answers at fake.invalid:1"))
    done = world.cli("cluster", "status")
    assert (done.code, done.out, done.err) == (1, "Running:   no\n", "Error: nobody answers at fake.invalid:1\n")


def test_in_json_modes_the_error_is_an_object(world: World) -> None:
    world.client.answer("GetJobStatus", RpcFailed("NOT_FOUND", "no", code="not_found", subject="/u/j"))
    done = world.cli("job", "describe", "/u/j", "-o", "json")
    error = json.loads(done.err)["error"]
    assert (done.code, done.out) == (1, "")
    assert (error["status"], error["code"], error["subject"], error["message"]) == (
        "NOT_FOUND",
        "not_found",
        "/u/j",
        "no",
    )


def test_traceback_is_printed_when_asked_for(world: World) -> None:
    world.client.answer("GetJobStatus", ValueError("surprise"))
    done = world.cli("--traceback", "job", "describe", "/u/j")
    assert "Traceback (most recent call last)" in done.err


def commands() -> Iterator[tuple[str, click.Context]]:
    def walk(context: click.Context) -> Iterator[click.Context]:
        yield context
        if isinstance(context.command, click.Group):
            for name in context.command.list_commands(context):
                command = context.command.get_command(context, name)
                assert command is not None
                yield from walk(click.Context(command, info_name=name, parent=context))

    for context in walk(click.Context(root(), info_name="iris-core")):
        yield context.command_path, context


@pytest.mark.parametrize(("path", "context"), list(commands()), ids=[path for path, _ in commands()])
def test_every_command_and_option_is_explained(path: str, context: click.Context) -> None:
    command = context.command
    assert command.help, path
    if not path.startswith("iris-core rpc "):
        unexplained = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
        assert unexplained == []
    table = getattr(command, "table", {})
    for name, lazy in table.items():
        found = command.get_command(context, name)  # type: ignore[attr-defined]
        assert found.name == name
        assert lazy.help.rstrip(".") in (found.short_help or found.help).replace("\n", " ")


@pytest.mark.parametrize(
    ("path", "context"), [(path, at) for path, at in commands() if not path.startswith("iris-core rpc ")]
)
def test_a_number_has_a_range_and_no_number_is_none(path: str, context: click.Context) -> None:
    """What no request can carry is told where it is typed."""
    for param in context.command.params:
        kind = param.type
        if not isinstance(kind, click.types.IntParamType | click.types.FloatParamType):
            continue
        assert isinstance(kind, click.IntRange | click.FloatRange), f"{path} {param.name}"
        assert kind.max is not None and kind.max <= 2**53, f"{path} {param.name} has no upper end"
        for text in ("nan", "inf", "1" + "0" * 40):
            with pytest.raises(click.BadParameter):
                kind(text, param, context)
        with pytest.raises(click.BadParameter) as caught:
            kind("a few", param, context)
        assert caught.value.message in (
            "'a few' is not a valid integer.",
            "'a few' is not a valid number of seconds.",
        )


def test_the_page_of_the_command_line_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python -m iris_core.cli.docs"


def test_completion_knows_the_words(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    script = world.cli("completion", "bash")
    assert script.code == 0
    assert "_IRIS_CORE_COMPLETE=bash_complete" in script.out
    monkeypatch.setenv("_IRIS_CORE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "iris-core job de")
    monkeypatch.setenv("COMP_CWORD", "2")
    with captured() as (out, _):
        assert run([]) == 0
    assert out() == b"plain,describe\n"


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_an_option_too(option: str) -> None:
    """Whoever meets a program for the first time types the option."""
    with captured() as (out, err):
        assert run([option]) == 0
        assert run(["version"]) == 0
    first, second = out().decode().splitlines()
    assert first == second
    assert err() == b""


def test_the_help_of_query_names_every_state_by_its_number() -> None:
    with captured() as (out, _):
        assert run(["query", "--help"]) == 0
    said = " ".join(out().decode().split()).replace("coscheduled", "cosched")
    for state in TaskState:
        assert not state or f"{state.value} {state.name.lower().replace('_', ' ')}" in said


def test_a_deployment_is_named_by_the_environment_too(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the whole program takes for the default is that of what changes a controller, too."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "lab.yaml").write_text(
        "name: lab\nplatform: {local: }\ncontroller: {local: {port: 10000}}\nworker_provider: {}\n"
        f'storage: {{local_state_dir: "{tmp_path}/state", remote_state_dir: "file://{tmp_path}/remote"}}\n'
    )
    status = ("cluster", "controller", "status")
    unnamed = world.cli(*status, selector="--read-only")
    assert unnamed.code == 2 and "no cluster is named" in unnamed.err
    monkeypatch.setenv("IRIS_CLUSTER", "lab")
    named = world.cli(*status, selector="--read-only")
    assert named.code == 1 and "Cluster:    lab" in named.out
    monkeypatch.setenv("IRIS_CONTROLLER_URL", "http://127.0.0.1:9")
    assert "no cluster is named" in world.cli(*status, selector="--read-only").err
