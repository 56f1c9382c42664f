"""Control groups of version 1 and 2: one per attempt, so that the kernel says who belongs to it and what memory it took.

Both versions are read because hosts still run hybrids where only version 1 has the memory controller; where neither can be
written, `detect` gives None and the attempt is found by its marker instead (`procs`). Must never signal a group whose path does
not end in the attempt's uid.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from iris_controller.worker.config import reason

_log = logging.getLogger("iris.worker.cgroups")

ENTER = 'echo $$ > "$0" || exit 125; exec "$@"'
"""`sh -c ENTER <procs file> argv…`: becomes argv inside the group. A process that is moved from outside could fork first."""


LEAF = "iris-agent"
"""Where the worker itself sits under version 2."""


def entering(procs_file: str, argv: list[str]) -> list[str]:
    """The command line that runs `argv` inside the group."""
    return ["/bin/sh", "-c", ENTER, procs_file, *argv]


@dataclass(frozen=True, slots=True)
class Cgroup:
    """The group of one attempt. Reading one that is gone gives nothing, never an error."""

    path: str
    version: int

    @property
    def procs_file(self) -> str:
        return f"{self.path}/cgroup.procs"

    def pids(self) -> list[int]:
        """The living processes in it and in groups that they made below it."""
        found: list[int] = []
        for path in _tree(self.path):
            try:
                with open(f"{path}/cgroup.procs", encoding="ascii") as file:
                    found += [int(word) for word in file.read().split()]
            except OSError:
                continue
        return found

    def memory_peak(self) -> int:
        """The most it ever held, in bytes; 0 if the kernel does not say."""
        return self._number("memory.max_usage_in_bytes" if self.version == 1 else "memory.peak")

    def memory_now(self) -> int:
        """What it holds, in bytes."""
        return self._number("memory.usage_in_bytes" if self.version == 1 else "memory.current")

    def cpu_us(self) -> int | None:
        """Processor time of all that ever ran in it, in microseconds; None where another hierarchy counts it (version 1)."""
        for line in self._read("cpu.stat").splitlines() if self.version == 2 else ():
            name, _, value = line.partition(" ")
            if name == "usage_usec" and value.isdigit():
                return int(value)
        return None

    def oom_kills(self) -> int:
        """How many of its processes the kernel killed for memory."""
        for line in self._read("memory.oom_control" if self.version == 1 else "memory.events").splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill" and value.isdigit():
                return int(value)
        return 0

    def signal(self, number: signal.Signals) -> None:
        """Signals every process in it."""
        if number == signal.SIGKILL and self.version == 2 and self._write("cgroup.kill", "1"):
            return
        for pid in self.pids():
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                continue

    def limit_memory(self, size: int) -> bool:
        """Sets the limit in bytes. Returns whether the kernel took it."""
        if self.version == 2:
            self._write("memory.oom.group", "0")
            return self._write("memory.max", str(size))
        return self._write("memory.limit_in_bytes", str(size))

    def remove(self) -> bool:
        """Removes the empty group. Returns False while something is still in it."""
        for path in reversed(_tree(self.path)):
            try:
                os.rmdir(path)
            except FileNotFoundError:
                continue
            except OSError:
                return False
        return True

    def _number(self, name: str) -> int:
        text = self._read(name).strip()
        return int(text) if text.isdigit() else 0

    def _read(self, name: str) -> str:
        try:
            with open(f"{self.path}/{name}", encoding="ascii") as file:
                return file.read()
        except OSError:
            return ""

    def _write(self, name: str, text: str) -> bool:
        try:
            with open(f"{self.path}/{name}", "w", encoding="ascii") as file:
                file.write(text)
        except OSError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The parent of this worker's groups."""

    root: str
    version: int

    def create(self, uid: str, memory_limit: int) -> Cgroup:
        """Makes the group of an attempt; `memory_limit` 0 = none. Raises OSError, also when a limit can not be set."""
        group = Cgroup(f"{self.root}/{uid}", self.version)
        try:
            os.mkdir(group.path, 0o755)
        except FileExistsError:
            pass
        except FileNotFoundError:
            os.makedirs(group.path, 0o755)
        if memory_limit and not group.limit_memory(memory_limit):
            group.remove()
            raise OSError(errno.EINVAL, "the kernel refuses the memory limit", group.path)
        return group

    def tidy(self) -> None:
        """Removes the groups in which nothing is left."""
        for path in reversed(_tree(self.root)[1:]):
            Cgroup(path, self.version).remove()

    def remove(self, uid: str) -> None:
        """Removes the group of an attempt that is over, if it is still there."""
        try:
            os.rmdir(f"{self.root}/{uid}")
        except OSError:
            pass  # gone, as it should be; one that is not is removed at the next start

    def close(self) -> None:
        """Removes the parent if nothing is left below it."""
        self.tidy()
        Cgroup(self.root, self.version).remove()


def _tree(path: str) -> list[str]:
    found = [path]
    for at in found:
        try:
            if os.stat(at).st_nlink == 2:
                continue  # the kernel counts a link for each group below: there is none
            with os.scandir(at) as entries:
                found += [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        except OSError:
            continue
    return found


def recorded(path: str, uid: str) -> Cgroup | None:
    """The group that a record names, if it can be that attempt's and still exists."""
    if os.path.basename(path) != uid or not os.path.isfile(f"{path}/cgroup.procs"):
        return None
    return Cgroup(path, 1 if os.path.exists(f"{path}/memory.limit_in_bytes") else 2)


def detect(
    cache_dir: Path, *, proc: Path = Path("/proc/self"), own_pids: frozenset[int] = frozenset()
) -> Cgroups | None:
    """Finds a place below this process's own group where groups with a memory limit can be made, or None.

    `own_pids` are the worker and its supervisor: version 2 lets a group have either processes or limited children, so these
    are moved into a leaf when nobody else is in the way.
    """
    name = parent_name(cache_dir)
    mounts = _mounts(proc)
    for line in _lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") and "v1" in mounts:
            return _usable(_under(mounts["v1"], path), name, 1)
    for line in _lines(proc / "cgroup"):
        if line.startswith("0::") and "v2" in mounts:
            own = _under(mounts["v2"], line[3:])
            own = own.parent if own.name == LEAF else own
            if _delegate(own, own_pids):
                return _usable(own, name, 2)
    return None


def parent_name(cache_dir: Path) -> str:
    """The name of the parent of a worker's groups: of its cache directory, so that a later worker finds it again."""
    return "iris-" + hashlib.sha256(os.fsencode(cache_dir)).hexdigest()[:12]


def _usable(own: Path, name: str, version: int) -> Cgroups | None:
    root = own / name
    try:
        root.mkdir(exist_ok=True)
        if version == 2:
            (root / "cgroup.subtree_control").write_text("+memory")
    except OSError as error:
        _log.info("no control group below %s: %s", own, reason(error))
        return None
    return Cgroups(str(root), version) if os.access(root / "cgroup.procs", os.W_OK) else None


def _delegate(own: Path, own_pids: frozenset[int]) -> bool:
    def words(name: str) -> list[str]:
        return " ".join(_lines(own / name)).split()

    if "memory" not in words("cgroup.controllers"):
        return False
    if "memory" in words("cgroup.subtree_control"):
        return True
    for attempt in range(2):
        try:
            (own / "cgroup.subtree_control").write_text("+memory")
            return True
        except OSError as error:
            inside = {int(word) for word in words("cgroup.procs")}
            if attempt or error.errno != errno.EBUSY or not inside or not inside <= own_pids:
                return False
        try:
            leaf = own / LEAF
            leaf.mkdir(exist_ok=True)
            for pid in inside:
                (leaf / "cgroup.procs").write_text(str(pid))
        except OSError:
            return False
    return False


def _mounts(proc: Path) -> dict[str, tuple[str, str]]:
    """`v1` (the memory hierarchy) and `v2`, each as (mount point, root of the mount)."""
    found: dict[str, tuple[str, str]] = {}
    for line in _lines(proc / "mountinfo"):
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 5 or len(kind) < 3:
            continue
        if kind[0] == "cgroup2":
            found.setdefault("v2", (fields[4], fields[3]))
        elif kind[0] == "cgroup" and "memory" in kind[2].split(","):
            found.setdefault("v1", (fields[4], fields[3]))
    return found


def _under(mount: tuple[str, str], path: str) -> Path:
    point, root = mount
    relative = os.path.relpath(path, root) if root != "/" and path.startswith(root) else path.lstrip("/")
    return Path(os.path.normpath(os.path.join(point, relative)))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
