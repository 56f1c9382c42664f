"""`job explain` and `task explain`: why it waits, and what would be if something about it were different.

Must never submit or change anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from iris_core.cli import output
from iris_core.cli.options import headers_option, output_option
from iris_core.cli.what_if import what_if, what_if_options

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1 import explain_pb2


@click.command("explain", short_help="Say why a job waits.")
@click.argument("job_id", metavar="JOB")
@what_if_options
@output_option()
@headers_option
@click.pass_obj
def explain_job(session: Session, /, job_id: str, how: output.Format, no_headers: bool, **values: Any) -> None:
    """Say why a job waits: which requirement leaves how many workers, and how many would fit without it.

    Options change what is asked for, for the answer only: job explain /ada/train --gpu H100x4 --region us-central1
    """
    from iris_core.cli.explaining import text
    from iris_core.model.ids import JobId
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    request = pb.ExplainJobRequest(job_id=str(JobId.parse(job_id)))
    _put(request, what_if(**values))
    answer = session.client.call("ControllerService/ExplainJob", request, pb.ExplainJobResponse)
    output.write(text(answer.explanation, how, headers=not no_headers))


@click.command("explain", short_help="Say why a task waits, where it is, or how it ended.")
@click.argument("task_id", metavar="TASK")
@what_if_options
@output_option()
@headers_option
@click.pass_obj
def explain_task(session: Session, /, task_id: str, how: output.Format, no_headers: bool, **values: Any) -> None:
    """Say why a task waits, where it is or how it ended, and what became of its attempts before.

    Options change what is asked for, for the answer only: task explain /ada/train/0 --memory 8GB
    """
    from iris_core.cli.explaining import text
    from iris_core.model.ids import TaskId
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    request = pb.ExplainTaskRequest(task_id=str(TaskId.parse(task_id)))
    _put(request, what_if(**values))
    answer = session.client.call("ControllerService/ExplainTask", request, pb.ExplainTaskResponse)
    output.write(text(answer.explanation, how, "Task", headers=not no_headers))


def _put(request: Any, changes: explain_pb2.WhatIf | None) -> None:
    if changes is not None:
        request.what_if.CopyFrom(changes)
