"""`job profile-summary`: all kept CPU profiles of a job and what is below it, as one picture (cli-auth-logs §4.5)."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import click

from iris_core.cli import output
from iris_core.cli.options import Whole
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from iris_core.analysis.profile_summary import Part, ProfileSummary
    from iris_core.analysis.stacks import Stacks
    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

AT_ONCE: Final = 8
LIBRARIES: Final = 10
SECTION_SHARE: Final = 0.01
"""A sub-job with less of the job's time has no section of its own."""


@click.command("profile-summary", short_help="Say where a whole job spends its CPU time.")
@click.argument("job", metavar="JOB")
@click.option("--cluster", default="", metavar="NAME", help="As the option of the same name before the command.")
@click.option("--subjob", default="", metavar="NAME", help="This sub-job alone; (root) is the job's own tasks.")
@click.option("--top", type=Whole(1, 10_000), default=20, show_default=True, metavar="N", help="Rows of a ranking.")
@click.option("--show-stacks", is_flag=True, help="The heaviest stacks, too.")
@click.option("--show-tasks", is_flag=True, help="Each task, too.")
@click.option("--per-subjob", is_flag=True, help="A section for each sub-job that has 1% of the time or more.")
@click.option("--markdown", is_flag=True, help="Print Markdown, with a Mermaid call graph.")
@click.option(
    "-o",
    "--output",
    "folded",
    default="",
    metavar="FILE",
    help="Write all stacks in folded form; a file there is replaced.",
)
@click.option("--svg", default="", metavar="FILE", help="Write a flame graph as SVG; a file there is replaced.")
@click.option(
    "--max-rows",
    type=Whole(1, 500_000),
    default=500_000,
    show_default=True,
    metavar="N",
    help="Profiles that are looked at, the newest.",
)
@click.option("--all-incarnations", is_flag=True, help="Earlier jobs of the same name, too.")
@click.option(
    "--tunnel-timeout",
    type=Whole(1, 3600),
    default=60,
    show_default=True,
    metavar="S",
    help="Seconds to wait for the list of profiles.",
)
@click.pass_obj
def profile_summary(
    session: Session,
    job: str,
    cluster: str,
    subjob: str,
    top: int,
    show_stacks: bool,
    show_tasks: bool,
    per_subjob: bool,
    markdown: bool,
    folded: str,
    svg: str,
    max_rows: int,
    all_incarnations: bool,
    tunnel_timeout: int,
) -> None:
    """Put all kept CPU profiles of a job and everything below it together: which sub-job and which function the time
    goes to. JOB is an id or the URL of the job's page. Exit code 2 when there is no profile.

    \b
    Example:
      iris-core job profile-summary /me/train --svg flame.svg
    """
    from iris_core.analysis import flame, stacks
    from iris_core.analysis.profile_summary import ProfileSummary
    from iris_core.cli.saving import save
    from iris_core.model.ids import JobId

    named, job_text = job_of(job)
    if cluster and named and cluster != named:
        raise UsageFailed(f"the URL names the cluster {named}, --cluster names {cluster}")
    if (cluster or named) and not session.selector():
        session.cluster = cluster or named
    job_id = str(JobId.parse(job_text))
    records = _records(session, job_id, max_rows, all_incarnations, tunnel_timeout)
    summary = ProfileSummary(job_id, subjob)
    wanted = [record for record in records if summary.wants(record.source)]
    if records and not wanted:
        raise nothing(
            f"no profile of {job_id} is of the sub-job {subjob!r}", f"there are {', '.join(sorted(summary.seen))}"
        )
    for record, found in _captures(session, wanted):
        summary.add(record.source, found)
    if not summary.whole.stacks:
        hint = "the workers take one every ten minutes; task profile cpu takes one now"
        raise nothing(f"there is no CPU profile of {job_id} with anything in it", hint)
    output.write(_report(session, summary, top, show_stacks, show_tasks, per_subjob, markdown))
    output.flush()
    if folded:
        save(session, folded, stacks.folded(summary.whole.stacks).encode(), f"{len(summary.whole.stacks)} stacks")
    if svg:
        title = f"{job_id}{' ' + subjob if subjob else ''}: CPU time"
        save(session, svg, flame.svg(summary.whole.stacks, "seconds", title).encode(), "the flame graph")


def nothing(message: str, hint: str) -> IrisError:
    """There is no profile to sum up: exit code 2, which scripts tell from a failure."""
    error = IrisError(message, hint=hint)
    error.exit_code = 2
    return error


def job_of(text: str) -> tuple[str, str]:
    """Cluster ("" = not named) and id in a job's id or the URL of its page, `…#/job/<cluster>/<encoded id>`.

    Raises UsageFailed: a URL of something else.
    """
    if "://" not in text:
        return "", text
    from urllib.parse import unquote, urlsplit

    from iris_core.model.errors import shown

    steps = urlsplit(text).fragment.partition("?")[0].strip("/").split("/")
    if len(steps) >= 2 and steps[0] == "job":
        first = unquote(steps[1])
        if first.startswith("/"):
            return "", first
        if len(steps) >= 3:
            return first, "/" + unquote("/".join(steps[2:])).strip("/")
    raise UsageFailed(f"{shown(text, 120)} is not the page of a job", hint="such a URL ends in #/job/<cluster>/<id>")


def _records(
    session: Session, job_id: str, max_rows: int, all_incarnations: bool, timeout_s: int
) -> list[pb.ProfileRecord]:
    from iris_core.cli.profiles import narrow
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

    request = pb.ListProfilesRequest(types=[pb.PROFILE_TYPE_CPU], page_size=max_rows)
    narrow(session.client, request, job_id, all_incarnations=all_incarnations)
    answer = session.client.call(
        "ControllerService/ListProfiles", request, pb.ListProfilesResponse, timeout_s=float(timeout_s)
    )
    for note in answer.notes:
        session.diagnostics.warn(note)
    if answer.capped:
        session.diagnostics.warn(f"only the newest {len(answer.profiles)} profiles are looked at; there are more")
    return list(answer.profiles)


def _captures(session: Session, records: Sequence[pb.ProfileRecord]) -> Iterator[tuple[pb.ProfileRecord, Stacks]]:
    """The stacks of each, fetched a few at a time; what cannot be had or read is counted and said."""
    from iris_core.cli.profiles import fetch

    problems: dict[str, int] = {}
    client = session.client
    waiting = iter(records)
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="fetch") as pool:
        asked = deque(
            (record, pool.submit(fetch, client, record)) for _, record in zip(range(AT_ONCE), waiting, strict=False)
        )
        done = 0
        while asked:
            record, future = asked.popleft()
            try:
                found = stacks_of(record, future.result())
            except (IrisError, ValueError) as error:
                problems[str(error)] = problems.get(str(error), 0) + 1
            else:
                yield record, found
            done += 1
            session.diagnostics.progress(f"{done} of {len(records)} profiles")
            if (following := next(waiting, None)) is not None:
                asked.append((following, pool.submit(fetch, client, following)))
    session.diagnostics.progress("")
    for problem, count in sorted(problems.items(), key=lambda item: -item[1])[:5]:
        verb = "are" if count != 1 else "is"
        session.diagnostics.warn(f"{count} of {len(records)} profiles {verb} left out: {problem}")


def stacks_of(record: pb.ProfileRecord, data: bytes) -> Stacks:
    """The stacks of a CPU profile, in seconds. Raises ValueError: it is of a format that holds no stacks, or damaged."""
    from iris_core.analysis import speedscope, stacks
    from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb
    from iris_core.wire.profiles import FORMATS

    if record.format == pb.PROFILE_FORMAT_SPEEDSCOPE:
        return speedscope.parse(data)
    if record.format == pb.PROFILE_FORMAT_RAW:
        rate = record.rate_hz or 1
        return {stack: count / rate for stack, count in stacks.from_folded(data.decode("utf-8", "replace")).items()}
    raise ValueError(f"the format {FORMATS.get(record.format, record.format)} holds no stacks")


# --- words -------------------------------------------------------------------------------------------------------------


def _report(
    session: Session,
    summary: ProfileSummary,
    top: int,
    show_stacks: bool,
    show_tasks: bool,
    per_subjob: bool,
    markdown: bool,
) -> str:
    from iris_core.model.text import counted, one_line

    whole = summary.whole
    pieces = [
        f"{'# ' if markdown else ''}CPU profile of {summary.job_id}",
        "",
        f"profiles from {session.target.url}: {counted(whole.captures, 'capture')} of {counted(len(whole.tasks), 'task')}, "
        f"{whole.weight:.1f} sample-seconds, {counted(len(whole.stacks), 'distinct stack')}",
        "",
        _table(
            ("SUB-JOB", "TASKS", "SECONDS", "SHARE", "HOTTEST FUNCTION"),
            [
                (part.name, str(len(part.tasks)), f"{part.weight:.1f}", _share(whole, part.weight), part.hottest)
                for part in summary.parts()
            ],
            markdown,
        ),
    ]
    if show_tasks:
        rows = [
            (part.name, str(part.captures), f"{part.weight:.1f}", _share(whole, part.weight), part.hottest)
            for part in summary.tasks()
        ]
        pieces += ["", _table(("TASK", "CAPTURES", "SECONDS", "SHARE", "HOTTEST FUNCTION"), rows, markdown)]
    pieces += _rankings(whole, top, markdown)
    if per_subjob:
        for part in summary.parts():
            if whole.share(part.weight) >= SECTION_SHARE:
                pieces += ["", f"{'## ' if markdown else ''}{part.name} ({_share(whole, part.weight)} of the job)"]
                pieces += _rankings(part, top, markdown)
    if show_stacks:
        stacks = [
            (_share(whole, weight), " > ".join(one_line(frame.label) for frame in stack))
            for stack, weight in whole.heaviest(top)
        ]
        pieces += ["", _table(("SHARE", "STACK"), stacks, markdown)]
    return "\n".join(piece.rstrip("\n") for piece in pieces) + "\n"


def _rankings(part: Part, top: int, markdown: bool) -> list[str]:
    def rows(ranked: list[tuple[str, float]]) -> list[tuple[str, ...]]:
        return [(f"{weight:.1f}", _share(part, weight), name) for name, weight in ranked]

    pieces = [
        "",
        _table(("SECONDS", "SHARE", "FUNCTION"), rows(part.leaves(top)), markdown),
        "",
        _table(("SECONDS", "SHARE", "LIBRARY (OWN TIME)"), rows(part.libraries(LIBRARIES)), markdown),
    ]
    if markdown:
        from iris_core.analysis.mermaid import call_graph

        pieces += ["", "```mermaid", call_graph(part.stacks), "```"]
    return pieces


def _share(part: Part, weight: float) -> str:
    return f"{100 * part.share(weight):.1f}%"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]], markdown: bool) -> str:
    from iris_core.cli.tables import Column, render
    from iris_core.model.text import one_line

    if markdown:
        cells = [[one_line(cell).replace("|", "\\|") for cell in row] for row in rows]
        lines = [titles, ["---"] * len(titles), *cells]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)
    numbers = {"TASKS", "CAPTURES", "SECONDS", "SHARE"}
    columns = [
        Column(
            title,
            "right" if title in numbers else "left",
            is_id=title in ("SUB-JOB", "TASK"),
            shrinks=title not in numbers,
        )
        for title in titles
    ]
    return render(columns, rows)
