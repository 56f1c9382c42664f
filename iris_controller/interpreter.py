"""How the interpreter is set where a controller's model lives: in the daemon, and in whatever measures it."""

from __future__ import annotations

import gc
import resource
import sys
from typing import Final

GC_THRESHOLDS: Final = (20_000, 20, 50)
"""The model is large and lives long: collecting it every 700 allocations would cost more than the work does."""
SWITCH_S: Final = 0.0005
"""The loop gets the interpreter back so soon from a thread that computes (DESIGN §4)."""


def set_up() -> None:
    """Sets this process."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)


def raise_descriptor_limit() -> None:
    """Every connection takes three descriptors; the usual soft limit of 1,024 would refuse the 300th worker or watcher."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
