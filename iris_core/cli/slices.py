"""`cluster create-slice` and `delete-slice`: machines beside what the autoscaler makes (cli-auth-logs §1.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.options import confirm_option, output_option

if TYPE_CHECKING:
    from iris_core.cli.session import Session


@click.command("create-slice", short_help="Make one slice of a scale group, outside the autoscaler's care.")
@click.option("--scale-group", required=True, metavar="GROUP", help="The group of which to make one more.")
@click.option("--dry-run", is_flag=True, help="Only check that it could be asked for.")
@output_option("table", "json")
@click.pass_obj
def create_slice(session: Session, scale_group: str, dry_run: bool, how: output.Format) -> None:
    """Make one slice of a scale group, outside the autoscaler's care: it does not count, and stays until you delete it.

    \b
    cluster create-slice --scale-group tpu-v5e-16
    """
    from iris_core.cli import describing
    from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb

    request = pb.CreateSliceRequest(scale_group=scale_group, dry_run=dry_run)
    answer = session.client.call("ControllerService/CreateSlice", request, pb.CreateSliceResponse, timeout_s=700)
    if dry_run:
        session.diagnostics.note(f"would make one slice of {scale_group}; nothing was changed")
    elif how == "json":
        output.line(output.as_json(describing.as_object(answer)))
    else:
        output.line(answer.slice_id)
        session.diagnostics.note(f"its workers will be {', '.join(answer.worker_ids)}")


@click.command("delete-slice", short_help="Delete a slice: what runs there is stopped and tried again elsewhere.")
@click.argument("slice_id", metavar="SLICE")
@confirm_option
@click.option("--reason", default="", metavar="TEXT", help="Kept with the slice and in the controller's log.")
@click.option("--dry-run", is_flag=True, help="Print the tasks that it would stop.")
@click.pass_obj
def delete_slice(session: Session, slice_id: str, confirm: str | None, reason: str, dry_run: bool) -> None:
    """Delete a slice, whoever made it. Its tasks are stopped and tried again elsewhere.

    A task that had begun is charged as preempted. A gang stops as a whole, and one task of it is charged.

    \b
    cluster delete-slice tpu-v5e-16-0badcafe --dry-run
    cluster delete-slice tpu-v5e-16-0badcafe --confirm prod
    """
    from iris_core.cli.confirming import confirmed
    from iris_core.client import plans
    from iris_core.client.context import sending
    from iris_core.model.text import counted
    from iris_core.wire.gen.iris.v1 import autoscaler_pb2 as pb
    from iris_core.wire.gen.iris.v1 import controller_pb2

    method = "ControllerService/DeleteSlice"

    def call(**fields: object) -> pb.DeleteSliceResponse:
        request = pb.DeleteSliceRequest(slice_id=slice_id, reason=reason, **fields)  # type: ignore[arg-type]
        return session.client.call(method, request, pb.DeleteSliceResponse)

    planned = call(dry_run=True)
    stops = f"stops {counted(len(planned.task_ids), 'task')} on {counted(len(planned.worker_ids), 'worker')}"
    if dry_run:
        output.write("".join(f"{task_id}\n" for task_id in planned.task_ids))
        session.diagnostics.note(f"deleting {slice_id} {stops}; nothing was changed")
        return
    name = session.client.call(
        "ControllerService/GetClusterStatus",
        controller_pb2.GetClusterStatusRequest(),
        controller_pb2.GetClusterStatusResponse,
    ).cluster
    looked_at = pb.DeleteSliceRequest(slice_id=slice_id, generation=planned.generation)
    plan = plans.make_now(session.client, method, [looked_at], tier=3)
    for who, why in plan.skipped:
        session.diagnostics.note(f"{who} {why}")
    if plan.skipped:
        return
    typed = confirmed(confirm, name, f"Deleting slice {slice_id} {stops}")
    with sending(plan_token=plan.token, confirm=typed):
        done = call(confirm=typed, generation=planned.generation)
    output.line(f"deleting {slice_id}")
    stopped = len(done.task_ids)
    note = f"{stopped} {'task is' if stopped == 1 else 'tasks are'} stopped; its machines go once they have ended"
    session.diagnostics.note(note if stopped else "nothing ran there; its machines go now")
