"""What the clients do, step by step (`steps`): submit, look, wait, read logs, cancel, endpoints.

A read that loses the connection is asked again for a while, because a controller that restarts is back within seconds; a mutation is
repeated by the connection itself under one request id. Must never cancel what it did not submit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import ConnectFailed, RpcFailed
from iris_core.sdk.records import (
    EndpointInfo,
    JobInfo,
    Missing,
    TaskInfo,
    endpoint_info,
    job_info,
    log_line,
    task_info,
)
from iris_core.sdk.steps import Ask, Operation, Pause
from iris_core.wire.gen.iris.v1 import common_pb2, endpoints_pb2, logs_pb2, task_status_pb2
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

if TYPE_CHECKING:
    from iris_core.workspace.bundle import Bundle

RECONNECT_FOR_S: Final = 60.0
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 0.5
PAGE_LINES: Final = 5_000
DRAIN_S: Final = 10.0
MANY_TASKS: Final = 2_000
"""Tasks whose last lines are waited for by count; beyond, a moment must do."""


def patient(step: Ask[Any], clock: Callable[[], float] = time.monotonic) -> Operation[Any]:
    """A read, asked again while nobody answers. Raises ConnectFailed after `RECONNECT_FOR_S`."""
    until = clock() + RECONNECT_FOR_S
    pause = FIRST_PAUSE_S
    while True:
        try:
            return (yield step)
        except ConnectFailed:
            if clock() >= until:
                raise
        except RpcFailed as error:
            if error.status != "UNAVAILABLE" or clock() >= until:
                raise
        yield Pause(pause)
        pause = min(pause * 2, 2.0)


def submit(request: pb.LaunchJobRequest, bundle: Bundle | None) -> Operation[pb.LaunchJobResponse]:
    """Stores the bundle where it is not yet, and submits."""
    if bundle is not None and bundle.bundle_id:
        request.bundle_id = bundle.bundle_id
        stat = pb.StatBundleRequest(bundle_id=bundle.bundle_id)
        known = yield from patient(Ask("ControllerService/StatBundle", stat, pb.StatBundleResponse))
        if not known.exists:
            put = pb.PutBundleRequest(bundle_id=bundle.bundle_id, data=bundle.data)
            yield from patient(Ask("ControllerService/PutBundle", put, pb.PutBundleResponse, 120.0))
    request.request_id = os.urandom(16).hex()
    answer: pb.LaunchJobResponse = yield Ask("ControllerService/LaunchJob", request, pb.LaunchJobResponse, 150.0)
    return answer


def get(job_id: str, incarnation: int = 0) -> Operation[JobInfo]:
    """The job as it stands. Raises Missing."""
    request = pb.GetJobStatusRequest(job_id=job_id)
    try:
        answer = yield from patient(Ask("ControllerService/GetJobStatus", request, pb.GetJobStatusResponse))
    except RpcFailed as error:
        if error.status == "NOT_FOUND":
            raise Missing(f"there is no job {job_id}") from None
        raise
    found = job_info(answer.job)
    if incarnation and found.incarnation != incarnation:
        raise Missing(f"job {job_id} has been replaced by another of its name")
    return found


def wait(
    job_id: str, incarnation: int, timeout_s: float | None, clock: Callable[[], float] = time.monotonic
) -> Operation[JobInfo]:
    """The job once it has ended. Raises TimeoutError, Missing."""
    until = None if timeout_s is None else clock() + timeout_s
    pause = FIRST_PAUSE_S
    while True:
        found: JobInfo = yield from get(job_id, incarnation)
        if found.ended:
            return found
        left = None if until is None else until - clock()
        if left is not None and left <= 0:
            raise TimeoutError(f"job {job_id} is still {found.state.name.lower()} after {timeout_s} s")
        yield Pause(pause if left is None else min(pause, left))
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def tasks(job_id: str) -> Operation[list[TaskInfo]]:
    """All tasks of a job, by index."""
    found: list[TaskInfo] = []
    token = ""
    while True:
        request = pb.ListTasksRequest(job_id=job_id, page_size=2_000, page_token=token)
        answer = yield from patient(Ask("ControllerService/ListTasks", request, pb.ListTasksResponse))
        found.extend(task_info(task) for task in answer.tasks)
        token = answer.next_page_token
        if not token:
            return found


def list_jobs(filter: str, prefix: str, limit: int | None) -> Operation[None]:
    """Yields jobs, newest first."""
    token, given = "", 0
    while True:
        request = pb.ListJobsRequest(filter=filter, prefix=prefix, page_size=500, page_token=token)
        answer = yield from patient(Ask("ControllerService/ListJobs", request, pb.ListJobsResponse))
        for job in answer.jobs:
            if limit is not None and given >= limit:
                return
            given += 1
            yield job_info(job)
        token = answer.next_page_token
        if not token:
            return


def cancel(job_id: str, reason: str) -> Operation[list[str]]:
    """Ends the job and all below it; the ids of what this call ended."""
    request = pb.TerminateJobRequest(job_id=job_id, reason=reason, request_id=os.urandom(16).hex())
    answer = yield Ask("ControllerService/TerminateJob", request, pb.TerminateJobResponse)
    return list(answer.job_ids)


def logs(
    job_id: str,
    incarnation: int,
    *,
    follow: bool,
    regex: str,
    substring: str,
    children: bool,
    clock: Callable[[], float] = time.monotonic,
) -> Operation[None]:
    """Yields the log's lines in the order they reached the store; with `follow`, until the job has ended and every line is there."""
    base = logs_pb2.FetchLogsRequest(
        source=job_id,
        match_scope=common_pb2.MATCH_SCOPE_PREFIX,
        min_incarnation=incarnation,
        no_children=not children,
        regex=regex,
        substring=substring,
        max_lines=PAGE_LINES,
    )
    cursor = 0
    ended_at: float | None = None
    missing: dict[str, int] = {}
    while True:
        base.cursor = cursor
        base.wait_ms = 0 if not follow else 200 if ended_at is not None else 1_000
        del base.producers[:]
        base.producers.extend(missing)
        answer = yield from patient(Ask("LogService/FetchLogs", base, logs_pb2.FetchLogsResponse, 60.0))
        cursor = answer.cursor
        for line in sorted(answer.entries, key=lambda entry: entry.seq):
            yield log_line(line)
        for mark in answer.marks:
            if mark.next_number >= missing.get(mark.producer, 0):
                missing.pop(mark.producer, None)
        more = cursor < answer.last_seq
        if more:
            continue
        if not follow:
            return
        if ended_at is None:
            job: JobInfo = yield from get(job_id, incarnation)
            if job.ended:
                ended_at = clock()
                missing = yield from _written(job)
        elif not missing or clock() - ended_at > DRAIN_S:
            return


def _written(job: JobInfo) -> Operation[dict[str, int]]:
    """Per attempt uid, how many lines the current attempts of an ended job wrote."""
    if job.num_tasks > MANY_TASKS:
        return {}
    found: list[TaskInfo] = yield from tasks(job.job_id)
    return {task.attempt_uid: task.log_lines for task in found if task.attempt_uid and task.log_lines}


def endpoints(prefix: str, exact: bool) -> Operation[list[EndpointInfo]]:
    """What serves under names that begin with `prefix`."""
    found: list[EndpointInfo] = []
    token = ""
    while True:
        request = endpoints_pb2.ListEndpointsRequest(prefix=prefix, exact=exact, page_token=token)
        answer = yield from patient(
            Ask("ControllerService/ListEndpoints", request, endpoints_pb2.ListEndpointsResponse)
        )
        found.extend(endpoint_info(endpoint) for endpoint in answer.endpoints)
        token = answer.next_page_token
        if not token:
            return found


def register(
    name: str, address: str, task_id: str, endpoint_id: str, metadata: Mapping[str, str], lease_ms: int, link: bool
) -> Operation[EndpointInfo]:
    """Registers or renews an endpoint."""
    request = endpoints_pb2.RegisterEndpointRequest(
        name=name,
        address=address,
        task_id=task_id,
        endpoint_id=endpoint_id,
        metadata=metadata,
        lease_ms=lease_ms,
        access=endpoints_pb2.ENDPOINT_ACCESS_LINK if link else endpoints_pb2.ENDPOINT_ACCESS_PRIVATE,
        request_id=os.urandom(16).hex(),
    )
    answer = yield Ask("ControllerService/RegisterEndpoint", request, endpoints_pb2.RegisterEndpointResponse)
    return endpoint_info(answer.endpoint)


def unregister(endpoint_id: str) -> Operation[bool]:
    """Removes an endpoint. Returns whether there was one."""
    request = endpoints_pb2.UnregisterEndpointRequest(endpoint_id=endpoint_id, request_id=os.urandom(16).hex())
    answer = yield Ask("ControllerService/UnregisterEndpoint", request, endpoints_pb2.UnregisterEndpointResponse)
    return bool(answer.removed)


def report(summary: str, detail: str) -> Operation[None]:
    """Says how the calling task goes."""
    request = task_status_pb2.UpdateTaskStatusRequest(
        summary_md=summary, detail_md=detail, request_id=os.urandom(16).hex()
    )
    yield Ask("ControllerService/UpdateTaskStatus", request, task_status_pb2.UpdateTaskStatusResponse)
