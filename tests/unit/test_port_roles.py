"""The roles table, against a second copy written by hand: a change must be made twice, knowingly (S5)."""

from __future__ import annotations

from typing import Any

import pytest

from iris_controller.http.app import create_app
from iris_controller.rpc.auth import Identity, Role
from iris_controller.rpc.errors import RpcError
from iris_controller.rpc.roles import ACCESS, HTTP_ROUTES, MAX_MESSAGE_BYTES, authorise, may_read
from iris_core.wire.services import methods

# a = admin, u = user, d = dashboard, t = task, w = worker; ! = changes something; then tier (None: no operator's change), and the
# audit event where the handler writes none itself.
EXPECTED = {
    "ControllerService/LaunchJob": ("au t !", 0, ""),
    "ControllerService/StatBundle": ("au t", None, ""),
    "ControllerService/PutBundle": ("au t !", None, "bundle_stored"),
    "ControllerService/GetJobStatus": ("audt", None, ""),
    "ControllerService/GetJobState": ("audt", None, ""),
    "ControllerService/ListJobs": ("audt", None, ""),
    "ControllerService/TerminateJob": ("au t !", 1, ""),
    "ControllerService/CompleteJob": ("au !", 1, ""),
    "ControllerService/KickTasks": ("au !", 1, ""),
    "ControllerService/GetTaskStatus": ("audt", None, ""),
    "ControllerService/ListTasks": ("audt", None, ""),
    "ControllerService/ExplainJob": ("audt", None, ""),
    "ControllerService/ExplainTask": ("audt", None, ""),
    "ControllerService/ExecInContainer": ("au !", 1, "task_exec"),
    "ControllerService/UpdateTaskStatus": ("a t !", None, ""),
    "ControllerService/GetProcessStatus": ("aud", None, ""),
    "ControllerService/ListWorkers": ("aud", None, ""),
    "ControllerService/GetSchedulerState": ("aud", None, ""),
    "ControllerService/GetClusterStatus": ("aud", None, ""),
    "ControllerService/GetPipelineHealth": ("audt", None, ""),
    "ControllerService/ProfileTask": ("aut !", 0, "profile_taken"),
    "ControllerService/ListProfiles": ("audt", None, ""),
    "ControllerService/GetProfile": ("audt", None, ""),
    "ControllerService/ListBackends": ("aud", None, ""),
    "ControllerService/GetProviderStatus": ("aud", None, ""),
    "ControllerService/GetAutoscalerStatus": ("aud", None, ""),
    "ControllerService/CreateSlice": ("a !", 2, ""),
    "ControllerService/DeleteSlice": ("a !", 3, ""),
    "ControllerService/GetVmLogs": ("aud", None, ""),
    "ControllerService/GetCurrentUser": ("audtw", None, ""),
    "ControllerService/ListUsers": ("aud", None, ""),
    "ControllerService/SetUserBudget": ("a !", 1, ""),
    "ControllerService/GetUserBudget": ("aud", None, ""),
    "ControllerService/ListUserBudgets": ("aud", None, ""),
    "ControllerService/ExecuteRawQuery": ("a", None, ""),
    "ControllerService/Plan": ("au", None, ""),
    "ControllerService/BeginCheckpoint": ("a!", 0, ""),
    "ControllerService/RegisterEndpoint": ("au t !", None, ""),
    "ControllerService/UnregisterEndpoint": ("au t !", 1, ""),
    "ControllerService/ListEndpoints": ("audt", None, ""),
    "ControllerService/MintEndpointToken": ("au !", 0, "endpoint_token_minted"),
    "ControllerService/Watch": ("audt", None, ""),
    "WorkerService/Attach": ("aw !", None, ""),
    "WorkerService/GetBundle": ("aw", None, ""),
    "LogService/PushLogs": ("aw !", None, ""),
    "LogService/FetchLogs": ("audt", None, ""),
    "LogService/OpenLogView": ("audt", None, ""),
    "LogService/ReadLines": ("audt", None, ""),
    "LogService/FindNext": ("audt", None, ""),
    "LogService/Tail": ("audt", None, ""),
    "LogService/ExportLogs": ("audt", None, ""),
    "LogService/CloseLogView": ("audt", None, ""),
    "LogService/GetStoreHealth": ("aud", None, ""),
    "StatsService/RegisterTable": ("aw !", None, ""),
    "StatsService/WriteRows": ("aw !", None, ""),
    "StatsService/Query": ("aud", None, ""),
    "StatsService/ListNamespaces": ("aud", None, ""),
    "StatsService/GetTableSchema": ("aud", None, ""),
    "StatsService/GetTableStatus": ("aud w", None, ""),
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
    assert row.tier is None or (row.mutates and 0 <= row.tier <= 3)
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
