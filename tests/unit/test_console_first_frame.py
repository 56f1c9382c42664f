"""The first picture: there before the console is, and gone with whatever ends the program before."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

IRIS = Path(sys.executable).with_name("iris")
ENTER, LEAVE = "\x1b[?1049h", "\x1b[?1049l"
SHOW = "from iris_tui.first_frame import first_frame, taken_over\nwith first_frame('lab', 'CONNECTING', 'Connecting to lab'):\n"


class OnTerminal:
    """A program with a terminal; `text` is all that it drew so far."""

    def __init__(self, process: subprocess.Popen[bytes], terminal: int) -> None:
        self.process = process
        self.text = ""
        self._terminal = terminal

    def until(self, text: str) -> None:
        while text not in self.text:
            assert self._read(), f"it ended before it drew {text!r}: {self.text!r}"

    def end(self) -> int:
        """The rest of what it draws, and how it ended."""
        while self._read():
            pass
        return self.process.wait(60)

    def _read(self) -> bool:
        assert select.select([self._terminal], [], [], 60)[0], f"it draws no more: {self.text!r}"
        try:
            data = os.read(self._terminal, 65536)
        except OSError:
            return False
        self.text += data.decode(errors="replace")
        return bool(data)


@contextmanager
def running(*words: str | Path, home: Path | None = None) -> Iterator[OnTerminal]:
    terminal, slave = pty.openpty()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("IRIS_", "XDG_"))}
    env = {**kept, "TERM": "xterm-256color", **({"HOME": str(home)} if home else {})}
    process = subprocess.Popen(words, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True)
    os.close(slave)
    try:
        yield OnTerminal(process, terminal)
    finally:
        process.kill()
        process.wait()
        os.close(terminal)


def test_what_fails_before_the_console_draws_gives_the_terminal_back() -> None:
    with running(sys.executable, "-c", f"{SHOW}    raise SystemExit('no such thing')") as program:
        assert program.end() == 1
    frame, _, after = program.text.partition(LEAVE)
    assert frame.startswith(ENTER) and "lab" in frame and "Connecting to lab" in frame
    assert "no such thing" in after and "no such thing" not in frame


def test_a_signal_before_the_console_draws_gives_the_terminal_back_before_it_is_said() -> None:
    code = f"from iris_tui.endings import watch_signals\nwatch_signals()\n{SHOW}    import signal; signal.pause()"
    with running(sys.executable, "-c", code) as program:
        program.until("Connecting to lab")
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 128 + signal.SIGTERM
    frame, _, after = program.text.partition(LEAVE)
    assert "ended by SIGTERM" in after and "ended by" not in frame


def test_what_was_taken_over_is_left_to_who_took_it() -> None:
    with running(sys.executable, "-c", f"{SHOW}    taken_over()") as program:
        assert program.end() == 0
    assert ENTER in program.text and LEAVE not in program.text


def test_without_a_terminal_nothing_is_drawn() -> None:
    done = subprocess.run([sys.executable, "-c", f"{SHOW}    pass"], capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"", b"")


def test_the_console_goes_on_where_the_first_frame_was_and_leaves_once(tmp_path: Path) -> None:
    with running(IRIS, "--controller-url=http://127.0.0.1:1", home=tmp_path) as program:
        program.until("Connecting to 127.0.0.1:1")
        assert "Help" not in program.text
        program.until("Help")
        program.process.send_signal(signal.SIGTERM)
        assert program.end() == 128 + signal.SIGTERM
    before, _, after = program.text.partition(LEAVE)
    assert ENTER in before and LEAVE not in after and "ended by SIGTERM" in after
