"""What is looked at before a rollout asks for anything: each cluster's requirements, and the tests of exactly the tree that is shipped.

Every requirement is a line of its own that says why it is needed, and all of them are looked at, so that an operator mends them in one
go. A check that breaks is a check that failed, never a traceback. The values of secrets are not looked at and never shown. Must never
change anything.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.model.redact import redact_text
from iris_core.model.text import counted
from iris_core.procedures import lock, record
from iris_core.procedures.record import Phase
from iris_core.procedures.source_tree import SourceTree, export
from iris_core.procedures.target import hangs

if TYPE_CHECKING:
    from iris_core.procedures.events import Report
    from iris_core.procedures.restart import Target

CHECKS_S: Final = 7_200.0
"""What the tests of a tree may take."""
END_S: Final = 5.0
KEPT_LINES: Final = 20
LONGEST: Final = 400
"""Characters of a line that is kept."""


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement.

    Attributes:
        what: What has to be so.
        why: What it is needed for.
        look: Looks, and says in a few words how it is. Raises IrisError: it is not so. May block.
    """

    what: str
    why: str
    look: Callable[[], str]


async def run(checks: Sequence[Check], report: Report) -> list[dict[str, Any]]:
    """Each as {"what", "why", "ok", "detail"}, in order, reported as it is known."""
    found = []
    for check in checks:
        try:
            ok, detail = True, await asyncio.to_thread(check.look)
        except IrisError as error:
            ok, detail = False, error.message + (f"; {error.hint}" if error.hint else "")
        except Exception as error:  # a fault of a check must not hide what the others say
            ok, detail = False, f"{type(error).__name__}: {error}"
        found.append({"what": check.what, "why": check.why, "ok": ok, "detail": redact_text(detail)})
        report(found[-1])
    return found


def of_controller(target: Target) -> tuple[Check, ...]:
    """What every cluster needs whatever its kind: a place for the record, a free lock, a controller that answers."""

    def state() -> str:
        standing = record.read(target.store).record
        if standing is None:
            return f"{target.store.url}, no deployment is recorded"
        if standing.phase is Phase.ROLLBACK_REQUESTED:
            raise IrisError(
                f"the deployment of {standing.image[:12]} is {standing.phase}",
                hint=f"it has to end first: {record.go_on(target.program)}",
            )
        return f"{target.store.url}, {standing.image[:12]} is {standing.phase}"

    def named() -> str:
        found, runs = record.read(target.store).record, target.host.status().release
        if found is None:
            return f"nothing is recorded yet; the restart records that {runs[:12]} was before it"
        if found.phase is Phase.PENDING and found.image == runs:
            raise IrisError(
                f"the deployment of {runs[:12]} is {found.phase}",
                hint="it commits itself within two minutes of being healthy: try again after that",
            )
        if found.phase is Phase.PENDING:
            return f"the deployment of {found.image[:12]} came to no end, and {runs[:12]} runs: the restart puts that right"
        if found.phase is not Phase.ROLLBACK_REQUESTED and found.image != runs:
            raise IrisError(
                f"the record says {found.phase} of {found.image[:12]}, and {runs[:12] or 'no known release'} runs: "
                "it was replaced by hand",
                hint=f"see which is wanted; {target.controller('stop')}, then {target.controller('start')}: runs that of the record; "
                f"{target.controller('restart')}: ships the tree that is here, and puts the record right",
            )
        return f"{found.image[:12]} is {found.phase}, and runs"

    def free() -> str:
        lock.require_free(target.store, target.now_ms(), target.holder.procedure, target.program)
        return "nobody holds it"

    def serves() -> str:
        status = target.host.status()
        if not (status.running and status.url and status.release):
            hint = hangs(target.program) if status.running else f"start it: {target.controller('start')}"
            raise IrisError(f"the controller does not serve: {status.detail}", hint=hint)
        return f"{status.release[:12]} {status.detail}"

    def answers() -> str:
        running = target.running().get("running", 0)
        return f"{counted(running, 'task')} {'runs' if running == 1 else 'run'}"

    return (
        Check("the rollout record can be read", "it says how to go back", state),
        Check("the lock is free", "two rollouts of one cluster would each be right and together wrong", free),
        Check("the record is of the release that runs", "a rollback would go back to something else", named),
        Check("the controller runs", "one that does not is started, not replaced", serves),
        Check("the controller answers", "it is asked for its checkpoint, and watched", answers),
    )


async def test_tree(tree: SourceTree, command: str) -> dict[str, Any]:
    """Run the checks command in an export of the tree: {"command", "exit", "seconds", "lines"}, the last lines that it wrote.

    Raises IrisError: the tree cannot be exported, or the command cannot be run.
    """
    with tempfile.TemporaryDirectory(prefix="iris-checks-") as scratch:
        folder = Path(scratch) / "tree"
        await asyncio.to_thread(export, tree, folder)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        began = time.monotonic()
        try:
            process = await asyncio.create_subprocess_exec(
                "/bin/sh", "-c", command,
                cwd=folder, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise IrisError(f"the checks cannot be run: {error.strerror}") from error
        try:
            lines = await _last_lines(process)
            code = await process.wait()
        finally:
            await _end(process)
    return {
        "command": redact_text(command),
        "exit": code,
        "seconds": round(time.monotonic() - began, 1),
        "lines": [redact_text(line) for line in lines],
    }


async def _last_lines(process: asyncio.subprocess.Process) -> list[str]:
    assert process.stdout is not None
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    rest = b""
    while data := await process.stdout.read(64 << 10):
        *whole, rest = (rest + data).split(b"\n")
        kept.extend(line[:LONGEST].decode(errors="replace") for line in whole[-KEPT_LINES:])
        rest = rest[: 4 * LONGEST]
    if rest:
        kept.append(rest[:LONGEST].decode(errors="replace"))
    return list(kept)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Whatever of it is left has nobody who waits for it any more."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await asyncio.wait_for(process.wait(), END_S)
