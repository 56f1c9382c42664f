"""The console's output on a terminal that is gone (field case C55): nothing waits for it."""

from __future__ import annotations

import threading

from iris_tui.terminal import LossyOutput


class Gone:
    """A file on a hung-up terminal; `left` writes still succeed."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.tried = 0

    def write(self, text: str, /) -> None:
        self.tried += 1
        if self.tried > self.left:
            raise OSError(5, "Input/output error")

    def flush(self) -> None:
        raise OSError(5, "Input/output error")

    def fileno(self) -> int:
        return 2


def test_the_writer_thread_outlives_its_terminal() -> None:
    from textual.drivers._writer_thread import MAX_QUEUED_WRITES, WriterThread

    file = Gone(left=1)
    writer = WriterThread(LossyOutput(file))  # type: ignore[arg-type]
    writer.start()

    def draw() -> None:
        for _ in range(3 * MAX_QUEUED_WRITES):
            writer.write("x")
        writer.stop()

    drawing = threading.Thread(target=draw, daemon=True)
    drawing.start()
    drawing.join(60)
    assert not drawing.is_alive(), "the console waits for room in a queue that nobody empties"
    assert file.tried <= 2, "a terminal that is gone is left alone"
