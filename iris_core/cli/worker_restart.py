"""`cluster controller worker-restart`: puts the procedure together with a deployment, and asks its controller what it needs to know.

Must never restart a worker itself: that is done where the workers live, and only through the procedure's gate.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli.options import Seconds, Whole
from iris_core.cli.procedure_options import procedure_options
from iris_core.contracts import IrisError, UsageFailed

if TYPE_CHECKING:
    from iris_core.cli.deployment import Deployment
    from iris_core.cli.driving import Asked
    from iris_core.cli.session import Session
    from iris_core.procedures.events import Procedure
    from iris_core.procedures.worker_moves import Fleet

NAME: Final = "worker-restart"
ANSWER_S: Final = 20.0
MOST_ROWS: Final = 100_000
MOST_AT_ONCE: Final = 1_000
LIVE: Final = (
    "SELECT worker_id, attempt_uid, task_id, attempt_id FROM task_attempts"
    " WHERE finished_at_ms IS NULL AND worker_id IS NOT NULL"
)


@click.command("worker-restart", short_help="Restart the workers onto the release that the controller runs.")
@click.option(
    "--worker-id", "worker_ids", multiple=True, metavar="ID", help="Restart this worker alone; may be given again."
)
@click.option("--skip-current-hash", is_flag=True, help="Leave out workers that run the controller's release already.")
@click.option("--idle-only", is_flag=True, help="Leave out workers on which a task runs.")
@click.option(
    "--timeout", type=Seconds(1), default=120, show_default=True, metavar="S", help="A worker that takes longer to be healthy again has failed."
)  # fmt: skip
@click.option("--min-batch", type=Whole(1, MOST_AT_ONCE), default=1, show_default=True, help="Restart so many first.")
@click.option(
    "--max-batch",
    type=Whole(1, MOST_AT_ONCE),
    default=64,
    show_default=True,
    help="Restart at most so many at once.",
)
@click.option(
    "--observation-window", type=Seconds(), default=30, show_default=True, metavar="S", help="A batch has to stay healthy so long before the next."
)  # fmt: skip
@click.option(
    "--max-failures", type=Whole(0, MOST_ROWS), default=4, show_default=True, help="When more workers failed, begin no further batch."
)  # fmt: skip
@procedure_options
@click.pass_obj
def worker_restart(
    session: Session,
    worker_ids: tuple[str, ...],
    skip_current_hash: bool,
    idle_only: bool,
    timeout: float,
    min_batch: int,
    max_batch: int,
    observation_window: float,
    max_failures: int,
    asked: Asked,
) -> int:
    """Restart the workers of a deployed controller onto the release that it runs. A restart of the controller leaves them on their own.

    Workers with the least work come first; each batch is twice the one before. The task attempts of a worker end with it and are tried again,
    which the question names one by one; --idle-only spares them. A worker that has got other work when its turn comes is left as it is, and
    exit code 1 says that not all were restarted.

    \b
    iris-core --config lab.yaml cluster controller worker-restart --dry-run
    iris-core --config lab.yaml cluster controller worker-restart --idle-only --confirm lab
    """
    from iris_core.cli.deployment import deployment
    from iris_core.cli.driving import STOPPED, drive
    from iris_core.cli.restart_target import target_of
    from iris_core.config.places import LOCAL

    if max_batch < min_batch:
        raise UsageFailed(f"--max-batch {max_batch} is less than --min-batch {min_batch}")
    found = deployment(session)
    store = found.store()
    if found.config.platform != LOCAL:
        raise UsageFailed(
            f"{found.file}: this is a cluster of platform {found.config.platform}, and its controller starts no workers",
            hint="restart them where they were started",
        )

    def make(name: str, arguments: dict[str, Any], id_: str, account: str) -> Procedure:
        from iris_core.live.clock import SystemClock
        from iris_core.procedures.worker_moves import Wishes
        from iris_core.procedures.worker_restart import worker_restart as restarting

        def no_tree() -> Any:
            raise IrisError("a restart of workers ships nothing")

        wishes = Wishes(**{**arguments["wishes"], "worker_ids": tuple(arguments["wishes"]["worker_ids"])})
        target = target_of(session, found, store, id_, account, no_tree)
        return restarting(target, fleet_of(session, found), wishes, SystemClock())

    wishes = {
        "worker_ids": list(worker_ids),
        "skip_current": skip_current_hash,
        "idle_only": idle_only,
        "timeout_s": timeout,
        "min_batch": min_batch,
        "max_batch": max_batch,
        "window_s": observation_window,
        "max_failures": max_failures,
    }
    doing = f"restarting workers of {found.name}"
    outcome = drive(session, found.name, doing, NAME, {"wishes": wishes}, asked, make, (NAME,))
    return 0 if asked.dry_run and outcome.status == STOPPED else outcome.exit_code


def fleet_of(session: Session, found: Deployment) -> Fleet:
    """The workers of a deployment, as its controller and the host that they live on say."""
    from iris_core.procedures.worker_moves import Fleet
    from iris_core.wire.gen.iris.v1 import common_pb2
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    def running() -> dict[str, Any]:
        said = session.client.call(
            "ControllerService/GetClusterStatus",
            pb.GetClusterStatusRequest(),
            pb.GetClusterStatusResponse,
            timeout_s=ANSWER_S,
        )
        return {"release": said.release}

    def workers() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        token = ""
        while True:
            said = session.client.call(
                "ControllerService/ListWorkers",
                pb.ListWorkersRequest(page_token=token),
                pb.ListWorkersResponse,
                timeout_s=ANSWER_S,
            )
            rows += [
                {
                    "worker_id": row.worker_id,
                    "boot_id": row.boot_id,
                    "release": row.release,
                    "healthy": row.attached and row.health == common_pb2.WORKER_HEALTH_HEALTHY,
                }
                for row in said.workers
            ]
            token = said.next_page_token
            if not token:
                return rows

    def attempts() -> dict[str, dict[str, str]]:
        request = pb.ExecuteRawQueryRequest(sql=LIVE, max_rows=MOST_ROWS)
        said = session.client.call(
            "ControllerService/ExecuteRawQuery", request, pb.ExecuteRawQueryResponse, timeout_s=ANSWER_S
        )
        if said.truncated:
            # One that is left out would end with its worker, and nobody would have approved that.
            raise IrisError(
                f"more attempts go on than can be told at once ({len(said.rows):,}), and none may end that is not named",
                hint="restart the workers once fewer of them run",
            )
        placed: dict[str, dict[str, str]] = {}
        for row in said.rows:
            worker, uid, task, number = json.loads(row)
            placed.setdefault(str(worker), {})[str(uid)] = f"{task}:{number}"
        return placed

    return Fleet(running, workers, attempts, found.workers, found.restart_workers)
