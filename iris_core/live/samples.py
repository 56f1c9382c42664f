"""What was measured over a while, in bounded room: the last hours of one number, thinner the longer it is kept.

When the room is full, neighbours are joined and the larger of them stays: a peak is never lost, only placed less exactly. A
stretch in which nothing was heard is a gap and not a straight line. No clock of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

MOST: Final = 720
"""Samples that are kept: an hour at one each five seconds, before anything is joined."""


class Sample(NamedTuple):
    """A number at a time; None = from here on nothing is known."""

    at_ms: int
    value: float | None


class Samples:
    """The samples of one number, oldest first. `version` changes with every change, for whoever draws them."""

    def __init__(self, points: Iterable[tuple[int, float | None]] = (), *, most: int = MOST) -> None:
        self.most = max(most, 4)
        self.version = 0
        self._points: list[Sample] = []
        self._step_ms = 0
        """Samples that are nearer to the one before are joined with it."""
        for at_ms, value in points:
            self.add(at_ms, value)

    def __len__(self) -> int:
        return len(self._points)

    @property
    def points(self) -> list[Sample]:
        """All of them; not to be changed."""
        return self._points

    @property
    def last(self) -> Sample | None:
        """The newest one that says something."""
        return next((sample for sample in reversed(self._points) if sample.value is not None), None)

    def add(self, at_ms: int, value: float | None) -> None:
        """Another sample. One that is older than the newest counts as being of its time: clocks are set back."""
        points = self._points
        if not points and value is None:
            return
        if points:
            last = points[-1]
            if value is None and last.value is None:
                return
            at_ms = max(at_ms, last.at_ms)
            if (
                last.value is not None
                and value is not None
                and len(points) > 1
                and at_ms - points[-2].at_ms < self._step_ms
            ):
                points[-1] = Sample(at_ms, max(last.value, value))
                self.version += 1
                return
        points.append(Sample(at_ms, value))
        self.version += 1
        if len(points) > self.most:
            self._thin()

    def put_before(self, points: Iterable[tuple[int, float | None]]) -> None:
        """What was measured before the oldest sample here; later ones are left out."""
        first = self._points[0].at_ms if self._points else None
        older = [
            Sample(at_ms, value)
            for at_ms, value in sorted(points, key=lambda point: point[0])
            if first is None or at_ms < first
        ]
        if older:
            self._points[:0] = older
            self.version += 1
            while len(self._points) > self.most:
                self._thin()

    def _thin(self) -> None:
        """Join neighbours; the newest stays as it is."""
        *old, newest = self._points
        span = newest.at_ms - old[0].at_ms
        self._step_ms = max(2 * span // self.most, 1)
        joined = _joined(old, keep_gaps=True)
        if len(joined) >= self.most:
            joined = _joined(old, keep_gaps=False)
        self._points = [*joined, newest]


def _joined(points: list[Sample], *, keep_gaps: bool) -> list[Sample]:
    """Each pair as one, with the larger value."""
    joined: list[Sample] = []
    for at in range(0, len(points), 2):
        pair = points[at : at + 2]
        values = [sample.value for sample in pair if sample.value is not None]
        if keep_gaps and 0 < len(values) < len(pair):
            joined += pair
        else:
            joined.append(Sample(pair[-1].at_ms, max(values, default=None)))
    return joined
