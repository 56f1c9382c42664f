"""`rollout`: one tree to several clusters, one after the other, with a word of approval before each.

`plan` and `preflight` look at trees and clusters, `status` and `report` read journals; what changes anything is in `rollout_run`. Nothing here may.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import output_option
from iris_core.cli.rollout_options import clusters_option, folder_of, journal_option, shipping_of, shipping_options

if TYPE_CHECKING:
    from iris_core.cli.rollout_fleet import Scope, Shipping
    from iris_core.cli.rollout_runs import Known, Listing
    from iris_core.cli.session import Session

UNREADABLE: Final = "unreadable"
COMMANDS = {
    "plan": Lazy("iris_core.cli.rollout:plan", "Show which clusters would be taken, in which order, and the tree."),
    "preflight": Lazy("iris_core.cli.rollout:preflight", "Look at the tree and at all that each cluster needs."),
    "run": Lazy("iris_core.cli.rollout_run:run", "Ship the tree that is here to the clusters, one after the other."),
    "status": Lazy("iris_core.cli.rollout:status", "Show the rollouts of the journal folder, or one of them."),
    "resume": Lazy("iris_core.cli.rollout_run:resume", "Go on with a rollout that was left or killed."),
    "abort": Lazy("iris_core.cli.rollout_run:abort", "End a rollout, and put right what it had begun."),
    "report": Lazy("iris_core.cli.rollout:report", "Print the report of a rollout as Markdown."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def rollout() -> None:
    """Ship one tree to several clusters, one after the other, each approved on its own."""


@click.command(short_help=COMMANDS["plan"].help)
@clusters_option
@output_option("table", "json", "name")
@click.pass_obj
def plan(session: Session, clusters: str | None, how: output.Format) -> None:
    """Show which clusters would be taken, in which order, and the tree around the working directory. Nothing is contacted.

    A cluster that this release cannot roll out to is refused by its name: leave it out with --clusters.

    \b
    iris-core rollout plan --clusters lab,h1
    """
    from iris_core.cli import rollout_fleet
    from iris_core.model.text import one_line
    from iris_core.procedures.source_tree import freeze

    wanted = rollout_fleet.scope(session, clusters)
    tree = freeze(Path.cwd())
    if how == "name":
        output.write("".join(f"{one_line(name)}\n" for name in wanted.names))
        return
    if how == "json":
        order = [{"name": c.name, "controller": c.kind, "capacity": c.capacity} for c in wanted.candidates]
        output.line(output.as_json({"tree": tree.id, "base": tree.base, "subject": tree.subject, "clusters": order}))
        return
    output.line(f"Tree {tree.id}")
    output.line(one_line(f"{tree.branch}, {tree.base[:12] or 'no commit'} {tree.subject}"))
    for number, candidate in enumerate(wanted.candidates, 1):
        output.line(one_line(f"{number}. {candidate.words()}"))


@click.command(short_help=COMMANDS["preflight"].help)
@clusters_option
@shipping_options
@click.option("--accept-tree-state", is_flag=True, help="Exit 0 in spite of what is said of the tree.")
@output_option("table", "json")
@click.pass_obj
def preflight(
    session: Session,
    clusters: str | None,
    upstream: str,
    no_fetch: bool,
    checks_command: str,
    accept_tree_state: bool,
    how: output.Format,
) -> int:
    """Look at the tree and at all that each cluster needs, and change nothing. Exit code 1 when something is not as it has to be.

    \b
    iris-core rollout preflight --clusters lab,h1 --checks-command 'make test'
    """
    from iris_core.cli import rollout_fleet

    wanted = rollout_fleet.scope(session, clusters)
    found = asyncio.run(_preflight(session, wanted, shipping_of(upstream, no_fetch, checks_command), how))
    failed = any(not check["ok"] for one in found["clusters"] for check in one["checks"])
    tested = found["checks"]
    failed = failed or (tested is not None and tested["exit"] != 0)
    if how == "json":
        output.line(output.as_json(found))
    if found["tree"]["warnings"] and not failed and not accept_tree_state:
        session.diagnostics.note("the tree is not what is merged: look at it, then --accept-tree-state")
    return 1 if failed or (found["tree"]["warnings"] and not accept_tree_state) else 0


async def _preflight(session: Session, wanted: Scope, shipping: Shipping, how: output.Format) -> dict[str, Any]:
    from iris_core.cli import rollout_fleet
    from iris_core.live.clock import SystemClock
    from iris_core.model.text import one_line
    from iris_core.procedures import rollout_checks
    from iris_core.procedures.rollout_cluster import needs
    from iris_core.procedures.source_tree import as_value

    def say(text: str, indent: str = "") -> None:
        if how == "table":
            output.line(indent + one_line(text))

    made = rollout_fleet.fleet(
        session, wanted, shipping, Path.cwd(), SystemClock(), procedure="", account="", owner="", checkpoint_timeout_s=0
    )
    tree = await asyncio.to_thread(made.freeze)
    found: dict[str, Any] = {"tree": as_value(tree), "clusters": [], "checks": None}
    for site in made.sites:

        def report(check: dict[str, Any], name: str = site.name) -> None:
            say(f"{'PASS' if check['ok'] else 'FAIL'} {name}: {check['what']}: {check['detail']}")
            if not check["ok"]:
                say(f"needed because {check['why']}", "     ")

        checks = await rollout_checks.run(needs(site, tree), report)
        found["clusters"].append({"name": site.name, "checks": checks})
    say(f"tree {tree.id}, {tree.branch}, {tree.base[:12] or 'no commit'} {tree.subject}")
    for warning in tree.warnings():
        say(f"WARN {warning}")
    if shipping.checks_command:
        tested = found["checks"] = await rollout_checks.test_tree(tree, shipping.checks_command)
        say(
            f"{'PASS' if tested['exit'] == 0 else 'FAIL'} the checks: exit code {tested['exit']} after {tested['seconds']:g} s"
        )
        for line in tested["lines"] if tested["exit"] else ():
            say(line, "     ")
    return found


@click.command(short_help=COMMANDS["status"].help)
@click.argument("procedure", metavar="[ID]", required=False)
@journal_option
@output_option("table", "json")
@click.pass_obj
def status(session: Session, procedure: str | None, journal_dir: str | None, how: output.Format) -> None:
    """Show the rollouts of the journal folder, the newest first; with an ID how far that one is, cluster by cluster.

    \b
    iris-core rollout status
    iris-core rollout status rollout-20260101-120000-ab12
    """
    from iris_core.cli import rollout_runs

    folder = folder_of(journal_dir)
    if procedure:
        one = rollout_runs.find(folder, procedure)
        output.write(output.as_json(_object(one)) + "\n" if how == "json" else _one_text(one))
        return
    found = rollout_runs.listing(folder)
    if how == "json":
        torn = [
            {"id": one.id, "state": UNREADABLE, "path": str(one.path), "problem": one.why} for one in found.unreadable
        ]
        output.line(output.as_json([*(_object(one) for one in found.known), *torn]))
    elif found.known or found.unreadable:
        output.write(_list_text(found))
        for bad in found.unreadable:
            session.diagnostics.warn(bad.why)
    else:
        session.diagnostics.note(f"there is no rollout in {folder}")


def _object(one: Known) -> dict[str, Any]:
    from iris_core.procedures import rollout_report

    progress = one.progress
    asked = progress.asked
    return {
        "id": one.id,
        "state": one.state(),
        "ended": one.ended,
        "driven": one.driven,
        "begun_by": progress.started_by,
        "begun_at_ms": progress.started_ms,
        "changed_at_ms": progress.changed_ms,
        "clusters": {name: rollout_report.standing(one.records, name) for name in one.clusters},
        "tree": (progress.evidence.get("tree-state") or {}).get("id"),
        "step": progress.step or None,
        "waits_for": {"gate": asked["event"], "title": asked["title"], "token": asked["token"]} if asked else None,
        "outcome": progress.state or None,
        "next": progress.next or None,
    }


def _list_text(found: Listing) -> str:
    from iris_core.cli.tables import Column, render
    from iris_core.live.columns import age
    from iris_core.model.text import one_line

    now_ms = time.time_ns() // 1_000_000
    columns = [
        Column("ID", is_id=True),
        Column("STATE"),
        Column("CLUSTERS"),
        Column("BY"),
        Column("AGE", align="right"),
    ]
    rows = [
        [one.id, one.state(), ",".join(one.clusters), one.progress.started_by, age(one.progress.started_ms, now_ms)]
        for one in found.known
    ]
    rows += [[bad.id, UNREADABLE, "", "", ""] for bad in found.unreadable]
    return render(columns, [[one_line(str(cell)) for cell in row] for row in rows])


def _one_text(one: Known) -> str:
    from iris_core.model.text import one_line

    said = _object(one)
    rows = [
        ("Rollout", one.id),
        ("State", said["state"]),
        ("Begun by", said["begun_by"]),
        ("Tree", said["tree"] or "not frozen yet"),
        ("Step", said["step"] or ""),
        *((f"  {name}", standing) for name, standing in said["clusters"].items()),
        ("Waits for", said["waits_for"]["title"] if said["waits_for"] else ""),
        ("Outcome", said["outcome"] or ""),
        ("Next", said["next"] or _next(one)),
    ]
    return "".join(f"{name + ':':<14}{one_line(str(value))}\n" for name, value in rows if value)


def _next(one: Known) -> str:
    if one.ended or one.driven:
        return ""
    asked = one.progress.asked
    approve = f" --approve {asked['event']}={asked['token']}" if asked else ""
    return f"rollout resume {one.id}{approve}; or rollout abort {one.id}"


@click.command(short_help=COMMANDS["report"].help)
@click.argument("procedure", metavar="[ID]", required=False)
@journal_option
@click.pass_obj
def report(session: Session, procedure: str | None, journal_dir: str | None) -> None:
    """Print the report of a rollout as Markdown: the tree, who approved what, and every sample of every watch.

    Without an ID that of the one that has not ended, else of the newest.

    \b
    iris-core rollout report > rollout.md
    """
    from iris_core.cli import rollout_runs
    from iris_core.procedures import rollout_report

    one = rollout_runs.chosen(folder_of(journal_dir), procedure)
    output.write(rollout_report.markdown(one.id, one.records))
