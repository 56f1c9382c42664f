"""A program named `ssh` that runs its command on this machine, and of which a test decides when the connection fails.

The real one is in `tests/integration/ssh_hosts.py`; this one shows what is retried, and what a broken connection leaves, within milliseconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.config.ssh import SshHost
from providers.hosts.remote import Remote
from providers.hosts.ssh import Ssh

if TYPE_CHECKING:
    import pytest

PROGRAM = """\
#!/bin/sh
for last; do :; done
echo "$$" >> '{folder}/calls'
fault=$(head -n 1 '{folder}/faults' 2>/dev/null)
[ -n "$fault" ] && sed -i 1d '{folder}/faults'
case "$fault" in
  refused) echo "ssh: connect to host h1 port 22: Connection refused" >&2; exit 255 ;;
  denied) echo "root@h1: Permission denied (publickey)." >&2; exit 255 ;;
  changed) echo "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @" >&2; echo "Host key verification failed." >&2; exit 255 ;;
  lost)
    exec 3<&0
    : > '{folder}/lost'
    sh -c "$last" <&3 >'{folder}/lost' &
    while kill -0 $! 2>/dev/null && [ ! -s '{folder}/lost' ]; do sleep 0.02; done
    echo "Connection to h1 closed by remote host." >&2; exit 255 ;;
  cut:*) head -c "${{fault#cut:}}" | sh -c "$last" >/dev/null 2>&1; echo "client_loop: send disconnect: Broken pipe" >&2; exit 255 ;;
  hang) exec sleep 600 ;;
  mute) exec >&-; exec sleep 600 ;;
esac
exec sh -c "$last"
"""


class World:
    """One pretended host: `remote` speaks to it, `state` is its state directory."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.state = folder / "state"
        programs = folder / "bin"
        programs.mkdir()
        (programs / "ssh").write_text(PROGRAM.format(folder=folder))
        (programs / "ssh").chmod(0o755)
        monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
        self.pauses: list[float] = []
        self.said: list[str] = []
        self.ssh = Ssh(SshHost("h1"), say=self.said.append, pause=self.pauses.append)
        self.remote = Remote(self.ssh, "lab", str(self.state))

    def faults(self, *kinds: str) -> None:
        """The next connections fail in these ways, "ok" = not."""
        (self.folder / "faults").write_text("".join(f"{kind}\n" for kind in kinds))

    def connections(self, during: Callable[[], object]) -> int:
        """How many connections were tried."""
        before = self._calls()
        during()
        return self._calls() - before

    def _calls(self) -> int:
        path = self.folder / "calls"
        return len(path.read_text().splitlines()) if path.exists() else 0
