"""Lines that the store keeps in parts, where a filter passes some of them: given whole, also when their end comes later."""

from __future__ import annotations

import re

import pytest

from iris_core.cli.log_lines import Joiner
from iris_core.cli.log_parts import WholeLines
from iris_core.wire.gen.iris.v1.logs_pb2 import FetchLogsRequest, FetchLogsResponse, StoredLine


class Store:
    """Lines of one attempt, to which more are added."""

    def __init__(self) -> None:
        self.lines: list[StoredLine] = []

    def write(self, *parts: str, goes_on: bool = False, first: int = 0) -> None:
        """One line in parts, or its rest from part `first` on."""
        for number, data in enumerate(parts, first):
            partial = goes_on or number < first + len(parts) - 1
            seq = len(self.lines) + 1
            self.lines.append(
                StoredLine(seq=seq, key="/u/j/0", attempt_uid="a", source="stdout", data=data, number=seq, part=number, partial=partial)
            )  # fmt: skip

    def fetch(self, request: FetchLogsRequest) -> FetchLogsResponse:
        last = len(self.lines)
        found = [
            line
            for line in self.lines
            if request.cursor < line.seq < (request.before or last + 1)
            and re.search(request.regex, line.data)
            and not (request.without and re.search(request.without, line.data))
        ]
        return FetchLogsResponse(entries=found, cursor=last, last_seq=last, shown=len(found), matched=len(found))


@pytest.mark.parametrize("without", ["", "DROPME"])
@pytest.mark.parametrize("steps", [1, 2])
def test_a_line_whose_end_comes_later_is_given_whole_and_nothing_is_joined_to_it(without: str, steps: int) -> None:
    store, joiner, cursor = Store(), Joiner(), 0
    shown: list[str] = []
    whole = WholeLines(store.fetch, without=without)

    def read() -> None:
        nonlocal cursor
        answer = store.fetch(FetchLogsRequest(cursor=cursor, regex="" if without else r"^[hs]\d", without=without))
        whole.complete(answer)
        cursor = answer.cursor
        shown.extend(line.data for entry in answer.entries if (line := joiner.push(entry)) is not None)

    store.write("h1 zz", "zz", goes_on=True)
    read()
    assert shown == []
    if steps == 2:
        store.write("yy", goes_on=True, first=2)
        read()
    store.write("zz DROPME", first=1 + steps)
    store.write("s1")
    store.write("h2", "z DROPME")
    store.write("s2")
    read()
    read()
    middle = "yy" if steps == 2 else ""
    # Of a line that is left out nothing is shown, unless some of it was before its end was there.
    assert shown == [f"h1 zzzz{middle}zz DROPME", "s1", *([] if without else ["h2z DROPME"]), "s2"]


def test_a_line_that_never_goes_on_is_not_asked_for_for_ever() -> None:
    store = Store()
    asked: list[int] = []

    def fetch(request: FetchLogsRequest) -> FetchLogsResponse:
        asked.append(request.cursor)
        return store.fetch(request)

    whole = WholeLines(fetch)
    store.write("h1", goes_on=True)
    whole.complete(store.fetch(FetchLogsRequest(regex="h")))
    store.write("another")
    whole.complete(FetchLogsResponse(cursor=2, last_seq=2))
    asked.clear()
    whole.complete(FetchLogsResponse(cursor=2, last_seq=2))
    assert not asked
