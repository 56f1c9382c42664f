"""Opening what a controller stands on: the state file, the model in it, the readers, and the keys beside it.

Everything that can refuse a start for a reason on disk is here, so that each refusal is one line that says what was touched and what
was not. Must never listen, start a process, or change a state file otherwise than by moving it aside or migrating it.
"""

from __future__ import annotations

import gc
import logging
import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iris_controller.state.model import Model
from iris_controller.store.database import StateDir, StateDirError, check_integrity, migrate
from iris_controller.store.load import load_model
from iris_controller.store.reads import Readers
from iris_controller.store.seal import Seal
from iris_controller.store.writer import Writer
from iris_core.auth.keys import load_or_create_key
from iris_core.auth.tokens import KeySet, TokenSigner
from iris_core.contracts import IrisError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from iris_controller.options import ServeOptions

log = logging.getLogger("iris.controller")


class BootFailed(IrisError):
    """The controller cannot start; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Opened:
    """The parts on disk, open. Whoever opened them closes the readers and the writer, and releases the state directory."""

    writer: Writer
    model: Model
    readers: Readers
    seal: Seal
    keys: KeySet
    signer: TokenSigner
    database: Path


def open_state(options: ServeOptions, state: StateDir, now_ms: int, opened: list[Callable[[], None]]) -> Opened:
    """Takes the state directory and opens all of it; `opened` gets what closes each part, in order.

    Raises:
        StateDirError: the directory is held, not writable, or what is in it cannot be used.
        BootFailed: a key cannot be used.
    """
    state.acquire()
    opened.append(state.release)
    writer, model = _open_store(options, state, now_ms)
    opened.append(writer.close)
    writer.start()
    gc.collect()
    gc.freeze()
    readers = Readers(state.database)
    opened.append(readers.close)
    key = load_or_create_key(state.path / "signing.key")
    try:
        seal = Seal.from_file(state.path / "env.key")
    except (OSError, ValueError) as error:
        raise BootFailed(f"the key {state.path / 'env.key'} cannot be used: {error}") from error
    return Opened(writer, model, readers, seal, KeySet(key.public), TokenSigner(key), state.database)


def _open_store(options: ServeOptions, state: StateDir, now_ms: int) -> tuple[Writer, Model]:
    path = state.database
    try:
        if options.fresh:
            aside = state.set_aside()
            if aside is not None:
                log.warning("starting fresh; the previous state was moved to %s", aside)
        check_integrity(path)
        writer = Writer(path)
    except (OSError, sqlite3.Error) as error:
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
        log.debug("loading failed", exc_info=error)
        raise StateDirError(
            f"the state in {path} cannot be read: {type(error).__name__}: {error}",
            hint="it was not touched; start the release that wrote it, or start anew with --fresh (which moves it aside)",
        ) from error
