"""One real embedded cluster for all tests that only use one; it must end clean when the session does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.local_cluster import LocalCluster

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A running local cluster with two workers. Names of jobs must be unique to their test."""
    made = LocalCluster(tmp_path_factory.mktemp("local"))
    made.start()
    yield made
    assert made.end() == 0
