"""The help page, made from the action table: what has the focus first, then everything else."""

from __future__ import annotations

from collections.abc import Iterable

from iris_core.live.filters import JOB_FIELDS
from iris_core.live.wording import Tone
from iris_tui.actions import SCOPES, in_scope
from iris_tui.keymap import shown_keys


def help_lines(active: Iterable[str], *, read_only: bool) -> list[tuple[str, Tone]]:
    """All actions by scope, those of the active scopes first. In read-only mode, what changes the cluster is left out."""
    first = list(dict.fromkeys(scope for scope in active if scope in SCOPES))
    first.sort(key=lambda scope: scope == "table")  # moving is what everybody guesses
    lines: list[tuple[str, Tone]] = []
    if read_only:
        lines += [("Read-only: nothing here can change the cluster.", Tone.WARN), ("", Tone.PLAIN)]
    for scope in [*first, *(scope for scope in SCOPES if scope not in first)]:
        lines.append((SCOPES[scope], Tone.BUSY))
        for action in in_scope(scope):
            if action.mutates and read_only:
                continue
            keys = f"x {action.menu}" if action.mutates and action.menu else shown_keys(action.keys)
            command = f":{action.command} {action.arguments}".rstrip() if action.command else ""
            lines.append((f"  {keys:<14} {action.title:<52} {command}", Tone.PLAIN))
        lines.append(("", Tone.PLAIN))
    lines += [
        ("Filters", Tone.BUSY),
        ("  word                    some text of the row has it", Tone.PLAIN),
        ("  field:a,b  field=a      has a or b; is a      field!=a  !word     not", Tone.PLAIN),
        (
            "  field~regex             matches (RE2)         field>=n  < > <=    numbers, durations (age>1h), times",
            Tone.PLAIN,
        ),
        (f"  fields: {' '.join(JOB_FIELDS)}", Tone.PLAIN),
        ("", Tone.PLAIN),
        ("Task bar", Tone.BUSY),
        ("  done, failed, running, starting and pending tasks, in this order; then done/all", Tone.PLAIN),
    ]
    return lines
