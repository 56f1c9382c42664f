"""The worker's command line, read once into one immutable value.

The supervisor reads the same words, because it must know whose attempts it cleans up after before any worker runs. Keep it
free of heavy imports: a supervisor lives as long as its host and holds only this, the records and the process table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from iris_core.model.constraints import canonical_attributes
from iris_core.model.errors import ModelError
from iris_core.model.ids import check_component
from iris_core.model.quantities import parse_cpu, parse_size
from iris_core.model.resources import MAX_DEVICES, Device, parse_gpu_spec, tpu_device
from iris_core.model.tpu import parse_tpu_spec

if TYPE_CHECKING:
    from collections.abc import Sequence

SPOOL_BYTES = 256 * 1024 * 1024
GRACE_S = 10.0
"""Between TERM and KILL when the controller names no grace."""

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_REJECTED = 3
"""The controller will never accept this identity: a supervisor does not try again."""
EXIT_IDLE = 4
"""No task and no controller for `idle_exit_s`: a supervisor ends too."""

AttributeValue = str | int | float


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """What one worker was started with. Sizes in bytes, `cpu` in millicores."""

    controller: str
    worker_id: str
    cache_dir: Path
    cpu: int
    memory: int
    disk: int
    device: Device | None = None
    slice_id: str = ""
    scale_group: str = ""
    attributes: dict[str, AttributeValue] = field(default_factory=dict)
    token_file: Path | None = None
    health_port: int = 0
    spool_bytes: int = SPOOL_BYTES
    cgroups: bool = True
    idle_exit_s: float = 0.0
    words: tuple[str, ...] = ()
    """The arguments this was read from, for starting the same worker again."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"Error: {message}\nTry '{self.prog} --help'.\n")
        raise SystemExit(EXIT_USAGE)


def parse(argv: Sequence[str], *, prog: str = "iris-worker", supervised: bool = False) -> WorkerConfig:
    """Reads the options of `iris-worker`. Raises SystemExit(2) after one line on stderr when they are wrong."""
    words = [word for word in argv if word != "--"]
    parser = _Parser(prog=prog, allow_abbrev=False, description=_DESCRIPTION[supervised])
    add = parser.add_argument
    add("--controller", required=True, metavar="URL", help="the controller, as http://HOST:PORT")
    add("--worker-id", required=True, metavar="ID", help="the name of this worker, unique in its cluster")
    add("--cache-dir", "--state-dir", required=True, metavar="DIR", dest="cache_dir",
        help="where bundles, work directories, the log spool and records live; of this worker alone")  # fmt: skip
    add("--cpu", metavar="CPU", help="what tasks may use: cores, or millicores as 500m (default: all of them)")
    add("--memory", metavar="SIZE", help="what tasks may use (default: all of it)")
    add("--disk", metavar="SIZE", help="what tasks may use (default: the size of the file system)")
    devices = parser.add_mutually_exclusive_group()
    devices.add_argument("--gpu", metavar="SPEC", help="GPUs of this host, as VARIANTxCOUNT")
    devices.add_argument("--tpu", metavar="TYPE", help="the TPU type of the slice that this host is part of")
    add("--tpu-chips", type=int, metavar="N", help="the TPU chips of this host (default: what the type has)")
    add("--slice-id", default="", metavar="ID", help="the slice this host belongs to")
    add("--scale-group", default="", metavar="NAME", help="the scale group this host belongs to")
    add("--attribute", action="append", default=[], metavar="K=V", help="an attribute for constraints (repeatable)")
    add("--token-file", metavar="FILE", help="the worker's token; read anew at every dial")
    add("--health-port", type=int, default=0, metavar="PORT", help="where /health listens on 127.0.0.1 (default: any)")
    add("--spool-bytes", metavar="SIZE", help="how much unsent output is kept on disk (default: 256 MiB)")
    add("--no-cgroups", action="store_true", help="poll memory each second instead of using control groups")
    add("--idle-exit", type=float, metavar="SECONDS",
        help="end after this long without a task and without a controller (default: never; supervised: 600)")  # fmt: skip
    got = parser.parse_args(words)
    try:
        return _checked(got, tuple(words), supervised)
    except ModelError as error:
        parser.error(str(error))


_DESCRIPTION = {
    False: "Runs task attempts on this host for a controller.",
    True: "Starts a worker, starts it again when it dies, and ends what a dead worker left running.",
}


def _checked(got: argparse.Namespace, words: tuple[str, ...], supervised: bool) -> WorkerConfig:
    url = urlsplit(got.controller)
    try:
        usable = url.scheme in {"http", "https"} and url.hostname and url.port
    except ValueError:
        usable = False
    if not usable:
        raise ModelError(f"{got.controller!r} is no URL of a controller", field="--controller", hint="http://HOST:PORT")
    check_component(got.worker_id, what="worker id", field="--worker-id")
    cache = Path(got.cache_dir).expanduser().absolute()
    attributes: dict[str, AttributeValue] = {}
    for text in got.attribute:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ModelError(f"{text!r} is no attribute", field="--attribute", hint="write it as KEY=VALUE")
        attributes[key] = _typed(value)
    canonical_attributes(attributes)
    device = None
    if got.gpu:
        device = parse_gpu_spec(got.gpu)
    elif got.tpu:
        device = tpu_device(parse_tpu_spec(got.tpu))
        if got.tpu_chips is not None:
            device = replace(device, count=got.tpu_chips)
    if got.tpu_chips is not None and not (got.tpu and 1 <= got.tpu_chips <= MAX_DEVICES):
        raise ModelError(
            f"--tpu-chips needs --tpu and a number from 1 to {MAX_DEVICES}, got {got.tpu_chips}", field="--tpu-chips"
        )
    idle = got.idle_exit if got.idle_exit is not None else (600.0 if supervised else 0.0)
    return WorkerConfig(
        controller=got.controller.rstrip("/"),
        worker_id=got.worker_id,
        cache_dir=cache,
        cpu=parse_cpu(got.cpu, field="--cpu") if got.cpu else (os.cpu_count() or 1) * 1000,
        memory=parse_size(got.memory, field="--memory") if got.memory else _host_memory(),
        disk=parse_size(got.disk, field="--disk") if got.disk else _disk_total(cache),
        device=device,
        slice_id=got.slice_id,
        scale_group=got.scale_group,
        attributes=attributes,
        token_file=Path(got.token_file).absolute() if got.token_file else None,
        health_port=got.health_port,
        spool_bytes=parse_size(got.spool_bytes, field="--spool-bytes") if got.spool_bytes else SPOOL_BYTES,
        cgroups=not got.no_cgroups,
        idle_exit_s=idle,
        words=words,
    )


def _typed(text: str) -> AttributeValue:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _host_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _disk_total(path: Path) -> int:
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).total


def now_ms() -> int:
    """The wall clock in epoch ms: what lines and observations carry."""
    return time.time_ns() // 1_000_000


def reason(error: OSError) -> str:
    """What the system says is wrong, in lower case and without the numbers."""
    return (os.strerror(error.errno) if error.errno else str(error)).lower()


def hostname() -> str:
    """The name of this machine, for people."""
    return socket.gethostname()


def read_token(path: Path | None) -> str:
    """The worker's token, or "" where none is configured. Raises OSError."""
    return path.read_text().strip() if path is not None else ""
