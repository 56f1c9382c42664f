"""The tokens of plans: what was looked at, by whom, until when; and the check that a call does exactly that (DESIGN §5.18).

A token is a random name for what is kept here, so it can be neither forged nor read, and it ends with this process: whoever confirmed
something before a restart looks again. It holds for five minutes, for one principal, one method and the very requests that were
planned (their request ids and reasons aside), and each of them may be carried out under one request id only. The generations are
compared inside the command, when nothing can change any more. Must never keep more than its bounds: the oldest plans go first.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from iris_controller.rpc.errors import RpcError, invalid, precondition
from iris_controller.state.generations import Frozen, differences

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from google.protobuf.message import Message

    from iris_controller.rpc.call import Call
    from iris_controller.rpc.roles import Access
    from iris_controller.state.overlay import Overlay

LIFE_S: Final = 300.0
MOST_PLANS: Final = 1_000
MOST_OF_ONE: Final = 100
"""Plans of one principal: nobody pushes out those of others."""
MOST_TARGETS: Final = 200_000
TYPED_TIER: Final = 3
"""From this tier on a change needs a plan and the cluster's name."""

_FREE_FIELDS: Final = ("request_id", "reason", "confirm")
"""What may be said anew when a plan is carried out."""


@dataclass(slots=True)
class Part:
    """One request of a plan. `used_by` is the request id under which it is carried out."""

    targets: tuple[Frozen, ...]
    used_by: str = ""


@dataclass(slots=True)
class Kept:
    """One plan."""

    principal: str
    method: str
    until: float
    parts: dict[bytes, Part]
    totals: dict[str, int] = field(default_factory=dict)
    """What the whole plan comes to, for the audit line."""

    @property
    def size(self) -> int:
        return 1 + sum(len(part.targets) for part in self.parts.values())


class PlanTokens:
    """See the module. `clock` is monotonic seconds."""

    def __init__(self, cluster: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.cluster = cluster
        self._clock = clock
        self._plans: OrderedDict[str, Kept] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return len(self._plans)

    def issue(
        self,
        principal: str,
        method: str,
        parts: Sequence[tuple[Message, Sequence[Frozen]]],
        totals: dict[str, int] | None = None,
    ) -> str:
        """Keeps a plan and returns its token."""
        token = secrets.token_urlsafe(24)
        kept = Kept(
            principal,
            method,
            self._clock() + LIFE_S,
            {digest(request): Part(tuple(targets)) for request, targets in parts},
            totals or {},
        )
        own = [name for name, plan in self._plans.items() if plan.principal == principal]
        for name in own[: max(0, len(own) - MOST_OF_ONE + 1)]:
            self._drop(name)
        self._plans[token] = kept
        self._size += kept.size
        while len(self._plans) > MOST_PLANS or (self._size > MOST_TARGETS and len(self._plans) > 1):
            self._drop(next(iter(self._plans)))
        return token

    def _drop(self, token: str) -> None:
        self._size -= self._plans.pop(token).size

    def guard(self, call: Call, request: Message, access: Access) -> Callable[[Overlay], None] | None:
        """The check to be run inside the command, None where none is needed.

        Raises FAILED_PRECONDITION or INVALID_ARGUMENT for a change of tier 3 without a plan or without the cluster's name.
        """
        if getattr(request, "dry_run", False):
            return None
        if access.tier is not None and access.tier >= TYPED_TIER:
            self._require_confirmed(call, request)
        if not call.plan_token:
            return None
        wanted = digest(request)

        def check(o: Overlay) -> None:
            part = self._part(call, wanted)
            changed = differences(o, part.targets)
            if changed:
                raise replan(call.method.name, f"it was planned, and then changed: {changed}")
            part.used_by = call.request_id

        return check

    def _require_confirmed(self, call: Call, request: Message) -> None:
        given = call.confirm or getattr(request, "confirm", "")
        if given != self.cluster:
            raise invalid(
                "confirm",
                f"{call.method.name} is confirmed with the name of the cluster, {self.cluster}",
                hint=f"--confirm {self.cluster}, or the header iris-confirm",
            )
        if not call.plan_token:
            raise precondition(
                call.method.name,
                f"{call.method.name} needs a plan that was looked at before",
                code="plan_required",
                hint="ask ControllerService/Plan and send its token in the header iris-plan-token",
            )

    def _part(self, call: Call, wanted: bytes) -> Part:
        """Raises `replan`: this token does not stand for that request, of this caller, now."""
        name = call.method.name
        plan = self._plans.get(call.plan_token)
        if plan is None or plan.principal != call.identity.principal:
            raise replan(name, "this plan is not known here: it is over, or the controller was started anew")
        if self._clock() >= plan.until:
            self._drop(call.plan_token)
            raise replan(name, f"this plan is over: it held for {LIFE_S / 60:g} minutes")
        if plan.method != call.method.full_name:
            raise replan(name, f"the plan was made for {plan.method}")
        part = plan.parts.get(wanted)
        if part is None:
            raise replan(name, "the plan was made for another request")
        if not call.request_id:
            raise invalid("request_id", "what has a plan is carried out under a request id")
        if part.used_by not in ("", call.request_id):
            raise replan(name, "this plan was carried out before")
        return part

    def told(self, call: Call, request: Message) -> tuple[list[str], dict[str, int]]:
        """Names of the targets of a planned call, and what its whole plan comes to; both empty without one."""
        plan = self._plans.get(call.plan_token) if call.plan_token else None
        part = plan.parts.get(digest(request)) if plan is not None else None
        if plan is None or part is None:
            return [], {}
        return [target.id for target in part.targets], plan.totals


def replan(subject: str, why: str) -> RpcError:
    """FAILED_PRECONDITION with the code `replan`: nothing was done; look again."""
    return precondition(subject, f"{why}; nothing was done", code="replan", hint="look at it again")


def digest(request: Message) -> bytes:
    """Names what a request would do: it is the same whatever its request id and its reason are."""
    bare = type(request)()
    bare.CopyFrom(request)
    for name in _FREE_FIELDS:
        if name in bare.DESCRIPTOR.fields_by_name:
            bare.ClearField(name)
    return hashlib.sha256(bare.SerializeToString(deterministic=True)).digest()
