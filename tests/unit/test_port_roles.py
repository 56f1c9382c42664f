"""The roles table, against a second copy written by hand: a change must be made twice, knowingly (S5)."""

from __future__ import annotations

from typing import Any

import pytest

from iris_controller.http.app import create_app
from iris_controller.rpc.auth import Identity, Role
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.roles import ACCESS, HTTP_ROUTES, MAX_MESSAGE_BYTES, authorise, may_read
from iris_core.wire.services import methods

# a = admin, u = user, d = dashboard, t = task, w = worker; ! = changes something; then tier, and the audit event where the
# handler writes none itself.
EXPECTED = {
    "ControllerService/LaunchJob": ("au t !", 0, ""),
    "ControllerService/StatBundle": ("au t", 0, ""),
    "ControllerService/PutBundle": ("au t !", 0, "bundle_stored"),
    "ControllerService/GetJobStatus": ("audt", 0, ""),
    "ControllerService/GetJobState": ("audt", 0, ""),
    "ControllerService/ListJobs": ("audt", 0, ""),
    "ControllerService/TerminateJob": ("au t !", 1, ""),
    "ControllerService/CompleteJob": ("au !", 1, ""),
    "ControllerService/KickTasks": ("au !", 1, ""),
    "ControllerService/GetTaskStatus": ("audt", 0, ""),
    "ControllerService/ListTasks": ("audt", 0, ""),
    "ControllerService/ExplainJob": ("audt", 0, ""),
    "ControllerService/ExplainTask": ("audt", 0, ""),
    "ControllerService/ExecInContainer": ("au !", 1, "task_exec"),
    "ControllerService/UpdateTaskStatus": ("a t !", 0, ""),
    "ControllerService/GetProcessStatus": ("aud", 0, ""),
    "ControllerService/ListWorkers": ("aud", 0, ""),
    "ControllerService/GetSchedulerState": ("aud", 0, ""),
    "ControllerService/GetClusterStatus": ("aud", 0, ""),
    "ControllerService/GetPipelineHealth": ("audt", 0, ""),
    "ControllerService/ProfileTask": ("aut !", 0, "profile_taken"),
    "ControllerService/ListProfiles": ("audt", 0, ""),
    "ControllerService/GetProfile": ("audt", 0, ""),
    "ControllerService/ListBackends": ("aud", 0, ""),
    "ControllerService/GetProviderStatus": ("aud", 0, ""),
    "ControllerService/GetAutoscalerStatus": ("aud", 0, ""),
    "ControllerService/CreateSlice": ("a !", 2, ""),
    "ControllerService/DeleteSlice": ("a !", 3, ""),
    "ControllerService/GetVmLogs": ("aud", 0, ""),
    "ControllerService/GetCurrentUser": ("audtw", 0, ""),
    "ControllerService/ListUsers": ("aud", 0, ""),
    "ControllerService/SetUserBudget": ("a !", 1, ""),
    "ControllerService/GetUserBudget": ("aud", 0, ""),
    "ControllerService/ListUserBudgets": ("aud", 0, ""),
    "ControllerService/ExecuteRawQuery": ("a", 0, ""),
    "ControllerService/BeginCheckpoint": ("a!", 0, ""),
    "ControllerService/RegisterEndpoint": ("au t !", 0, ""),
    "ControllerService/UnregisterEndpoint": ("au t !", 0, ""),
    "ControllerService/ListEndpoints": ("audt", 0, ""),
    "ControllerService/MintEndpointToken": ("au !", 0, "endpoint_token_minted"),
    "ControllerService/Watch": ("audt", 0, ""),
    "WorkerService/Attach": ("aw !", 0, ""),
    "WorkerService/GetBundle": ("aw", 0, ""),
    "LogService/PushLogs": ("aw !", 0, ""),
    "LogService/FetchLogs": ("audt", 0, ""),
    "LogService/OpenLogView": ("audt", 0, ""),
    "LogService/ReadLines": ("audt", 0, ""),
    "LogService/FindNext": ("audt", 0, ""),
    "LogService/Tail": ("audt", 0, ""),
    "LogService/ExportLogs": ("audt", 0, ""),
    "LogService/CloseLogView": ("audt", 0, ""),
    "LogService/GetStoreHealth": ("aud", 0, ""),
    "StatsService/RegisterTable": ("aw !", 0, ""),
    "StatsService/WriteRows": ("aw !", 0, ""),
    "StatsService/Query": ("aud", 0, ""),
    "StatsService/ListNamespaces": ("aud", 0, ""),
    "StatsService/GetTableSchema": ("aud", 0, ""),
    "StatsService/GetTableStatus": ("aud w", 0, ""),
    "StatsService/DropTable": ("a !", 2, ""),
}
LETTERS = {"a": Role.ADMIN, "u": Role.USER, "d": Role.DASHBOARD, "t": Role.TASK, "w": Role.WORKER}


def identity(role: Role, *, read_only: bool = False) -> Identity:
    return Identity("x", role, "token", "127.0.0.1:1", read_only)


def test_every_rpc_has_a_row_and_no_row_is_left_over() -> None:
    assert set(ACCESS) == {method.full_name for method in methods()}


def test_the_rows_are_these() -> None:
    found = {
        name: (
            {letter for letter, role in LETTERS.items() if role in row.roles} | ({"!"} if row.mutates else set()),
            row.tier,
            row.action,
        )
        for name, row in ACCESS.items()
    }
    assert found == {name: (set(roles) - {" "}, tier, action) for name, (roles, tier, action) in EXPECTED.items()}


def test_nobody_unknown_is_in_any_row() -> None:
    assert not any(Role.ANONYMOUS in row.roles for row in ACCESS.values())


@pytest.mark.parametrize("name", sorted(ACCESS))
def test_rows_are_sound(name: str) -> None:
    row = ACCESS[name]
    assert 0 < row.max_bytes <= MAX_MESSAGE_BYTES
    assert 0 <= row.tier <= 3
    assert not row.action or row.mutates
    assert Role.ADMIN in row.roles


@pytest.mark.parametrize("role", list(Role))
@pytest.mark.parametrize("name", sorted(ACCESS))
def test_authorise_follows_the_table(name: str, role: Role) -> None:
    row = ACCESS[name]
    if role in row.roles:
        assert authorise(identity(role), name) is row
    else:
        with pytest.raises(RpcError, match="may not call") as error:
            authorise(identity(role), name)
        assert error.value.status == "PERMISSION_DENIED"
    if role in row.roles and row.mutates:
        with pytest.raises(RpcError, match="read-only") as error:
            authorise(identity(role, read_only=True), name)
        assert error.value.code == "read_only"
    elif role in row.roles:
        assert authorise(identity(role, read_only=True), name) is row


def test_http_routes() -> None:
    assert {route: roles is None for route, roles in HTTP_ROUTES.items()} == {
        "/health": True,
        "/readyz": True,
        "/metrics": False,
        "/proxy": False,
    }
    readers = {role for role in Role if may_read(identity(role), "/metrics")}
    assert readers == {role for role in Role if may_read(identity(role), "/readyz")}
    assert readers == {Role.ADMIN, Role.USER, Role.DASHBOARD}


def test_every_http_route_is_declared() -> None:
    nothing: Any = None

    async def nobody(scope: Any, receive: Any, send: Any) -> None: ...

    app: Any = create_app(nothing, nothing, nothing, problems=list, metrics=nothing, proxy=nobody)
    served = {route.path for route in app._app.routes}
    assert served - {"/iris.v1.{method:path}"} == set(HTTP_ROUTES)
