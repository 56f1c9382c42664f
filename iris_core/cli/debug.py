"""`debug`: what a report about this program should hold."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import output_option

if TYPE_CHECKING:
    from iris_core.cli.debug_facts import Facts
    from iris_core.cli.session import Session

COMMANDS = {
    "info": Lazy("iris_core.cli.debug:info", "Show versions, files, the terminal, and whether the cluster answers."),
}

REACH_S = 5.0


@click.group(cls=LazyGroup, table=COMMANDS)
def debug() -> None:
    """Look at this program itself: versions, files, terminal, the last crash."""


@click.command(
    short_help=COMMANDS["info"].help,
    epilog="\b\nExamples:\n  iris-core debug info\n  iris-core --cluster=local debug info -o json\n",
)
@output_option("table", "json")
@click.pass_obj
def info(session: Session, how: output.Format) -> None:
    """Show versions, the terminal, files, settings, whether the cluster answers, and the last crash report: for a bug report.

    Secrets are hidden. It never fails because something is missing or away: that is what it is there to say.
    """
    from iris_core.cli.debug_facts import all_facts

    *before, crash = all_facts()
    sections = [*before, ("Cluster", _cluster(session)), crash]
    if how == "json":
        output.line(output.as_json({title.lower().replace(" ", "_"): _object(facts) for title, facts in sections}))
        return
    for number, (title, facts) in enumerate(sections):
        output.line(f"{'' if not number else chr(10)}{title}")
        wide = max(len(name) for name, _ in facts) + 2
        for name, value in facts:
            output.line(f"  {name:<{wide}}{output.harmless(value)}")


def _object(facts: Facts) -> dict[str, str | list[str]]:
    """What is there several times becomes a list."""
    found: dict[str, str | list[str]] = {}
    for name, value in facts:
        there = found.get(name)
        found[name] = value if there is None else [*(there if isinstance(there, list) else [there]), value]
    return found


def _cluster(session: Session) -> Facts:
    from iris_core.contracts import IrisError
    from iris_core.model.redact import redact_text
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    chosen = session.selector().strip() or "no selector: the environment, or a local cluster"
    facts = [("chosen by", redact_text(chosen))]
    try:
        target = session.target
        facts += [("name", target.cluster), ("url", redact_text(target.url))]
        began = time.monotonic()
        who = session.client.call(
            "ControllerService/GetCurrentUser", pb.GetCurrentUserRequest(), pb.GetCurrentUserResponse, timeout_s=REACH_S
        )
        facts.append(("answers", f"in {(time.monotonic() - began) * 1000:.0f} ms"))
        facts.append(("as", f"{who.user_id} ({who.role}){', read-only' if who.read_only else ''}"))
        found = session.client.call(
            "ControllerService/GetProcessStatus", pb.GetProcessStatusRequest(target="/system/controller"),
            pb.GetProcessStatusResponse, timeout_s=REACH_S,
        ).process  # fmt: skip
        facts.append(("version", f"{found.version} ({found.release})" if found.release else found.version))
    except IrisError as error:
        facts.append(("problem", redact_text(f"{error.message}; {error.hint}" if error.hint else error.message)))
    return facts
