"""Pictures are made on the lowest Python alone, so that two machines never fight over them."""

from __future__ import annotations

import sys

import pytest
from textual.widgets import Input, TextArea


@pytest.fixture(autouse=True)
def still_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cursor that blinks is there in one picture and not in the next; one that stops blinking leaves lines drawn without it."""
    for kind in (Input, TextArea):
        monkeypatch.setattr(kind.cursor_blink, "_default", False)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("update_snapshots", False) and sys.version_info[:2] != (3, 11):
        raise pytest.UsageError("pictures are regenerated on Python 3.11 only")
