"""Tunnels to controllers on SSH hosts, for whoever resolves a cluster's name. Loads the provider with the first one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_core.cli.beside import load

if TYPE_CHECKING:
    from iris_core.config.ssh import SshHost
    from iris_core.contracts import Tunnel


def open_tunnel(host: SshHost, port: int) -> Tunnel:
    """A tunnel to a port of the host's loopback. Raises ConnectFailed."""
    opened: Tunnel = load("providers.hosts.tunnel").open_tunnel(host, port)
    return opened
