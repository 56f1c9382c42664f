"""`iris-worker`: one worker, or with `supervise` a supervisor that keeps one.

A composition root: it reads the words, sets up logging and the loop, and turns what can go wrong into one line and an exit code.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from iris_controller.worker.config import EXIT_FAILED, parse

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program. Returns its exit code: 0 ended as asked, 1 failed, 2 usage, 3 rejected, 4 idle."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] == "supervise":
        from iris_controller.worker.supervise import supervise

        return supervise(parse(words[1:], prog="iris-worker supervise", supervised=True))
    config = parse(words)

    import asyncio

    import uvloop

    from iris_controller.worker import ownlog
    from iris_controller.worker.worker import CannotRun, Worker

    # Pipes are watched by many short callbacks: a worker thread must not keep the interpreter for long.
    sys.setswitchinterval(0.0005)
    log = ownlog.install()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(Worker(config, log).run())
    except CannotRun as error:
        sys.stderr.write(f"Error: {error}\n")
        return EXIT_FAILED
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
