"""What a cluster file says, as values (control-plane §8).

Every key that exists in such a file is known here; those that this release acts on become fields, the others are
accepted as they are so that one file serves releases on both sides. An unknown key is an error: a misspelled limit
must not be no limit. Must never contact a cluster or read a secret.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from iris_core.config import places
from iris_core.config.budgets import BudgetDefaults, BudgetTier, budget_defaults, budget_tiers
from iris_core.config.document import Value, parse_document, read_document
from iris_core.config.endpoints import SystemEndpoint, parse_endpoints
from iris_core.config.finelog import FinelogConfig, parse_finelog
from iris_core.config.images import NamedImages, parse_images
from iris_core.config.places import LOCAL
from iris_core.config.retention import RETENTION_KEYS, Retention, parse_retention
from iris_core.config.scale_groups import (
    AutoscalerConfig,
    ScaleGroup,
    autoscaler_keys,
    parse_autoscaler,
    parse_scale_groups,
)
from iris_core.config.ssh import SSH_KEYS, SshHost, parse_ssh_host
from iris_core.config.task_outputs import TaskOutputsConfig, parse_task_outputs
from iris_core.contracts import UsageFailed
from iris_core.model.errors import did_you_mean, shown
from iris_core.model.ids import check_component
from iris_core.model.secret_reference import SecretReference, check_reference

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_TOP: Final = frozenset(
    [
        "name",
        "dashboard_url",
        "federation_public_parent",
        "finelog",
        "provisioning",
        "platform",
        "defaults",
        "storage",
        "controller",
        "worker_provider",
        "kubernetes_provider",
        "backends",
        "scale_groups",
        "tpu_pools",
        "auth",
        "user_budgets",
        "endpoints",
        "peers",
        "task_outputs",
        "allowed_hosts",
    ]
)
MANUAL: Final = "manual"
"""Hosts that are reached by SSH and were there before: nobody makes or deletes them."""
DEFAULT_PORT: Final = 10000
_PLATFORMS: Final = ("gcp", MANUAL, LOCAL, "coreweave")
_DEFAULTS: Final = frozenset(["ssh", "autoscaler", "worker", "task_env", "inject_env", "user_budget"])
_WORKER: Final = frozenset(
    [
        "docker_image",
        "host",
        "port",
        "port_range",
        "cache_dir",
        "default_task_image",
        "runtime",
        "poll_interval",
        "heartbeat_timeout",
        "storage_prefix",
        "controller_address",
        "auth_token",
    ]
)
_STORAGE: Final = frozenset({"local_state_dir", "remote_state_dir"})
_CONTROLLER: Final = frozenset(
    {
        "image",
        "checkpoint_interval_seconds",
        "profile_interval_seconds",
        "stats_interval_seconds",
        "max_active_tasks_per_user",
        "max_tasks_per_job_per_cycle",
        "max_tasks_per_worker_per_cycle",
        *RETENTION_KEYS,
        *_PLATFORMS,
    }
)
_AUTH: Final = frozenset(
    [
        "iap",
        "gcp",
        "trusted_cidrs",
        "admin_users",
        "optional",
        "signing_key",
        "previous_public_keys",
        "federation_peers",
        "allowed_submitters",
        "unprovisioned_role",
    ]
)


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """One cluster. Paths have `~` expanded."""

    name: str
    source: str
    """The file it came from, for messages."""
    platform: str = LOCAL
    """gcp, manual, local or coreweave."""
    local_state_dir: Path | None = None
    """None = the program's default."""
    remote_state_dir: str = ""
    """URL of the object store that outlives the machine, "" = none."""
    controller_on: str = LOCAL
    """Where its controller runs: gcp, manual (an SSH host), local (where the command is given) or coreweave."""
    controller_ssh: SshHost | None = None
    """How that host is reached, where it is an SSH host and is named."""
    controller_host: str = "127.0.0.1"
    """Address to listen on and to be reached at."""
    controller_port: int = 0
    """0 = chosen at start."""
    max_active_tasks: int = 16_000
    max_tasks_per_job_per_cycle: int = 0
    """Most of one job that are placed in one second; 0 = unlimited."""
    max_tasks_per_worker_per_cycle: int = 0
    """Most that are placed on one worker in one second; 0 = unlimited."""
    """Unfinished tasks that one user may have."""
    checkpoint_interval_s: int = 0
    """Between checkpoints, 0 = hourly."""
    profile_interval_s: int = 600
    """Between the periodic profiles of one process, 0 = none are taken."""
    stats_interval_s: int = 15
    """Between two readings of workers and tasks."""
    retention: Retention = field(default_factory=Retention)
    task_env: Mapping[str, str] = field(default_factory=dict)
    """Environment of every task, below what the submitter names."""
    port_range: tuple[int, int] = (30000, 40000)
    """Ports that tasks are given, the last excluded."""
    cache_dir: str = ""
    """Where workers keep bundles and work directories, "" = their default."""
    scale_groups: Mapping[str, ScaleGroup] = field(default_factory=dict)
    """One per zone, those of `tpu_pools` included."""
    autoscaler: AutoscalerConfig = field(default_factory=AutoscalerConfig)
    label_prefix: str = "iris"
    """What marks this cluster's machines among those of one project."""
    trusted_cidrs: tuple[str, ...] = ()
    """Peers that need no credentials, beside loopback."""
    admin_users: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()
    """Host headers that the HTTP side accepts, beside loopback."""
    endpoints: Mapping[str, SystemEndpoint] = field(default_factory=dict)
    user_budgets: tuple[BudgetTier, ...] = ()
    """Set at every start, in order."""
    budget_defaults: BudgetDefaults = field(default_factory=BudgetDefaults)
    task_outputs: TaskOutputsConfig = field(default_factory=TaskOutputsConfig)
    finelog: FinelogConfig = field(default_factory=FinelogConfig)
    images: NamedImages = field(default_factory=NamedImages)
    previous_public_keys: tuple[str, ...] = ()
    """PEM of keys whose tokens are still taken, while one key replaces another."""
    secrets: tuple[SecretReference, ...] = ()
    """What the file refers to; a controller that is deployed needs them."""
    unused: tuple[str, ...] = ()
    """Sections that are valid and that this release does not act on."""


@dataclass(frozen=True, slots=True)
class NamedCluster:
    """A cluster file that can be chosen by name."""

    name: str
    path: Path


def named_clusters() -> list[NamedCluster]:
    """Every cluster file that `--cluster` finds, by name; a name in two folders is the one that wins. Reads no file
    but in `./config`.
    """
    found: dict[str, Path] = {}
    for folder in places.cluster_folders():
        for path in _files(folder):
            if path.stem != LOCAL:
                found.setdefault(path.stem, path)
    return [NamedCluster(name, found[name]) for name in sorted(found)]


def _files(folder: Path) -> Iterator[Path]:
    try:
        paths = sorted(path for path in folder.iterdir() if path.suffix in (".yaml", ".yml") and path.is_file())
    except OSError:
        return
    for path in paths:
        # Every project has a ./config; only files that look like a cluster count there.
        if folder != Path("config") or _looks_like_a_cluster(path):
            yield path


def _looks_like_a_cluster(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            lines = file.read(64 * 1024).splitlines()
    except OSError:
        return False
    return any(line.startswith(b"platform:") for line in lines) and any(line.startswith(b"name:") for line in lines)


def unknown_cluster(name: str, known: Iterable[str]) -> UsageFailed:
    """What is said of a name that no cluster file has; the hint has the closest one, and where a new file goes."""
    near = did_you_mean(name, known)
    return UsageFailed(
        f"no cluster named {shown(name)}",
        hint=f"{near + ' ' if near else ''}`cluster list` shows them; put its file into ~/.config/iris/clusters, or give it with --config FILE",
    )


def find_cluster(name: str) -> Path:
    """The file of a named cluster. Raises UsageFailed: there is none; the hint has the closest name."""
    known = {cluster.name: cluster.path for cluster in named_clusters()}
    if name in known:
        return known[name]
    raise unknown_cluster(name, [*known, LOCAL])


def load_config(path: Path, *, embedded: bool = False) -> ClusterConfig:
    """Reads a cluster file; that of the embedded cluster alone may be named `local`. Raises UsageFailed, with file
    and line.
    """
    return _cluster(read_document(path), embedded)


def parse_config(text: str, source: str = "config", *, embedded: bool = False) -> ClusterConfig:
    """Reads a cluster file's text, as `load_config` does. Raises UsageFailed, with source and line."""
    return _cluster(parse_document(text.encode(), source), embedded)


def _cluster(document: Value, embedded: bool) -> ClusterConfig:
    if document.data is None or not isinstance(document.data, dict):
        raise document.wrong("a cluster file is a mapping", hint="it starts with `name:` and `platform:`")
    top = document.mapping(_TOP)
    for name in ("name", "platform"):
        if name not in top:
            raise document.wrong(f"the key {name!r} is missing")
    name = top["name"].parsed(lambda text: check_component(text, what="cluster name"))
    if name == LOCAL and not embedded:
        raise top["name"].wrong(
            "the name 'local' means the cluster that `cluster start --local` starts", hint="choose another"
        )
    platforms = top["platform"].mapping({*_PLATFORMS, "label_prefix"})
    chosen = [word for word in _PLATFORMS if word in platforms]
    if len(chosen) != 1:
        raise top["platform"].wrong(
            f"expected exactly one of {', '.join(_PLATFORMS)}, found {', '.join(chosen) or 'none'}"
        )
    for word in ("worker_provider", "kubernetes_provider", "provisioning", "peers", "backends"):
        if word in top:
            top[word].mapping()
    defaults = _section(top, "defaults", _DEFAULTS)
    worker = _section(defaults, "worker", _WORKER)
    autoscaler = autoscaler_keys(defaults["autoscaler"]) if "autoscaler" in defaults else {}
    scale_groups = parse_scale_groups(_section(top, "scale_groups", None), _section(top, "tpu_pools", None))
    storage = _section(top, "storage", _STORAGE)
    controller = _section(top, "controller", _CONTROLLER)
    runs_on = _runs_on(top.get("controller"), controller, chosen[0])
    here = _section(controller, LOCAL, {"host", "port"})
    there = _section(controller, MANUAL, {"host", "port"})
    ssh = parse_ssh_host(there.get("host"), _section(defaults, "ssh", SSH_KEYS)) if "host" in there else None
    port = there["port"].whole(1, 65535) if "port" in there else DEFAULT_PORT if runs_on == MANUAL else 0
    auth = _section(top, "auth", _AUTH)
    finelog = parse_finelog(top["finelog"], _object_url) if "finelog" in top else FinelogConfig()
    return ClusterConfig(
        name=name,
        source=document.source,
        platform=chosen[0],
        local_state_dir=storage["local_state_dir"].place() if "local_state_dir" in storage else None,
        remote_state_dir=_object_url(storage["remote_state_dir"]) if "remote_state_dir" in storage else "",
        controller_on=runs_on,
        controller_ssh=ssh,
        controller_host=_host(here["host"]) if "host" in here else "127.0.0.1",
        controller_port=here["port"].whole(0, 65535) if "port" in here else port,
        max_active_tasks=(
            controller["max_active_tasks_per_user"].whole(1, 1_000_000_000)
            if "max_active_tasks_per_user" in controller
            else 16_000
        ),
        max_tasks_per_job_per_cycle=_cap(controller, "max_tasks_per_job_per_cycle"),
        max_tasks_per_worker_per_cycle=_cap(controller, "max_tasks_per_worker_per_cycle"),
        checkpoint_interval_s=controller["checkpoint_interval_seconds"].whole(0, 7 * 86_400)
        if "checkpoint_interval_seconds" in controller
        else 0,
        stats_interval_s=controller["stats_interval_seconds"].whole(1, 3_600)
        if "stats_interval_seconds" in controller
        else 15,
        profile_interval_s=controller["profile_interval_seconds"].whole(0, 7 * 86_400)
        if "profile_interval_seconds" in controller
        else 600,
        retention=parse_retention(controller),
        task_env=_environment(defaults["task_env"]) if "task_env" in defaults else {},
        port_range=_port_range(worker["port_range"]) if "port_range" in worker else (30000, 40000),
        cache_dir=worker["cache_dir"].text() if "cache_dir" in worker else "",
        scale_groups=scale_groups,
        autoscaler=parse_autoscaler(autoscaler, scale_groups),
        label_prefix=_label_prefix(platforms["label_prefix"]) if "label_prefix" in platforms else "iris",
        trusted_cidrs=tuple(_cidr(item) for item in _list(auth, "trusted_cidrs")),
        admin_users=tuple(item.text() for item in _list(auth, "admin_users")),
        allowed_hosts=tuple(item.text() for item in _list(top, "allowed_hosts")),
        endpoints=parse_endpoints(top["endpoints"]) if "endpoints" in top else {},
        user_budgets=budget_tiers(top["user_budgets"]) if "user_budgets" in top else (),
        budget_defaults=budget_defaults(defaults["user_budget"]) if "user_budget" in defaults else BudgetDefaults(),
        task_outputs=parse_task_outputs(top["task_outputs"], _object_url)
        if "task_outputs" in top
        else TaskOutputsConfig(),
        finelog=finelog,
        images=parse_images(controller, worker, _section(top, "kubernetes_provider", None)),
        previous_public_keys=tuple(item.text() for item in _list(auth, "previous_public_keys")),
        secrets=(SecretReference("auth.signing_key", _references(auth["signing_key"])),)
        if "signing_key" in auth and not auth["signing_key"].is_nothing
        else (),
        unused=tuple(
            sorted(word for word in top if word in ("peers", "backends", "provisioning") and not top[word].is_nothing)
        )
        + tuple(f"finelog.{name}" for name in finelog.foreign)
        + (("defaults.autoscaler.scale_up_delay",) if "scale_up_delay" in autoscaler else ()),
    )


def _section(parent: Mapping[str, Value], name: str, keys: frozenset[str] | set[str] | None) -> dict[str, Value]:
    return parent[name].mapping(keys) if name in parent else {}


def _runs_on(section: Value | None, controller: Mapping[str, Value], platform: str) -> str:
    """Where the controller runs: what its section names, else where the machines are."""
    named = [word for word in _PLATFORMS if word in controller]
    if len(named) > 1:
        assert section is not None
        raise section.wrong(f"expected one of {', '.join(_PLATFORMS)}, found {', '.join(named)}")
    return named[0] if named else platform


def _list(parent: Mapping[str, Value], name: str) -> list[Value]:
    return parent[name].items() if name in parent else []


def _references(value: Value) -> tuple[str, ...]:
    listed = value.items() if isinstance(value.data, list) else [value]
    if not listed:
        raise value.wrong("the list is empty", hint="name where the secret is")
    return tuple(item.parsed(check_reference) for item in listed)


def _label_prefix(value: Value) -> str:
    text = value.text()
    if not (text and len(text) <= 40 and text.replace("-", "").isalnum() and text == text.lower() and text.isascii()):
        raise value.wrong(f"{shown(text)} is no label: use lower-case letters, digits and -")
    return text


def _environment(value: Value) -> dict[str, str]:
    env: dict[str, str] = {}
    for key, item in value.mapping().items():
        data = item.data
        if not key or "=" in key or "\0" in key or not key.isprintable():
            raise item.wrong(f"{shown(key)} is not a name of an environment variable")
        if not isinstance(data, str):
            raise item.wrong("a value of the environment is text", hint="put it in quotes")
        if "\0" in data:
            raise item.wrong("a value of the environment cannot hold a NUL")
        env[key] = data
    return env


def _port_range(value: Value) -> tuple[int, int]:
    low, dash, high = value.parsed(str).partition("-")
    if not dash or not (low.isdigit() and high.isdigit()) or not 1 <= int(low) < int(high) <= 65536:
        raise value.wrong(f"{shown(str(value.data))} is not a range of ports", hint="write it as 30000-40000")
    return int(low), int(high)


def _host(value: Value) -> str:
    host = value.text().strip().removeprefix("[").removesuffix("]")
    if not host or "/" in host or any(character.isspace() for character in host):
        raise value.wrong(f"{shown(value.text())} is not an address")
    return host


def _cap(section: Mapping[str, Value], key: str) -> int:
    return section[key].whole(0, 1_000_000) if key in section else 0


def _cidr(value: Value) -> str:
    text = value.text()
    try:
        return str(ipaddress.ip_network(text))
    except ValueError as error:
        raise value.wrong(f"{shown(text)} is not a network: {error}") from None


def _object_url(value: Value) -> str:
    text = value.text()
    scheme, separator, _rest = text.partition("://")
    if not separator or scheme not in ("file", "gs", "s3"):
        raise value.wrong(
            f"{shown(text)} is not an object store",
            hint="write it as file:///path, gs://bucket/path or s3://bucket/path",
        )
    return text.rstrip("/")
