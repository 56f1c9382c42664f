"""The options of `job run` that say where, with whom, how long and as what a job runs: what they become on the wire, and what of
them is refused before anything is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from iris_core.model.constraints import MAX_CONSTRAINTS, Constraint, Mode, Op
from iris_core.wire.convert import constraint_from_wire
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
from tests.unit.cli_world import T0, World

if TYPE_CHECKING:
    from pathlib import Path

EXTRA = "--enable-extra-resources"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOGNAME", "ada")
    monkeypatch.delenv("IRIS_TASK_ID", raising=False)
    monkeypatch.setattr("iris_core.cli.submit.revision_date", lambda: "2026-03-20")
    world = World()
    world.client.answer("LaunchJob", lambda request: pb.LaunchJobResponse(job_id=request.name, incarnation=T0))
    world.client.answer("StatBundle", pb.StatBundleResponse(exists=True))
    return world


def submitted(world: World, *options: str) -> pb.LaunchJobRequest:
    world.client.calls.clear()
    done = world.cli("job", "run", "--no-wait", "--job-name", "j", *options, "--", "true")
    assert done.code == 0, done.err
    request = world.client.called("LaunchJob")[0]
    assert isinstance(request, pb.LaunchJobRequest)
    return request


def constraints(request: pb.LaunchJobRequest) -> list[Constraint]:
    return [constraint_from_wire(message) for message in request.constraints]


def refused(world: World, *options: str) -> str:
    world.client.calls.clear()
    done = world.cli("job", "run", "--no-wait", "--job-name", "j", *options, "--", "true")
    assert done.code == 2, done.err
    assert world.client.called("LaunchJob") == []
    return done.err


def test_one_region_is_equal_and_several_are_any_of_them(world: World) -> None:
    big = ("--cpu", "8")
    assert constraints(submitted(world, *big, "--region", "EU-west4", "--zone", "eu-west4-a")) == [
        Constraint("region", Op.EQ, ("eu-west4",)),
        Constraint("zone", Op.EQ, ("eu-west4-a",)),
    ]
    assert constraints(submitted(world, *big, "--region", "a", "--region", "b")) == [
        Constraint("region", Op.IN, ("a", "b"))
    ]


def test_constraints_and_preferences_are_typed_as_they_are_shown(world: World) -> None:
    request = submitted(
        world, "--cpu", "8", "--constraint", "pool=a,b", "--constraint", "gpu-count>=4", "--prefer", "!ssd"
    )
    assert constraints(request) == [
        Constraint("pool", Op.IN, ("a", "b")),
        Constraint("gpu-count", Op.GE, (4,)),
        Constraint("ssd", Op.NOT_EXISTS, (), Mode.PREFERRED),
    ]


def test_preemptible_is_wished_for_and_its_opposite_insisted_on(world: World) -> None:
    assert constraints(submitted(world, "--preemptible")) == [
        Constraint("preemptible", Op.EQ, ("true",), Mode.PREFERRED)
    ]
    assert constraints(submitted(world, "--no-preemptible")) == [Constraint("preemptible", Op.NE, ("true",))]


@pytest.mark.parametrize(
    ("options", "prefers"),
    [
        ((), True),
        (("--cpu", "1.1"), False),
        (("--memory", "4GB", EXTRA), False),
        (("--gpu", "1", EXTRA), False),
        (("--constraint", "preemptible=true"), False),
        (tuple(word for n in range(MAX_CONSTRAINTS - 1) for word in ("--constraint", f"a{n}=1")), True),
        (tuple(word for n in range(MAX_CONSTRAINTS) for word in ("--constraint", f"a{n}=1")), False),
    ],
)
def test_a_small_cpu_job_prefers_machines_that_stay(world: World, options: tuple[str, ...], prefers: bool) -> None:
    wish = Constraint("preemptible", Op.NE, ("true",), Mode.PREFERRED)
    assert (wish in constraints(submitted(world, *options))) is prefers


@pytest.mark.parametrize(
    ("text", "variant"), [("H100", "h100"), ("4:h100x8", "h100"), ("V5litepod-16", "v5litepod-16"), ("2:v4-8", "v4-8")]
)
def test_reserve_asks_for_a_zone_where_it_was_obtained(world: World, text: str, variant: str) -> None:
    assert Constraint(f"availability:{variant}", Op.EXISTS) in constraints(submitted(world, "--reserve", text))


@pytest.mark.parametrize(("text", "hint"), [("H10", "did you mean 'H100'"), ("8", "as in --reserve H100"), ("4:", "")])
def test_reserve_of_no_accelerator_is_refused(world: World, text: str, hint: str) -> None:
    said = refused(world, "--reserve", text)
    assert "names no accelerator" in said and hint in said


def test_a_slice_of_several_machines_and_several_gpu_tasks_are_gangs(world: World) -> None:
    pod = submitted(world, EXTRA, "--tpu", "v5litepod-16")
    assert (pod.coscheduling.group_by, pod.replicas) == ("tpu-name", 4)
    assert submitted(world, EXTRA, "--gpu", "h100x8", "--replicas", "2").coscheduling.group_by == "pool"
    assert (
        submitted(world, EXTRA, "--gpu", "h100x8", "--replicas", "2", "--group-by", "Rack").coscheduling.group_by
        == "rack"
    )
    for alone in (
        (EXTRA, "--tpu", "v5litepod-8"),
        (EXTRA, "--gpu", "h100x8"),
        (EXTRA, "--tpu", "v5litepod-16", "--group-by", "none", "--replicas", "7"),
        ("--replicas", "9"),
    ):
        assert not submitted(world, *alone).HasField("coscheduling"), alone


def test_a_gang_on_one_slice_has_as_many_tasks_as_machines(world: World) -> None:
    assert "has 4 machines, and --replicas is 3" in refused(world, EXTRA, "--tpu", "v5litepod-16", "--replicas", "3")


def test_processes_share_the_gpus_of_a_task_evenly(world: World) -> None:
    assert submitted(world, EXTRA, "--gpu", "h100x8", "--processes-per-task", "4").processes_per_task == 4
    for gpus in (("--gpu", "h100x8"), ("--tpu", "v5litepod-8"), ()):
        assert "cannot share" in refused(world, EXTRA, *gpus, "--processes-per-task", "3")


def test_system_work_names_its_reason_as_a_whole_word(world: World) -> None:
    request = submitted(world, "--priority", "System", "--system-reason", "the Hero run")
    assert request.priority_band == common.PRIORITY_BAND_SYSTEM and request.system_reason == "the Hero run"
    for reason in ((), ("--system-reason", "heroic"), ("--system-reason", "iris_x")):
        assert "needs --system-reason with the word" in refused(world, "--priority", "system", *reason)
    assert "goes with --priority system" in refused(world, "--priority", "batch", "--system-reason", "iris")


def test_bands_and_profiles_are_understood_in_any_case_and_guessed(world: World) -> None:
    assert submitted(world, "--priority", "PRIORITY_BAND_BATCH").priority_band == common.PRIORITY_BAND_BATCH
    assert submitted(world).priority_band == common.PRIORITY_BAND_INHERIT
    assert "did you mean 'production'" in refused(world, "--priority", "prodution")
    profile = submitted(world, "--container-profile", "CONTAINER_PROFILE_DOCKER_ACCESS").container_profile
    assert profile == common.CONTAINER_PROFILE_DOCKER_ACCESS
    assert submitted(world, "--container-profile", "default").container_profile == 0
    assert "did you mean 'gvisor'" in refused(world, "--container-profile", "gvizor")


def test_limits_ports_image_and_policies_travel(world: World) -> None:
    request = submitted(
        world, "--max-retries", "3", "--max-task-failures", "9", "--max-retries-preemption", "0", "--timeout", "1.5",
        "--scheduling-timeout", "60", "--port", "http", "--port", "jax", "--task-image", "ghcr.io/x/y:1",
        "--existing-job", "recreate", "--preemption-policy", "preserve-children",
    )  # fmt: skip
    assert (request.max_retries_failure, request.max_task_failures, request.max_retries_preemption) == (3, 9, 0)
    assert (request.timeout_ms, request.scheduling_timeout_ms) == (1_500, 60_000)
    assert list(request.ports) == ["http", "jax"] and request.task_image == "ghcr.io/x/y:1"
    assert request.existing_job_policy == common.EXISTING_JOB_POLICY_RECREATE
    assert request.preemption_policy == common.JOB_PREEMPTION_POLICY_PRESERVE_CHILDREN
    plain = submitted(world, "--max-retries-failure", "2")
    assert (plain.max_retries_failure, plain.max_task_failures) == (2, 0)
    assert not plain.HasField("max_retries_preemption") and plain.client_revision_date == "2026-03-20"


@pytest.mark.parametrize(
    ("options", "step"),
    [
        ((), "uv sync --all-packages --no-dev"),
        (("--sync-package", "levanter"), "uv sync --package levanter --no-dev"),
        (("--extra", "gpu", "--extra", "dev"), "uv sync --all-packages --extra gpu --extra dev --no-dev"),
        (("--sync-package", "a", "--extra", "x"), "uv sync --package a --extra x --no-dev"),
    ],
)
def test_the_sync_step_is_scoped(world: World, tmp_path: Path, options: tuple[str, ...], step: str) -> None:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert list(submitted(world, *options).environment.setup_scripts) == [step]


def test_options_of_the_sync_that_cannot_be_are_refused(world: World, tmp_path: Path) -> None:
    assert "there is no pyproject.toml to sync" in refused(world, "--extra", "gpu")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    assert "--no-sync and --sync-package exclude each other" in refused(world, "--no-sync", "--sync-package", "a")
    assert "is no name of a package" in refused(world, "--extra", "a; rm -rf /")


def test_the_workspace_s_own_environment_lies_beneath_e(world: World, tmp_path: Path) -> None:
    (tmp_path / ".marin.yaml").write_text('env:\n  A: "file"\n  B: "file"\nother: 1\n')
    request = submitted(world, "-e", "A", "typed")
    assert dict(request.environment.env_vars) == {"A": "typed", "B": "file"}
    done = world.cli("job", "run", "--no-wait", "--", "true")
    assert "environment from .marin.yaml: A, B\n" in done.err and '"file"' not in done.err
    (tmp_path / ".marin.yaml").write_text("env:\n  A: 3\n")
    assert ".marin.yaml:2" in refused(world)
    (tmp_path / ".marin.yaml").write_text('env:\n  IRIS_TOKEN: "x"\n')
    assert "IRIS_TOKEN is set by Iris itself" in refused(world)


def test_inside_a_task_a_job_is_a_child_that_is_set_up_as_its_parent(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IRIS_TASK_ID", "/ada/train/0:2")
    assert not submitted(world).inherit_workspace
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    request = submitted(world)
    assert (request.name, request.inherit_workspace) == ("/ada/train/j", True)
    assert list(request.environment.setup_scripts) == []
    other = submitted(world, "--sync-package", "a")
    assert not other.inherit_workspace and list(other.environment.setup_scripts)


def test_a_region_that_the_cluster_file_does_not_know_is_refused_with_a_suggestion(
    world: World, tmp_path: Path
) -> None:
    config = tmp_path / "c.yaml"
    config.write_text(
        "name: far\nplatform: {local: }\ncontroller: {local: {port: 1}}\nworker_provider: {}\n"
        "scale_groups:\n  cpu:\n    num_vms: 1\n    zones: [us-central1-a, europe-west4-b]\n"
        "    resources: {cpu: 8, ram: 16GB, device_type: cpu, capacity_type: on-demand}\n"
    )
    from iris_core.cli.main import run
    from tests.unit.cli_world import captured

    def ran(*options: str) -> tuple[int, str]:
        argv: list[Any] = ["--config", str(config), "job", "run", "--no-wait", *options, "--", "true"]
        with captured() as (_, err):
            code = run(argv, program="iris-core", opener=lambda *_: world.client)
        return code, err().decode()

    code, said = ran("--region", "us-centrall1")
    assert code == 2 and "did you mean 'us-central1'?" in said
    code, said = ran("--zone", "us-central1-b")
    assert code == 2 and "did you mean 'us-central1-a'?" in said
    assert ran("--region", "US-central1", "--zone", "europe-west4-b")[0] == 0


def test_what_the_controller_doubts_is_a_warning(world: World) -> None:
    doubt = "no worker has region=eu-wets4; did you mean 'eu-west4'?"
    world.client.answer("LaunchJob", pb.LaunchJobResponse(job_id="/ada/j", warnings=[doubt]))
    done = world.cli("job", "run", "--no-wait", "--job-name", "j", "--region", "eu-wets4", "--", "true")
    assert (done.code, done.out) == (0, "/ada/j\n")
    assert f"Warning: {doubt}\n" in done.err


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("--constraint", "region~eu", "is not a constraint"),
        ("--constraint", "region=", "a value is missing"),
        ("--constraint", "gpu-count>many", "is not a number"),
        ("--constraint", "gpu-count=many", "gpu-count is a whole number, not 'many'"),
        ("--constraint", "preemptible=maybe", "preemptible is true or false, not 'maybe'"),
        ("--prefer", "region>3", "region is text and has no order"),
        ("--constraint", "region>=a,b", ">= takes one value"),
        ("--replicas", "10001", "is not in the range 1<=x<=10000"),
        ("--existing-job", "keeep", "keeep"),
        ("--group-by", "a b", "is not an attribute name"),
    ],
)
def test_what_cannot_be_is_refused_with_the_word_at_fault(world: World, option: str, text: str, said: str) -> None:
    assert said in refused(world, option, text)


def test_describe_shows_what_was_asked_for(world: World) -> None:
    world.job("/ada/j", "pending", priority_band=common.PRIORITY_BAND_BATCH)
    world.client.cluster.requests["/ada/j"] = submitted(
        world, "--region", "eu", "--timeout", "90", "--scheduling-timeout", "60", "--port", "http", "--max-retries", "2",
        "--group-by", "rack", "--task-image", "i:1", "--container-profile", "gvisor", "--preemption-policy", "preserve-children",
    )  # fmt: skip
    shown = world.cli("job", "describe", "/ada/j").out
    for line in (
        "Band: batch",
        "Gang: all tasks at once, on workers of one rack",
        "Constraints: region=eu, preemptible!=true (preferred)",
        "Retries: 2 after failures, 100 after preemptions",
        "Outlives: 2 failed tasks",
        "Time limit: 1m30s per task",
        "Waits at most: 1m for workers",
        "Ports: http",
        "Image: i:1",
        "Profile: gvisor",
        "Retry of a task: preserve-children",
    ):
        assert f"{line}\n" in shown, shown
