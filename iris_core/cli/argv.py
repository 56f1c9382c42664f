"""Secrets in this process's own command line, which every user of the machine can read with `ps`.

The kernel shows the memory where the arguments were put at start. Python has its own copies by now, so the originals
of secret words can be overwritten. Best effort: where the memory cannot be written, nothing happens.
"""

from __future__ import annotations

import os


def hide_secret_words() -> None:
    """Overwrites the words that `redact_argv` would hide."""
    from iris_core.model.redact import redact_argv

    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = int(fields[45]), int(fields[46])
        if not 0 < end - start < 4 * 1024 * 1024:
            return
        descriptor = os.open("/proc/self/mem", os.O_RDWR)
    except (OSError, IndexError, ValueError):
        return
    try:
        words = os.pread(descriptor, end - start, start).split(b"\0")
        texts = [os.fsdecode(word) for word in words]
        place = start
        for word, text, shown in zip(words, texts, redact_argv(texts), strict=True):
            if shown != text:
                os.pwrite(descriptor, b"*" * len(word), place)
            place += len(word) + 1
    except (OSError, ValueError):
        pass
    finally:
        os.close(descriptor)
