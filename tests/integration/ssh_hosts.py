"""Hosts for tests: each a real sshd with key authentication in a network and a mount namespace of its own.

A host shares no path and no port with whoever drives it: `/tmp`, `/home`, `/root` and the clone are empty folders there, its state lies on a small
disk of its own, and it has its own loopback. What it has is a Python with the packages of the tests, below `/mnt/venv`, as an image
would have them. Processes are seen from outside, so that a test can end them and prove that none is left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from iris_core.config.ssh import SshHost
from providers.local.processes import Known, start_time

CLONE = Path(__file__).resolve().parents[2]
STATE = "/srv/iris/state"
REMOTE = "/srv/iris/remote"
HOST_PATH = "/mnt/venv/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SERVER = """\
Port 22
ListenAddress 0.0.0.0
HostKey /srv/ssh/host_key
AuthorizedKeysFile /srv/ssh/authorized_keys
PidFile none
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UseDNS no
PrintMotd no
MaxStartups 100
MaxSessions 100
LogLevel ERROR
SetEnv PATH={path} HOME=/srv/home
"""
BOOT = """\
set -eu
read -r go
mount -t tmpfs -o size=8m,mode=755 iris-image /mnt
mkdir -p /mnt/base /mnt/venv
mount --bind "$BASE" /mnt/base
mount --bind "$VENV" /mnt/venv
mount -t tmpfs -o size=8m,mode=755 iris-ssh /srv
mkdir -p /srv/ssh /srv/iris /srv/home /srv/keep
cp "$FILES"/* /srv/ssh/
chmod 600 /srv/ssh/*
mount -t tmpfs -o "size=$DISK,mode=755" iris-disk /srv/iris
for hidden in $HIDDEN; do
  mount -t tmpfs -o size=256m,mode=1777 iris-hidden "$hidden"
done
if [ ! -e "$BASE" ]; then
  mkdir -p "$BASE"
  mount --bind /mnt/base "$BASE"
fi
mkdir -p /run/sshd
ip link set lo up
ip addr add "$ADDRESS/30" dev "$DEVICE"
ip link set "$DEVICE" up
exec /usr/sbin/sshd -D -e -f /srv/ssh/sshd_config
"""
_serial = 0


def missing() -> str:
    """What this machine lacks for hosts, "" if nothing."""
    for program in ("ssh", "ssh-keygen", "ip", "unshare", "nsenter", "mount"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    if not Path("/usr/sbin/sshd").exists():
        return "sshd is not installed (openssh-server)"
    if os.geteuid() != 0:
        return "only root makes network and mount namespaces"
    done = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, text=True, check=False)
    return f"no namespaces here: {done.stderr.strip()}" if done.returncode else ""


class SshdHost:
    """One host. `folder` is where its keys and what sshd says are kept, on this side."""

    def __init__(self, folder: Path, name: str = "h1", *, disk: str = "2g") -> None:
        self.folder = folder / name
        self.folder.mkdir(parents=True)
        self.name = name
        self._disk = disk
        self.key = self.folder / "key"
        self._device = ""
        self._process: subprocess.Popen[bytes] | None = None
        for path, comment in ((self.key, "driver"), (self.folder / "host_key", name)):
            _must("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path))
        self.known_hosts = self.folder / "known_hosts"

    # --- its life ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts it and waits until sshd answers."""
        global _serial
        _serial += 1
        number = (os.getpid() * 8 + _serial) % 16_000
        block = number * 4
        here, self.address = (f"10.{230 + block // 65536}.{block // 256 % 256}.{block % 256 + end}" for end in (1, 2))
        self._device = f"iris{number}"
        inside = f"{self._device}h"
        files = self.folder / "files"
        files.mkdir(exist_ok=True)
        (files / "sshd_config").write_text(SERVER.format(path=HOST_PATH))
        shutil.copy(self.key.with_suffix(".pub"), files / "authorized_keys")
        for name in ("host_key", "host_key.pub"):
            shutil.copy(self.folder / name, files / name)
        self.learn_key()
        hidden = dict.fromkeys(["/home", "/root", "/dev/shm", "/run", *_tops(CLONE), *_tops(self.folder), "/tmp"])
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "BASE": sys.base_prefix, "VENV": sys.prefix, "FILES": str(files),
            "DISK": self._disk, "HIDDEN": " ".join(hidden), "ADDRESS": self.address, "DEVICE": inside,
        }  # fmt: skip
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", BOOT],
                stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        self._await_own_network()
        # A test that was killed may have left one of this name.
        subprocess.run(["ip", "link", "del", self._device], capture_output=True, check=False)
        _must("ip", "link", "add", self._device, "type", "veth", "peer", "name", inside, "netns", str(self.pid))
        _must("ip", "addr", "add", f"{here}/30", "dev", self._device)
        _must("ip", "link", "set", self._device, "up")
        assert self._process.stdin is not None
        self._process.stdin.write(b"go\n")
        self._process.stdin.close()
        self._await_sshd()

    @property
    def pid(self) -> int:
        """Of its first process, which is sshd once it answers."""
        assert self._process is not None
        return self._process.pid

    def _await_own_network(self) -> None:
        own = {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("net", "mnt")}
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError):
                if all(os.readlink(f"/proc/{self.pid}/ns/{kind}") != own[kind] for kind in own):
                    return
            assert self._process is not None and self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, "the namespaces are not there"
            time.sleep(0.01)

    def _await_sshd(self) -> None:
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection((self.address, 22), timeout=5) as link:
                if link.recv(4) == b"SSH-":
                    return
            assert self._process is not None and self._process.poll() is None, self.said()
            assert time.monotonic() < deadline, self.said()
            time.sleep(0.02)

    def stop_sshd(self) -> None:
        """Ends sshd and every connection; what runs there goes on. Connections are refused from then on."""
        listener = Known(self.pid, start_time(self.pid) or 0)
        for known in self._named(b"sshd"):
            if known.pid != listener.pid:
                known.signal(signal.SIGKILL)
        # The listener is the first process; the namespaces live on with whatever still runs in them.
        self._keeper = subprocess.Popen(
            ["nsenter", "--target", str(self.pid), "--net", "--mount", "sleep", "infinity"], start_new_session=True
        )
        keeper = self._keeper.pid
        self._await(lambda: self._inside(keeper))
        self._network = f"/proc/{self._keeper.pid}/ns/net"
        listener.signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait()

    _keeper: subprocess.Popen[bytes] | None = None
    _network = ""

    def start_sshd(self) -> None:
        """Starts sshd again where it was."""
        keeper = self._keeper
        assert keeper is not None
        with (self.folder / "sshd.log").open("ab") as log:
            self._process = subprocess.Popen(
                ["nsenter", "--target", str(keeper.pid), "--net", "--mount", "/usr/sbin/sshd", "-D", "-e", "-f", "/srv/ssh/sshd_config"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env={"PATH": HOST_PATH}, start_new_session=True,
            )  # fmt: skip
        self._await_sshd()
        keeper.kill()
        keeper.wait()
        self._keeper = None

    def unplug(self) -> None:
        """Takes its network away: nothing answers."""
        _must("ip", "link", "set", self._device, "down")

    def plug(self) -> None:
        """Gives its network back."""
        _must("ip", "link", "set", self._device, "up")
        self._await_sshd()

    def end(self) -> None:
        """Ends sshd and asserts that nothing else was left running on it."""
        left = self.works()
        deadline = time.monotonic() + 60
        while left and time.monotonic() < deadline:  # what answered a last request is ending
            time.sleep(0.02)
            left = self.works()
        shown = {known.pid: _words(known.pid) for known in left}
        everything = self.processes()
        for known in everything:
            known.signal(signal.SIGKILL)
        for known in everything:
            if self._process is not None and known.pid == self._process.pid:
                self._process.wait()
            elif self._keeper is not None and known.pid == self._keeper.pid:
                self._keeper.wait()
            else:
                known.wait_gone(60)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        subprocess.run(["ip", "link", "del", self._device], capture_output=True, check=False)
        assert not shown, f"left behind on {self.name}: {shown}"

    # --- what a test looks at ----------------------------------------------------------------------------------------

    def said(self) -> str:
        """What sshd, or the boot before it, wrote."""
        return (self.folder / "sshd.log").read_text(errors="replace")[-4000:]

    def learn_key(self) -> None:
        """Writes the host's key where the driver looks it up."""
        kind, key = (self.folder / "host_key.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"{self.address} {kind} {key}\n")

    def ssh(self) -> SshHost:
        """How it is reached."""
        return SshHost(
            self.address, key_file=str(self.key), known_hosts_file=str(self.known_hosts), connect_timeout_s=10.0
        )

    def config(self, name: str, *, port: int = 10000, extra: str = "", workers: int = 1) -> str:
        """A cluster file for a controller on it, with workers there."""
        return f"""\
name: {name}
platform: {{local: }}
defaults: {{ssh: {{key_file: "{self.key}", known_hosts_file: "{self.known_hosts}", connect_timeout: {{seconds: 10}}}}}}
controller: {{manual: {{host: {self.address}, port: {port}}}}}
storage: {{local_state_dir: "{STATE}", remote_state_dir: "file://{REMOTE}"}}
worker_provider: {{}}
scale_groups:
  cpu:
    num_vms: 1
    buffer_slices: {workers}
    resources: {{cpu: 4, ram: 4GB, device_type: cpu, capacity_type: on-demand}}
{extra}"""

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command on it, past ssh."""
        return subprocess.run(
            ["nsenter", "--target", str(self.pid), "--net", "--mount", *words],
            env={"PATH": HOST_PATH, "HOME": "/srv/home"}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=check, timeout=120,
        )  # fmt: skip

    def path(self, place: str) -> Path:
        """A file of its own, as this side sees it."""
        return Path(f"/proc/{self.pid}/root{place}")

    def processes(self) -> list[Known]:
        """Everything that runs on it."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and self._inside(int(entry.name)):
                started = start_time(int(entry.name))
                if started is not None:
                    found.append(Known(int(entry.name), started))
        return found

    def works(self) -> list[Known]:
        """What runs on it besides sshd and its connections."""
        own = {self.pid, self._keeper.pid if self._keeper is not None else 0}
        return [
            known
            for known in self.processes()
            if known.pid not in own and "sshd" not in _words(known.pid).split(" ")[0]
        ]

    def _inside(self, pid: int) -> bool:
        try:
            if not self._network_id:
                self._network_id = os.readlink(f"/proc/{self.pid}/ns/net")
            return os.readlink(f"/proc/{pid}/ns/net") == self._network_id
        except OSError:
            return False

    _network_id = ""

    def _named(self, word: bytes) -> list[Known]:
        return [known for known in self.processes() if _words(known.pid).startswith(word.decode())]

    @staticmethod
    def _await(what: object) -> None:
        deadline = time.monotonic() + 60
        while not what():  # type: ignore[operator]
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _words(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:300]
    except OSError:
        return ""


def _tops(path: Path) -> Sequence[str]:
    """What has to be hidden so that a path is not there: a folder of its own, or, of the usual ones, all of it."""
    for usual in ("/tmp", "/home", "/root", "/dev/shm", "/run"):
        if path.is_relative_to(usual):
            return (usual,)
    return (str(path),)


def _must(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{words}: {done.stderr}"


@contextlib.contextmanager
def ssh_hosts(folder: Path, *names: str, disk: str = "2g") -> Iterator[list[SshdHost]]:
    """Started hosts, ended and checked at the end: whatever a test started there it has to end."""
    made: list[SshdHost] = []
    try:
        for name in names or ("h1",):
            host = SshdHost(folder, name, disk=disk)
            made.append(host)
            host.start()
        yield made
    finally:
        problems = []
        for host in made:
            try:
                host.end()
            except AssertionError as error:
                problems.append(str(error))
        assert not problems, problems
