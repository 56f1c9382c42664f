"""The process that makes a checkpoint: one task as a JSON line on standard input, stages and the outcome as JSON lines on standard output.

It runs at low priority and ends as soon as its standard input does, so that none outlives its controller. Must never write into the
database; what it leaves behind when it is killed is one private folder, which its controller removes.
"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from iris_controller.checkpoint.owner import Fenced
from iris_controller.checkpoint.snapshot import SnapshotFailed
from iris_controller.checkpoint.write import prune, write
from iris_core.contracts import IrisError
from providers.objects import open_store

NICE: Final = 10


def say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def perform(task: dict[str, Any]) -> dict[str, Any]:
    """Does the task and returns the outcome: `done`, `fenced` or `failed`, with what there is to say."""
    try:
        store = open_store(task["remote"])
        if task["do"] == "prune":
            return {
                "done": prune(
                    store,
                    task["newest_ms"],
                    claim=task["claim"],
                    keep_ms=task["keep_ms"],
                    stage=lambda name: say(stage=name),
                )
            }
        made = write(
            Path(task["database"]),
            Path(task["scratch"]),
            store,
            now_ms=task["now_ms"],
            after_ms=task["after_ms"],
            claim=task["claim"],
            cluster=task.get("cluster", ""),
            stage=lambda name: say(stage=name),
        )
        return {"done": asdict(made)}
    except Fenced as fenced:
        return {"fenced": fenced.message}
    except IrisError as error:
        return {"failed": error.message}
    except (SnapshotFailed, sqlite3.Error) as error:
        return {"failed": f"the database cannot be copied: {error}"}
    except OSError as error:
        return {"failed": f"the checkpoint cannot be made: {error}"}


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(3)


def main() -> int:
    os.umask(0o077)
    os.nice(NICE)
    task = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_parent, daemon=True).start()
    say(**perform(task))
    sys.stdout.flush()
    # Not by way of the interpreter's end, which would wait for the thread that reads.
    os._exit(0)


if __name__ == "__main__":
    main()
