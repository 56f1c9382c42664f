"""How the log store keeps what it holds: `finelog` in a cluster file (DESIGN §6).

Keys that name a deployment or a relay belong to other releases and are accepted as they are. Must never reach a store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.config.document import Value

FOREIGN: Final = frozenset({"config", "relay_address"})
KEYS: Final = FOREIGN | {"local_bytes", "max_age", "max_bytes", "max_segments", "remote_dir", "ship_after"}


@dataclass(frozen=True, slots=True)
class FinelogConfig:
    """Of one cluster."""

    max_bytes: int = 0
    """The oldest lines beyond it are removed; 0 = the store's default."""
    max_age_ms: int = 0
    """Lines that were stored longer ago are removed; 0 = none are."""
    max_segments: int = 0
    """The oldest segments beyond it are removed; 0 = none are."""
    remote_dir: str = ""
    """URL where segments are shipped to, "" = below the cluster's remote state dir, if it has one."""
    local_bytes: int = 0
    """Shipped segments leave the disk when more is on it, and are fetched again to be read; 0 = never."""
    ship_after_ms: int = 60_000
    """Rows that are older than this are shipped: so much at most is lost with a disk."""
    foreign: tuple[str, ...] = ()
    """Keys that are given and that this release does not act on."""


def parse_finelog(value: Value, object_url: Callable[[Value], str]) -> FinelogConfig:
    """The section `finelog`. Raises UsageFailed, with file and line."""
    keys, plain = value.mapping(KEYS), FinelogConfig()
    return FinelogConfig(
        max_bytes=keys["max_bytes"].size(1 << 20, 1 << 60, "20GiB") if "max_bytes" in keys else plain.max_bytes,
        max_age_ms=keys["max_age"].duration_ms(60_000, 1 << 40) if "max_age" in keys else 0,
        max_segments=keys["max_segments"].whole(2, 1 << 20) if "max_segments" in keys else 0,
        remote_dir=object_url(keys["remote_dir"]) if "remote_dir" in keys else "",
        local_bytes=keys["local_bytes"].size(1 << 20, 1 << 60, "20GiB") if "local_bytes" in keys else 0,
        ship_after_ms=keys["ship_after"].duration_ms(1_000, 86_400_000)
        if "ship_after" in keys
        else plain.ship_after_ms,
        foreign=tuple(sorted(name for name in FOREIGN if name in keys and not keys[name].is_nothing)),
    )
