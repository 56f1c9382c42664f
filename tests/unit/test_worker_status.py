"""What an attempt's processor time is measured against."""

from __future__ import annotations

import time

from iris_controller.worker.status import Meter


def test_an_attempt_is_measured_by_its_own_last_reading_until_it_is_forgotten() -> None:
    meter = Meter()
    long_ago = time.time() - 1e7
    assert 999 <= meter.millicores("one", 1e7, long_ago) <= 1000, "the first reading is the average since it began"
    assert meter.millicores("one", 1e7, long_ago) == 0
    assert 999 <= meter.millicores("two", 1e7, long_ago) <= 1000
    meter.forget_others({"two"})
    assert meter.millicores("two", 1e7, long_ago) == 0
    assert 999 <= meter.millicores("one", 1e7, long_ago) <= 1000, "nothing is kept of what ended"
