"""Stores on hosts by their URL, `ssh://root@h1/path`: one connection a host, for as long as this process lives.

How a host is reached is what a cluster file said of it, if one was read; else what ssh's own configuration says. Must never remember more than
how to connect.
"""

from __future__ import annotations

import atexit
import threading
from typing import TYPE_CHECKING, Final

from iris_core.config.ssh import SshHost, parse_label
from providers.hosts.objects import HostStore
from providers.hosts.remote import Remote
from providers.hosts.ssh import Ssh

if TYPE_CHECKING:
    from iris_core.contracts import ObjectStore

_lock: Final = threading.Lock()
_hosts: Final[dict[str, SshHost]] = {}
_remotes: Final[dict[str, Remote]] = {}


def remember(host: SshHost) -> None:
    """From now on this is how the host of that label is reached."""
    old = None
    with _lock:
        if _hosts.get(host.label) != host:
            _hosts[host.label] = host
            old = _remotes.pop(host.label, None)
    if old is not None:
        old.close()


def open_at(label: str, path: str) -> ObjectStore:
    """The store at a path of a host; nothing is dialled yet. Raises UsageFailed: the label is none."""
    with _lock:
        remote = _remotes.get(label)
        if remote is None:
            remote = _remotes[label] = Remote(Ssh(_hosts.get(label) or parse_label(label)), "", "/")
            atexit.register(remote.close)
    return HostStore(remote, f"file://{path}")
