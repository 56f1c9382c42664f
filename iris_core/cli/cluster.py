"""`cluster`: the named clusters, the embedded one, and how a controller is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import headers_option, output_option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb
    from iris_core.wire.gen.iris.v1.pipeline_pb2 import GetPipelineHealthResponse

EXCLUDED_SHOWN: Final = 5
"""Workers that get no work, of which `status` says why."""

COMMANDS = {
    "list": Lazy("iris_core.cli.cluster:list_clusters", "List the clusters that --cluster knows."),
    "start": Lazy("iris_core.cli.cluster_start:start", "Start a cluster on this machine and keep it until Ctrl-C."),
    "stop": Lazy("iris_core.cli.cluster_stop:stop", "Stop a deployed cluster: controller, workers, tasks."),
    "restart": Lazy(
        "iris_core.cli.cluster_stop:restart", "Stop a deployed cluster with all that runs, and start it again."
    ),
    "status": Lazy("iris_core.cli.cluster:status", "Show whether the controller answers, and how its workers are."),
    "create-slice": Lazy(
        "iris_core.cli.slices:create_slice", "Make one slice of a scale group, outside the autoscaler's care."
    ),
    "delete-slice": Lazy(
        "iris_core.cli.slices:delete_slice", "Delete a slice: what runs there is stopped and tried again elsewhere."
    ),
    "vm": Lazy("iris_core.cli.vm:vm", "Look at the machines that the autoscaler makes."),
    "init-keys": Lazy("iris_core.cli.init_keys:init_keys", "Make the key that signs a controller's tokens."),
    "controller": Lazy(
        "iris_core.cli.cluster_start:controller",
        "Run, start, stop and look at a controller, and have it save its state.",
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def cluster() -> None:
    """List, start and look at clusters."""


@click.command("list", short_help=COMMANDS["list"].help)
@output_option("table", "json", "jsonl", "csv", "name")
@headers_option
def list_clusters(how: str, no_headers: bool) -> None:
    """List the clusters that --cluster knows, with the file of each. No controller is contacted."""
    from iris_core.cli.tables import Column, render
    from iris_core.config.cluster import named_clusters
    from iris_core.config.places import LOCAL
    from iris_core.connect.local import running_endpoint

    running = running_endpoint()
    rows = [(LOCAL, running.url if running else "not running; cluster start --local starts it")]
    rows += [(found.name, str(found.path)) for found in named_clusters()]
    rows.sort()
    if how == "table":
        output.write(render([Column("NAME", is_id=True), Column("CONFIG", is_id=True)], rows, headers=not no_headers))
    elif how == "csv":
        output.write(output.csv_text([*([] if no_headers else [("name", "config")]), *rows]))
    elif how == "name":
        output.write("".join(f"{name}\n" for name, _ in rows))
    else:
        objects = [{"name": name, "config": place} for name, place in rows]
        text = output.as_json(objects) if how == "json" else "\n".join(output.as_json_line(item) for item in objects)
        output.line(text)


@click.command(short_help=COMMANDS["status"].help)
@output_option("table", "wide", "json")
@click.pass_obj
def status(session: Session, how: output.Format) -> int:
    """Show whether the controller answers, its version, its workers and what waits; exit 1 when it does not answer."""
    from iris_core.cli import describing, pipeline, reads
    from iris_core.cli.listings import WORKER_LIST
    from iris_core.contracts import ConnectFailed
    from iris_core.model.text import yes_or_no
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    try:
        found = session.client.call(
            "ControllerService/GetClusterStatus",
            pb.GetClusterStatusRequest(),
            pb.GetClusterStatusResponse,
            timeout_s=8.0,
        )
    except ConnectFailed:
        if how != "json":
            output.write(_row("Running", yes_or_no(False)))
        raise
    workers = session.client.call("ControllerService/ListWorkers", pb.ListWorkersRequest(), pb.ListWorkersResponse)
    groups = _scale_groups(session)
    logs = None if session.checkpoint else pipeline.ask(session, "")
    if how == "json":
        fields = describing.as_object(found)
        output.line(
            output.as_json(
                {
                    **fields,
                    "url": session.target.url,
                    "scale_groups": groups,
                    "log_pipeline": describing.as_object(logs) if logs is not None else None,
                    "workers": [WORKER_LIST.object(row) for row in workers.workers],
                }
            )
        )
        return 0
    output.write(_status_text(found, session.target.url, live=not session.checkpoint, logs=logs))
    output.write(_excluded_text(workers.workers, found.workers_excluded))
    if groups:
        output.write(_groups_text(groups))
    if workers.workers:
        output.write(WORKER_LIST.text(list(workers.workers), how, reads.now_ms()))
    return 0


def _scale_groups(session: Session) -> list[dict[str, object]]:
    """The scale groups with how many slices of each lifecycle they have; none from a controller that knows of none."""
    from iris_core.contracts import RpcFailed
    from iris_core.live.capacity_columns import is_told
    from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb

    try:
        found = session.client.call(
            "ControllerService/GetAutoscalerStatus", pb.GetAutoscalerStatusRequest(), pb.GetAutoscalerStatusResponse
        )
    except RpcFailed as error:
        if error.status != "UNIMPLEMENTED":
            raise
        return []
    lifecycles = ("booting", "initializing", "ready", "failed")
    return [
        {
            "scale_group": group.name,
            **{word: group.slice_state_counts.get(word, 0) for word in lifecycles},
            "demand": group.demand if is_told(group) else None,
        }
        for group in found.groups
    ]


def _groups_text(groups: list[dict[str, object]]) -> str:
    from iris_core.cli.tables import Column, render
    from iris_core.live.wording import NOTHING

    titles = [name.replace("_", " ").upper() for name in groups[0]]
    columns = [Column(titles[0], is_id=True), *(Column(title, align="right") for title in titles[1:])]
    return render(columns, [[NOTHING if value is None else str(value) for value in group.values()] for group in groups])


def _excluded_text(workers: Iterable[pb.WorkerStatus], count: int) -> str:
    """A line for each of the first workers that get no work, with what brings it back; the table below cuts that."""
    from iris_core.model.text import one_line
    from iris_core.wire.gen.iris.v1.common_pb2 import WORKER_HEALTH_HEALTHY

    # Those that are counted: of one that is dead or on its way out that is what there is to say.
    counted = [w for w in workers if w.excluded and w.health == WORKER_HEALTH_HEALTHY and not w.stopping]
    shown = counted[:EXCLUDED_SHOWN]
    lines = [f"Worker:    {one_line(worker.worker_id)} {one_line(worker.health_reason)}\n" for worker in shown]
    more = count - len(shown)
    if more > 0:
        others = f"{more:,}{' more' if shown else ''} that {'get' if more != 1 else 'gets'} no work"
        lines.append(f"Worker:    {others}: iris rpc controller list-workers\n")
    return "".join(lines)


def _status_text(
    found: pb.GetClusterStatusResponse, url: str, *, live: bool, logs: GetPipelineHealthResponse | None
) -> str:
    from iris_core.cli.pipeline import summary
    from iris_core.live.columns import age
    from iris_core.live.worker_columns import without_work
    from iris_core.model.text import one_line, yes_or_no

    jobs = ", ".join(f"{name} {count}" for name, count in sorted(found.jobs_by_state.items()) if count)
    tasks = ", ".join(f"{name} {count}" for name, count in sorted(found.tasks_by_state.items()) if count)
    slices = ", ".join(f"{count} {name}" for name, count in sorted(found.slices_by_lifecycle.items()) if count)
    workers = f"{found.workers_healthy}/{found.workers_total - found.workers_leaving} healthy"
    if found.workers_leaving:
        workers += f", {found.workers_leaving} stopping with their slices"
    if found.workers_excluded:
        workers += f", {without_work(found.workers_excluded)}"
    running = [
        ("Running", yes_or_no(True)),
        ("Healthy", yes_or_no(found.ready)),
        ("Cluster", found.cluster),
        ("Address", url),
        ("Version", f"{found.version} ({found.release})" if found.release else found.version),
        ("Tree", found.tree),
        ("Log store", found.finelog_release),
        ("Up for", age(found.started_at_ms, found.now_ms)),
        ("State dir", found.state_dir),
        ("Workers", workers),
    ]
    saved = [("Running", "no, this is a checkpoint"), ("Address", url), ("Workers", str(found.workers_total))]
    rows = [
        *(running if live else saved),
        ("Slices", slices),
        ("Jobs", jobs or "none"),
        ("Tasks", tasks or "none"),
        *([("Logs", summary(logs))] if logs is not None else []),
        *(("Problem", problem) for problem in found.problems),
        *(("Problem", problem) for problem in (logs.problems if logs is not None else ())),
    ]
    return "".join(_row(name, one_line(value)) for name, value in rows if value)


def _row(name: str, value: str) -> str:
    return f"{name + ':':<11}{value}\n"
