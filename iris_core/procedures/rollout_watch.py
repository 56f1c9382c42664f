"""The watch after a restart: five minutes of looking, and what is made of them (rollout §1.6).

Nothing shortens it: there is no option, variable or setting, and a run that is resumed in the middle of it begins it anew. Only whoever
puts the program together hands in the clock. The comparison is between the last sample and the one from before the restart;
besides, a single sample that could not be had fails it, and so does a controller that was started again since its restart. These two are
not made good by anything that comes after, nor by leaving: they are looked for in the samples of the runs that were cut off, too. What
fails is a concern; what a person should know and may accept is a note. Must never change anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.model.resources import format_duration
from iris_core.model.text import counted

if TYPE_CHECKING:
    from iris_core.live.clock import Clock
    from iris_core.procedures.events import Report

DURATION_S: Final = 300.0
INTERVAL_S: Final = 15.0
LATE_LOOP_MS: Final = 100.0
LATE_STORE_MS: Final = 60_000

Sample = dict[str, Any]
"""One look at a cluster, as JSON:

at_ms, reachable, error; tree (the hash that it says it runs, "" = none), boot_id, version; ready, problems; workers_total,
workers_healthy; jobs, tasks (counts by state); failures (attempts that failed, counted since failures_since_ms); lag_ms (how late the
controller's loop is, 99 of 100); store (its log store's state), store_lag_ms (how long the oldest line has waited for it). Of a watch
besides: after_s; again (the controller was started again before it); failed (what fails this watch already, in a few words each).
"""


def unreachable(at_ms: int, error: str) -> Sample:
    """The sample of a controller that does not answer."""
    return {"at_ms": at_ms, "reachable": False, "error": error}


class Seen:
    """What the looks have come to so far that fails a watch for certain, whatever comes after.

    Args:
        boot: That of the controller as its restart saw it, "" = not known.
    """

    def __init__(self, boot: str = "") -> None:
        self._boot = boot
        self._looks, self._missed, self._error = 0, 0, ""
        self._again: list[str] = []
        self._first = True

    def begin(self) -> None:
        """A run begins to watch."""
        self._first = True

    def take(self, sample: Sample) -> bool:
        """One more look; whether the controller was started again before it."""
        again = bool(sample["reachable"] and self._boot and sample["boot_id"] != self._boot)
        if again:
            when = (
                "during the watch"
                if not self._first
                else "while nobody watched"
                if self._looks
                else "between its restart and the watch"
            )
            self._again += [when] if when not in self._again else []
        self._looks += 1
        self._first = False
        if sample["reachable"]:
            self._boot = sample["boot_id"]
        else:
            self._missed, self._error = self._missed + 1, str(sample["error"])
        return again

    @property
    def words(self) -> list[str]:
        """In a few words each; none as long as the watch can pass."""
        missed = [f"{counted(self._missed, 'look')} failed"] if self._missed else []
        return missed + (["started again"] if self._again else [])

    @property
    def concerns(self) -> list[str]:
        """The same, one line each."""
        missed = f"{self._missed} of {self._looks} looks at the controller failed: {self._error}"
        return [
            *([missed] if self._missed else []),
            *(f"the controller was started again {when}" for when in self._again),
        ]


async def watch(
    take: Callable[[], Sample],
    clock: Clock,
    report: Report,
    *,
    boot: str = "",
    earlier: Iterable[Sequence[Sample]] = (),
) -> dict[str, Any]:
    """Samples until the time is over, each reported as it is taken.

    Args:
        boot: As of `Seen`.
        earlier: The samples of each run that was cut off, in order.

    Returns:
        {"samples": those of this run, "seconds": how long it was, "failed": the concerns that `Seen` has of all runs}.
    """
    seen = Seen(boot)
    for run in earlier:
        seen.begin()
        for sample in run:
            seen.take(sample)
    seen.begin()
    began, samples = clock.monotonic(), []
    while True:
        sample = await _sample(take, clock)
        passed = clock.monotonic() - began
        sample["after_s"] = round(passed, 1)
        sample["again"] = seen.take(sample)
        sample["failed"] = seen.words
        report(sample)
        samples.append(sample)
        if passed >= DURATION_S:
            return {"samples": samples, "seconds": round(passed, 1), "failed": seen.concerns}
        await clock.sleep(min(INTERVAL_S, DURATION_S - passed))


async def _sample(take: Callable[[], Sample], clock: Clock) -> Sample:
    try:
        return dict(await asyncio.to_thread(take))
    except IrisError as error:
        return unreachable(clock.now_ms(), error.message)


def failures_a_minute(sample: Sample) -> float:
    """How many attempts failed, for each minute that they were counted."""
    minutes = (sample["at_ms"] - sample["failures_since_ms"]) / 60_000
    return float(sample["failures"] / max(minutes, 1.0))


def concerns(before: Sample, samples: Sequence[Sample], tree: str, certain: Sequence[str] | None = None) -> list[str]:
    """What fails the watch of these samples, one line each. `certain` is what failed it before its end, None = as they say."""
    if not samples:
        return ["nothing was seen of it"]
    if certain is None:
        seen = Seen()
        for sample in samples:
            seen.take(sample)
        certain = seen.concerns
    found, last = list(certain), samples[-1]
    if not last["reachable"]:
        return found
    if last["tree"] != tree:
        found.append(f"it runs {last['tree'][:12] or 'a tree that it does not name'} instead of {tree[:12]}")
    if last["workers_healthy"] < before["workers_healthy"]:
        found.append(f"healthy workers fell from {before['workers_healthy']} to {last['workers_healthy']}")
    found += [f"it says: {problem}" for problem in last["problems"] if problem not in before["problems"]]
    if last["store"] == "down":
        found.append("its log store does not run")
    return found


def notes(before: Sample, samples: Sequence[Sample]) -> list[str]:
    """What does not fail it, one line each."""
    if not samples or not samples[-1]["reachable"]:
        return []
    last, found = samples[-1], []
    if before["tree"] and last["tree"] == before["tree"]:
        found.append("it runs the same tree as before")
    found += [f"it says, as before: {problem}" for problem in last["problems"] if problem in before["problems"]]
    ill = last["workers_total"] - last["workers_healthy"]
    if ill > 0:
        found.append(f"workers that are not healthy: {ill} of {last['workers_total']}")
    for state, worse in (("running", -1), ("pending", 1)):
        then, now = before["tasks"].get(state, 0), last["tasks"].get(state, 0)
        if (now - then) * worse > 0:
            found.append(f"{state} tasks: {now}, before it {then}")
    then, now = failures_a_minute(before), failures_a_minute(last)
    if now > then:
        found.append(f"attempts that fail in a minute: {now:.1f}, before it {then:.1f}")
    if last["lag_ms"] > LATE_LOOP_MS:
        found.append(f"its loop is late by {last['lag_ms']:.0f} ms")
    if last["store_lag_ms"] > max(LATE_STORE_MS, before["store_lag_ms"]):
        found.append(f"lines wait {format_duration(last['store_lag_ms'])} for its log store")
    return found
