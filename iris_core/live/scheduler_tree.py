"""The Scheduler view as data: what waits and what runs, by band, by user, by bucket, with totals and budgets.

A bucket is the pending tasks of one job, or its running tasks on one worker; its kind is "job", since what can be done is done to its job. Watch brings buckets and users; bands and users
above them are made here, and their totals follow every change without looking at the buckets that did not change. No screen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from iris_core.live.feed import Feed
from iris_core.live.rows import Changes, Row
from iris_core.live.watch import Selector
from iris_core.model.bands import PriorityBand

if TYPE_CHECKING:
    from collections.abc import Iterable

    from iris_core.contracts import AsyncClient
    from iris_core.live.backoff import Backoff
    from iris_core.live.clock import Clock
    from iris_core.wire.gen.iris.v1.controller_pb2 import WatchRows
    from iris_core.wire.gen.iris.v1.watch_rows_pb2 import PendingBucketRow, RunningBucketRow, UserRow

KINDS: Final = ("job", "user", "band")
PENDING, RUNNING = "pending", "running"
USERS: Final = "users"
_SECTIONS: Final = {PENDING: 0, RUNNING: 1}
_SELECTORS: Final = (Selector(PENDING, 5), Selector(RUNNING, 6), Selector(USERS, 10))  # numbers of WatchKind


@dataclass(slots=True)
class Group:
    """A band (`user` is ""), or a user within one, with what is below.

    Attributes:
        since_ms: Since when the oldest pending task below waits, 0 = nothing waits.
        position: The best place in the queue of what is below, 0 = nothing waits.
        jobs: How many buckets of each job are below.
        budget: What the user may spend and spends; None for a band, and until it is known.
    """

    section: str
    band: int
    user: str = ""
    tasks: int = 0
    buckets: int = 0
    since_ms: int = 0
    position: int = 0
    jobs: dict[str, int] = field(default_factory=dict)
    budget: UserRow | None = None


Value: TypeAlias = "PendingBucketRow | RunningBucketRow | Group"


@dataclass(slots=True)
class _Counted:
    """What a bucket adds to the groups above it."""

    groups: tuple[str, str]
    job: str
    tasks: int
    since_ms: int
    position: int


class SchedulerTree(Feed[Value]):
    """Row store of the Scheduler view; a row's id is its section and what the wire calls it."""

    def __init__(self, client: AsyncClient, clock: Clock, *, backoff: Backoff | None = None) -> None:
        super().__init__(client, clock, _SELECTORS, self._bucket_rows, kinds=KINDS, backoff=backoff)
        self.users: dict[str, UserRow] = {}
        self._groups: dict[str, Group] = {}
        self._counted: dict[str, _Counted] = {}
        self._members: dict[str, dict[str, _Counted]] = {}
        self._touched: dict[str, None] = {}
        self._worn: set[str] = set()
        """Groups whose oldest or first bucket left: both are looked for anew."""

    def row_id(self, selector: str, name: str) -> str:
        return f"{selector} {name}"

    def totals(self, section: str) -> tuple[int, int]:
        """Tasks and buckets of a section."""
        bands = [group for group in self._groups.values() if group.section == section and not group.user]
        return sum(band.tasks for band in bands), sum(band.buckets for band in bands)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _bucket_rows(self, selector: str, rows: WatchRows) -> Iterable[Row[Value]]:
        if selector == USERS:
            for user in rows.users:
                self.users[user.user_id] = user
                self._touch_user(user.user_id)
            for name in rows.removed:
                self.users.pop(name, None)
                self._touch_user(name)
            return
        buckets: Any = rows.pending_buckets if selector == PENDING else rows.running_buckets
        for bucket in buckets:
            name = self.row_id(selector, bucket.bucket_id)
            parent = self._group_ids(selector, bucket)[1]
            natural = bucket.position if selector == PENDING else (bucket.job_id, bucket.worker_id)
            yield Row(name, "job", bucket, parent, natural)

    @staticmethod
    def _group_ids(section: str, bucket: Any) -> tuple[str, str]:
        band = f"{section} band {int(bucket.band)}"
        return band, f"{band} user {bucket.user_id}"

    def _touch_user(self, user_id: str) -> None:
        for name, group in self._groups.items():
            if group.user == user_id:
                self._touched[name] = None

    def _take(self, changes: Changes[Value]) -> None:
        for name in changes.removed:
            self._forget(name)
        for row in changes.upserts:
            self._count(row)
        made: list[Row[Value]] = []
        gone = []
        for name in self._touched:
            group = self._groups[name]
            if not group.buckets:
                gone.append(name)
                del self._groups[name], self._members[name]
                continue
            if name in self._worn:
                members = self._members[name].values()
                group.since_ms = min((member.since_ms for member in members if member.since_ms), default=0)
                group.position = min((member.position for member in members if member.position), default=0)
            group.budget = self.users.get(group.user) if group.user else None
            made.append(self._group_row(name, group))
        self._touched.clear()
        self._worn.clear()
        super()._take(Changes([*made, *changes.upserts], [*changes.removed, *gone]))

    def _group_row(self, name: str, group: Group) -> Row[Value]:
        section = _SECTIONS[group.section]
        if group.user:
            parent = f"{group.section} band {group.band}"
            return Row(name, "user", group, parent, group.user, expandable=True)
        try:
            rank = -PriorityBand(group.band).rank()
        except ValueError:
            rank = 1
        return Row(name, "band", group, "", rank, section, expandable=True)

    # --- totals ------------------------------------------------------------------------------------------------------

    def _count(self, row: Row[Value]) -> None:
        bucket: Any = row.value
        section = row.id.partition(" ")[0]
        waits = section == PENDING
        counted = _Counted(
            self._group_ids(section, bucket),
            bucket.job_id,
            bucket.count,
            bucket.pending_since_ms if waits else 0,
            bucket.position if waits else 0,
        )
        if self._counted.get(row.id) == counted:
            return
        self._forget(row.id)
        self._counted[row.id] = counted
        for name in counted.groups:
            group = self._groups.get(name)
            if group is None:
                user = bucket.user_id if name == counted.groups[1] else ""
                group = self._groups[name] = Group(section, int(bucket.band), user)
                self._members[name] = {}
                if waits or not user:
                    self.store.expand(name)
            self._members[name][row.id] = counted
            group.tasks += counted.tasks
            group.buckets += 1
            group.jobs[counted.job] = group.jobs.get(counted.job, 0) + 1
            group.since_ms = _least(group.since_ms, counted.since_ms)
            group.position = _least(group.position, counted.position)
            self._touched[name] = None

    def _forget(self, name: str) -> None:
        counted = self._counted.pop(name, None)
        if counted is None:
            return
        for above in counted.groups:
            group = self._groups[above]
            del self._members[above][name]
            group.tasks -= counted.tasks
            group.buckets -= 1
            group.jobs[counted.job] -= 1
            if not group.jobs[counted.job]:
                del group.jobs[counted.job]
            if counted.since_ms == group.since_ms or counted.position == group.position:
                self._worn.add(above)
            self._touched[above] = None


def _least(known: int, other: int) -> int:
    """The smaller one; 0 is none."""
    return min(known, other) if known and other else known or other
