"""`user budget`: what users may spend at a time, and the highest band they may submit in (cli-auth-logs §1.7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import Whole, headers_option, output_option, watch_option
from iris_core.config.budgets import MAX_LIMIT

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1 import budgets_pb2 as pb

COMMANDS = {
    "budget": Lazy("iris_core.cli.user:budget", "List, show and set what users may spend."),
}
BUDGET_COMMANDS = {
    "list": Lazy("iris_core.cli.user:list_budgets", "List the users that have a budget of their own."),
    "get": Lazy("iris_core.cli.user:get_budget", "Show the budget of one user."),
    "set": Lazy("iris_core.cli.user:set_budget", "Set the budget of one user (admins only)."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def user() -> None:
    """Look at users, and set what they may spend."""


@click.group(cls=LazyGroup, table=BUDGET_COMMANDS)
def budget() -> None:
    """List, show and set what users may spend.

    A task on a worker costs 1000 for each accelerator, 1 for each whole GB of memory and 5 for each whole core; work in
    band batch is free. Interactive work of a user who is over the limit is served as batch.
    """


@click.command("list", short_help=BUDGET_COMMANDS["list"].help)
@output_option()
@headers_option
@watch_option
@click.pass_obj
def list_budgets(session: Session, how: output.Format, no_headers: bool, watch: bool) -> None:
    """List the users that have a budget of their own, by name. All others have the defaults."""
    from iris_core.cli import reads, watching
    from iris_core.cli.listings import BUDGET_LIST
    from iris_core.wire.gen.iris.v1 import budgets_pb2 as pb

    def read() -> pb.ListUserBudgetsResponse:
        return session.client.call(
            "ControllerService/ListUserBudgets", pb.ListUserBudgetsRequest(), pb.ListUserBudgetsResponse
        )

    if watch:
        watching.watch(session, BUDGET_LIST, lambda: read().budgets, how, headers=not no_headers)
    found = read()
    rows = list(found.budgets)
    if rows or how not in ("table", "wide"):
        output.write(BUDGET_LIST.text(rows, how, reads.now_ms(), headers=not no_headers))
    if how in ("table", "wide"):
        who = "all other users" if rows else "No user has a budget of their own; all"
        session.diagnostics.note(f"{who} have {_terms(found.defaults)}")


@click.command("get", short_help=BUDGET_COMMANDS["get"].help)
@click.argument("user_id", metavar="USER")
@output_option("table", "json")
@click.pass_obj
def get_budget(session: Session, user_id: str, how: output.Format) -> None:
    """Show what a user may spend and spends now."""
    from iris_core.cli.listings import BUDGET_LIST
    from iris_core.live.user_columns import limit_text, utilisation_text
    from iris_core.model.bands import band_label
    from iris_core.model.text import one_line
    from iris_core.wire.gen.iris.v1 import budgets_pb2 as pb
    from iris_core.wire.gen.iris.v1 import common_pb2

    found = session.client.call(
        "ControllerService/GetUserBudget", pb.GetUserBudgetRequest(user_id=user_id), pb.GetUserBudgetResponse
    ).budget
    if how == "json":
        output.line(output.as_json(BUDGET_LIST.object(found)))
        return
    used = f" ({utilisation_text(found)} of the limit)" if found.budget_limit else ""
    served = f"{band_label(found.effective_band)}, where interactive is asked for"
    if found.max_band == common_pb2.PRIORITY_BAND_BATCH:
        served = "batch; interactive may not be asked for"
    rows = [
        ("User", found.user_id),
        ("Limit", limit_text(found.budget_limit)),
        ("Spent", f"{found.budget_spent}{used}"),
        ("Max band", band_label(found.max_band)),
        ("Served as", served),
    ]
    output.write("".join(f"{name + ':':<11}{one_line(value)}\n" for name, value in rows))


@click.command("set", short_help=BUDGET_COMMANDS["set"].help)
@click.argument("user_id", metavar="USER")
@click.option(
    "--limit",
    type=Whole(0, MAX_LIMIT),
    required=True,
    metavar="N",
    help="What the user may spend at a time, 0 = unlimited.",
)
@click.option(
    "--max-band",
    required=True,
    metavar="BAND",
    help="The highest band the user may submit in: system, production, interactive or batch.",
)
@click.option("--dry-run", is_flag=True, help="Print what would change, and change nothing.")
@click.pass_obj
def set_budget(session: Session, user_id: str, limit: int, max_band: str, dry_run: bool) -> None:
    """Set what a user may spend at a time, and the highest band they may submit in. Admins only.

    \b
    user budget set ada --limit 8000 --max-band interactive

    What runs goes on running; work that waits is served by the new budget at once. A budget that the cluster file names is
    set back to it when the controller starts.
    """
    from iris_core.contracts import UsageFailed
    from iris_core.model.bands import parse_band
    from iris_core.model.errors import ModelError
    from iris_core.model.text import one_line
    from iris_core.wire.gen.iris.v1 import budgets_pb2 as pb

    try:
        band = parse_band(max_band)
    except ModelError as error:
        raise UsageFailed(f"--max-band: {error.message}", hint=error.hint) from None
    request = pb.SetUserBudgetRequest(user_id=user_id, budget_limit=limit, max_band=band.value)  # type: ignore[arg-type]
    if dry_run:
        from iris_core.cli.planned import preview

        preview(session, "ControllerService/SetUserBudget", [request])
        return
    found = session.client.call("ControllerService/SetUserBudget", request, pb.SetUserBudgetResponse).budget
    output.line(f"{one_line(found.user_id)}: {_terms(found)}")


def _terms(found: pb.UserBudget) -> str:
    from iris_core.live.user_columns import limit_text
    from iris_core.model.bands import band_label

    return f"limit {limit_text(found.budget_limit)}, max band {band_label(found.max_band)}"
