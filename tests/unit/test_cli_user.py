"""`user budget`: what is sent, what is printed in each format, and each way it fails."""

from __future__ import annotations

import json

import pytest

from iris_core.contracts import Denied, RpcFailed
from iris_core.wire.gen.iris.v1 import budgets_pb2 as pb
from iris_core.wire.gen.iris.v1 import common_pb2 as common
from tests.unit.cli_world import T0, World

ADA = pb.UserBudget(
    user_id="ada@example.org",
    budget_limit=50,
    budget_spent=60,
    max_band=common.PRIORITY_BAND_INTERACTIVE,
    effective_band=common.PRIORITY_BAND_BATCH,
    utilization_percent=120,
    updated_at_ms=T0,
)
BOB = pb.UserBudget(
    user_id="bob",
    max_band=common.PRIORITY_BAND_PRODUCTION,
    effective_band=common.PRIORITY_BAND_INTERACTIVE,
    updated_at_ms=T0,
)
PLAIN = pb.UserBudget(budget_limit=1_000, max_band=common.PRIORITY_BAND_INTERACTIVE)


@pytest.fixture
def world() -> World:
    world = World()
    world.client.answer("ListUserBudgets", pb.ListUserBudgetsResponse(budgets=[ADA, BOB], defaults=PLAIN))
    world.client.answer("GetUserBudget", pb.GetUserBudgetResponse(budget=ADA))
    world.client.answer(
        "SetUserBudget",
        lambda request: pb.SetUserBudgetResponse(
            budget=pb.UserBudget(user_id=request.user_id, budget_limit=request.budget_limit, max_band=request.max_band)
        ),
    )
    return world


def test_the_list_has_a_row_for_each_user_and_says_what_the_others_have(world: World) -> None:
    done = world.cli("user", "budget", "list")
    assert done.code == 0
    assert [line.split() for line in done.out.splitlines()] == [
        ["USER", "LIMIT", "SPENT", "MAX", "BAND"],
        ["ada@example.org", "50", "60", "interactive"],
        ["bob", "unlimited", "0", "production"],
    ]
    assert "all other users have limit 1000, max band interactive" in done.err


def test_the_formats_of_the_list(world: World) -> None:
    assert world.cli("user", "budget", "list", "-o", "name").out == "ada@example.org\nbob\n"
    wide = world.cli("user", "budget", "list", "-o", "wide", "--no-headers").out.splitlines()
    assert wide[0].split() == ["ada@example.org", "50", "60", "120%", "interactive", "batch", "2026-01-01", "00:00:00"]
    ada, bob = json.loads(world.cli("user", "budget", "list", "-o", "json").out)
    assert ada == {
        "user": "ada@example.org", "limit": 50, "spent": 60, "utilisation": 120.0, "max_band": "interactive",
        "effective_band": "batch", "updated": "2026-01-01T00:00:00.000Z",
    }  # fmt: skip
    assert bob["utilisation"] is None
    done = world.cli("user", "budget", "list", "-o", "csv")
    assert done.out.splitlines()[1] == "ada@example.org,50,60,120.0,interactive,batch,2026-01-01T00:00:00.000Z"
    assert done.err == ""


def test_an_empty_list_says_what_everybody_has(world: World) -> None:
    world.client.answer("ListUserBudgets", pb.ListUserBudgetsResponse(defaults=PLAIN))
    done = world.cli("user", "budget", "list")
    assert (done.code, done.out) == (0, "")
    assert "No user has a budget of their own; all have limit 1000, max band interactive" in done.err
    assert world.cli("user", "budget", "list", "-o", "json").out == "[]\n"


def test_one_budget(world: World) -> None:
    done = world.cli("user", "budget", "get", "ada@example.org")
    assert done.out.splitlines() == [
        "User:      ada@example.org",
        "Limit:     50",
        "Spent:     60 (120% of the limit)",
        "Max band:  interactive",
        "Served as: batch, where interactive is asked for",
    ]
    assert json.loads(world.cli("user", "budget", "get", "ada@example.org", "-o", "json").out)["limit"] == 50
    assert [request.user_id for request in world.client.called("GetUserBudget")] == ["ada@example.org"] * 2


def test_a_user_of_the_lowest_band_is_not_said_to_be_served_as_interactive(world: World) -> None:
    low = pb.UserBudget(
        user_id="low", max_band=common.PRIORITY_BAND_BATCH, effective_band=common.PRIORITY_BAND_INTERACTIVE
    )
    world.client.answer("GetUserBudget", pb.GetUserBudgetResponse(budget=low))
    said = world.cli("user", "budget", "get", "low").out.splitlines()[-1]
    assert said == "Served as: batch; interactive may not be asked for"


def test_setting_sends_the_band_and_says_what_is_now(world: World) -> None:
    done = world.cli("user", "budget", "set", "bob", "--limit", "0", "--max-band", "PRIORITY_BAND_PRODUCTION")
    assert (done.code, done.out) == (0, "bob: limit unlimited, max band production\n")
    (request,) = world.client.called("SetUserBudget")
    assert (request.user_id, request.budget_limit) == ("bob", 0)
    assert request.max_band == common.PRIORITY_BAND_PRODUCTION


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("user budget set bob --limit 1 --max-band prodction", "no priority band 'prodction'"),
        ("user budget set bob --limit 1 --max-band prodction", "did you mean 'production'?"),
        ("user budget set bob --limit 1 --max-band inherit", "no priority band 'inherit'"),
        ("user budget set bob --limit -1 --max-band batch", "-1 is not in the range"),
        ("user budget set bob --limit much --max-band batch", "'much' is not a valid integer"),
        ("user budget set bob --max-band batch", "Missing option '--limit'"),
        ("user budget set bob --limit 1", "Missing option '--max-band'"),
        ("user budget get", "Missing argument 'USER'"),
        ("user bugdet list", "did you mean 'budget'?"),
    ],
)
def test_bad_input_is_one_line_and_sends_nothing(world: World, line: str, said: str) -> None:
    done = world.cli(*line.split())
    assert done.code == 2 and said in done.err and done.out == ""
    assert not world.client.calls


def test_what_the_server_refuses_is_told(world: World) -> None:
    world.client.answer("GetUserBudget", RpcFailed("NOT_FOUND", "user eve has no budget of their own", hint="set one"))
    done = world.cli("user", "budget", "get", "eve")
    assert done.code == 1 and "user eve has no budget of their own" in done.err and "set one" in done.err
    world.client.answer(
        "SetUserBudget", Denied("PERMISSION_DENIED", "user may not call ControllerService/SetUserBudget")
    )
    done = world.cli("user", "budget", "set", "eve", "--limit", "1", "--max-band", "batch")
    assert done.code == 1 and "may not call" in done.err
    world.client.answer("SetUserBudget", RpcFailed("INVALID_ARGUMENT", "a user is empty", field="user_id"))
    assert world.cli("user", "budget", "set", "", "--limit", "1", "--max-band", "batch").code == 2
