"""Ways to controllers on SSH hosts and to their disks, for whoever resolves a cluster's name. Loads the provider with the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.cli.beside import load

if TYPE_CHECKING:
    from iris_core.config.cluster import ClusterConfig
    from iris_core.config.ssh import SshHost
    from iris_core.contracts import Tunnel


def open_tunnel(host: SshHost, port: int) -> Tunnel:
    """A tunnel to a port of the host's loopback. Raises ConnectFailed."""
    opened: Tunnel = load("providers.hosts.tunnel").open_tunnel(host, port)
    return opened


def place_on_host(config: ClusterConfig) -> str:
    """The remote state dir of a controller on an SSH host, as a URL that means the host's disk from here."""
    from urllib.parse import urlsplit

    assert config.controller_ssh is not None
    load("providers.hosts.places").remember(config.controller_ssh)
    return f"ssh://{config.controller_ssh.label}{urlsplit(config.remote_state_dir).path}"
