"""The environment of an attempt, from lowest to highest: host, defaults, the job's variables, ours (control-plane §4.3).

The worker's own environment is not passed on, because on a laptop it is the operator's shell with everything in it; only what
describes the machine goes through. A pure function: what it is given is what it uses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST_NAMES = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "TMPDIR", "TZ", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE",
    # How this machine reaches the network.
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "no_proxy", "all_proxy",
    "SSL_CERT_FILE", "SSL_CERT_DIR",
)  # fmt: skip
"""What passes from the worker's environment to a task."""

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEFAULTS = {"PYTHONUNBUFFERED": "1", "PYTHONPATH": "."}
PORT_PREFIX = "IRIS_PORT_"


def port_variable(name: str) -> str:
    """The variable of a named port: `http-2` is `IRIS_PORT_HTTP_2`."""
    return PORT_PREFIX + re.sub(r"[^A-Z0-9]", "_", name.upper())


def machine_path(host: Mapping[str, str]) -> str:
    """Where this machine's own programs are, whatever a job says."""
    return host.get("PATH", DEFAULT_PATH)


def build(host: Mapping[str, str], job: Mapping[str, str], ours: Mapping[str, str]) -> dict[str, str]:
    """The variables of an attempt. A job may set `IRIS_PORT_<NAME>`; of the other names that we set, ours win."""
    env = {name: host[name] for name in HOST_NAMES if name in host}
    env["PATH"] = machine_path(host)
    env.update(DEFAULTS)
    env.update(job)
    env.update({name: value for name, value in ours.items() if not (name.startswith(PORT_PREFIX) and name in job)})
    return env


def activate(env: dict[str, str], workdir: str) -> dict[str, str]:
    """The same with the virtual environment that a setup step made in the work directory first on the PATH."""
    return {**env, "VIRTUAL_ENV": f"{workdir}/.venv", "PATH": f"{workdir}/.venv/bin:{env['PATH']}"}
