"""The program `iris-controller`. Parses words, loads the cluster file, and hands over to `serve`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import NoReturn

from iris_controller import store_command
from iris_controller.options import ServeOptions
from iris_core.contracts import IrisError, UsageFailed


class Parser(argparse.ArgumentParser):
    """Usage errors as one line, exit 2."""

    def error(self, message: str) -> NoReturn:
        sys.stderr.write(f"Error: {message}\nTry '{self.prog} --help'.\n")
        raise SystemExit(2)


def parser() -> Parser:
    root = Parser(prog="iris-controller", description="The Iris controller daemon.")
    commands = root.add_subparsers(dest="command", parser_class=Parser)
    serve = commands.add_parser("serve", help="run the controller in the foreground")
    serve.add_argument("--config", metavar="FILE", required=True, help="the cluster's YAML file")
    serve.add_argument("--state-dir", metavar="DIR", help="local state (default: storage.local_state_dir)")
    serve.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=int, help="port to listen on, 0 = any (default: from the file, else 10000)")
    serve.add_argument("--fresh", action="store_true", help="move existing state aside and start empty")
    serve.add_argument("--checkpoint-path", metavar="PATH", help="start from this checkpoint (path or URL)")
    serve.add_argument(
        "--checkpoint-interval",
        type=float,
        metavar="S",
        help="seconds between checkpoints (default: controller.checkpoint_interval_seconds, else an hour)",
    )
    serve.add_argument(
        "--take-over", action="store_true", help="go on with this state though another controller took over since"
    )
    serve.add_argument("--dry-run", action="store_true", help="look at a state: no dispatch, machines or checkpoints")
    restore = commands.add_parser(
        "restore",
        help="put a checkpoint in the place of a stopped controller's database, or into an empty folder",
        description="Put a checkpoint in the place of a stopped controller's database, which is kept beside it; or, with --to, into an"
        " empty folder, as after moving the database aside by hand.",
    )
    restore.add_argument(
        "checkpoint", metavar="CHECKPOINT", nargs="?", default="", help="path or URL of its folder, or of a file in it"
    )
    restore.add_argument(
        "--mark", metavar="ID", default="", help="name this restore, so that it can be found and taken back"
    )
    restore.add_argument("--undo", metavar="ID", default="", help="take that restore back, in place of making one")
    restore.add_argument(
        "--show",
        action="store_true",
        help="change nothing: print what is there, and what the checkpoint would drop of it, as JSON",
    )
    where = restore.add_mutually_exclusive_group(required=True)
    where.add_argument("--state-dir", metavar="DIR", help="local state of the controller")
    where.add_argument("--to", metavar="DIR", help="a folder for the database, not there yet or empty")
    store_command.add_parser(commands)
    host = commands.add_parser("host", help="answer one request of a deployment from another machine")
    host.add_argument("request", metavar="NAME", help="what is asked; the rest of it comes as JSON on stdin")
    serve.add_argument("--embedded", action="store_true", help=argparse.SUPPRESS)
    serve.add_argument("--ready-fd", type=int, default=-1, help=argparse.SUPPRESS)
    return root


def serve(
    config: str,
    state_dir: str | None = None,
    host: str | None = None,
    port: int | None = None,
    *,
    fresh: bool = False,
    checkpoint: str | None = None,
    checkpoint_interval_s: float | None = None,
    take_over: bool = False,
    dry_run: bool = False,
    embedded: bool = False,
    ready_fd: int = -1,
) -> int:
    """Runs the controller until it is told to stop. Raises IrisError when it cannot start."""
    from iris_core.config.cluster import load_config

    cluster = load_config(Path(config), embedded=embedded)
    if port is not None and not 0 <= port <= 65535:
        raise UsageFailed(f"port {port} is outside 0..65535")
    if checkpoint_interval_s is not None and not 1 <= checkpoint_interval_s <= 7 * 86_400:
        raise UsageFailed(f"a checkpoint every {checkpoint_interval_s:g} s is outside 1 s to 7 days")
    if fresh and checkpoint:
        raise UsageFailed("--fresh and --checkpoint-path exclude each other")
    from iris_controller import serve as daemon
    from iris_controller import state_dirs

    if state_dir == "":
        raise UsageFailed("--state-dir is empty", hint="leave it out for the default")
    if state_dir:
        folder = Path(state_dir)
    elif dry_run:
        folder = state_dirs.dry_run_state_dir()
    else:
        folder = cluster.local_state_dir or state_dirs.default_state_dir()
    options = ServeOptions(
        config=cluster,
        state_dir=folder.expanduser().absolute(),
        host=host or cluster.controller_host,
        port=port,
        fresh=fresh,
        checkpoint=checkpoint or "",
        checkpoint_interval_s=checkpoint_interval_s,
        take_over=take_over,
        dry_run=dry_run,
        embedded=embedded,
        ready_fd=ready_fd,
    )
    return daemon.run(options)


def restore(checkpoint: str, state_dir: str, *, mark: str = "", undo: str = "", show: bool = False) -> int:
    """Puts a checkpoint in the place of a controller's database, which is kept. Raises IrisError; nothing was touched then."""
    from iris_controller.checkpoint import by_hand
    from iris_controller.store.database import StateDir

    if not checkpoint and not (undo or show):
        raise UsageFailed("no checkpoint is named", hint="give the path or URL of its folder")
    state = StateDir(Path(state_dir).expanduser().absolute())
    if show:
        sys.stdout.write(json.dumps(by_hand.shown(state, checkpoint)) + "\n")
        return 0
    for id_ in filter(None, (mark, undo)):
        by_hand.require_id(id_)
    state.acquire()
    try:
        if undo:
            moved = by_hand.put_back(state, undo)
            sys.stdout.write(
                f"the restore {undo} was taken back before\n"
                if moved is None
                else f"the database of before {undo} is back; the restored one is kept in {moved}\n"
            )
            return 0
        found, kept = by_hand.put(state, checkpoint, mark, time.time_ns() // 1_000_000)
    finally:
        state.release()
    sys.stdout.write(f"restored {found} in {state.database.parent}\n")
    if kept is not None:
        sys.stdout.write(f"the previous database is kept in {kept}\n")
    return 0


def restore_to(checkpoint: str, folder: str) -> int:
    """Puts a checkpoint's database into a folder that is empty or not there. Raises IrisError; nothing is left there then."""
    from iris_controller.checkpoint.restore import find, unpack_into

    candidate = find(checkpoint)
    try:
        made = unpack_into(candidate, Path(folder).expanduser().absolute())
    except OSError as error:
        raise IrisError(f"{folder}: {(error.strerror or str(error)).lower()}") from error
    sys.stdout.write(f"restored checkpoint {candidate.label} to {made}\n")
    return 0


def main(argv: list[str] | None = None) -> int:
    """Exit codes: 0 stopped on request, 1 cannot start, 2 usage."""
    words = parser().parse_args(argv)
    if words.command is None:
        parser().print_help(sys.stderr)
        return 2
    try:
        if words.command == "store":
            return store_command.run(words)
        if words.command == "host":
            from iris_controller import host_command

            if words.request == "relay":
                return host_command.relay(main)
            return host_command.run(words.request, sys.stdin.buffer, sys.stdout.write)
        if words.command == "restore":
            if words.to is not None:
                if words.mark or words.undo or words.show or not words.checkpoint:
                    raise UsageFailed("--to takes a checkpoint and nothing else")
                return restore_to(words.checkpoint, words.to)
            return restore(words.checkpoint, words.state_dir, mark=words.mark, undo=words.undo, show=words.show)
        return serve(
            words.config,
            words.state_dir,
            words.host,
            words.port,
            fresh=words.fresh,
            checkpoint=words.checkpoint_path,
            checkpoint_interval_s=words.checkpoint_interval,
            take_over=words.take_over,
            dry_run=words.dry_run,
            embedded=words.embedded,
            ready_fd=words.ready_fd,
        )
    except IrisError as error:
        sys.stderr.write(f"Error: {error.message}\n" + (f"Hint: {error.hint}\n" if error.hint else ""))
        return error.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
