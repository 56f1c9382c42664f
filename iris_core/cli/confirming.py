"""The confirmation of a cluster-wide change: the cluster's name, typed or given with `--confirm` (DESIGN §5.18)."""

from __future__ import annotations

import sys

from iris_core.contracts import UsageFailed


def confirmed(given: str | None, cluster: str, effect: str) -> str:
    """The name to confirm with. Raises UsageFailed: none was given and nobody can be asked, or it is another's."""
    if given is None:
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageFailed(f"{effect}: confirm it with the name of the cluster", hint=f"--confirm {cluster}")
        sys.stderr.write(f"{effect}\nType the name of the cluster ({cluster}) to go on: ")
        sys.stderr.flush()
        given = sys.stdin.readline().strip()
    if given != cluster:
        raise UsageFailed(f"nothing was changed: the name of the cluster is {cluster}", hint=f"--confirm {cluster}")
    return given
