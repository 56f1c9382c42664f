"""Opening what a controller stands on: the state file, the model in it, the readers, and the keys beside it.

Which state that is was decided before (`checkpoint/choose.py`). Each refusal is one line that says what was touched and what was not.
Must never listen, start a process, or change a state file otherwise than by migrating it.
"""

from __future__ import annotations

import gc
import logging
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_controller.checkpoint.service import META
from iris_controller.dry_run import DRY_RUN, take_workers_as_healthy
from iris_controller.rpc.answered import AnsweredIds
from iris_controller.state.model import Model
from iris_controller.store.database import StateDir, StateDirError, hindrance, migrate
from iris_controller.store.load import load_model
from iris_controller.store.reads import Readers
from iris_controller.store.seal import Seal
from iris_controller.store.writer import Writer
from iris_core.auth.keys import SigningKey, key_of, load_or_create_key, load_public_key
from iris_core.auth.secret_references import SecretMissing, obtain
from iris_core.auth.tokens import KeySet, TokenSigner, load
from iris_core.contracts import IrisError
from iris_core.model.states import JOB_TERMINAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from iris_controller.options import ServeOptions
    from iris_core.config.cluster import ClusterConfig

SIGNING_KEY = "auth.signing_key"
log = logging.getLogger("iris.controller")


class BootFailed(IrisError):
    """The controller cannot start; the text says why and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What every RPC is answered from."""

    model: Model
    readers: Readers
    seal: Seal
    keys: KeySet
    signer: TokenSigner
    database: Path
    answered: AnsweredIds


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Stored):
    """The parts on disk, open. Whoever opened them closes the readers and the writer, and releases the state directory."""

    writer: Writer
    last_checkpoint_ms: int
    """Epoch of the last checkpoint that was finished, 0 = none."""


def open_state(options: ServeOptions, state: StateDir, now_ms: int, opened: list[Callable[[], None]]) -> Opened:
    """Opens all of a state directory whose lock is held; `opened` gets what closes each part, in order.

    Raises:
        StateDirError: what is in it cannot be used.
        BootFailed: a key cannot be used.
    """
    writer, model = _open_store(state, now_ms)
    opened.append(writer.close)
    if options.dry_run:
        take_workers_as_healthy(model, DRY_RUN)
    row = writer.connection.execute("SELECT value FROM meta WHERE key = ?", (META,)).fetchone()
    answered = AnsweredIds(writer.connection.execute("SELECT principal, request_id FROM request_ids"))
    writer.start()
    load()
    gc.collect()
    gc.freeze()
    readers = Readers(state.database)
    opened.append(readers.close)
    key = signing_key(options.config, state.path)
    try:
        seal = Seal.from_file(state.path / "env.key")
    except (OSError, ValueError) as error:
        raise BootFailed(f"the key {state.path / 'env.key'} cannot be used: {error}") from error
    if not options.dry_run:
        _find_sealed_elsewhere(model, seal)
    return Opened(
        model=model,
        readers=readers,
        seal=seal,
        keys=KeySet(key.public, [load_public_key(pem) for pem in options.config.previous_public_keys]),
        signer=TokenSigner(key),
        database=state.database,
        answered=answered,
        writer=writer,
        last_checkpoint_ms=int(row[0]) if row is not None else 0,
    )


def signing_key(config: ClusterConfig, state_dir: Path) -> SigningKey:
    """The key that the cluster file refers to, else one that is made in the state directory. Raises BootFailed, KeyFileError."""
    wanted = next((secret for secret in config.secrets if secret.where == SIGNING_KEY), None)
    if wanted is None:
        return load_or_create_key(state_dir / "signing.key")
    try:
        reference, secret = obtain(wanted)
    except SecretMissing as error:
        raise BootFailed(
            f"{SIGNING_KEY} cannot be had here: {error.message}",
            hint="a controller that is deployed sees files, and no shell's environment: cluster init-keys --out-file makes one",
        ) from None
    return key_of(secret.encode(), reference)


def _open_store(state: StateDir, now_ms: int) -> tuple[Writer, Model]:
    path = state.database
    try:
        writer = Writer(path)
    except (OSError, sqlite3.Error) as error:
        if (hindered := hindrance(path, error)) is not None:
            raise hindered from error
        raise StateDirError(f"the state file {path} cannot be opened: {error}") from error
    try:
        applied = migrate(writer.connection, now_ms)
        if applied:
            log.info("applied migrations %s", ", ".join(applied))
        return writer, load_model(writer.connection)
    except IrisError:
        writer.close()
        raise
    except Exception as error:
        writer.close()
        if (hindered := hindrance(path, error)) is not None:
            raise hindered from error
        log.debug("loading failed", exc_info=error)
        raise StateDirError(
            f"the state in {path} cannot be read: {type(error).__name__}: {error}",
            hint="it was not touched; start the release that wrote it, or start anew with --fresh (which moves it aside)",
        ) from error


def _find_sealed_elsewhere(model: Model, seal: Seal) -> None:
    """After a restore without `env.key` the jobs with secrets wait and say so, rather than fail one by one (DESIGN §5.22)."""
    live = (job for job in model.jobs.values() if job.state not in JOB_TERMINAL)
    model.sealed_elsewhere = {(job.job_id, job.submitted_at_ms) for job in live if not seal.opens(job.spec.request)}
    if model.sealed_elsewhere:
        log.error(
            "the secrets of %d jobs were sealed with a key that is not here: they wait", len(model.sealed_elsewhere)
        )
