"""What became of an attempt's outputs, between the wire and the text in its row (`task_attempt_outputs.archive_json`).

The text is for SQL as well: words instead of numbers, and no key that says nothing. A worker is not believed beyond its bounds.
"""

from __future__ import annotations

import json
from typing import Final

from iris_core.model.text import one_line
from iris_core.wire.gen.iris.v1.common_pb2 import TaskOutputs, TaskOutputsStatus

MAX_TEXT: Final = 1_024
_PREFIX: Final = "TASK_OUTPUTS_STATUS_"
_COUNTS: Final = ("entries", "total_bytes", "archive_bytes", "skipped", "expires_at_ms")


def to_json(outputs: TaskOutputs) -> str:
    """ "" for a status that is not said or that this release does not know."""
    if not outputs.status or outputs.status not in TaskOutputsStatus.values():
        return ""
    found: dict[str, str | int] = {"status": TaskOutputsStatus.Name(outputs.status).removeprefix(_PREFIX).lower()}
    found.update((name, text) for name in ("url", "error") if (text := one_line(getattr(outputs, name))[:MAX_TEXT]))
    found.update((name, count) for name in _COUNTS if (count := getattr(outputs, name)) > 0)
    return json.dumps(found, separators=(",", ":"))


def from_json(text: str) -> TaskOutputs | None:
    """None for ""."""
    if not text:
        return None
    found = json.loads(text)
    return TaskOutputs(status=_PREFIX + found.pop("status").upper(), **found)
