"""The audit lines of a call that was answered: what it did, and, of an operator's change, how it came about and on what.

Written after the commit and never for a repeat; names of targets and counts are in the line, so that it can be read when all of that is
gone. Must never turn a change that was made into an error.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from google.protobuf.message import Message

from iris_controller.audit import audit
from iris_core.model.redact import redact_text

if TYPE_CHECKING:
    from iris_controller.audit import Value
    from iris_controller.rpc.call import Answer, Argument, Call
    from iris_controller.rpc.plan_tokens import PlanTokens
    from iris_controller.rpc.roles import Access

log = logging.getLogger("iris.rpc")

CHANGE: Final = "operator_change"
NAMED_TARGETS: Final = 20
"""So many are named in a line; all are counted."""

_ENTITY_FIELDS: Final = ("name", "job_id", "task_id", "worker_id", "target", "bundle_id")
_TARGET_FIELDS: Final = (
    *("name", "job_id", "task_id", "worker_id", "target", "targets"),
    *("user_id", "slice_id", "scale_group", "endpoint_id"),
)
_COUNTED_FIELDS: Final = ("job_ids", "task_ids", "worker_ids")
"""Of an answer: what a change came to, in numbers."""


def write(access: Access, call: Call, argument: Argument, answer: Answer, plans: PlanTokens | None) -> None:
    """The lines of a mutation that was answered OK for the first time."""
    try:
        if access.action:
            _write_action(access.action, call, argument)
        _write_change(access, call, argument, answer, plans)
    except ValueError:
        # The mutation is committed: a badly named field must not turn it into an error.
        log.exception("the audit line of %s could not be written", call.method.full_name)


def _write_action(action: str, call: Call, argument: Argument) -> None:
    named = (getattr(argument, name, "") for name in _ENTITY_FIELDS)
    entity = call.audit_entity or next((value for value in named if value), "-")
    fields: dict[str, Value] = {"via": call.identity.via, "peer": call.peer, **call.audit_fields}
    if call.request_id:
        fields["request_id"] = call.request_id
    audit(action, entity, call.audit_trigger or call.identity.principal, **fields)


def _write_change(access: Access, call: Call, argument: Argument, answer: Answer, plans: PlanTokens | None) -> None:
    by_operator = (
        access.tier is not None and call.identity.task is None and (call.context is not None or call.plan_token)
    )
    if not by_operator or not isinstance(argument, Message) or getattr(argument, "dry_run", False):
        return
    planned, totals = plans.told(call, argument) if plans is not None else ([], {})
    names = planned or _named(argument) or ([call.audit_entity] if call.audit_entity else [])
    fields: dict[str, Value] = {"method": call.method.name}
    if call.context is not None:
        fields |= call.context.fields()
    reason = getattr(argument, "reason", "")
    if reason and not fields.get("reason"):
        fields["reason"] = redact_text(reason)
    fields |= {"targets": ",".join(names[:NAMED_TARGETS]), "target_count": len(names)}
    fields |= {name: len(getattr(answer, name)) for name in _COUNTED_FIELDS if getattr(answer, name, ())}
    fields |= {"planned": bool(planned), **totals, "via": call.identity.via, "peer": call.peer}
    if call.request_id:
        fields["request_id"] = call.request_id
    audit(CHANGE, names[0] if names else "-", call.identity.principal, **fields)


def _named(request: Message) -> list[str]:
    """What a request is about, by the fields that name things."""
    found: list[str] = []
    for name in _TARGET_FIELDS:
        value = getattr(request, name, "")
        found.extend([value] if isinstance(value, str) else value)
    return [name for name in found if name]
