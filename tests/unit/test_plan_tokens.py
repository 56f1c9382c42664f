"""Tokens of plans: exactly what was looked at, by whom it was looked at, once, and not for long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from iris_controller.rpc.auth import Identity, Role
from iris_controller.rpc.call import Call
from iris_controller.rpc.client_context import MOST_BYTES, read_context
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.plan_tokens import LIFE_S, MOST_OF_ONE, MOST_PLANS, PlanTokens
from iris_controller.rpc.roles import ACCESS
from iris_controller.state.budgets import Budget
from iris_controller.state.generations import Frozen
from iris_controller.state.model import Model
from iris_controller.state.overlay import Overlay
from iris_core.client.context import ClientContext, command_line, headers_now, sending
from iris_core.wire.gen.iris.v1 import autoscaler_pb2, budgets_pb2
from iris_core.wire.services import method

if TYPE_CHECKING:
    from google.protobuf.message import Message

SET = "ControllerService/SetUserBudget"
DELETE = "ControllerService/DeleteSlice"


@dataclass
class Bench:
    """Tokens over a model with one budget, and a clock that is moved by hand."""

    def __post_init__(self) -> None:
        self.now = 100.0
        self.tokens = PlanTokens("prod", lambda: self.now)
        self.model = Model()
        self.model.budgets["ada"] = Budget("ada", 100, updated_at_ms=7)

    def issue(self, request: Message, principal: str = "root", name: str = SET) -> str:
        return self.tokens.issue(principal, name, [(request, [Frozen("budget", "ada", "7")])])

    def run(self, request: Message, token: str, principal: str = "root", name: str = SET, confirm: str = "") -> None:
        call = Call(Identity(principal, Role.ADMIN, "token", "10.0.0.1:1"), method(name), "10.0.0.1:1")
        call.request_id = getattr(request, "request_id", "")
        call.plan_token, call.confirm = token, confirm
        guard = self.tokens.guard(call, request, ACCESS[name])
        if guard is not None:
            guard(Overlay(self.model))


def budget(limit: int = 5, request_id: str = "r1") -> budgets_pb2.SetUserBudgetRequest:
    return budgets_pb2.SetUserBudgetRequest(user_id="ada", budget_limit=limit, request_id=request_id)


def refused(bench: Bench, request: Message, token: str, **more: str) -> RpcError:
    with pytest.raises(RpcError) as caught:
        bench.run(request, token, **more)
    return caught.value


def test_a_token_serves_its_request_under_one_id_and_may_be_repeated() -> None:
    bench = Bench()
    token = bench.issue(budget())
    bench.run(budget(), token)
    bench.run(budget(), token)
    assert refused(bench, budget(request_id="r2"), token).code == "replan"
    assert refused(bench, budget(request_id=""), token).field == "request_id"


def test_what_a_token_does_not_serve() -> None:
    bench = Bench()
    token = bench.issue(budget())
    for error, words in (
        (refused(bench, budget(limit=6), token), "another request"),
        (refused(bench, budget(), token, principal="eve"), "not known here"),
        (refused(bench, budget(), "made-up"), "not known here"),
        (refused(bench, autoscaler_pb2.CreateSliceRequest(), token, name="ControllerService/CreateSlice"), "made for"),
    ):
        assert error.code == "replan" and words in error.message and "nothing was done" in error.message
    bench.model.budgets["ada"] = Budget("ada", 100, updated_at_ms=8)
    assert "the budget of ada was changed" in refused(bench, budget(), token).message


def test_a_token_ends_after_five_minutes() -> None:
    bench = Bench()
    token = bench.issue(budget())
    bench.now += LIFE_S - 0.1
    bench.run(budget(), token)
    bench.now += 0.1
    assert "held for 5 minutes" in refused(bench, budget(), token).message
    assert len(bench.tokens) == 0


def test_nobody_pushes_out_the_plans_of_others_and_there_is_a_most() -> None:
    bench = Bench()
    mine = bench.issue(budget(), principal="ada")
    for _ in range(3 * MOST_OF_ONE):
        bench.issue(budget(), principal="eve")
    bench.run(budget(), mine, principal="ada")
    assert len(bench.tokens) == MOST_OF_ONE + 1
    for number in range(MOST_PLANS + 10):
        bench.issue(budget(), principal=f"user{number}")
    assert len(bench.tokens) == MOST_PLANS


def test_tier_three_needs_the_typed_name_and_a_plan_and_a_dry_run_neither() -> None:
    bench = Bench()
    delete = autoscaler_pb2.DeleteSliceRequest(slice_id="s", request_id="r1")
    token = bench.tokens.issue("root", DELETE, [(delete, [])])
    assert refused(bench, delete, token, name=DELETE).field == "confirm"
    assert refused(bench, delete, token, name=DELETE, confirm="PROD").field == "confirm"
    assert refused(bench, delete, "", name=DELETE, confirm="prod").code == "plan_required"
    assert refused(bench, delete, "made-up", name=DELETE, confirm="prod").code == "replan"
    assert refused(bench, delete, token, name=DELETE, confirm="prod", principal="eve").code == "replan"
    bench.run(delete, token, name=DELETE, confirm="prod")
    bench.run(autoscaler_pb2.DeleteSliceRequest(slice_id="s", confirm="prod", request_id="r1"), token, name=DELETE)
    bench.run(autoscaler_pb2.DeleteSliceRequest(slice_id="s", dry_run=True), "", name=DELETE)


def test_every_mutation_has_a_tier_or_is_no_operators() -> None:
    without = {name for name, access in ACCESS.items() if access.mutates and access.tier is None}
    assert without == {
        "ControllerService/PutBundle",
        "ControllerService/UpdateTaskStatus",
        "ControllerService/RegisterEndpoint",
        "WorkerService/Attach",
        "LogService/PushLogs",
        "StatsService/RegisterTable",
        "StatsService/WriteRows",
    }
    assert {name for name, access in ACCESS.items() if access.tier == 3} == {DELETE}


# What a client says -------------------------------------------------------------------------------------------------


def test_a_context_is_read_and_one_that_cannot_be_is_named() -> None:
    said = read_context({"iris-client-context": ClientContext("cli", "iris job cancel /a/b", "why", True).header()})
    assert said is not None
    assert said.fields() == {"interface": "cli", "command": "iris job cancel /a/b", "reason": "why", "pasted": True}
    assert read_context({}) is None
    for text, fault in (
        ("x" * (MOST_BYTES + 1), f"left out: {MOST_BYTES + 1} bytes, at most {MOST_BYTES}"),
        ("{", "left out: 1 bytes that are no JSON"),
        ("[1]", "left out: 3 bytes that are no JSON object"),
        ('{"command": 1}', "left out: 14 bytes with a field of the wrong kind"),
        ('{"pasted": "no"}', "left out: 16 bytes with a field of the wrong kind"),
        ('{"interface": "a b"}', "left out: 20 bytes with an interface that is no word"),
        ("[" * 2000, "left out: 2000 bytes that are no JSON"),
    ):
        found = read_context({"iris-client-context": text})
        assert found is not None and found.fields() == {"client_context": fault}


@pytest.mark.parametrize("command", ["iris job run -- " + "x" * 5000, "é" * 3000, '"\\' * 2000, "\U0001f600" * 900])
def test_a_context_is_cut_to_fit_and_says_so(command: str) -> None:
    header = ClientContext("console", command, "r" * 4000).header()
    assert len(header) <= MOST_BYTES and header.isascii()
    said = read_context({"iris-client-context": header})
    assert said is not None and not said.fault
    assert said.command.endswith(f"({len(command)} characters)") and said.reason.endswith("(4000 characters)")


def test_secrets_are_taken_out_before_anything_leaves() -> None:
    command = command_line("iris", ["job", "run", "-e", "HF_TOKEN", "geheim", "--", "curl", "-H", "authorization: abc"])
    header = ClientContext("cli", command, "token=hunter2hunter2").header()
    assert "geheim" not in header and "abc" not in header and "hunter2" not in header
    assert "HF_TOKEN" in header
    typed = ClientContext("console", "iris-core job cancel /a/b --reason 'so token=hunter2hunter2'").header()
    assert "'so token=[redacted:token]'" in typed, "its quotes stay what they are"
    assert "hunter2" not in ClientContext("console", "unbalanced ' token=hunter2hunter2").header()


def test_what_is_laid_around_calls_holds_within_and_ends() -> None:
    outer, inner = ClientContext("console"), ClientContext("console", "x")
    assert headers_now() == []
    with sending(context=outer, plan_token="t"):
        with sending(context=inner, confirm="prod"):
            assert dict(headers_now()) == {
                "iris-client-context": inner.header(),
                "iris-plan-token": "t",
                "iris-confirm": "prod",
            }
        assert dict(headers_now())["iris-client-context"] == outer.header()
        assert headers_now(change=False) == []
    assert headers_now(lambda: inner) == [("iris-client-context", inner.header())]
    with sending(read_only=True):
        assert headers_now(change=False) == [("iris-read-only", "1")]
        assert headers_now(change=False, read_only=True) == []
