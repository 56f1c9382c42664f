"""`endpoints`: what tasks serve, and links to it (cli-auth-logs §2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from iris_core.cli import output
from iris_core.cli.lazy import Lazy, LazyGroup
from iris_core.cli.options import headers_option, output_option, watch_option

if TYPE_CHECKING:
    from iris_core.cli.session import Session
    from iris_core.wire.gen.iris.v1 import endpoints_pb2 as pb

COMMANDS = {
    "list": Lazy("iris_core.cli.endpoints:list_endpoints", "List what tasks and the cluster itself serve."),
    "mint": Lazy("iris_core.cli.endpoints:mint", "Make a link that opens one endpoint until it expires."),
}


@click.group(cls=LazyGroup, table=COMMANDS)
def endpoints() -> None:
    """Look at what tasks serve, and make links to it.

    The controller's port reaches an endpoint at /proxy/NAME/, with the slashes inside the name written as dots.
    """


@click.command("list", short_help=COMMANDS["list"].help)
@click.argument("prefix", default="")
@output_option()
@headers_option
@watch_option
@click.pass_obj
def list_endpoints(session: Session, prefix: str, how: output.Format, no_headers: bool, watch: bool) -> None:
    """List what serves under names that begin with PREFIX, by name.

    \b
    endpoints list /ada/train
    endpoints list -o wide
    """
    from iris_core.cli import reads, watching
    from iris_core.cli.listings import ENDPOINT_LIST

    if watch:
        watching.watch(session, ENDPOINT_LIST, lambda: _read(session, prefix), how, headers=not no_headers)
    rows = _read(session, prefix)
    if rows or how not in ("table", "wide"):
        output.write(ENDPOINT_LIST.text(rows, how, reads.now_ms(), headers=not no_headers))
    else:
        session.diagnostics.note(
            f"nothing serves under a name that begins with {prefix}" if prefix else "nothing serves"
        )


def _read(session: Session, prefix: str) -> list[pb.Endpoint]:
    from iris_core.wire.gen.iris.v1 import endpoints_pb2 as pb

    found: list[pb.Endpoint] = []
    token = ""
    while True:
        request = pb.ListEndpointsRequest(prefix=prefix, page_token=token)
        answer = session.client.call("ControllerService/ListEndpoints", request, pb.ListEndpointsResponse)
        found.extend(answer.endpoints)
        token = answer.next_page_token
        if not token:
            return found


@click.command("mint", short_help=COMMANDS["mint"].help)
@click.argument("name")
@click.option("--ttl", default="1h", show_default=True, metavar="TIME", help="How long the link works, at most 30d.")
@output_option("table", "json")
@click.pass_obj
def mint(session: Session, name: str, ttl: str, how: output.Format) -> None:
    """Make a link that opens the endpoint NAME for whoever holds it.

    \b
    endpoints mint /ada/train/board --ttl 8h

    Only for endpoints that their task registered with access `link`. The link is a secret: it needs no other
    credential, and it cannot be taken back before it expires except by making the endpoint private.
    """
    from iris_core.contracts import UsageFailed
    from iris_core.live.wording import iso
    from iris_core.model.errors import ModelError
    from iris_core.model.quantities import parse_duration
    from iris_core.wire.gen.iris.v1 import endpoints_pb2 as pb

    try:
        ttl_ms = int(parse_duration(ttl))
    except ModelError as error:
        raise UsageFailed(f"--ttl: {error.message}", hint=error.hint) from None
    if ttl_ms < 1_000:
        # Nothing on the wire is the server's default.
        raise UsageFailed(f"--ttl {ttl} is less than a second")
    answer = session.client.call(
        "ControllerService/MintEndpointToken",
        pb.MintEndpointTokenRequest(name=name, ttl_ms=ttl_ms),
        pb.MintEndpointTokenResponse,
    )
    url = session.client.url.rstrip("/") + answer.path
    if how == "json":
        output.line(output.as_json({"url": url, "expires": iso(answer.expires_at_ms)}))
        return
    output.line(url)
    session.diagnostics.note(f"it opens {name} until {iso(answer.expires_at_ms)}, for whoever has it")
