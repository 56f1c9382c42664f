"""Whose turn it is: bands by importance, inside a band the users in turn, of each user the most important work (control-plane §2.3).

A turn is one task. In each round of turns the user who spends least comes first, and what the plan itself assigns counts at once; of
equals, the one who was served or came longest ago. A pass lasts until nothing more fits; then turns begin anew, so that on a
full fleet each place that gets free goes to whoever spends least. All orders are heaps whose entries may be out of date, so a change of
one user's spend touches that user alone. Must never look at a worker.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Final

from iris_controller.state.budgets import UNLIMITED, effective_band
from iris_core.model.bands import BANDS, PriorityBand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_controller.scheduling.order import OrderKey
    from iris_controller.scheduling.shape import Shape
    from iris_controller.state.budgets import Budget

TurnKey = tuple[int, int, int]
"""Turns taken in this pass, spend, and when last served; the last is unique."""

UNBOUNDED: Final = 1 << 60


class Bucket:
    """The pending tasks of one job incarnation."""

    __slots__ = ("job_id", "key", "line", "live", "reason", "value")

    def __init__(self, job_id: str, key: OrderKey, value: int, line: Line) -> None:
        self.job_id = job_id
        self.key = key
        self.value = value
        """What one task adds to its user's spend."""
        self.line = line
        self.live = True
        self.reason = ""
        """What the model says it waits for."""


class Line:
    """The buckets of one shape in one lane."""

    __slots__ = ("buckets", "entry", "lane", "shape", "size")

    def __init__(self, lane: Lane, shape: Shape) -> None:
        self.lane = lane
        self.shape = shape
        self.buckets: list[tuple[OrderKey, int, Bucket]] = []
        """A heap; an entry whose bucket is not live is skipped when it comes up."""
        self.size = 0
        self.entry: OrderKey | None = None
        """Its key in the lane's heap; None = it is not in there."""

    def top(self) -> Bucket | None:
        """The most important bucket."""
        while self.buckets:
            bucket = self.buckets[0][2]
            if bucket.live:
                return bucket
            heapq.heappop(self.buckets)
        return None


class Lane:
    """What one user waits for in one requested band: the lines that may find room, by their first bucket."""

    __slots__ = ("heap", "lines", "requested", "seat", "user")

    def __init__(self, user: User, requested: PriorityBand, seat: Seat) -> None:
        self.user = user
        self.requested = requested
        self.seat = seat
        """Where it is served now."""
        self.lines: dict[Shape, Line] = {}
        self.heap: list[tuple[OrderKey, int, Line]] = []

    @property
    def demoted(self) -> bool:
        return self.seat.band is not self.requested

    def first(self) -> Bucket | None:
        """The most important bucket that may find room."""
        while self.heap:
            key, serial, line = self.heap[0]
            if line.entry != key:
                heapq.heappop(self.heap)
                continue
            bucket = line.top() if line.shape.open else None
            if bucket is None:
                line.entry = None
                heapq.heappop(self.heap)
            elif bucket.key != key:
                line.entry = bucket.key
                heapq.heapreplace(self.heap, (bucket.key, serial, line))
            else:
                return bucket
        return None


class Seat:
    """A user's place in the round of one effective band."""

    __slots__ = ("band", "entry", "lanes", "last", "turns", "user")

    def __init__(self, user: User, band: PriorityBand, last: int) -> None:
        self.user = user
        self.band = band
        self.lanes: list[Lane] = []
        """By requested band, most important first."""
        self.turns = 0
        self.last = last
        self.entry: TurnKey | None = None
        """Its key in the band's heap; None = it is not in there."""

    def key(self) -> TurnKey:
        return self.turns, self.user.spent, self.last

    def first(self) -> Bucket | None:
        for lane in self.lanes:
            bucket = lane.first()
            if bucket is not None:
                return bucket
        return None


class User:
    """Who pays for work: lanes by requested band, seats by effective band. `spent` includes what the plan has assigned."""

    __slots__ = ("budget", "lanes", "over", "seats", "spent")

    def __init__(self, budget: Budget, spent: int) -> None:
        self.budget = budget
        self.spent = spent
        self.over = self.is_over()
        self.lanes: dict[PriorityBand, Lane] = {}
        self.seats: dict[PriorityBand, Seat] = {}

    def is_over(self) -> bool:
        band = PriorityBand.INTERACTIVE
        return effective_band(band, self.budget.limit, self.spent) is not band


class _Band:
    __slots__ = ("heap", "round", "round_before")

    def __init__(self) -> None:
        self.heap: list[tuple[TurnKey, Seat]] = []
        self.round = 0
        """Turns that whoever was served last had taken: who comes in the middle of a pass begins there."""
        self.round_before = 0
        """At the beginning of this slice."""


class Turns:
    """All lanes of all users, and the round of each band."""

    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self._bands = {band: _Band() for band in BANDS}
        self._serial = 0
        self._moved: dict[Seat, tuple[int, int]] = {}
        """Turns, and when last served, before this slice, of those that it has served."""
        self._idle: dict[User, None] = {}
        """Users that may have nothing waiting."""
        self._pass: dict[Seat, None] = {}
        """Seats that have taken turns in this pass."""

    # Work that comes and goes --------------------------------------------------------------------------------

    def add(self, job_id: str, key: OrderKey, value: int, requested: PriorityBand, user: User, shape: Shape) -> Bucket:
        """A job's pending tasks, in the lane of the band that was asked for."""
        lane = user.lanes.get(requested) or self._open_lane(user, requested)
        line = lane.lines.get(shape)
        if line is None:
            line = lane.lines[shape] = shape.lines[lane] = Line(lane, shape)
        line.size += 1
        shape.size += 1
        bucket = Bucket(job_id, key, value, line)
        heapq.heappush(line.buckets, (key, self._next(), bucket))
        if shape.open:
            self.offer(line)
        return bucket

    def remove(self, bucket: Bucket) -> None:
        bucket.live = False
        line = bucket.line
        line.size -= 1
        line.shape.size -= 1
        if line.size:
            return
        lane = line.lane
        line.entry = None
        del line.shape.lines[lane], lane.lines[line.shape]
        if not lane.lines:
            user = lane.user
            del user.lanes[lane.requested]
            lane.seat.lanes.remove(lane)
            if not user.lanes:
                self._idle[user] = None

    def sweep(self) -> None:
        """Forgets users for whom nothing waits."""
        for user in self._idle:
            if not user.lanes:
                for seat in user.seats.values():
                    seat.entry = None
                del self.users[user.budget.user_id]
        self._idle.clear()

    def offer(self, line: Line) -> None:
        """The line may find room."""
        bucket = line.top()
        if bucket is None:
            return
        if line.entry is None or bucket.key < line.entry:
            line.entry = bucket.key
            heapq.heappush(line.lane.heap, (bucket.key, self._next(), line))
        self._sit(line.lane.seat)

    def _open_lane(self, user: User, requested: PriorityBand) -> Lane:
        lane = user.lanes[requested] = Lane(user, requested, self._seat(user, requested))
        lane.seat.lanes.append(lane)
        lane.seat.lanes.sort(key=lambda each: -each.requested.rank())
        return lane

    def _seat(self, user: User, requested: PriorityBand) -> Seat:
        """Where work that was asked for in this band is served now."""
        band = PriorityBand.BATCH if user.over and requested is PriorityBand.INTERACTIVE else requested
        seat = user.seats.get(band)
        if seat is None:
            seat = user.seats[band] = Seat(user, band, self._next())
        return seat

    def _sit(self, seat: Seat) -> None:
        if seat.entry is None:
            seat.turns = max(seat.turns, self._bands[seat.band].round)
            self._push(seat)

    def _push(self, seat: Seat) -> None:
        seat.entry = seat.key()
        heapq.heappush(self._bands[seat.band].heap, (seat.entry, seat))

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    # Spend ---------------------------------------------------------------------------------------------------

    def ranks(self) -> set[int]:
        """The ranks of the bands in which anything waits."""
        return {lane.seat.band.rank() for user in self.users.values() for lane in user.lanes.values()}

    def spends(self, user: User, budget: Budget, spent: int) -> list[Bucket]:
        """What a user may spend, and spends as of now. Returns the buckets that this moves to another band."""
        if user.budget == budget and user.spent == spent:
            return []
        user.budget = budget
        user.spent = spent
        for seat in user.seats.values():
            if seat.entry is not None:
                self._push(seat)
        return self._settle(user)

    def _settle(self, user: User) -> list[Bucket]:
        """Moves the user's lanes to where its spend puts them."""
        moved: list[Bucket] = []
        if user.over == user.is_over():
            return moved
        user.over = not user.over
        for lane in user.lanes.values():
            seat = self._seat(user, lane.requested)
            if seat is lane.seat:
                continue
            lane.seat.lanes.remove(lane)
            lane.seat = seat
            seat.lanes.append(lane)
            seat.lanes.sort(key=lambda each: -each.requested.rank())
            if lane.heap:
                self._sit(seat)
            for line in lane.lines.values():
                moved += (bucket for _, _, bucket in line.buckets if bucket.live)
        return moved

    # Turns ---------------------------------------------------------------------------------------------------

    def first(self) -> Bucket | None:
        """The bucket whose turn it is, of those that may find room."""
        for band in self._bands.values():
            heap = band.heap
            while heap:
                entry, seat = heap[0]
                if seat.entry != entry:
                    heapq.heappop(heap)
                    continue
                bucket = seat.first()
                if bucket is None:
                    seat.entry = None
                    heapq.heappop(heap)
                    continue
                key = seat.key()
                if key == entry:
                    band.round = seat.turns
                    return bucket
                seat.entry = key
                heapq.heapreplace(heap, (key, seat))
        return None

    def run(self, bucket: Bucket) -> int:
        """How many of the bucket's tasks may be placed before it is somebody else's turn, or the user's band changes."""
        seat = bucket.line.lane.seat
        if len(self._bands[seat.band].heap) > 1:
            return 1
        user = seat.user
        if bucket.value and user.budget.limit != UNLIMITED and seat.band is PriorityBand.INTERACTIVE:
            return (user.budget.limit - user.spent) // bucket.value + 1
        return UNBOUNDED

    def served(self, bucket: Bucket, count: int) -> list[Bucket]:
        """So many of the bucket's tasks have been assigned. Returns the buckets that this moves to another band."""
        seat = bucket.line.lane.seat
        band = self._bands[seat.band]
        self._moved.setdefault(seat, (seat.turns, seat.last))
        seat.turns += count
        seat.last = self._next()
        self._pass[seat] = None
        if len(band.heap) == 1:
            band.round = seat.turns
        if seat.band is PriorityBand.BATCH or not bucket.value:
            return []
        user = seat.user
        user.spent += count * bucket.value
        # What is assigned only adds: who is over stays over.
        if user.over or user.budget.limit == UNLIMITED or user.spent <= user.budget.limit:
            return []
        return self._settle(user)

    def begin(self, dropped: bool, new_pass: bool) -> None:
        """A slice begins. `dropped`: what the last one assigned has not come to be. `new_pass`: nothing more fitted after it."""
        again: Iterable[Seat] = ()
        if dropped:
            for seat, before in self._moved.items():
                seat.turns, seat.last = before
            for band in self._bands.values():
                band.round = band.round_before
            again = self._moved
        elif new_pass:
            for seat in self._pass:
                seat.turns = 0
            for band in self._bands.values():
                band.round = 0
            again, self._pass = self._pass, {}
        for seat in again:
            if seat.entry is not None:
                self._push(seat)
        for band in self._bands.values():
            band.round_before = band.round
        self._moved = {}
