"""Images of a deployment: which ones a cluster needs, under which tags, what is refused before anything is built, and what is pinned."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris_core.config.cluster import ClusterConfig, parse_config
from iris_core.contracts import ImageBuild, IrisError, RegistryDenied, RegistryFailed, UsageFailed
from iris_core.model.errors import ModelError
from iris_core.model.images import AMD64, ARM64, BOTH, ImageRef, lacking, parse_platforms
from iris_core.procedures.images import ImagePlan, obtain, plan, requirements, tag_of
from iris_core.procedures.source_tree import SourceTree, freeze
from providers.fake.images import FakeBuilder, FakeRegistry
from tests.unit.test_procedures_source_tree import git

DIGEST = "sha256:" + "a" * 64
BASE = "docker.io/library/python:3.11-slim"


# --- references ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag", "digest"),
    [
        ("python", "docker.io", "library/python", "", ""),
        ("python:3.11", "docker.io", "library/python", "3.11", ""),
        ("org/iris:v1", "docker.io", "org/iris", "v1", ""),
        ("ghcr.io/org/iris-task:latest", "ghcr.io", "org/iris-task", "latest", ""),
        ("localhost/x", "localhost", "x", "", ""),
        ("127.0.0.1:5000/a/b/c:T_1.x-y", "127.0.0.1:5000", "a/b/c", "T_1.x-y", ""),
        ("[::1]:5000/a", "[::1]:5000", "a", "", ""),
        (f"ghcr.io/org/iris:v1@{DIGEST}", "ghcr.io", "org/iris", "v1", DIGEST),
        (f"ghcr.io/org/iris@{DIGEST}", "ghcr.io", "org/iris", "", DIGEST),
    ],
)
def test_references_are_read_as_docker_reads_them(
    text: str, registry: str, repository: str, tag: str, digest: str
) -> None:
    ref = ImageRef.parse(text)
    assert (ref.registry, ref.repository, ref.tag, ref.digest) == (registry, repository, tag, digest)
    assert ImageRef.parse(str(ref)) == ImageRef(registry, repository, tag, digest)


@pytest.mark.parametrize(
    "text",
    ["", "Python", "ghcr.io/", "ghcr.io/org//x", "ghcr.io/org/x:", "ghcr.io/org/x:a b", "x@sha256:12", "x@md5:" + "a" * 32,
     "ghcr.io/org/x:" + "t" * 129, "a" * 600, "https://ghcr.io/org/x", "ghcr.io/../x", "x,y", "gh\ncr.io/x", "-x", "ghcr.io:port/x"],
)  # fmt: skip
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(ModelError):
        ImageRef.parse(text)


@given(st.text(max_size=60))
def test_a_reference_holds_nothing_that_an_argument_could_be_split_at(text: str) -> None:
    try:
        ref = ImageRef.parse(text)
    except ModelError:
        return
    assert not set(str(ref)) & set(" ,=\"'\\\n\t\0")
    assert ImageRef.parse(str(ref)).name == ref.name


@pytest.mark.parametrize(
    ("text", "is_loopback"),
    [("localhost/x", True), ("localhost:5/x", True), ("127.0.0.9:5/x", True), ("[::1]:5/x", True), ("ghcr.io/x", False),
     ("127.0.0.1.example.org/x", False), ("localhost.evil.org/x", False), ("[::2]:5/x", False), ("python", False)],
)  # fmt: skip
def test_only_this_machine_is_spoken_to_without_tls(text: str, is_loopback: bool) -> None:
    assert ImageRef.parse(text).is_loopback == is_loopback


def test_platforms() -> None:
    assert parse_platforms("linux/arm64,linux/amd64,linux/amd64") == BOTH
    assert lacking(("linux/amd64", "linux/arm64/v8"), BOTH) == ()
    assert lacking(("linux/amd64",), BOTH) == (ARM64,)
    assert lacking(("linux/arm64",), ("linux/arm64/v8",)) == ("linux/arm64/v8",)
    for wrong in ("", "amd64", "linux/amd64,", "linux/amd64 --push"):
        with pytest.raises(ModelError):
            parse_platforms(wrong)


# --- plans --------------------------------------------------------------------------------------------------------


def cluster(kind: str, controller: str = "ghcr.io/org/iris-controller:latest", **images: str) -> ClusterConfig:
    named = {"worker": "ghcr.io/org/iris-worker", "task": "ghcr.io/org/iris-task:latest", **images}
    lines = [
        "name: gpu",
        f"platform: {{{kind}: {{}}}}",
        f"controller: {{image: '{controller}'}}" if controller else "controller: {}",
        f"defaults: {{worker: {{docker_image: '{named['worker']}', default_task_image: '{named['task']}'}}}}",
    ]
    if "kubernetes" in named:
        lines.append(f"kubernetes_provider: {{default_image: '{named['kubernetes']}'}}")
    return parse_config("\n".join(lines), "gpu.yaml")


TREE = SourceTree("f" * 40, Path("/nowhere"), "main", "b" * 40, "First", ())


def shown(made: ImagePlan) -> list[tuple[str, str, tuple[str, ...], bool]]:
    return [(want.target, str(want.ref), want.platforms, want.is_built) for want in made.wanted]


def test_kubernetes_runs_controller_and_task_on_both_architectures_and_no_worker() -> None:
    assert shown(plan(cluster("coreweave"), TREE)) == [
        ("controller", f"ghcr.io/org/iris-controller:{TREE.id}", BOTH, True),
        ("task", f"ghcr.io/org/iris-task:{TREE.id}", BOTH, True),
    ]


def test_vms_run_all_three_on_amd64() -> None:
    assert shown(plan(cluster("gcp"), TREE)) == [
        (target, f"ghcr.io/org/iris-{target}:{TREE.id}-amd64", (AMD64,), True)
        for target in ("controller", "worker", "task")
    ]


@pytest.mark.parametrize("kind", ["local", "manual"])
def test_clusters_that_run_releases_need_no_images(kind: str) -> None:
    assert plan(cluster(kind), TREE).wanted == ()
    with pytest.raises(UsageFailed, match=r"--image-platform: gpu, .* runs releases, and no images"):
        plan(cluster(kind), TREE, image_platform=AMD64)
    with pytest.raises(UsageFailed, match=r"--build-profile: gpu, .* runs releases, and no images"):
        plan(cluster(kind), TREE, profile="release")
    with pytest.raises(UsageFailed, match="is for Kubernetes clusters"):
        plan(cluster(kind), TREE, prebuilt_tag="v1")


def test_the_platform_that_is_asked_for_is_the_task_images_alone() -> None:
    made = plan(cluster("coreweave"), TREE, image_platform=AMD64)
    assert [(want.target, want.platforms, want.ref.tag) for want in made.wanted] == [
        ("controller", BOTH, TREE.id),
        ("task", (AMD64,), f"{TREE.id}-amd64"),
    ]


def test_a_build_for_fewer_architectures_or_of_another_profile_never_has_the_tag_of_another() -> None:
    tags = {tag_of(TREE.id, profile, on) for profile in ("fast", "release") for on in (BOTH, (AMD64,), (ARM64,))}
    assert len(tags) == 6 and all(ImageRef.parse(f"ghcr.io/x:{tag}") for tag in tags)


def test_an_image_with_a_tag_of_its_own_or_a_digest_is_left_alone() -> None:
    made = plan(cluster("coreweave", f"ghcr.io/org/c@{DIGEST}", task="ghcr.io/org/t:v3"), TREE)
    assert shown(made) == [
        ("controller", f"ghcr.io/org/c@{DIGEST}", BOTH, False),
        ("task", "ghcr.io/org/t:v3", BOTH, False),
    ]
    assert made.built == ()


def test_the_providers_own_task_image_comes_first() -> None:
    made = plan(cluster("coreweave", kubernetes="ghcr.io/org/own:v1"), TREE)
    assert str(made.wanted[1].ref) == "ghcr.io/org/own:v1"


def test_a_prebuilt_tag_takes_the_place_of_what_moves() -> None:
    made = plan(cluster("coreweave", task="ghcr.io/org/t:v3"), TREE, prebuilt_tag="nightly-1")
    assert shown(made) == [
        ("controller", "ghcr.io/org/iris-controller:nightly-1", BOTH, False),
        ("task", "ghcr.io/org/t:v3", BOTH, False),
    ]


@pytest.mark.parametrize(
    ("kind", "words", "said"),
    [
        ("coreweave", {"prebuilt_tag": "latest"}, "whatever was pushed last"),
        ("coreweave", {"prebuilt_tag": "-x"}, "--prebuilt-tag: '-x' is no tag"),
        ("coreweave", {"prebuilt_tag": "x" * 129}, "is no tag"),
        ("gcp", {"prebuilt_tag": "v1"}, "--prebuilt-tag is for Kubernetes clusters"),
        ("coreweave", {"prebuilt_tag": "v1", "image_platform": AMD64}, "and --image-platform exclude each other"),
        ("coreweave", {"prebuilt_tag": "v1", "profile": "release"}, "and --build-profile exclude each other"),
        ("coreweave", {"prebuilt_tag": "v1", "is_rollback": True}, "and --rollback exclude each other"),
        ("coreweave", {"image_platform": "amd64"}, "--image-platform: 'amd64' is no platform"),
        ("coreweave", {"profile": "fastest"}, "--build-profile 'fastest'"),
    ],
)
def test_words_that_exclude_each_other_are_refused(kind: str, words: dict[str, str], said: str) -> None:
    with pytest.raises(UsageFailed, match=said):
        plan(cluster(kind), TREE, **words)  # type: ignore[arg-type]


def test_a_file_without_an_image_or_with_one_that_cannot_be_pushed_is_refused_by_key() -> None:
    with pytest.raises(UsageFailed, match=r"gpu\.yaml: controller\.image is not set"):
        plan(cluster("coreweave", ""), TREE)
    with pytest.raises(UsageFailed, match=r"controller\.image: .*iris:latest names no registry to push to"):
        plan(cluster("coreweave", "org/iris:latest"), TREE)
    assert plan(cluster("coreweave", "org/iris:v1"), TREE).wanted[0].is_built is False
    with pytest.raises(UsageFailed, match=r"gpu\.yaml:3: controller\.image: 'NO:x'"):
        cluster("coreweave", "NO:x")


# --- before anything is touched -----------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> SourceTree:
    root = tmp_path / "repo"
    (root / "deploy").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "deploy" / "Dockerfile").write_text(
        "ARG PYTHON_IMAGE=python:3.11-slim\nFROM ${PYTHON_IMAGE} AS controller\n"
    )
    (root / "a.py").write_text("approved\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "First")
    return freeze(root)


@pytest.fixture
def registry() -> FakeRegistry:
    made = FakeRegistry()
    made.put(BASE)
    return made


def failures(made: ImagePlan, registry: FakeRegistry, builder: FakeBuilder) -> list[str]:
    found = []
    for need in requirements(made, registry, builder):
        assert need.why
        try:
            assert need.look()
        except IrisError as error:
            found.append(f"{need.what}: {error.message}")
    assert registry.effects == [] and builder.builds == []
    return found


def test_what_can_be_built_and_pushed_passes(tree: SourceTree, registry: FakeRegistry) -> None:
    assert failures(plan(cluster("coreweave"), tree), registry, FakeBuilder(registry)) == []


def test_a_registry_without_arm64_fails_before_anything_is_touched(tree: SourceTree, registry: FakeRegistry) -> None:
    registry.put("ghcr.io/org/iris-controller:v1")
    registry.put("ghcr.io/org/iris-task:v1", [AMD64])
    made = plan(cluster("coreweave"), tree, prebuilt_tag="v1")
    said = "ghcr.io/org/iris-task:v1 has no linux/arm64: it is for linux/amd64 only"
    assert failures(made, registry, FakeBuilder(registry)) == [f"the task image is there: {said}"]
    with pytest.raises(RegistryFailed, match=said):
        obtain(made, registry, FakeBuilder(registry))
    assert registry.effects == []


def test_a_base_image_without_arm64_fails_too(tree: SourceTree) -> None:
    registry = FakeRegistry()
    registry.put(BASE, [AMD64])
    said = failures(plan(cluster("coreweave"), tree), registry, FakeBuilder(registry))
    assert said == [f"the base image is there: {BASE} has no linux/arm64: it is for linux/amd64 only"]
    assert failures(plan(cluster("gcp"), tree), registry, FakeBuilder(registry)) == []


def test_each_thing_that_is_missing_is_a_line_of_its_own(tree: SourceTree, registry: FakeRegistry) -> None:
    registry.refuses_pushes = RegistryDenied("ann may not push")
    builder = FakeBuilder(registry, platforms=(AMD64,))
    assert failures(plan(cluster("coreweave"), tree), registry, builder) == [
        "docker builds images: the builder cannot build for linux/arm64",
        "the controller image can be pushed: ann may not push",
        "the task image can be pushed: ann may not push",
    ]


def test_a_registry_that_does_not_answer_is_said_for_each(tree: SourceTree, registry: FakeRegistry) -> None:
    registry.failure = RegistryFailed("ghcr.io did not answer within 30 s")
    said = failures(plan(cluster("coreweave"), tree), registry, FakeBuilder(registry))
    assert [line.partition(": ")[2] for line in said] == ["ghcr.io did not answer within 30 s"] * 3


def test_a_tree_without_a_dockerfile_is_no_tree_of_ours(tree: SourceTree, registry: FakeRegistry) -> None:
    (tree.root / "deploy" / "Dockerfile").unlink()
    said = failures(plan(cluster("coreweave"), freeze(tree.root)), registry, FakeBuilder(registry))
    assert len(said) == 1 and "has no deploy/Dockerfile with a base image" in said[0]


# --- having them --------------------------------------------------------------------------------------------------


def test_what_is_built_is_pinned_and_stands_on_a_pinned_base(tree: SourceTree, registry: FakeRegistry) -> None:
    builder = FakeBuilder(registry)
    lines: list[str] = []
    found = obtain(plan(cluster("coreweave"), tree, profile="release"), registry, builder, lines.append)
    assert list(found) == ["controller", "task"]
    for target, info in found.items():
        assert info.ref.tag == "" and info.platforms == BOTH
        assert registry.inspect(ImageRef.parse(f"ghcr.io/org/iris-{target}:{tree.id}-release")).ref == info.ref
    base = registry.inspect(ImageRef.parse(BASE)).ref
    assert [(build.target, build.base, build.profile, build.tree, str(build.cache)) for build in builder.builds] == [
        (target, base, "release", tree.id, f"ghcr.io/org/iris-cache:{target}") for target in ("controller", "task")
    ]
    assert not builder.builds[0].context.exists()
    assert f"building the task image ghcr.io/org/iris-task:{tree.id}-release" in lines


def test_a_build_that_is_there_is_taken_as_it_is(tree: SourceTree, registry: FakeRegistry) -> None:
    made = plan(cluster("coreweave"), tree)
    first = obtain(made, registry, FakeBuilder(registry))
    again = FakeBuilder(registry)
    assert failures_of_nothing(made, registry, again) and obtain(made, registry, again) == first
    assert again.builds == []


def failures_of_nothing(made: ImagePlan, registry: FakeRegistry, builder: FakeBuilder) -> bool:
    registry.effects.clear()
    registry.refuses_pushes = RegistryDenied("nothing has to be pushed any more")
    return failures(made, registry, builder) == []


def test_a_tag_of_the_tree_that_lost_an_architecture_is_built_anew(tree: SourceTree, registry: FakeRegistry) -> None:
    registry.put(f"ghcr.io/org/iris-controller:{tree.id}", [AMD64])
    builder = FakeBuilder(registry)
    found = obtain(plan(cluster("coreweave"), tree), registry, builder)
    assert [build.target for build in builder.builds] == ["controller", "task"]
    assert found["controller"].platforms == BOTH


def test_a_push_that_lost_an_architecture_is_not_deployed(tree: SourceTree, registry: FakeRegistry) -> None:
    class Narrow(FakeBuilder):
        def build(self, build: ImageBuild, say: object) -> str:
            return registry.put(str(build.ref), [AMD64]).ref.digest

    with pytest.raises(RegistryFailed, match="has no linux/arm64"):
        obtain(plan(cluster("coreweave"), tree), registry, Narrow(registry))


def test_a_failed_build_says_so_and_leaves_no_tag(tree: SourceTree, registry: FakeRegistry) -> None:
    with pytest.raises(IrisError, match="disk full"):
        obtain(plan(cluster("coreweave"), tree), registry, FakeBuilder(registry, failure=IrisError("disk full")))
    assert registry.effects == []


def test_a_file_edited_during_the_build_is_not_in_it(tree: SourceTree, registry: FakeRegistry) -> None:
    built: list[str] = []

    def edit(build: ImageBuild) -> None:
        (tree.root / "a.py").write_text("typed meanwhile\n")
        (tree.root / "new.py").write_text("typed meanwhile\n")
        built.append((build.context / "a.py").read_text())
        assert sorted(path.name for path in build.context.iterdir()) == ["a.py", "deploy"]

    obtain(plan(cluster("coreweave"), tree), registry, FakeBuilder(registry, during=edit))
    assert built == ["approved\n", "approved\n"]
    assert (tree.root / "a.py").read_text() == "typed meanwhile\n"
