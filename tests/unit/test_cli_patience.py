"""A terminal is told that the controller does not answer, and no longer than it is true."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from iris_core.cli.patience import PatientClient
from iris_core.contracts import ConnectFailed
from iris_core.wire.gen.iris.v1 import controller_pb2 as pb

LIST = "ControllerService/ListJobs"


class Silent:
    """Answers a call once `answer` is set, with an error if there is one."""

    url = "http://lab:10000"

    def __init__(self, error: ConnectFailed | None = None) -> None:
        self.answer = threading.Event()
        self.error = error
        self.threads: list[str] = []

    def call(self, *words: object, timeout_s: float) -> object:
        self.threads = [thread.name for thread in threading.enumerate()]
        assert self.answer.wait(30)
        if self.error is not None:
            raise self.error
        return pb.ListJobsResponse()


def asked(inner: Silent, show: Callable[[str], None], *, method: str = LIST, quiet_s: float = 0.01) -> object:
    client = PatientClient(inner, show, quiet_s=quiet_s, each_s=0.01)  # type: ignore[arg-type]
    return client.call(method, pb.ListJobsRequest(), pb.ListJobsResponse)


@pytest.mark.parametrize("error", [None, ConnectFailed("gone")])
def test_it_is_said_again_and_again_and_taken_back_with_the_answer(error: ConnectFailed | None) -> None:
    inner = Silent(error)
    said: list[str] = []

    def show(text: str) -> None:
        said.append(text)
        if len(said) == 3:
            inner.answer.set()

    if error is None:
        asked(inner, show)
    else:
        with pytest.raises(ConnectFailed, match="gone"):
            asked(inner, show)
    assert len(said) >= 4 and said[-1] == "" and all("has not answered for" in text for text in said[:-1])


def test_nothing_is_said_of_what_is_answered_at_once() -> None:
    inner = Silent()
    inner.answer.set()
    said: list[str] = []
    asked(inner, said.append, quiet_s=30)
    assert "patience" in inner.threads and said == []
    assert "patience" not in [thread.name for thread in threading.enumerate()]


def test_nobody_looks_at_what_waits_by_design() -> None:
    inner = Silent()
    inner.answer.set()
    asked(inner, lambda _: None, method="LogService/FetchLogs")
    assert "patience" not in inner.threads
