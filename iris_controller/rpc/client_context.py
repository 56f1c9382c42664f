"""What a client says of how it came to ask for a change: for the audit line, and for nothing else.

The header `iris-client-context` holds a JSON object of at most 2 KiB with `interface` (cli, console, sdk), `command`, `reason` and
`pasted`; secrets were taken out before it was sent. It is the caller's word. A context that is too large or cannot be read never keeps
a change from being made, since one could as well send none: the audit line says what was wrong with it and how large it was. Must
never decide anything.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from iris_controller.audit import Value

CONTEXT_HEADER: Final = "iris-client-context"
PLAN_HEADER: Final = "iris-plan-token"
CONFIRM_HEADER: Final = "iris-confirm"
MOST_BYTES: Final = 2048
_INTERFACE = re.compile(r"[a-z][a-z0-9_-]{0,31}")


@dataclass(frozen=True, slots=True)
class ClientContext:
    """`fault` says why the rest is empty."""

    interface: str = ""
    command: str = ""
    reason: str = ""
    pasted: bool = False
    fault: str = ""

    def fields(self) -> dict[str, Value]:
        """For the audit line, which escapes them."""
        if self.fault:
            return {"client_context": self.fault}
        found: dict[str, Value] = {"interface": self.interface or "-"}
        if self.command:
            found["command"] = self.command
        if self.reason:
            found["reason"] = self.reason
        found["pasted"] = self.pasted
        return found


def read_context(headers: Mapping[str, str]) -> ClientContext | None:
    """None if nothing was said. Never raises."""
    text = headers.get(CONTEXT_HEADER, "")
    if not text:
        return None
    size = len(text.encode(errors="replace"))
    if size > MOST_BYTES:
        return ClientContext(fault=f"left out: {size} bytes, at most {MOST_BYTES}")
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        return ClientContext(fault=f"left out: {size} bytes that are no JSON")
    if not isinstance(said, dict):
        return ClientContext(fault=f"left out: {size} bytes that are no JSON object")
    interface, command, reason, pasted = (said.get(name) for name in ("interface", "command", "reason", "pasted"))
    texts = (interface or "", command or "", reason or "")
    if not all(isinstance(value, str) for value in texts) or pasted not in (None, True, False):
        return ClientContext(fault=f"left out: {size} bytes with a field of the wrong kind")
    if texts[0] and not _INTERFACE.fullmatch(texts[0]):
        return ClientContext(fault=f"left out: {size} bytes with an interface that is no word")
    return ClientContext(texts[0], texts[1], texts[2], bool(pasted))
