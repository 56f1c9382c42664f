"""`rpc SERVICE METHOD`: every RPC of the release, made from the descriptors, so that a new one is there at once
(cli-auth-logs §1.7).

Scalar fields become options, `--json` gives the whole request instead; the answer is JSON with the names of the
proto. A stream prints one JSON object a line. Must never hold a list of methods.
"""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Any, Final

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.session import session_of
from iris_core.contracts import UsageFailed

if TYPE_CHECKING:
    from iris_core.wire.services import Method

SERVICES: Final = {
    "controller": "ControllerService",
    "worker": "WorkerService",
    "logs": "LogService",
    "stats": "StatsService",
}
COMMANDS = {
    "controller": Lazy("iris_core.cli.rpc:controller", "What operators and scripts ask of the controller."),
    "worker": Lazy("iris_core.cli.rpc:worker", "What workers ask of it."),
    "logs": Lazy("iris_core.cli.rpc:logs", "The log store."),
    "stats": Lazy("iris_core.cli.rpc:stats", "Its tables of measurements and events."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def rpc() -> None:
    """Call any RPC by its name: rpc controller get-scheduler-state."""


def kebab(name: str) -> str:
    """`GetSchedulerState` as it is typed: `get-scheduler-state`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", name).lower()


class ServiceGroup(click.Group):
    """The methods of one service as commands. Streams towards the server cannot be typed and are left out."""

    def __init__(self, service: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.service = service

    def _methods(self) -> dict[str, Method]:
        from iris_core.wire.services import service_methods

        return {kebab(found.name): found for found in service_methods(self.service) if not found.client_streaming}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(self._methods())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        found = self._methods().get(cmd_name)
        return command_of(found) if found is not None else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self._methods() and not args[0].startswith("-"):
            from iris_core.model.errors import did_you_mean, shown

            near = did_you_mean(args[0], self._methods())
            raise click.UsageError(f"{self.service} has no method {shown(args[0])}{'; ' + near if near else ''}", ctx)
        return super().resolve_command(ctx, args)


controller = ServiceGroup("ControllerService", name="controller", help=COMMANDS["controller"].help)
worker = ServiceGroup("WorkerService", name="worker", help=COMMANDS["worker"].help)
logs = ServiceGroup("LogService", name="logs", help=COMMANDS["logs"].help)
stats = ServiceGroup("StatsService", name="stats", help=COMMANDS["stats"].help)


def _scalars(found: Method) -> list[Any]:
    """The fields that fit on a command line: single, and neither messages nor bytes."""
    return [
        field
        for field in found.request.DESCRIPTOR.fields
        if not field.is_repeated and field.type not in (field.TYPE_MESSAGE, field.TYPE_GROUP, field.TYPE_BYTES)
    ]


def command_of(found: Method) -> click.Command:
    """The command for one RPC."""
    params: list[click.Parameter] = [
        click.Option(
            ["--json", "body"],
            metavar="JSON",
            help="The whole request, `-` = from standard input; excludes the fields.",
        )
    ]
    for field in _scalars(found):
        option = field.name.replace("_", "-")
        if field.type == field.TYPE_BOOL:
            params.append(click.Option([f"--{option}/--no-{option}", field.name], default=None, help="true or false"))
        elif field.type == field.TYPE_ENUM:
            words = [value.name for value in field.enum_type.values]
            params.append(click.Option([f"--{option}", field.name], type=click.Choice(words, case_sensitive=False)))
        else:
            numeric = field.cpp_type in (
                field.CPPTYPE_INT32,
                field.CPPTYPE_INT64,
                field.CPPTYPE_UINT32,
                field.CPPTYPE_UINT64,
            )
            params.append(
                click.Option(
                    [f"--{option}", field.name], metavar="N" if numeric else "TEXT", type=int if numeric else str
                )
            )
    if "request_id" in found.request.DESCRIPTOR.fields_by_name:
        help_text = "The token of a plan (rpc controller plan), for exactly what was planned."
        params.append(click.Option(["--plan-token", "plan_token"], metavar="TOKEN", help=help_text))
    return click.Command(
        kebab(found.name),
        params=params,
        callback=click.pass_context(lambda ctx, **values: _call(ctx, found, **values)),
        help=f"{found.service}/{found.name}"
        + (": a stream, one JSON object a line." if found.server_streaming else "."),
    )


def _call(ctx: click.Context, found: Method, body: str | None, plan_token: str | None = None, **fields: Any) -> None:
    from google.protobuf import json_format

    from iris_core.client.context import sending

    session = session_of(ctx)
    given = {name: value for name, value in fields.items() if value is not None}
    if body is not None and given:
        raise UsageFailed("--json and single fields exclude each other", hint="put them all into --json")
    request = found.request()
    try:
        if body is None:
            json_format.ParseDict(given, request)
        else:
            text = sys.stdin.read() if body == "-" else body
            json_format.Parse(text, request)
    except (json_format.ParseError, UnicodeDecodeError) as error:
        said = " ".join(str(error).split())
        raise UsageFailed(f"not a {request.DESCRIPTOR.name}: {said[:300]}") from None
    if found.server_streaming:
        for answer in session.client.stream(found.full_name, request, found.response):
            output.line(output.as_json_line(_as_dict(answer)))
            output.flush()
        return
    with sending(plan_token=plan_token or ""):
        answer = session.client.call(found.full_name, request, found.response, timeout_s=90.0)
    output.line(output.as_json(_as_dict(answer)))


def _as_dict(message: Any) -> dict[str, Any]:
    from google.protobuf import json_format

    return json_format.MessageToDict(
        message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
