"""`iris-controller host …`: what a controller deployment asks of the host that the controller runs on, at the other end of `ssh`.

One request is one line of JSON on standard input, with data after it; the answer is one line of JSON on standard output. A release that is
copied here is there once its manifest is, which is written last, after its digest has been found to be the right one. Every request may be
repeated: a connection may break after it was carried out. Needs nothing but the standard library, because it is carried here
(`providers/hosts/carried.py`). Must never touch what is not below the state directory, the unit file excepted.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import io
import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

from iris_core.auth.secret_references import require
from iris_core.contracts import ControllerUnhealthy, IrisError, StagedRelease, UsageFailed
from iris_core.model.secret_reference import SecretReference
from iris_core.procedures.environments import RunningOrBuilt, differing, key_of
from iris_core.procedures.files import digest_of, held, sync_folder, write_durably
from iris_core.procedures.releases import LIB, MANIFEST, Releases, in_use, unpack
from iris_core.procedures.room import require as require_room
from providers.hosts.systemd import RUNNING, SystemdControllerHost, usable
from providers.local import worker_restart
from providers.local.cluster import end_leftovers
from providers.local.controller_host import LocalControllerHost
from providers.objects import open_store

CONFIG: Final = "cluster.yaml"
INCOMING: Final = "incoming"
WHEELS: Final = "wheels"
SPARE_BYTES: Final = 64 << 20
"""What a copy leaves free: a running controller has to be able to write."""
PIECE: Final = 1 << 20
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+!-]{0,254}")
_RELEASE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")

Request = Mapping[str, Any]


class _Host:
    """The requests, by name. `data` is what comes behind a request."""

    def __init__(self, request: Request, data: IO[bytes]) -> None:
        self._data = data
        self._root = Path(str(request["state_dir"]))
        if not self._root.is_absolute():
            raise UsageFailed(f"the state directory {self._root} is not an absolute path")
        self._cluster = str(request["cluster"])
        self._releases = Releases(self._root)

    def _find(self, release: str) -> StagedRelease | None:
        found = self._releases.get(release) if _RELEASE.fullmatch(release) else None
        return StagedRelease(found.id, found.python, found.lib) if found is not None else None

    def _controller(self) -> LocalControllerHost:
        config = self._root / CONFIG
        if usable(os.getuid()):
            return SystemdControllerHost(config, self._root, self._find, cluster=self._cluster, user=os.getuid() != 0)
        return LocalControllerHost(config, self._root, self._find)

    # --- the host --------------------------------------------------------------------------------------------------

    def probe(self, _: Request) -> object:
        """What this host is, and whether a controller can live here."""
        there = self._root
        while not there.exists() and there != there.parent:
            there = there.parent
        return {
            "python": list(sys.version_info[:3]),
            "implementation": platform.python_implementation(),
            "machine": platform.machine(),
            "libc": list(platform.libc_ver()),
            "systemd": RUNNING.is_dir(),
            "unit": usable(os.getuid()),
            "uid": os.getuid(),
            "writable": os.access(there, os.W_OK | os.X_OK),
            "free_bytes": shutil.disk_usage(there).free,
            "environments": all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip")),
        }

    def room(self, request: Request) -> object:
        """Whether the disks here have room for the next controller; `remote` is the remote state dir as the cluster file has it."""
        remote = str(request["remote"])
        folder = getattr(open_store(remote), "folder", None) if remote.startswith("file://") else None
        require_room(self._root, folder)
        return None

    def secrets(self, request: Request) -> object:
        """Whether the controller will have its secrets here; what they are is not said."""
        require([SecretReference(str(where), tuple(map(str, references))) for where, references in request["wanted"]])
        return None

    # --- the controller --------------------------------------------------------------------------------------------

    def status(self, _: Request) -> object:
        return asdict(self._controller().status())

    def start(self, request: Request) -> object:
        """Writes the cluster file, and starts a release with it. One that an earlier attempt started is the one that was wanted."""
        controller, release = self._controller(), str(request["release"])
        now = controller.status()
        if not (request["again"] and now.running and now.release == release):
            if now.running:
                raise IrisError(f"a controller runs already: {now.detail}", hint="stop it first")
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            scratch = self._root / f".{CONFIG}.new"
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(str(request["config"]))
                file.flush()
                os.fsync(file.fileno())
            scratch.replace(self._root / CONFIG)
            controller.start(release)
        return None

    def stop(self, request: Request) -> object:
        self._controller().stop(request["kill_after_s"])
        return None

    def health(self, request: Request) -> object:
        return asdict(self._controller().await_healthy(float(request["within_s"])))

    def logs(self, request: Request) -> object:
        return list(self._controller().logs(int(request["lines"])))

    def schema(self, request: Request) -> object:
        return list(self._controller().schema(str(request["release"])))

    def offline(self, request: Request) -> object:
        words = [str(word) for word in request["words"]]
        return self._controller().offline(str(request["release"]), words, float(request["within_s"]))

    def end_leftovers(self, _: Request) -> object:
        """Ends the workers and the log store of a controller that is stopped; who had to be killed."""
        return end_leftovers(self._root)

    def workers(self, _: Request) -> object:
        """The workers that live on this host."""
        return [asdict(worker) for worker in worker_restart.seen(self._root)]

    def restart_workers(self, request: Request) -> object:
        """Has workers end once the controller keeps them by a supervisor of its own release."""
        wanted = [dict(item) for item in request["wanted"]]
        return worker_restart.restart(self._root, wanted, float(request["within_s"]))

    # --- what is copied here ---------------------------------------------------------------------------------------

    def have(self, request: Request) -> object:
        """How much of each file is here already, in bytes, and whether it is whole and right."""
        folder = self._folder(request)
        return [_have(folder, *_file(item)) for item in request["files"]]

    def receive(self, request: Request) -> object:
        """Takes a file from an offset on. What a connection that broke had brought stays, and is gone on from."""
        folder = self._folder(request)
        name, size, sha256 = _file(request["file"])
        offset = int(request["offset"])
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = _part(folder, name, sha256)
            free = shutil.disk_usage(folder).free
            if size - offset + SPARE_BYTES > free:
                part.unlink(missing_ok=True)
                raise IrisError(
                    f"{folder} has {free >> 20} MiB free, {(size - offset + SPARE_BYTES) >> 20} are needed",
                    hint="make room, then try again",
                )
            try:
                _take(self._data, part, offset, size)
            except OSError:
                part.unlink(missing_ok=True)  # a full disk is worse than a second copy
                raise
            if _sha256(part) != sha256:
                part.unlink()
                raise IrisError(f"{name} did not arrive as it was sent", hint="it is sent anew when this is repeated")
            part.rename(folder / name)
            sync_folder(folder)
        except OSError as error:
            raise _no_room(folder, error) from error
        return None

    def environment(self, request: Request) -> object:
        """The environment of a lock: its key and interpreter; with `build`, made from the wheels that are here; else None."""
        lock = str(request["lock"])
        environments = RunningOrBuilt(self._root, self._root / WHEELS)
        if not request["build"]:
            found = environments.found(lock.encode())
            return {"key": key_of(lock.encode()), "python": found[1] if found else "", "needs": differing(lock)}
        path = self._root / INCOMING / "lock.txt"
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text(lock)
        except OSError as error:
            raise _no_room(path.parent, error) from error
        key, python = environments.ensure(path, lambda _: None)
        wanted = {str(name) for name in request["wheels"]}
        for path in (self._root / WHEELS).glob("*"):
            if path.name not in wanted:
                path.unlink()  # the next lock brings what it needs
        return {"key": key, "python": python, "needs": []}

    def verify(self, request: Request) -> object:
        """Whether a release is here and is what it was: one that is not is removed, unless something runs from it."""
        release = str(request["release"])
        found = self._releases.get(release) if _RELEASE.fullmatch(release) else None
        if found is None:
            return False
        try:
            if os.access(found.python, os.X_OK) and digest_of(found.lib) == found.manifest.get("lib_sha256"):
                return True
            if in_use(found.lib):
                raise IrisError(f"release {release[:12]} was changed on this host, and something runs from it")
            (found.path / MANIFEST).unlink()
        except OSError as error:
            raise IrisError(f"release {release[:12]}: {(error.strerror or str(error)).lower()}") from error
        return False

    def install(self, request: Request) -> object:
        """Makes a release of an archive that is here. Its manifest comes last."""
        release, manifest = str(request["release"]), dict(request["manifest"])
        if not _RELEASE.fullmatch(release):
            raise UsageFailed(f"{release!r} is no release")
        name, _, sha256 = _file(request["file"])
        archive = self._root / INCOMING / name
        folder = self._root / "releases"
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with held(folder / f".{release}.lock"):
                if self._releases.get(release) is not None:
                    return None
                if not archive.is_file() or _sha256(archive) != sha256:
                    raise IrisError(f"{name} is not here as it was sent")
                path = folder / release
                if path.exists():
                    shutil.rmtree(path)
                scratch = folder / f".install-{release}"
                shutil.rmtree(scratch, ignore_errors=True)
                try:
                    unpack(archive, scratch / LIB)
                    if digest_of(scratch / LIB) != manifest["lib_sha256"]:
                        raise IrisError(f"release {release[:12]} is not what was built")
                    write_durably(scratch / MANIFEST, json.dumps(manifest, indent=1).encode())
                    scratch.rename(path)
                    sync_folder(folder)
                finally:
                    shutil.rmtree(scratch, ignore_errors=True)
            shutil.rmtree(self._root / INCOMING, ignore_errors=True)
        except OSError as error:
            raise _no_room(folder, error) from error
        return None

    def load(self, request: Request) -> object:
        """Proves that a release's interpreter loads it."""
        self._controller().stage(str(request["release"]))
        return None

    def releases(self, _: Request) -> object:
        return [release.id for release in self._releases.known()]

    def prune(self, request: Request) -> object:
        return self._releases.prune([str(release) for release in request["keep"]])

    def _folder(self, request: Request) -> Path:
        if request["folder"] not in (INCOMING, WHEELS):
            raise UsageFailed(f"{request['folder']!r} is no folder for a copy")
        return self._root / str(request["folder"])


def _file(item: Mapping[str, Any]) -> tuple[str, int, str]:
    name, size, sha256 = str(item["name"]), int(item["size"]), str(item["sha256"])
    if not _NAME.fullmatch(name) or not _SHA256.fullmatch(sha256) or size < 0:
        raise UsageFailed(f"{name!r} is no file to be copied")
    return name, size, sha256


def _part(folder: Path, name: str, sha256: str) -> Path:
    return folder / f".{sha256[:16]}-{name[:200]}.part"


def _have(folder: Path, name: str, size: int, sha256: str) -> dict[str, object]:
    whole = folder / name
    with contextlib.suppress(OSError):
        if whole.stat().st_size == size and _sha256(whole) == sha256:
            return {"whole": True, "bytes": size}
    with contextlib.suppress(OSError):
        return {"whole": False, "bytes": min(_part(folder, name, sha256).stat().st_size, size)}
    return {"whole": False, "bytes": 0}


def _take(data: IO[bytes], part: Path, offset: int, size: int) -> None:
    """Raises IrisError: less came than was announced. Two that write at once write the same bytes at the same places."""
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o600), "wb") as file:
        offset = min(offset, os.fstat(file.fileno()).st_size)
        file.seek(offset)
        left = size - offset
        while left and (piece := data.read(min(left, PIECE))):
            file.write(piece)
            left -= len(piece)
        if not left:
            file.truncate(size)
        file.flush()
        os.fsync(file.fileno())
    if left:
        raise IrisError(
            f"the copy broke off {left} bytes before its end", hint="it is gone on with when this is repeated"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _no_room(folder: Path, error: OSError) -> IrisError:
    return IrisError(f"{folder}: {(error.strerror or str(error)).lower()}", hint="make room, then try again")


REQUESTS: Final[tuple[str, ...]] = (
    "probe", "room", "secrets", "status", "start", "stop", "health", "logs", "schema", "offline", "end_leftovers",
    "workers", "restart_workers",
    "have", "receive", "environment", "verify", "install", "load", "releases", "prune",
)  # fmt: skip


def relay(main: Callable[[list[str]], int]) -> int:
    """Carries out command lines of this program, one after the other, as if each was a process, until the input ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        asked = json.loads(line)
        data = source.read(int(asked["size"]))
        if len(data) < int(asked["size"]):
            break
        out, err = io.BytesIO(), io.StringIO()
        stdin = sys.stdin
        sys.stdin = io.TextIOWrapper(io.BytesIO(data))
        with io.TextIOWrapper(out, write_through=True) as stdout:
            try:
                with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(err):
                    code = main([str(word) for word in asked["argv"]])
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except Exception as error:
                code = 1
                err.write(f"Error: {type(error).__name__}: {error}\n")
            finally:
                sys.stdin = stdin
            body = out.getvalue()
        sink.write(json.dumps({"code": code, "size": len(body), "err": err.getvalue()}).encode() + b"\n" + body)
        sink.flush()
    return 0


def run(name: str, source: IO[bytes], answer: Callable[[str], object]) -> int:
    """Carries out one request. Exit code 1: the answer is an error."""
    try:
        if name not in REQUESTS:
            raise UsageFailed(f"no such request: {name}")
        request = json.loads(source.readline())
        value = getattr(_Host(request, source), name)(request)
    except IrisError as error:
        lines = list(error.lines) if isinstance(error, ControllerUnhealthy) else None
        answer(json.dumps({"error": {"message": error.message, "hint": error.hint, "lines": lines}}) + "\n")
        return 1
    except (ValueError, KeyError, TypeError) as error:
        answer(
            json.dumps({"error": {"message": f"{name}: {type(error).__name__}: {error}", "hint": "", "lines": None}})
            + "\n"
        )
        return 1
    answer(json.dumps({"value": value}) + "\n")
    return 0
