"""The numbers that tests give to programs, and whether it is this process that listens on one."""

from __future__ import annotations

import socket
import subprocess
import sys

from tests.ports import EACH, FIRST, free_port, listening


def test_a_number_that_was_given_is_not_given_again_and_none_is_taken() -> None:
    numbers = [free_port() for _ in range(50)]
    assert len(set(numbers)) == 50 and all(FIRST <= number < FIRST + 16 * EACH for number in numbers)
    with socket.create_server(("127.0.0.1", free_port())) as taken:
        number = taken.getsockname()[1]
        assert number not in {free_port() for _ in range(EACH)}


def test_only_what_this_process_listens_on_counts() -> None:
    port = free_port()
    assert listening(port) == set()
    with socket.create_server(("127.0.0.1", port)):
        assert listening(port) == {"127.0.0.1"}
        script = f"import socket; s = socket.create_server(('127.0.0.2', {port})); print(flush=True); input()"
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None and other.stdout.readline() == b"\n"
            assert listening(port) == {"127.0.0.1"}
            other.communicate(b"\n")
    assert listening(port) == set()
