"""The protocols between the floors of the house. All of them live here and nowhere else.

A protocol says what a neighbour may rely on: plain data in and out, the errors it raises, who closes it. Each has a shipped
fake in `providers/fake/` which the tests use. There is one module for each neighbour; whoever needs a name imports it from here. Must
never import an implementation, a database or a user interface.
"""

from __future__ import annotations

from iris_core.contracts.client import AsyncClient, Client, R
from iris_core.contracts.controller import ControllerHost, ControllerStatus, ControllerUnhealthy, StagedRelease, Tunnel
from iris_core.contracts.errors import ConnectFailed, Denied, IrisError, RpcFailed, UsageFailed
from iris_core.contracts.images import (
    ImageBuild,
    ImageBuilder,
    ImageInfo,
    ImageMissing,
    Registry,
    RegistryDenied,
    RegistryFailed,
)
from iris_core.contracts.machines import (
    Machines,
    MachinesFailed,
    QuotaExceeded,
    SliceInfo,
    SliceSpec,
    SliceState,
    StockOut,
    VmInfo,
    VmState,
)
from iris_core.contracts.objects import GenerationMismatch, ObjectInfo, ObjectMissing, ObjectStore

__all__ = [
    "AsyncClient",
    "Client",
    "ConnectFailed",
    "ControllerHost",
    "ControllerStatus",
    "ControllerUnhealthy",
    "Denied",
    "GenerationMismatch",
    "ImageBuild",
    "ImageBuilder",
    "ImageInfo",
    "ImageMissing",
    "IrisError",
    "Machines",
    "MachinesFailed",
    "ObjectInfo",
    "ObjectMissing",
    "ObjectStore",
    "QuotaExceeded",
    "R",
    "Registry",
    "RegistryDenied",
    "RegistryFailed",
    "RpcFailed",
    "SliceInfo",
    "SliceSpec",
    "SliceState",
    "StagedRelease",
    "StockOut",
    "Tunnel",
    "UsageFailed",
    "VmInfo",
    "VmState",
]
