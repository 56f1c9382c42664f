"""Pictures are made on the lowest Python alone, so that two machines never fight over them."""

from __future__ import annotations

import sys

import pytest


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("update_snapshots", False) and sys.version_info[:2] != (3, 11):
        raise pytest.UsageError("pictures are regenerated on Python 3.11 only")
