"""Which controller is meant (DESIGN §5.21, cli-auth-logs §1.1).

The rule, in order: `--controller-url` or `--config` or `--cluster`; inside a task `$IRIS_CONTROLLER_URL`;
`$IRIS_CLUSTER`; a running local cluster; else an error that names the three selectors. `--controller-url` and
`--config` exclude each other, and `--cluster` beside one of them is only the name that is shown. Must never open a
connection.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from iris_core.client.endpoint import Endpoint, parse_url
from iris_core.config.places import LOCAL
from iris_core.connect.local import HOW_TO_START, require_endpoint, running_endpoint
from iris_core.contracts import UsageFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_core.config.cluster import ClusterConfig
    from iris_core.config.ssh import SshHost
    from iris_core.contracts import Tunnel

TunnelOpener = Callable[["SshHost", int], "Tunnel"]
"""Opens a tunnel to a port of a host's loopback. Raises ConnectFailed."""

SELECTORS = "--cluster NAME, --config FILE or --controller-url URL"


@dataclass(frozen=True, slots=True)
class Target:
    """A controller and how to speak to it."""

    url: str
    cluster: str = ""
    """Its name as the operator knows it; without one, its address."""
    environment: str = ""
    """`local` for a controller on this machine, else ""."""
    read_only: bool = False
    """Every call asks the server to refuse mutations."""
    must_be: str = ""
    """The name in the cluster file that the address was taken from: a controller of another cluster there refuses. "" = any will do."""
    through: Callable[[], Tunnel] | None = None
    """Opens the way to a controller that cannot be reached directly; `url` is then its address for people alone."""
    deployed: bool = False
    """Whether it is a deployment: `cluster controller` starts and stops it."""

    def way_out(self, command: str) -> str:
        """What to do where nobody answers there, "" if no command is known to help. `command` selects it: `iris-core --cluster=lab`."""
        words = f"{command} cluster controller"
        return f"{words} status says how it stands, {words} start starts one that is stopped" if self.deployed else ""


def from_environment(variables: Mapping[str, str]) -> tuple[str, str]:
    """The address, or else the name of a cluster, that the environment gives where no selector does; "" = none."""
    url = variables.get("IRIS_CONTROLLER_URL", "")
    return url, "" if url else variables.get("IRIS_CLUSTER", "")


def resolve(
    *,
    cluster: str = "",
    config: str = "",
    controller_url: str = "",
    read_only: bool = False,
    environ: Mapping[str, str] | None = None,
    tunnels: TunnelOpener | None = None,
) -> Target:
    """The controller that these selectors mean; `tunnels` opens the way to one on an SSH host.

    Raises UsageFailed, or ConnectFailed when the local cluster is not running.
    """
    variables = os.environ if environ is None else environ
    if controller_url and config:
        raise UsageFailed("--controller-url and --config exclude each other", hint="give one of them")
    if not (controller_url or config or cluster):
        controller_url, cluster = from_environment(variables)
    if controller_url:
        return _at(parse_url(controller_url), cluster, read_only)
    if config:
        from iris_core.config.cluster import load_config

        return _configured(load_config(Path(config)), cluster, read_only, tunnels)
    if cluster == LOCAL:
        return Target(require_endpoint().url, LOCAL, "local", read_only)
    if cluster:
        from iris_core.config.cluster import find_cluster, load_config

        return _configured(load_config(find_cluster(cluster)), cluster, read_only, tunnels)
    running = running_endpoint()
    if running is not None:
        return Target(running.url, LOCAL, "local", read_only)
    raise UsageFailed(f"no cluster is named and none runs here; give {SELECTORS}", hint=HOW_TO_START)


def _at(endpoint: Endpoint, name: str, read_only: bool) -> Target:
    shown = name or f"{endpoint.bracketed}:{endpoint.port}"
    return Target(endpoint.url, shown, "local" if endpoint.is_loopback else "", read_only)


def _configured(config: ClusterConfig, name: str, read_only: bool, tunnels: TunnelOpener | None) -> Target:
    shown = name or config.name
    deployed = bool(config.remote_state_dir) and config.local_state_dir is not None
    ssh = config.controller_ssh
    if ssh is not None and tunnels is not None:
        port = config.controller_port
        return Target(
            f"ssh://{ssh.label}/127.0.0.1:{port}",
            shown,
            "",
            read_only,
            config.name,
            functools.partial(tunnels, ssh, port),
            deployed,
        )
    if config.controller_on != LOCAL:
        raise UsageFailed(
            f"{config.source}: this release does not reach {config.controller_on} clusters by itself"
            if ssh is None
            else f"{config.source}: no SSH tunnel can be opened from here",
            hint="open a way to the controller and give its address with --controller-url",
        )
    if not config.controller_port:
        raise UsageFailed(
            f"{config.source}: controller.local.port is not set, so its address is not known",
            hint="set the port, or give the address with --controller-url",
        )
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(config.controller_host, config.controller_host)
    bracketed = f"[{host}]" if ":" in host else host
    found = _at(parse_url(f"http://{bracketed}:{config.controller_port}", what=config.source), shown, read_only)
    return replace(found, must_be=config.name, deployed=deployed)
