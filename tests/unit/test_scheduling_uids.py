"""Uids of attempts: never twice, and each above the one before, over restarts too."""

from __future__ import annotations

from iris_controller.uids import AttemptUids


def test_uids_are_sixteen_hex_digits_and_rise() -> None:
    uid = AttemptUids(1_700_000_000_000)
    made = [uid() for _ in range(5_000)]
    assert all(len(each) == 16 and int(each, 16) for each in made)
    assert made == sorted(set(made))


def test_the_next_boot_begins_above_what_the_last_one_gave() -> None:
    before, after = AttemptUids(1_700_000_000_000), AttemptUids(1_700_000_000_002)
    assert max(before() for _ in range(5_000)) < after()


def test_two_boots_in_the_same_millisecond_do_not_begin_alike() -> None:
    assert len({AttemptUids(1_700_000_000_000)() for _ in range(50)}) > 45
