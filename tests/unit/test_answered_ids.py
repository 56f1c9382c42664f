"""The filter in front of the stored answers: it may be wrong in one direction only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from iris_controller.rpc.answered import KEPT_S, AnsweredIds

keys = st.tuples(st.text(max_size=8), st.text(max_size=40))


@given(st.lists(keys), st.lists(keys))
def test_what_was_answered_is_never_missed(stored: list[tuple[str, str]], since: list[tuple[str, str]]) -> None:
    ids = AnsweredIds(stored)
    for key in since:
        ids.add(key)
    assert all(key in ids for key in (*stored, *since))


def test_nearly_all_new_ids_are_known_to_be_new() -> None:
    ids = AnsweredIds(("ann", f"old-{n}") for n in range(20_000))
    assert sum(("ann", f"new-{n}") in ids for n in range(2_000)) < 20
    assert ("ann", "old-7") in ids and ("bob", "old-7") not in ids


def test_an_id_is_held_for_as_long_as_its_answer_is_kept_and_not_for_ever() -> None:
    now = [0.0]
    ids = AnsweredIds(clock=lambda: now[0])
    ids.add(("ann", "first"))
    for hours in (20, 26, 49):
        now[0] = hours * 3_600.0
        ids.add(("ann", f"after {hours}"))
        assert ("ann", "first") in ids
    now[0] = 49 * 3_600 + 2 * KEPT_S
    ids.add(("ann", "later"))
    assert ("ann", "first") not in ids and ("ann", "after 49") in ids
