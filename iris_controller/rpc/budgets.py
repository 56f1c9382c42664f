"""The budget RPCs, and which band a submission may have (control-plane §1.8 step 5, §5).

A limit takes work down when it is placed; a highest band refuses it here. Must never lower a band: who may not have what they
asked for is told so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iris_controller.rpc.auth import Role
from iris_controller.rpc.errors import denied, invalid, not_found
from iris_controller.rpc.once import remember
from iris_controller.state.budgets import LOCAL_ADMIN, UNLIMITED, Budget, effective_band
from iris_core.config.budgets import MAX_LIMIT
from iris_core.model.bands import PriorityBand
from iris_core.model.errors import ModelError, did_you_mean
from iris_core.model.ids import JobId, check_owner
from iris_core.wire.convert import band_to_wire
from iris_core.wire.gen.iris.v1 import budgets_pb2

if TYPE_CHECKING:
    from iris_controller.loop import ControllerLoop
    from iris_controller.rpc.auth import Identity
    from iris_controller.rpc.call import Call
    from iris_controller.rpc.dispatch import Router
    from iris_controller.rpc.once import Once
    from iris_controller.state.model import Model
    from iris_controller.state.overlay import Overlay

_ADMINS_ONLY = (PriorityBand.SYSTEM, PriorityBand.PRODUCTION)


def require_band(o: Overlay, job_id: str, requested: PriorityBand, identity: Identity) -> None:
    """Raises PERMISSION_DENIED for a band that this caller may not submit in.

    What is inherited from a parent was allowed when the parent came. SYSTEM and PRODUCTION are for admins; any other band is held
    against `max_band` of the user whose budget the job will spend.
    """
    job = JobId(job_id)
    parent = o.job(job.parent.text) if job.parent is not None else None
    if requested is PriorityBand.INHERIT and parent is not None:
        return
    band = requested.resolve(None)
    submitter = parent.submitting_user if parent is not None else identity.user_id
    user = job.user if submitter in ("", LOCAL_ADMIN) else submitter
    budget = o.budget_of(user)
    highest = budget.max_band
    if band in _ADMINS_ONLY:
        if identity.role is Role.ADMIN:
            return
        raise denied(
            f"band {band.label} is for admins, and the highest band of {user} is {highest.label}",
            code="band_denied",
            subject=job_id,
            field="priority_band",
            hint=f"submit in band {highest.label} or below" if highest not in _ADMINS_ONLY else "ask an admin",
        )
    if band.outranks(highest):
        raise denied(
            f"band {band.label} is above the highest band of {user}, which is {highest.label}",
            code="band_denied",
            subject=job_id,
            field="priority_band",
            hint=f"submit in band {highest.label}, or have an admin raise it: {_set(user, budget.limit, band)}",
        )


def _set(user: str, limit: int, band: PriorityBand) -> str:
    """The command, with all that it requires: what is not to change is in it as it is."""
    return f"iris user budget set {user} --limit {limit} --max-band {band.label}"


def budget_view(model: Model, budget: Budget) -> budgets_pb2.UserBudget:
    """A user's budget with what they spend now."""
    spent = model.spent.get(budget.user_id, 0)
    return budgets_pb2.UserBudget(
        user_id=budget.user_id,
        budget_limit=budget.limit,
        budget_spent=spent,
        max_band=band_to_wire(budget.max_band),
        effective_band=band_to_wire(effective_band(PriorityBand.INTERACTIVE, budget.limit, spent)),
        utilization_percent=round(100 * spent / budget.limit, 1) if budget.limit != UNLIMITED else 0.0,
        updated_at_ms=budget.updated_at_ms,
    )


class BudgetService:
    """See the module."""

    def __init__(self, loop: ControllerLoop, once: Once) -> None:
        self._loop = loop
        self._model = loop.model
        self._once = once

    def register(self, router: Router) -> None:
        router.add("ControllerService/SetUserBudget", self.set_user_budget)
        router.add("ControllerService/GetUserBudget", self.get_user_budget)
        router.add("ControllerService/ListUserBudgets", self.list_user_budgets)

    async def set_user_budget(
        self, request: budgets_pb2.SetUserBudgetRequest, call: Call
    ) -> budgets_pb2.SetUserBudgetResponse:
        user = check_budget_user(request.user_id)
        if not 0 <= request.budget_limit <= MAX_LIMIT:
            raise invalid(
                "budget_limit", f"budget limit {request.budget_limit} is outside 0..{MAX_LIMIT}", hint="0 = unlimited"
            )
        try:
            band = PriorityBand(request.max_band) or PriorityBand.INTERACTIVE
        except ValueError:
            raise invalid("max_band", f"priority band {request.max_band} is unknown") from None
        trigger = call.identity.principal

        def plan(o: Overlay, now_ms: int) -> budgets_pb2.SetUserBudgetResponse:
            before = o.budget_of(user)
            budget = o.put_budget(Budget(user, request.budget_limit, band, now_ms))
            o.note(
                "budget_set",
                user,
                trigger,
                limit=budget.limit,
                max_band=band.label,
                limit_before=before.limit,
                max_band_before=before.max_band.label,
            )
            response = budgets_pb2.SetUserBudgetResponse(budget=budget_view(self._model, budget))
            remember(o, call, response)
            return response

        return await self._once.run(
            call, budgets_pb2.SetUserBudgetResponse, lambda: self._loop.submit("set user budget", call.guarded(plan))
        )

    async def get_user_budget(
        self, request: budgets_pb2.GetUserBudgetRequest, call: Call
    ) -> budgets_pb2.GetUserBudgetResponse:
        user = check_budget_user(request.user_id)
        budget = self._model.budgets.get(user)
        if budget is None:
            plain = self._model.budget_defaults
            near = did_you_mean(user, self._model.budgets)
            spent = self._model.spent.get(user, 0)
            limit = f"limit {plain.limit} ({spent} spent now)" if plain.limit else "no limit"
            give = f"give one: {_set(user, plain.limit, plain.max_band)}"
            raise not_found(
                user,
                f"user {user} has no budget of their own; {limit} and max band {plain.max_band.label} apply, as to everybody without one",
                hint=f"{near} Otherwise {give}" if near else give,
            )
        return budgets_pb2.GetUserBudgetResponse(budget=budget_view(self._model, budget))

    async def list_user_budgets(
        self, request: budgets_pb2.ListUserBudgetsRequest, call: Call
    ) -> budgets_pb2.ListUserBudgetsResponse:
        model = self._model
        rows = [budget_view(model, model.budgets[user]) for user in sorted(model.budgets)]
        return budgets_pb2.ListUserBudgetsResponse(budgets=rows, defaults=budget_view(model, model.budget_defaults))


def check_budget_user(text: str) -> str:
    """A user that can have a budget. Raises INVALID_ARGUMENT."""
    if text == LOCAL_ADMIN:
        raise invalid(
            "user_id",
            f"{LOCAL_ADMIN} has no budget: what it submits is charged to the owner of the job",
            hint="name the owner, the first part of the job's id",
        )
    try:
        return check_owner(text)
    except ModelError as error:
        raise invalid("user_id", error.message, position=error.position, hint=error.hint) from None
