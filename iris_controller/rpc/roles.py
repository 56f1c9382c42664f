"""Who may call what: one row per RPC and per HTTP route (DESIGN §4, control-plane §5).

Authorisation, read-only mode, request limits, audit and the documentation all read this table. An RPC without a row fails a test and
cannot be served. Must never depend on a request: what a caller may do to which object is the handler's to check.
"""

from __future__ import annotations

from dataclasses import dataclass

from iris_controller.rpc.auth import Identity, Role
from iris_controller.rpc.errors import denied

MIB = 1024 * 1024
MAX_MESSAGE_BYTES = 64 * MIB
"""No request of any method is larger; answers neither."""


@dataclass(frozen=True, slots=True)
class Access:
    """One row.

    roles       who may call it at all
    mutates     refused for a read-only caller
    tier        of confirmation, 0 reversible … 3 cluster-wide (console §3d); 0 where it does not mutate
    action      the audit event that a successful call writes, "" = none by itself
    max_bytes   largest request, or message of a stream, as protobuf
    deadline_s  of a call whose caller set none; 0 = the handler's own business
    """

    roles: frozenset[Role]
    mutates: bool = False
    tier: int | None = None
    action: str = ""
    max_bytes: int = MIB
    deadline_s: float = 60.0


_OPERATOR = frozenset({Role.ADMIN, Role.USER})
_READER = _OPERATOR | {Role.DASHBOARD}
_READER_OR_TASK = _READER | {Role.TASK}
_SUBMITTER = _OPERATOR | {Role.TASK}
_WORKER = frozenset({Role.WORKER, Role.ADMIN})
_ADMIN = frozenset({Role.ADMIN})

ACCESS: dict[str, Access] = {
    "ControllerService/LaunchJob": Access(_SUBMITTER, True, 0, max_bytes=32 * MIB, deadline_s=150.0),
    "ControllerService/StatBundle": Access(_SUBMITTER),
    "ControllerService/PutBundle": Access(_SUBMITTER, True, None, "bundle_stored", max_bytes=26 * MIB),
    "ControllerService/GetJobStatus": Access(_READER_OR_TASK),
    "ControllerService/GetJobState": Access(_READER_OR_TASK),
    "ControllerService/ListJobs": Access(_READER_OR_TASK),
    "ControllerService/TerminateJob": Access(_SUBMITTER, True, 1),
    "ControllerService/CompleteJob": Access(_OPERATOR, True, 1),
    "ControllerService/KickTasks": Access(_OPERATOR, True, 1, max_bytes=8 * MIB),
    "ControllerService/GetTaskStatus": Access(_READER_OR_TASK),
    "ControllerService/ListTasks": Access(_READER_OR_TASK),
    "ControllerService/ExplainJob": Access(_READER_OR_TASK, max_bytes=32 * MIB),
    "ControllerService/ExplainTask": Access(_READER_OR_TASK),
    "ControllerService/ExecInContainer": Access(_OPERATOR, True, 1, "task_exec", deadline_s=0),
    "ControllerService/UpdateTaskStatus": Access(_ADMIN | {Role.TASK}, True, None),
    "ControllerService/GetProcessStatus": Access(_READER),
    "ControllerService/ProfileTask": Access(_SUBMITTER, True, 0, "profile_taken", deadline_s=0),
    "ControllerService/ListProfiles": Access(_READER_OR_TASK),
    "ControllerService/GetProfile": Access(_READER_OR_TASK, deadline_s=120.0),
    "ControllerService/ListWorkers": Access(_READER),
    "ControllerService/GetSchedulerState": Access(_READER),
    "ControllerService/GetClusterStatus": Access(_READER),
    "ControllerService/GetPipelineHealth": Access(_READER_OR_TASK),
    "ControllerService/ListBackends": Access(_READER),
    "ControllerService/GetProviderStatus": Access(_READER),
    "ControllerService/GetAutoscalerStatus": Access(_READER),
    "ControllerService/CreateSlice": Access(_ADMIN, True, 2),
    "ControllerService/DeleteSlice": Access(_ADMIN, True, 3),
    "ControllerService/GetVmLogs": Access(_READER, deadline_s=30.0),
    "ControllerService/GetCurrentUser": Access(_READER | {Role.TASK, Role.WORKER}),
    "ControllerService/ListUsers": Access(_READER),
    "ControllerService/SetUserBudget": Access(_ADMIN, True, 1),
    "ControllerService/GetUserBudget": Access(_READER),
    "ControllerService/ListUserBudgets": Access(_READER),
    "ControllerService/ExecuteRawQuery": Access(_ADMIN),
    "ControllerService/RegisterEndpoint": Access(_SUBMITTER, True, None),
    "ControllerService/UnregisterEndpoint": Access(_SUBMITTER, True, 1),
    "ControllerService/ListEndpoints": Access(_READER_OR_TASK),
    "ControllerService/MintEndpointToken": Access(_OPERATOR, True, 0, "endpoint_token_minted"),
    "ControllerService/Plan": Access(_OPERATOR, max_bytes=8 * MIB),
    "ControllerService/BeginCheckpoint": Access(_ADMIN, True, 0, deadline_s=960.0),
    "ControllerService/Watch": Access(_READER_OR_TASK, deadline_s=0),
    "WorkerService/Attach": Access(_WORKER, True, None, max_bytes=16 * MIB, deadline_s=0),
    "WorkerService/GetBundle": Access(_WORKER, deadline_s=0),
    "LogService/PushLogs": Access(_WORKER, True, None, max_bytes=MAX_MESSAGE_BYTES),
    "LogService/FetchLogs": Access(_READER_OR_TASK),
    "LogService/OpenLogView": Access(_READER_OR_TASK),
    "LogService/ReadLines": Access(_READER_OR_TASK),
    "LogService/FindNext": Access(_READER_OR_TASK),
    "LogService/Tail": Access(_READER_OR_TASK, deadline_s=0),
    "LogService/ExportLogs": Access(_READER_OR_TASK, deadline_s=0),
    "LogService/CloseLogView": Access(_READER_OR_TASK),
    "LogService/GetStoreHealth": Access(_READER),
    "StatsService/RegisterTable": Access(_WORKER, True, None),
    "StatsService/WriteRows": Access(_WORKER, True, None, max_bytes=16 * MIB),
    "StatsService/Query": Access(_READER, deadline_s=90.0),
    "StatsService/ListNamespaces": Access(_READER),
    "StatsService/GetTableSchema": Access(_READER),
    "StatsService/GetTableStatus": Access(_READER | {Role.WORKER}),
    "StatsService/DropTable": Access(_ADMIN, True, 2),
}

HTTP_ROUTES: dict[str, frozenset[Role] | None] = {
    "/health": None,
    "/readyz": None,
    "/metrics": _READER,
    "/proxy": _READER_OR_TASK,
}
"""The routes beside the RPCs: who may read each; None = everybody. `/readyz` names the problems only to readers,
and `/proxy/t/` asks for the token in its path instead."""

OPEN_SERVICES = frozenset(
    {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection", "grpc.reflection.v1.ServerReflection"}
)
"""gRPC services that answer everybody: whether the process serves, and the shape of the protos. They hold no state of a cluster."""


def authorise(identity: Identity, full_name: str) -> Access:
    """The row of the method, if this caller may call it. Raises PERMISSION_DENIED."""
    access = ACCESS[full_name]
    if identity.role not in access.roles:
        raise denied(f"{identity.role} may not call {full_name}", subject=full_name, code="role")
    if access.mutates and identity.read_only:
        raise denied(
            f"{full_name} changes something and this connection is read-only", subject=full_name, code="read_only"
        )
    return access


def may_read(identity: Identity, route: str) -> bool:
    """Whether this caller may read everything of that HTTP route."""
    roles = HTTP_ROUTES[route]
    return identity.role in (_READER if roles is None else roles)
