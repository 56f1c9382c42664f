"""`docker buildx`: the exact words, the context that it gets, and each way it fails; and the Dockerfile against the tree that it copies from.

No docker daemon runs where these tests do, so its program is a script that looks at what it is given as buildx would: it reads the context
while the working directory changes, and pushes a real image into a real registry.
"""

from __future__ import annotations

import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from iris_core.contracts import ImageBuild, IrisError, UsageFailed
from iris_core.model.images import AMD64, BOTH, ImageRef
from iris_core.procedures.source_tree import export, freeze
from providers.registry.buildx import DockerBuildx, words
from tests.conftest import RequireService
from tests.unit.cli_world import World
from tests.unit.image_registries import Pusher, running
from tests.unit.test_procedures_source_tree import git

ROOT = Path(__file__).resolve().parents[2]
BASE = ImageRef.parse("docker.io/library/python@sha256:" + "b" * 64)

DOCKER = """#!{python}
import json, os, shutil, sys
from pathlib import Path
sys.path.insert(0, {root!r})
here = Path({folder!r})
words = sys.argv[1:]
with (here / "calls").open("a") as calls:
    calls.write(json.dumps(words) + "\\n")
if words[:2] != ["buildx", "build"]:
    name = "-".join(words[:2]) if words[0] == "buildx" else words[0]
    said = here / f"{{name}}.fails"
    if said.exists():
        sys.exit(said.read_text())
    print((here / "inspect.txt").read_text())
    sys.exit(0)
options = dict(word.split("=", 1) for word in words[2:-1] if "=" in word)
if (here / "build.fails").exists():
    print("#7 [controller 2/3] RUN pip install")
    sys.exit((here / "build.fails").read_text())
# A build takes a while: somebody types into the working directory meanwhile.
print("building", flush=True)
if (here / "edits").exists():
    root = Path((here / "edits").read_text())
    (root / "a.py").write_text("typed meanwhile\\n")
    (root / "secret.env").write_text("typed meanwhile\\n")
shutil.copytree(words[-1], here / ("context-" + options["--target"]), symlinks=True)
output = dict(part.split("=", 1) for part in options["--output"].split(","))
from tests.unit.image_registries import Pusher
registry, _, rest = output["name"].partition("/")
repository, _, tag = rest.partition(":")
platforms = (here / "pushes").read_text() if (here / "pushes").exists() else options["--platform"]
digest = Pusher(registry).index(repository, tag, platforms.split(","))
Path(options["--metadata-file"]).write_text(json.dumps({{"containerimage.digest": digest}}))
"""


class Docker:
    """The script, and what it was called with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        script = folder / "docker"
        script.write_text(DOCKER.format(python=sys.executable, root=str(ROOT), folder=str(folder)))
        script.chmod(0o755)
        self.able("linux/amd64*, linux/amd64/v2, linux/arm64")

    def able(self, platforms: str) -> None:
        (self.folder / "inspect.txt").write_text(f"Name: default\nDriver: docker-container\nPlatforms: {platforms}\n")

    def fail(self, call: str, said: str) -> None:
        (self.folder / f"{call}.fails").write_text(said)

    @property
    def calls(self) -> list[list[str]]:
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Docker:
    folder = tmp_path / "docker-program"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return Docker(folder)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = shutil.which("docker-registry")
    if program is None:
        yield ""
        return
    with running(program, tmp_path_factory.mktemp("registry")) as host:
        Pusher(host).index("library/python", "3.11-slim", BOTH)
        yield host


@pytest.fixture
def registry(server: str, require_service: RequireService) -> str:
    require_service(server, "docker-registry is not installed")
    return server


def build(context: Path, **more: object) -> ImageBuild:
    fields = {"target": "controller", "ref": ImageRef.parse("ghcr.io/org/iris-controller:abc"), "platforms": BOTH}
    fields |= {"profile": "fast", "base": BASE, "tree": "abc", "context": context, **more}
    return ImageBuild(**fields)  # type: ignore[arg-type]


def test_the_words_are_exactly_these(tmp_path: Path) -> None:
    cache = ImageRef.parse("ghcr.io/org/iris-cache:controller")
    assert words(build(Path("/x/tree"), cache=cache), Path("/y/metadata.json")) == [
        "docker", "buildx", "build",
        "--progress=plain", "--provenance=false", "--sbom=false",
        "--platform=linux/amd64,linux/arm64",
        "--target=controller",
        "--file=/x/tree/deploy/Dockerfile",
        f"--build-arg=PYTHON_IMAGE={BASE}",
        "--build-arg=BUILD_PROFILE=fast",
        "--build-arg=IRIS_TREE=abc",
        "--build-arg=SOURCE_DATE_EPOCH=315532800",
        "--label=org.opencontainers.image.revision=abc",
        "--cache-from=type=registry,ref=ghcr.io/org/iris-cache:controller",
        "--cache-to=type=registry,ref=ghcr.io/org/iris-cache:controller,mode=max,compression=zstd,ignore-error=true",
        "--output=type=image,name=ghcr.io/org/iris-controller:abc,push=true,oci-mediatypes=true,compression=zstd,rewrite-timestamp=true",
        "--metadata-file=/y/metadata.json",
        "/x/tree",
    ]  # fmt: skip
    other = words(build(tmp_path, target="task", platforms=(AMD64,), profile="release"), tmp_path / "m")
    assert "--platform=linux/amd64" in other and "--build-arg=BUILD_PROFILE=release" in other
    assert not [word for word in other if "cache" in word]


@pytest.mark.parametrize("ref", ["ghcr.io/org/x:latest", "ghcr.io/org/x"])
def test_latest_is_never_pushed(docker: Docker, tmp_path: Path, ref: str) -> None:
    with pytest.raises(UsageFailed, match="latest is never moved"):
        DockerBuildx().build(build(tmp_path, ref=ImageRef.parse(ref)), lambda _: None)
    assert docker.calls == []


def test_a_builder_is_looked_at_before_anything_is_built(docker: Docker) -> None:
    DockerBuildx().check(BOTH)
    assert [call[:2] for call in docker.calls] == [["info", "--format"], ["buildx", "version"], ["buildx", "inspect"]]
    docker.able("linux/amd64, linux/386")
    with pytest.raises(IrisError, match="cannot build for linux/arm64"):
        DockerBuildx().check(BOTH)
    DockerBuildx().check((AMD64,))


@pytest.mark.parametrize(
    ("call", "said"), [("info", "Cannot connect to the Docker daemon"), ("buildx-version", "unknown command: buildx")]
)
def test_what_docker_lacks_is_said_in_its_words(docker: Docker, call: str, said: str) -> None:
    docker.fail(call, f"{said}\nmore of it\n")
    with pytest.raises(IrisError) as failure:
        DockerBuildx().check(BOTH)
    assert said in failure.value.message and "more of it" not in failure.value.message


def test_no_docker_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for call in (lambda: DockerBuildx().check(BOTH), lambda: DockerBuildx().build(build(tmp_path), lambda _: None)):
        with pytest.raises(IrisError, match="docker is not installed"):
            call()


def test_a_failed_build_says_its_last_lines(docker: Docker, tmp_path: Path) -> None:
    docker.fail("build", "ERROR: failed to solve: \x1b[31mno space\x1b[0m\n")
    lines: list[str] = []
    with pytest.raises(IrisError) as failure:
        DockerBuildx().build(build(tmp_path), lines.append)
    assert failure.value.message.startswith(
        "controller cannot be built: #7 [controller 2/3] RUN pip install | ERROR: failed"
    )
    assert "\x1b" not in failure.value.message and lines[0] == "#7 [controller 2/3] RUN pip install"


# --- the whole way, with a real registry --------------------------------------------------------------------------


class Lab(World):
    """A repository whose cluster file names a registry of this machine."""

    def __init__(self, folder: Path, registry: str) -> None:
        super().__init__()
        self.root = folder / "repo"
        (self.root / "deploy").mkdir(parents=True)
        git(self.root, "init", "-q", "-b", "main")
        (self.root / "deploy" / "Dockerfile").write_text(f"ARG PYTHON_IMAGE={registry}/library/python:3.11-slim\n")
        (self.root / "a.py").write_text("approved\n")
        self.file = folder / "gpu.yaml"
        name = folder.name.lower().replace("_", "-").strip("-")
        self.image = f"{registry}/{name}/iris"
        self.file.write_text(
            f"name: gpu\nplatform: {{coreweave: {{}}}}\ncontroller: {{image: '{self.image}-controller:latest'}}\n"
            f"kubernetes_provider: {{default_image: '{self.image}-task:latest'}}\n"
        )
        self.selector = f"--config={self.file}"


@pytest.fixture
def lab(tmp_path: Path, registry: str, docker: Docker, monkeypatch: pytest.MonkeyPatch) -> Lab:
    made = Lab(tmp_path, registry)
    monkeypatch.chdir(made.root)
    return made


def test_images_are_built_from_what_was_frozen_and_pinned_by_what_was_pushed(lab: Lab, docker: Docker) -> None:
    """The working directory is edited while the first image is built: neither image has a word of it."""
    (docker.folder / "edits").write_text(str(lab.root))
    tree = freeze(lab.root).id
    done = lab.cli("build", "images", "-o", "json", selector=lab.selector)
    assert done.code == 0, done.err
    shown = json.loads(done.out)["images"]
    assert [row["name"] for row in shown] == ["controller", "task"]
    for row in shown:
        assert row["platforms"] == list(BOTH) and "@sha256:" in row["image"]
        again = lab.cli("build", "inspect", f"{lab.image}-{row['name']}:{tree}", "-o", "name")
        assert again.out.strip() == row["image"]
        context = docker.folder / f"context-{row['name']}"
        assert (context / "a.py").read_text() == "approved\n"
        assert sorted(path.name for path in context.iterdir()) == ["a.py", "deploy"]
    assert freeze(lab.root).id != tree
    assert "building the task image" in done.err and "building" in done.err.splitlines()


def test_a_dry_run_builds_and_pushes_nothing(lab: Lab, docker: Docker) -> None:
    done = lab.cli("build", "images", "--dry-run", selector=lab.selector)
    assert (done.code, done.out) == (0, "")
    assert f"controller image {lab.image}-controller:" in done.err and "ok: docker builds images" in done.err
    assert not [call for call in docker.calls if call[:2] == ["buildx", "build"]]


def test_a_registry_without_arm64_is_refused_before_anything(lab: Lab, docker: Docker, registry: str) -> None:
    for name, platforms in (("controller", BOTH), ("task", (AMD64,))):
        Pusher(registry).index(f"{lab.image.partition('/')[2]}-{name}", "v1", platforms)
    done = lab.cli("build", "images", "--prebuilt-tag", "v1", selector=lab.selector)
    assert (done.code, done.out) == (1, "")
    said = f"FAILED: the task image is there ({lab.image}-task:v1 runs on linux/amd64 and linux/arm64): "
    assert f"{said}{lab.image}-task:v1 has no linux/arm64: it is for linux/amd64 only" in done.err
    assert docker.calls == []


def test_a_prebuilt_tag_with_both_is_pinned_and_nothing_built(lab: Lab, docker: Docker, registry: str) -> None:
    digests = {
        name: Pusher(registry).index(f"{lab.image.partition('/')[2]}-{name}", "v1", BOTH)
        for name in ("controller", "task")
    }
    done = lab.cli("build", "images", "--prebuilt-tag", "v1", "-o", "name", selector=lab.selector)
    assert done.code == 0 and docker.calls == []
    assert done.out.split() == [f"{lab.image}-{name}@{digest}" for name, digest in digests.items()]


def test_a_push_that_lost_an_architecture_is_not_pinned(lab: Lab, docker: Docker) -> None:
    (docker.folder / "pushes").write_text("linux/amd64")
    done = lab.cli("build", "images", selector=lab.selector)
    assert (done.code, done.out) == (1, "") and "has no linux/arm64" in done.err


def test_a_cluster_of_releases_needs_no_images(lab: Lab, docker: Docker) -> None:
    lab.file.write_text("name: lab\nplatform: {local: }\n")
    done = lab.cli("build", "images", selector=lab.selector)
    assert (done.code, done.out, docker.calls) == (0, "", []) and "runs releases, and no images" in done.err
    for selector, words_ in (("--cluster=local", "has no images"), ("--read-only", "no cluster is named")):
        done = lab.cli("build", "images", selector=selector)
        assert done.code == 2 and words_ in done.err


def test_an_image_is_inspected_and_tagged(lab: Lab, registry: str) -> None:
    name = f"{lab.image}-task"
    digest = Pusher(registry).index(name.partition("/")[2], "v1", BOTH)
    Pusher(registry).index(name.partition("/")[2], "narrow", [AMD64])
    done = lab.cli("build", "inspect", f"{name}:v1")
    assert done.code == 0 and f"{name}@{digest}" in done.out and "linux/amd64, linux/arm64" in done.out
    assert lab.cli("build", "inspect", "--require", "linux/arm64", f"{name}:v1").code == 0
    done = lab.cli("build", "inspect", "--require", "linux/arm64", f"{name}:v1", f"{name}:narrow")
    assert done.code == 1 and f"{name}:narrow has no linux/arm64" in done.err
    assert lab.cli("build", "tag", f"{name}:v1", "good", "-o", "name").out.strip() == f"{name}@{digest}"
    assert lab.cli("build", "tag", f"{name}:v1", "good").code == 0
    done = lab.cli("build", "tag", f"{name}:narrow", "good")
    assert done.code == 1 and f"{name}:good is there and means another image" in done.err
    assert lab.cli("build", "inspect", f"{name}:good", "-o", "name").out.strip() == f"{name}@{digest}"
    for line, code, said in (
        (("inspect", "NO"), 2, "is no name of an image"),
        (("inspect", f"{name}:absent"), 1, f"there is no {name}:absent"),
        (("tag", f"{name}:v1", "latest"), 2, "the tag latest is never moved"),
        (("tag", f"{name}:v1", "a b"), 2, "is no tag"),
    ):
        done = lab.cli("build", *line)
        assert done.code == code and said in done.err and not done.out


# --- the Dockerfile -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tree that this file is part of, as a build gets it."""
    folder = tmp_path_factory.mktemp("context") / "tree"
    try:
        export(freeze(ROOT), folder)
    except UsageFailed:
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__"))
    return folder


def instructions(path: Path) -> list[tuple[str, list[str]]]:
    """Instructions and their words, line ends joined, comments left out."""
    text = re.sub(r"^\s*#.*\n", "", path.read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip()]
    return [(line[0].upper(), shlex.split(line[1], posix=True)) for line in lines]


def ignored(path: str, rules: list[str]) -> bool:
    """As docker reads a .dockerignore: the last rule that fits the path or a folder above it decides."""
    parts = path.split("/")
    above = ["/".join(parts[: index + 1]) for index in range(len(parts))]
    verdict = False
    for rule in rules:
        pattern = rule.removeprefix("!").removeprefix("**/")
        if any(fnmatch(name, pattern) for name in (*above, *(parts if "**/" in rule else ()))):
            verdict = not rule.startswith("!")
    return verdict


def test_everything_that_is_copied_is_in_the_tree_and_in_the_context(exported: Path) -> None:
    rules = [line for line in (exported / "deploy/Dockerfile.dockerignore").read_text().splitlines() if line]
    rules = [line for line in rules if not line.startswith("#")]
    stages: set[str] = set()
    copied = set()
    for name, said in instructions(exported / "deploy" / "Dockerfile"):
        if name == "FROM":
            source = next(word for word in said if not word.startswith("--"))
            assert source in stages or source == "${PYTHON_IMAGE}", source
            stages.add(said[-1])
        elif name == "COPY":
            stage = next((word.partition("=")[2] for word in said if word.startswith("--from=")), "")
            if stage:
                assert stage in stages
                continue
            sources = [word for word in said[:-1] if not word.startswith("--")]
            for source in sources:
                assert (exported / source).exists() and not ignored(source, rules), source
            copied |= set(sources)
        assert name != "ADD"
    assert {"controller", "worker", "task"} <= stages
    with (exported / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)
    packed = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"])
    assert {*packed, "pyproject.toml", project["project"]["readme"]} <= copied, "the wheel would lack it"
    # And what nothing copies is no part of the context.
    for path in ("tests/conftest.py", "docs/README.md", ".git/config", "iris_core/__pycache__/x.pyc", ".env"):
        assert ignored(path, rules), path


class Health(http.server.BaseHTTPRequestHandler):
    """A controller of which only `/health` is asked."""

    status = 200

    def do_GET(self) -> None:
        self.send_response(self.status if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def test_the_health_check_asks_the_controller_and_no_proxy(exported: Path) -> None:
    text = (exported / "deploy" / "Dockerfile").read_text()
    found = re.search(r"^HEALTHCHECK .*\\\n +CMD (\[.*\])$", text, re.MULTILINE)
    assert found is not None
    with http.server.HTTPServer(("127.0.0.1", 0), Health) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        program = json.loads(found[1])[-1].replace("10000", str(server.server_port))

        def code() -> int:
            command = [sys.executable, "-c", program]
            environment = {**os.environ, "http_proxy": "http://127.0.0.1:1"}
            return subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, check=False).returncode

        try:
            assert code() == 0
            Health.status = 503
            assert code() == 1
        finally:
            Health.status = 200
            server.shutdown()
    assert code() == 1, "nobody listens"


def test_the_dockerfile_keeps_its_promises(exported: Path) -> None:
    found = instructions(exported / "deploy" / "Dockerfile")
    users: dict[str, str] = {}
    stage = parent = ""
    for name, said in found:
        if name == "FROM":
            stage, parent = said[-1], said[-3]
            users[stage] = users.get(parent, "")
        elif name == "USER":
            users[stage] = said[0]
    assert users["controller"] == users["task"] == "10001:10001"
    assert found[0] == ("ARG", ["PYTHON_IMAGE=python:3.11-slim-bookworm"])
    runs = [" ".join(said) for name, said in found if name == "RUN"]
    for run in runs:
        if "pip" in run:
            assert "--require-hashes" in run and "--only-binary" in run and "--no-deps" in run
    assert not re.search(r":latest\b", (exported / "deploy" / "Dockerfile").read_text())
    # Arguments stay in an image: none is for a secret, and none is given that is not known.
    known = {said[0].partition("=")[0] for name, said in found if name == "ARG"}
    given = {word.split("=")[1] for word in words(build(exported), Path("/m")) if word.startswith("--build-arg=")}
    assert known == given
    assert subprocess.run(["sh", "-n", exported / "deploy" / "finish.sh"], check=False).returncode == 0
