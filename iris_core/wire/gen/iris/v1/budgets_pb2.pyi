from iris_core.wire.gen.iris.v1 import common_pb2 as _common_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class UserBudget(_message.Message):
    __slots__ = ("user_id", "budget_limit", "budget_spent", "max_band", "effective_band", "utilization_percent", "updated_at_ms")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_LIMIT_FIELD_NUMBER: _ClassVar[int]
    BUDGET_SPENT_FIELD_NUMBER: _ClassVar[int]
    MAX_BAND_FIELD_NUMBER: _ClassVar[int]
    EFFECTIVE_BAND_FIELD_NUMBER: _ClassVar[int]
    UTILIZATION_PERCENT_FIELD_NUMBER: _ClassVar[int]
    UPDATED_AT_MS_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    budget_limit: int
    budget_spent: int
    max_band: _common_pb2.PriorityBand
    effective_band: _common_pb2.PriorityBand
    utilization_percent: float
    updated_at_ms: int
    def __init__(self, user_id: _Optional[str] = ..., budget_limit: _Optional[int] = ..., budget_spent: _Optional[int] = ..., max_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., effective_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., utilization_percent: _Optional[float] = ..., updated_at_ms: _Optional[int] = ...) -> None: ...

class SetUserBudgetRequest(_message.Message):
    __slots__ = ("user_id", "budget_limit", "max_band", "request_id")
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    BUDGET_LIMIT_FIELD_NUMBER: _ClassVar[int]
    MAX_BAND_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    budget_limit: int
    max_band: _common_pb2.PriorityBand
    request_id: str
    def __init__(self, user_id: _Optional[str] = ..., budget_limit: _Optional[int] = ..., max_band: _Optional[_Union[_common_pb2.PriorityBand, str]] = ..., request_id: _Optional[str] = ...) -> None: ...

class SetUserBudgetResponse(_message.Message):
    __slots__ = ("budget",)
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    budget: UserBudget
    def __init__(self, budget: _Optional[_Union[UserBudget, _Mapping]] = ...) -> None: ...

class GetUserBudgetRequest(_message.Message):
    __slots__ = ("user_id",)
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    def __init__(self, user_id: _Optional[str] = ...) -> None: ...

class GetUserBudgetResponse(_message.Message):
    __slots__ = ("budget",)
    BUDGET_FIELD_NUMBER: _ClassVar[int]
    budget: UserBudget
    def __init__(self, budget: _Optional[_Union[UserBudget, _Mapping]] = ...) -> None: ...

class ListUserBudgetsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUserBudgetsResponse(_message.Message):
    __slots__ = ("budgets", "defaults")
    BUDGETS_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    budgets: _containers.RepeatedCompositeFieldContainer[UserBudget]
    defaults: UserBudget
    def __init__(self, budgets: _Optional[_Iterable[_Union[UserBudget, _Mapping]]] = ..., defaults: _Optional[_Union[UserBudget, _Mapping]] = ...) -> None: ...

class UserSummary(_message.Message):
    __slots__ = ("user_id", "role", "active_jobs", "running_tasks", "jobs_by_state", "tasks_by_state")
    class JobsByStateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class TasksByStateEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    USER_ID_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_JOBS_FIELD_NUMBER: _ClassVar[int]
    RUNNING_TASKS_FIELD_NUMBER: _ClassVar[int]
    JOBS_BY_STATE_FIELD_NUMBER: _ClassVar[int]
    TASKS_BY_STATE_FIELD_NUMBER: _ClassVar[int]
    user_id: str
    role: str
    active_jobs: int
    running_tasks: int
    jobs_by_state: _containers.ScalarMap[str, int]
    tasks_by_state: _containers.ScalarMap[str, int]
    def __init__(self, user_id: _Optional[str] = ..., role: _Optional[str] = ..., active_jobs: _Optional[int] = ..., running_tasks: _Optional[int] = ..., jobs_by_state: _Optional[_Mapping[str, int]] = ..., tasks_by_state: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ListUsersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListUsersResponse(_message.Message):
    __slots__ = ("users",)
    USERS_FIELD_NUMBER: _ClassVar[int]
    users: _containers.RepeatedCompositeFieldContainer[UserSummary]
    def __init__(self, users: _Optional[_Iterable[_Union[UserSummary, _Mapping]]] = ...) -> None: ...
