"""The program `iris`: the console, and with a command the same as `iris-core`.

Without a command and on a terminal the console opens; without a terminal the help is printed on standard error and the exit
code is 2. Textual is imported only when the console really opens. The terminal is restored whatever ends the console, and a
signal is said in one line, with exit code 128 + its number.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import TYPE_CHECKING, NoReturn

from iris_core.contracts import IrisError, UsageFailed
from iris_tui.endings import handlers_kept, last_words, watch_signals
from iris_tui.first_frame import first_frame, leave

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from iris_core.cli.session import Session as CommandLine
    from iris_core.config.console import ConsoleSettings
    from iris_core.connect import Target
    from iris_core.contracts import AsyncClient
    from iris_core.live.clock import Clock
    from iris_tui.session import Session

DEMO_NOTE = "The demo's cluster and its jobs end with it."


def main() -> NoReturn:
    """The entry point."""
    sys.exit(run(sys.argv[1:]))


def run(argv: Sequence[str], *, clock: Clock | None = None) -> int:
    """Run one command line and return its exit code; nothing is raised. `clock` is that of a rollout's watch, for tests."""
    from iris_core.cli.main import run as run_command

    if argv[:1] == ["--keys"]:
        from iris_core.cli.diagnostics import Diagnostics, guarded
        from iris_tui.keys_page import run_keys

        return guarded(Diagnostics(), lambda: run_keys(argv[1:]), lambda: None)
    words, plain = _without_plain(argv)

    def alone(line: CommandLine) -> int:
        return _open(line, plain=plain)

    def console(target: Target) -> int:
        url = f"--controller-url={target.url}"
        return run_console(target, selector=url, on_quit_note=DEMO_NOTE, remember=False)

    return run_command(words, program="iris", console=console, alone=alone, clock=clock)


def _without_plain(argv: Sequence[str]) -> tuple[list[str], bool]:
    """`--plain` is an option of the console alone: it is taken out where no command has come yet."""
    words = list(argv)
    for place, word in enumerate(words):
        if not word.startswith("-") and (
            place == 0 or words[place - 1] not in ("--cluster", "--config", "--controller-url", "--checkpoint")
        ):
            break
        if word == "--":
            break
        if word == "--plain":
            del words[place]
            return words, True
    return words, False


def _open(line: CommandLine, *, plain: bool) -> int:
    """The console on what the selectors mean; where they mean nothing and clusters are known, the operator chooses."""
    dumb = os.environ.get("TERM", "dumb") == "dumb"
    if not plain and not _has_terminal():
        return _no_terminal(line)
    if plain or dumb:
        return _open_plain(line)
    if line.checkpoint:
        return _open_checkpoint(line.checkpoint, read_only=line.read_only)
    watch_signals()
    preload()
    try:
        target = line.target
    except UsageFailed:
        if line.cluster or line.config or line.controller_url or os.environ.get("IRIS_CLUSTER"):
            raise
        chosen = _choose(line)
        if chosen is None:
            return 0
        target = chosen
    return run_console(target, selector=line.selector().strip(), watch_clock=line.clock)


def _open_plain(line: CommandLine) -> int:
    """The console as lines, on a cluster or a checkpoint."""
    from iris_core.cli.beside import load
    from iris_core.config.console import load_settings
    from iris_tui.plain import run_plain

    settings = load_settings()
    if line.checkpoint:
        load("iris_controller.checkpoint.installed").require_installed()
        from iris_tui.offline import offline_session

        return run_plain(offline_session(line.checkpoint), settings=settings)
    session = session_for(line.target, selector=line.selector().strip(), settings=settings, remember=False)
    return run_plain(session, settings=settings)


def _open_checkpoint(place: str, *, read_only: bool) -> int:
    from iris_core.cli.beside import load

    load("iris_controller.checkpoint.installed").require_installed()
    watch_signals()
    from iris_core.config.console import load_settings
    from iris_core.model.text import one_line

    settings = load_settings()
    # It unpacks and loads while the console loads itself.
    started = load("iris_controller.offline_client").spawn(place)
    with first_frame(one_line(place.rstrip("/").rpartition("/")[2]), "OFFLINE", f"Opening {one_line(place)}"):
        from iris_tui.offline import offline_session

        session = offline_session(place, started=started)
        return _show(session, settings, on_quit_note="Nothing ends with it.", read_only=read_only)


def _has_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _no_terminal(line: CommandLine) -> int:
    if line.checkpoint:
        raise UsageFailed(
            "the console needs a terminal",
            hint="--plain prints the jobs of the checkpoint once; or name a command, as `job list`",
        )
    import click

    from iris_core.cli.main import root

    with click.Context(root(), info_name="iris", obj=line) as context:
        help_text = root().get_help(context)
    line.diagnostics.note(f"{help_text}\n\nThe console needs a terminal; name a command, or use --plain.")
    return 2


def preload() -> None:
    """Import what the connection needs beside what the screen needs."""

    def load() -> None:
        from importlib import import_module

        try:
            for name in (
                "grpc.aio",
                "iris_core.wire.gen.iris.v1.controller_pb2",
                "iris_core.wire.gen.iris.v1.logs_pb2",
            ):
                import_module(name)
        except ImportError:
            return  # the connection itself says what is missing

    threading.Thread(target=load, name="preload", daemon=True).start()


def connection(locate: Callable[[], Target]) -> Callable[[], Awaitable[AsyncClient]]:
    """How the console connects: the imports in a thread, the channel inside the loop, to where the cluster is then."""

    async def connect() -> AsyncClient:
        from iris_core.client.context import ClientContext
        from iris_core.connect import open_async_client
        from iris_tui.threads import in_thread

        def prepare() -> Target:
            import iris_core.client.aio
            import iris_core.client.grpc_client

            iris_core.client.grpc_client.load_grpc()
            return locate()

        return open_async_client(await in_thread(prepare, name="connect"), context=lambda: ClientContext("console"))

    return connect


def session_for(
    target: Target,
    *,
    selector: str = "",
    client_factory: Callable[[], Awaitable[AsyncClient]] | None = None,
    settings: ConsoleSettings | None = None,
    remember: bool = True,
) -> Session:
    """The console's session on a target, as the operator has settled it for that cluster and, to `remember`, as it was left."""
    from dataclasses import replace

    from iris_core.config.console import ConsoleSettings
    from iris_core.config.places import LOCAL
    from iris_core.live.clock import SystemClock
    from iris_tui.saved import load_saved
    from iris_tui.session import Session
    from iris_tui.threads import in_thread

    def locate() -> Target:
        """A local cluster that was started again listens at another port."""
        from iris_core.connect import resolve

        found = resolve(cluster=LOCAL) if target.cluster == LOCAL else target
        return replace(found, read_only=False)  # the session asks for that with each call, and can stop asking

    async def where() -> str:
        return (await in_thread(locate, name="locate")).url

    name = target.cluster or target.url
    settled = settings or ConsoleSettings()
    session = Session(
        name,
        client_factory or connection(locate),
        SystemClock(),
        environment=settled.environment_of(name, target.environment),
        read_only=target.read_only or settled.cluster(name).read_only,
        selector=selector or (f"--cluster={target.cluster}" if target.cluster else f"--controller-url={target.url}"),
        where=None if client_factory else where,
    )
    session.way_out = target.way_out(f"iris-core {session.selector}")
    if remember:
        session.saved = load_saved(name)
    return session


def run_console(
    target: Target,
    *,
    client_factory: Callable[[], Awaitable[AsyncClient]] | None = None,
    selector: str = "",
    title: str = "",
    on_quit_note: str = "",
    remember: bool = True,
    watch_clock: Clock | None = None,
) -> int:
    """Open the console on a cluster and return its exit code when it has ended: 0, 128 + signal, or 1 after a fault of its own.

    Args:
        target: The cluster.
        client_factory: Makes the connection inside the console's loop, instead of dialling the target.
        selector: How a command line names this cluster; by default `--cluster=NAME`.
        title: A sentence shown at the start.
        on_quit_note: What the question before quitting says ends with the console.
        remember: Whether it opens as it was left, and keeps how it is left; not for a cluster that ends with it.
        watch_clock: That of a rollout's watch, for tests; None = the machine's own.
    """
    preload()
    from iris_core.config.console import load_settings
    from iris_core.model.text import one_line

    settings = load_settings()
    name = one_line(target.cluster or target.url)
    with first_frame(name, "CONNECTING", f"Connecting to {name}"):
        session = session_for(
            target, selector=selector, client_factory=client_factory, settings=settings, remember=remember
        )
        return _show(
            session, settings, title=title, on_quit_note=on_quit_note, read_only=target.read_only, watch_clock=watch_clock
        )  # fmt: skip


def _show(
    session: Session, settings: ConsoleSettings, *, title: str = "", on_quit_note: str = "", read_only: bool = False,
    watch_clock: Clock | None = None,
) -> int:  # fmt: skip
    """Run the console on a session; others that are gone to from there are read-only, too, if this one is to be."""
    from iris_core.config.places import state_home
    from iris_tui.app import QUIT_NOTE, IrisApp

    def open_session(name: str) -> Session:
        from iris_core.cli.tunnels import open_tunnel
        from iris_core.connect import resolve
        from iris_tui.offline import PREFIX, offline_session

        if name.startswith(PREFIX):
            return offline_session(name.removeprefix(PREFIX))
        return session_for(resolve(cluster=name, read_only=read_only, tunnels=open_tunnel), settings=settings)

    app = IrisApp(
        session,
        open_session=open_session,
        quit_note=on_quit_note or QUIT_NOTE,
        title=title,
        crash_dir=state_home(),
        settings=settings,
        watch_clock=watch_clock,
    )
    app.opens_read_only = read_only
    with handlers_kept():
        app.run(mouse=settings.mouse)
    leave()  # it may have ended before it took the terminal
    if app.ended_by:
        last_words(f"iris: ended by {app.ended_by}")
    elif app.return_code and not app.crash_file:
        last_words("iris: ended by a fault of its own")
    elif app.crash_file:
        last_words(f"iris: ended by a fault of its own; report {app.crash_file}")
    return app.return_code or 0


def _choose(line: CommandLine) -> Target | None:
    """Let the operator choose a cluster; None = none was chosen. Raises UsageFailed as `resolve` did when none is known."""
    from iris_core.cli.tunnels import open_tunnel
    from iris_core.config.cluster import named_clusters
    from iris_core.connect import resolve

    names = [cluster.name for cluster in named_clusters()]
    if not names:
        raise UsageFailed(
            "no cluster runs here and none is known",
            hint="start one with `iris-core cluster start --local`, or try `iris demo`",
        )
    from iris_core.config.console import load_settings
    from iris_tui.chooser import ChooserApp
    from iris_tui.themes import is_production

    settings = load_settings()
    environments = {name: settings.environment_of(name) for name in names}
    app = ChooserApp(names, {name: "PROD" if is_production(found) else found for name, found in environments.items()})
    chosen = app.run()
    if not chosen:
        return None
    try:
        return resolve(cluster=chosen, read_only=line.read_only, tunnels=open_tunnel)
    except IrisError as error:
        line.diagnostics.fail(error)
        return None


if __name__ == "__main__":
    main()
