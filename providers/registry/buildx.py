"""Builds images with `docker buildx`, and pushes them in the same step (`contracts.ImageBuilder`).

The words of the command are a function of what is built, so that a test can say them exactly. They hold no secret: a build needs none, and
to push, docker reads its own configuration. The digest is what buildx itself says that it pushed. Must never name the tag `latest`.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from iris_core.contracts import ImageBuild, IrisError, UsageFailed
from iris_core.model.images import LATEST, lacking
from iris_core.model.text import one_line

DOCKERFILE: Final = "deploy/Dockerfile"
EPOCH: Final = 315_532_800
"""The time of every file, so that one tree gives the same image whenever it is built: 1980, before which no wheel can be."""
LOOK_S: Final = 30.0
BUILD_S: Final = 3_600.0
KEPT_LINES: Final = 15
_DIGEST: Final = "containerimage.digest"


def words(build: ImageBuild, metadata: Path) -> list[str]:
    """The command that builds and pushes one image and writes what it pushed into `metadata`. Raises UsageFailed: it would move `latest`."""
    if build.ref.tag in ("", LATEST):
        raise UsageFailed(f"{build.ref}: the tag latest is never moved", hint="a build has a tag of its own")
    cache = []
    if build.cache is not None:
        place = f"type=registry,ref={build.cache}"
        cache = [f"--cache-from={place}", f"--cache-to={place},mode=max,compression=zstd,ignore-error=true"]
    return [
        "docker",
        "buildx",
        "build",
        "--progress=plain",
        # Attestations hold the time of the build, and stand in the index as a platform that is none.
        "--provenance=false",
        "--sbom=false",
        f"--platform={','.join(build.platforms)}",
        f"--target={build.target}",
        f"--file={build.context / DOCKERFILE}",
        f"--build-arg=PYTHON_IMAGE={build.base}",
        f"--build-arg=BUILD_PROFILE={build.profile}",
        f"--build-arg=IRIS_TREE={build.tree}",
        f"--build-arg=SOURCE_DATE_EPOCH={EPOCH}",
        f"--label=org.opencontainers.image.revision={build.tree}",
        *cache,
        f"--output=type=image,name={build.ref},push=true,oci-mediatypes=true,compression=zstd,rewrite-timestamp=true",
        f"--metadata-file={metadata}",
        str(build.context),
    ]


class DockerBuildx:
    """The `docker` of this machine, with the builder that it has selected."""

    def check(self, platforms: Sequence[str]) -> None:
        """Raises IrisError: there is no docker, it does not answer, it has no buildx, or the builder is not for all of these platforms."""
        self._look("docker", "info", "--format", "{{.ServerVersion}}")
        self._look("docker", "buildx", "version")
        said = self._look("docker", "buildx", "inspect", "--bootstrap")
        line = next((line for line in said.splitlines() if line.startswith("Platforms:")), "")
        able = tuple(word.strip().rstrip("*") for word in line.partition(":")[2].split(",") if word.strip())
        missing = lacking(able, tuple(platforms))
        if missing:
            raise IrisError(
                f"the selected builder of docker cannot build for {', '.join(missing)}",
                hint="docker buildx create --use, and emulation for the other architectures (binfmt)",
            )

    def build(self, build: ImageBuild, say: Callable[[str], None]) -> str:
        """Builds and pushes; returns the digest. Raises IrisError: the last lines of the log are in the text."""
        with tempfile.TemporaryDirectory(prefix="iris-image-") as scratch:
            metadata = Path(scratch) / "metadata.json"
            code, lines = _run(words(build, metadata), say)
            if code != 0:
                raise IrisError(f"{build.target} cannot be built: " + " | ".join(lines or [f"exit code {code}"]))
            try:
                digest = json.loads(metadata.read_bytes())[_DIGEST]
            except (OSError, ValueError, KeyError, TypeError):
                digest = None
        if not isinstance(digest, str) or not digest.startswith("sha256:"):
            raise IrisError(f"docker buildx does not say what it pushed for {build.target}", hint="a newer buildx does")
        return digest

    @staticmethod
    def _look(*command: str) -> str:
        name = " ".join(command[:3] if command[1] == "buildx" else command[:2])
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LOOK_S, check=False, text=True,
                errors="replace", env={**os.environ, "LC_ALL": "C"},
            )  # fmt: skip
        except FileNotFoundError:
            raise IrisError("docker is not installed", hint="images are built with docker buildx") from None
        except subprocess.TimeoutExpired:
            raise IrisError(f"{name} has not answered within {LOOK_S:g} s", hint="is the docker daemon well?") from None
        except OSError as error:
            raise IrisError(f"{name} cannot be run: {error.strerror}") from None
        if done.returncode != 0:
            said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            raise IrisError(f"{name}: {one_line(said[0])[:300] if said else f'exit code {done.returncode}'}")
        return done.stdout


def _run(command: list[str], say: Callable[[str], None]) -> tuple[int, list[str]]:
    """Its exit code and its last lines. The session is its own, so that what docker starts ends with it."""
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError:
        raise IrisError("docker is not installed", hint="images are built with docker buildx") from None
    except OSError as error:
        raise IrisError(f"docker cannot be run: {error.strerror}") from None
    overdue = threading.Event()

    def end() -> None:
        overdue.set()
        _kill(process)

    timer = threading.Timer(BUILD_S, end)
    timer.daemon = True
    timer.start()
    try:
        assert process.stdout is not None
        for raw in process.stdout:
            line = one_line(raw.rstrip())
            if line:
                kept.append(line[:300])
                say(line)
        code = process.wait()
    finally:
        timer.cancel()
        _kill(process)
        if process.stdout is not None:
            process.stdout.close()
    if overdue.is_set():
        raise IrisError(f"docker buildx has not ended within {BUILD_S:g} s")
    return code, list(kept)


def _kill(process: subprocess.Popen[str]) -> None:
    """Ends it with all that it started, unless it has ended: then its number may be somebody else's."""
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
