"""Garbage is looked for while the operator rests, and it is looked for."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING

import pytest

from iris_tui.tidying import EVERY_S, LATEST_S, REST_S, UNTIL_BY_ITSELF, WORTH_IT, Tidying, small_looks

if TYPE_CHECKING:
    from collections.abc import Iterator


class Ring:
    """Garbage that only a look finds."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


def test_the_interpreter_takes_no_whole_look_by_itself_but_after_very_many_small_ones() -> None:
    young, middle, _ = gc.get_threshold()
    Tidying(lambda: 0.0).begin()
    assert gc.get_threshold() == (young, middle, UNTIL_BY_ITSELF)


def test_a_look_waits_for_a_rest_and_then_for_a_minute() -> None:
    now, made = 100.0, 0
    tidying = Tidying(lambda: now, lambda: made)
    tidying.begin()
    assert not tidying.beat(0.0), "the console has only just begun"
    now += REST_S
    assert not tidying.beat(now - REST_S / 2), "keys come"
    assert tidying.beat(now - REST_S)
    now, made = now + EVERY_S - 1, WORTH_IT
    assert not tidying.beat(0.0)
    now += 1
    assert tidying.beat(0.0)


def test_a_look_is_left_out_while_next_to_nothing_was_made_but_not_for_long() -> None:
    now, made = 100.0, 1000
    tidying = Tidying(lambda: now, lambda: made)
    assert tidying.beat(0.0)
    began, looks = now, 0
    while now < began + LATEST_S:
        now, made = now + EVERY_S, made + 1
        looks += tidying.beat(0.0)
    assert (looks, now) == (1, began + LATEST_S)
    now, made = now + EVERY_S, made + WORTH_IT
    assert tidying.beat(0.0)


def test_what_is_made_is_counted() -> None:
    before = small_looks()
    kept = [[number] for number in range(gc.get_threshold()[0] * 4)]
    assert small_looks() > before and kept


def test_what_became_garbage_after_an_earlier_look_is_found_by_the_next_one() -> None:
    now = 100.0
    tidying = Tidying(lambda: now)
    ring = Ring()
    seen = weakref.ref(ring)
    assert tidying.beat(0.0)
    del ring
    assert seen() is not None
    now += LATEST_S
    assert tidying.beat(0.0)
    assert seen() is None
