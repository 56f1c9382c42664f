"""The watchdog: what counts as late, what as sleep, and what is known of what ran."""

from __future__ import annotations

import asyncio
import sys
import threading
import time

import pytest

from iris_tui.watchdog import LATE_S, MOST, SLEPT_S, Lateness, Watchdog, stack_words


def test_a_beat_in_time_is_counted_and_no_more() -> None:
    lateness = Lateness()
    assert not lateness.beat(LATE_S, 0.0, 1, "x")
    assert (lateness.beats, lateness.late, list(lateness.ring)) == (1, 0, [])


def test_a_late_beat_is_kept_with_what_ran_in_a_ring_that_ends() -> None:
    lateness = Lateness()
    for number in range(MOST + 5):
        assert not lateness.beat(0.3 + number / 1000, 0.0, number, "ListScreen.flush (list_screen.py:1)")
    assert (lateness.late, len(lateness.ring), lateness.ring[0].at_ms) == (MOST + 5, MOST, 5)
    assert lateness.worst_ms == 404
    assert lateness.ring[-1].ran == "ListScreen.flush (list_screen.py:1)"


def test_a_sleep_is_no_lateness() -> None:
    lateness = Lateness()
    assert lateness.beat(0.0, SLEPT_S, 1, "")
    assert lateness.beat(3600.0, 3600.0, 2, "")
    assert (lateness.sleeps, lateness.late) == (2, 0)


def test_the_words_of_a_stack_name_functions_and_no_values() -> None:
    secret = "hf_aaaaaaaaaaaaaaaaaaaaaaaa"
    words = stack_words(sys._getframe())
    assert words.startswith("test_the_words_of_a_stack_name_functions_and_no_values (test_console_watchdog.py:")
    assert secret not in words
    assert stack_words(None) == ""


@pytest.mark.asyncio
async def test_what_holds_up_the_loop_is_seen_while_it_does() -> None:
    beat = asyncio.Event()
    dog = Watchdog(slept=lambda: None, each=beat.set)
    task = asyncio.create_task(dog.run())

    def hold_up() -> None:
        deadline = time.monotonic() + 60
        while not dog._ran and time.monotonic() < deadline:
            threading.Event().wait(0.01)

    try:
        await asyncio.wait_for(beat.wait(), 60)
        beat.clear()
        hold_up()
        await asyncio.wait_for(beat.wait(), 60)
        assert "hold_up" in dog.lateness.ring[-1].ran
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert dog._ended.is_set()
