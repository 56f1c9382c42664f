"""What a restart or a rollback of a deployment works on, put together: its host, its store, and what its running controller is asked.

Command line, rollout and console use this one. Must never decide in which order anything is done.
"""

from __future__ import annotations

import json
import shlex
import socket
import time
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from collections.abc import Callable

    from iris_core.cli.deployment import Deployment
    from iris_core.cli.session import Session
    from iris_core.contracts import ObjectStore
    from iris_core.procedures.source_tree import SourceTree
    from iris_core.procedures.target import Lost, Saved, Target

ANSWER_S: Final = 20.0
QUERY_S: Final = 60.0


def target_of(
    session: Session,
    found: Deployment,
    store: ObjectStore,
    procedure: str,
    account: str,
    tree: Callable[[], SourceTree],
) -> Target:
    """What a restart of this deployment works on; `procedure` holds the lock, `tree` freezes what is shipped."""
    from iris_core.procedures.lock import Holder
    from iris_core.procedures.target import Target
    from iris_core.wire.gen.iris.v1 import checkpoints_pb2, controller_pb2

    program = session.command()

    def running() -> dict[str, int]:
        said = session.client.call(
            "ControllerService/GetClusterStatus",
            controller_pb2.GetClusterStatusRequest(),
            controller_pb2.GetClusterStatusResponse,
            timeout_s=ANSWER_S,
        )
        return dict(said.tasks_by_state)

    def checkpoint(stop: bool, timeout_s: float) -> str:
        made = session.client.call(
            "ControllerService/BeginCheckpoint",
            checkpoints_pb2.BeginCheckpointRequest(stop=stop),
            checkpoints_pb2.BeginCheckpointResponse,
            timeout_s=timeout_s,
        )
        return made.checkpoint_path

    return Target(
        name=found.name,
        host=found.host,
        store=store,
        holder=Holder(procedure, account, socket.gethostname(), now_ms()),
        now_ms=now_ms,
        freeze=tree,
        build=lambda tree: found.built(tree, now_ms(), session),
        schema=found.host.schema,
        running=running,
        checkpoint=checkpoint,
        restore_hint=lambda path: found.restore_hint(path, program),
        command=shlex.join([session.program, *session.argv]),
        room=found.require_room,
        secrets=found.require_secrets,
        newest_whole=lambda passed_over: newest_whole(store, passed_over),
        saved=lambda path: saved(store, path, program=program),
        lost=lambda path: lost(session, saved(store, path, whole=False, program=program)),
        program=program,
    )


def now_ms() -> int:
    """Epoch ms."""
    return time.time_ns() // 1_000_000


def newest_whole(store: ObjectStore, passed_over: list[str]) -> Saved | None:
    """The newest checkpoint of which all was read and is what its manifest says; `passed_over` gets one line for each newer one.

    Raises IrisError: the store does not answer.
    """
    from iris_core.cli.beside import load

    restore: Any = load("iris_controller.checkpoint.restore")
    for found in restore.newest_first(store, passed_over):
        try:
            restore.require_whole(found)
        except load("iris_controller.checkpoint.layout").BadCheckpoint as bad:
            passed_over.append(f"checkpoint {found.epoch_ms}: {bad.message}")
            continue
        return _as_saved(store, found)
    return None


def _as_saved(store: ObjectStore, found: Any) -> Saved:
    """As the controller names it: a store on its host's disk has another name from here."""
    from iris_core.procedures.target import Saved

    own = found.label.replace(store.url, getattr(store, "root", store.url), 1)
    return Saved(own, found.epoch_ms, found.manifest.schema)


def saved(store: ObjectStore, path: str, *, whole: bool = True, program: str = "iris-core") -> Saved:
    """The checkpoint of that path in a remote state dir. With `whole` all of it is read, and is what its manifest says; `program`
    begins the command lines of a hint.

    Raises IrisError: it is not there, or damaged.
    """
    from iris_core.cli.beside import load
    from iris_core.procedures.target import Saved

    skipped: list[str] = []
    restore: Any = load("iris_controller.checkpoint.restore")
    epoch = path.rpartition("/")[2]
    for found in restore.newest_first(store, skipped):
        if str(found.epoch_ms) == epoch:
            if whole:
                _require_whole(restore, found, path, program)
            return Saved(path, found.epoch_ms, found.manifest.schema)
    why = [line for line in skipped if line.startswith(f"checkpoint {epoch}:")]
    raise IrisError(
        f"the checkpoint {path} cannot be used: {why[0] if why else 'it is not there'}",
        hint=f"{program} checkpoint list shows what there is",
    )


def _require_whole(restore: Any, found: Any, path: str, program: str) -> None:
    try:
        restore.require_whole(found)
    except IrisError as error:
        raise IrisError(
            f"the checkpoint {path} cannot be used: {error.message}",
            hint=f"nothing was changed; {program} checkpoint list shows what there is",
        ) from error


def lost(session: Session, at: Saved) -> Lost:
    """What going back to a checkpoint drops, as the running controller's database says. Raises IrisError."""
    from iris_core.procedures.losses import counted_after, named_after
    from iris_core.procedures.target import Lost

    (made, older, newest, which), *_ = _rows(session, counted_after(at.epoch_ms))
    named = _rows(session, named_after(at.epoch_ms))
    return Lost(int(made), int(older), tuple(str(row[0]) for row in named), int(newest), int(which))


def _rows(session: Session, sql: str) -> list[list[Any]]:
    from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

    answer = session.client.call(
        "ControllerService/ExecuteRawQuery",
        pb.ExecuteRawQueryRequest(sql=sql),
        pb.ExecuteRawQueryResponse,
        timeout_s=QUERY_S,
    )
    return [json.loads(row) for row in answer.rows]
