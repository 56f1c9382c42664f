"""Every RPC of iris.v1, read from the descriptors: name, message classes, and which side streams.

Dispatch, the roles table, the clients and `rpc controller …` all start from this one list, so that a method added to a proto is
seen by all of them at once. Must never hold a list of names of its own. Importing it loads no protobuf; the first call does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from google.protobuf.message import Message

PACKAGE = "iris.v1"


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC. `client_streaming` and `server_streaming` say which side sends many messages."""

    service: str
    name: str
    request: type[Message]
    response: type[Message]
    client_streaming: bool
    server_streaming: bool

    @property
    def full_name(self) -> str:
        """`ControllerService/LaunchJob`: how the rest of the program names it."""
        return f"{self.service}/{self.name}"

    @property
    def path(self) -> str:
        """`/iris.v1.ControllerService/LaunchJob`: the path on the wire, of gRPC and HTTP alike."""
        return f"/{PACKAGE}.{self.service}/{self.name}"


@cache
def _table() -> dict[str, Method]:
    from google.protobuf import message_factory

    from iris_core.wire.gen.iris.v1 import controller_pb2, logs_pb2, stats_pb2, worker_pb2

    table: dict[str, Method] = {}
    for module in (controller_pb2, worker_pb2, logs_pb2, stats_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for rpc in service.methods:
                found = Method(
                    service=service.name,
                    name=rpc.name,
                    request=message_factory.GetMessageClass(rpc.input_type),
                    response=message_factory.GetMessageClass(rpc.output_type),
                    client_streaming=rpc.client_streaming,
                    server_streaming=rpc.server_streaming,
                )
                table[found.full_name] = found
    return table


def methods() -> tuple[Method, ...]:
    """Every RPC of every service, in the order of the protos."""
    return tuple(_table().values())


def method(full_name: str) -> Method:
    """The RPC of that name (`ControllerService/LaunchJob`). Raises KeyError: there is none."""
    return _table()[full_name]


def service_methods(service: str) -> tuple[Method, ...]:
    """The RPCs of one service (`LogService`), in the order of its proto; empty if there is no such service."""
    return tuple(found for found in _table().values() if found.service == service)
