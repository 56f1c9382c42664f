"""What has happened to a cluster since a question about it was asked: it can stand open for hours, and the cluster goes on meanwhile.

A gate names what is lost, and nothing else may be. What is counted is {"submitted", "changed", "jobs", "newest", "which"}, as `Target.lost` has it. Must
never take a count that cannot be had for one that is the same.
"""

from __future__ import annotations

import shlex
from asyncio import to_thread
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.model.text import counted
from iris_core.procedures.events import Evidence, Mutation, NotStarted, Report, StepFailed

if TYPE_CHECKING:
    from iris_core.procedures.target import Target

TURNS: Final = 5
"""How often it is asked, where ever more would be lost."""
COUNT_S: Final = 300.0


def more_lost(named: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What would be lost besides what was named, in words; "" = nothing. Where an older one of those that were named is gone, it is said
    as well that they are not the same: nobody can tell by then that no other one came."""
    submitted, changed = now["submitted"] - named["submitted"], now["changed"] - named["changed"]
    said = []
    if submitted > 0:
        said.append(f"{counted(submitted, 'more job')} {'was' if submitted == 1 else 'were'} submitted")
    if changed > 0:
        said.append(f"{counted(changed, 'more older job')} {'was' if changed == 1 else 'were'} changed")
    # One that took a name over, or came as another was removed, makes no job more. A journal or a program of an earlier version does
    # not tell.
    if submitted <= 0 and now.get("newest", 0) > named.get("newest", now.get("newest", 0)):
        said.append("at least one more job was submitted")
    if not (said or submitted or changed) and list(now["jobs"]) != list(named["jobs"]):
        said.append("other jobs were submitted or changed")
    words = [f"{' and '.join(said)} since the question"] if said else []
    if changed <= 0 and "which" in named and now.get("which", named["which"]) != named["which"]:
        words.append("the older jobs that were changed are not those of the question")
    return "; ".join(words)


def too_often(more: str, target: Target) -> StepFailed:
    """The failure where ever more would be lost."""
    failed = StepFailed("lost", f"{more}, and it was asked {TURNS} times", untouched=True)
    failed.hint = (
        f"keep jobs from being submitted meanwhile; or give the answer with the command, so that it is not waited for: "
        f"--confirm {shlex.quote(target.name)}"
    )
    return failed


def same_controller(target: Target, boot: str, again: str) -> Evidence:
    """That the controller is still the one that was looked at. `again` is the command line to look again with."""

    async def gather(report: Report) -> None:
        now = (await to_thread(target.host.status)).boot_id
        if now != boot:
            became = "was started again" if now else "has ended"
            raise IrisError(f"the controller of {target.name} {became} since the question", hint=f"look again: {again}")

    return Evidence(
        id="same", title=f"whether the controller of {target.name} is still the one that was looked at", gather=gather
    )


def lost_now(target: Target, id_: str, checkpoint: str) -> Evidence:
    """What going back to that checkpoint would drop now."""

    async def gather(report: Report) -> dict[str, Any]:
        return await count(target, checkpoint)

    return Evidence(id=id_, title="what would be lost now", gather=gather, timeout_s=COUNT_S)


async def count(target: Target, checkpoint: str) -> dict[str, Any]:
    """As the running controller says it. Raises IrisError."""
    lost = await to_thread(target.lost, checkpoint)
    return {
        "submitted": lost.submitted,
        "changed": lost.changed,
        "jobs": list(lost.jobs),
        "newest": lost.newest,
        "which": lost.which,
    }


def only_named(stop: Mutation, target: Target, checkpoint: str, named: Mapping[str, Any], again: str) -> Mutation:
    """The mutation, which is not begun if more would be lost than was named: a run that goes on has only its journal's count."""

    async def do() -> Any:
        try:
            more = more_lost(named, await count(target, checkpoint))
        except IrisError as error:
            raise NotStarted(f"what would be lost cannot be counted now: {error.message}", hint=error.hint) from error
        if more:
            raise NotStarted(more, hint=f"look again: {again}")
        return await stop.do()

    return replace(stop, do=do, timeout_s=stop.timeout_s + COUNT_S)
