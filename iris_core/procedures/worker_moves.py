"""The single steps of restarting workers, each with how to tell whether it has happened, and what is looked at for them.

`worker_restart` puts them in order. Must never have a worker ended whose boot or attempts are not those that its gate named.
"""

from __future__ import annotations

import hashlib
from asyncio import to_thread
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import IrisError
from iris_core.procedures import lock, record
from iris_core.procedures.events import Evidence, Grant, Mutation, Report, World
from iris_core.procedures.record import Phase

if TYPE_CHECKING:
    from iris_core.live.clock import Clock
    from iris_core.procedures.target import Target

TAKEN_OVER_S: Final = 30.0
"""What the controller may take to put another supervisor in the place of one."""
LOOK_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of one controller, and by what means they are seen and restarted. Each call may block and may raise IrisError.

    Attributes:
        running: What the controller says of itself: its `release`, as its workers name theirs.
        workers: Of each worker that the controller knows: `worker_id`, `boot_id`, `release`, `healthy` (attached as well).
        attempts: What the controller has placed and not seen to end: by worker, the attempt (`/u/job/0:1`) by its uid.
        here: Of each worker of the host that the controller runs on: `worker_id`, `boot_id` ("" = it does not run now), and its `attempts`
            by uid.
        restart: Ends workers once the controller keeps them by a supervisor of its own release (`providers.local.worker_restart.restart`).
    """

    running: Callable[[], dict[str, Any]]
    workers: Callable[[], list[dict[str, Any]]]
    attempts: Callable[[], dict[str, dict[str, str]]]
    here: Callable[[], list[dict[str, Any]]]
    restart: Callable[[Sequence[Mapping[str, Any]], float], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """Which workers, and how carefully.

    Attributes:
        worker_ids: These alone; () = all.
        skip_current: Leave out those that run the controller's release already.
        idle_only: Leave out those on which something runs.
        timeout_s: What a worker may take until it is healthy again.
        min_batch, max_batch: How many at once, in the first batch and at most; each batch is twice the one before.
        window_s: How long a batch has to stay healthy before the next one.
        max_failures: When more workers than that failed, nothing further is begun.
    """

    worker_ids: tuple[str, ...] = ()
    skip_current: bool = False
    idle_only: bool = False
    timeout_s: float = 120.0
    min_batch: int = 1
    max_batch: int = 64
    window_s: float = 30.0
    max_failures: int = 4


def batches(workers: Sequence[Any], least: int, most: int) -> list[list[Any]]:
    """The workers in order, each batch twice as large as the one before."""
    found, size, at = [], least, 0
    while at < len(workers):
        found.append(list(workers[at : at + size]))
        at, size = at + size, min(size * 2, most)
    return found


class Work:
    """What the events do."""

    def __init__(self, target: Target, fleet: Fleet, wishes: Wishes, clock: Clock) -> None:
        self._t = target
        self._f = fleet
        self._w = wishes
        self._clock = clock

    def preflight(self, only: Sequence[str], *, again: bool) -> Any:
        """Raises IrisError: another procedure is at work, the controller is between two releases, or a worker that was named is not there."""

        async def gather(report: Report) -> dict[str, Any]:
            await to_thread(
                lock.require_free, self._t.store, self._t.now_ms(), self._t.holder.procedure, self._t.program
            )
            standing = (await to_thread(record.read, self._t.store)).record
            if standing is not None and standing.phase in (Phase.PENDING, Phase.ROLLBACK_REQUESTED):
                raise IrisError(
                    f"the deployment of {standing.image[:12]} is {standing.phase}: its workers wait for what becomes of it",
                    hint=f"see it through first: {self._t.controller('status')}",
                )
            status = await to_thread(self._t.host.status)
            if not status.running:
                raise IrisError(
                    f"no controller of {self._t.name} runs: {status.detail}", hint=self._t.controller("start")
                )
            release = str((await to_thread(self._f.running))["release"])
            here = await to_thread(self._f.here)
            away = [str(row["worker_id"]) for row in here if not row["boot_id"] and row["worker_id"] in only]
            if away and not again:
                raise IrisError(f"{', '.join(away)}: it does not run now", hint="try again once it is back")
            missing = sorted(set(only) - {str(row["worker_id"]) for row in here})
            if missing and not again:
                raise IrisError(
                    f"{', '.join(missing)}: no such worker lives where the controller of {self._t.name} runs",
                    hint=f"{self._t.program} cluster status lists the workers; only those that the controller started can be restarted",
                )
            known = {str(row["worker_id"]): row for row in await to_thread(self._f.workers)}
            placed = await to_thread(self._f.attempts)
            chosen, left_out = self._chosen(release, only, here, known, placed)
            return {
                "release": release,
                "tree": status.release,
                "record": standing.to_json().decode() if standing is not None else "",
                "chosen": chosen,
                "left_out": left_out,
            }

        return gather

    def _chosen(
        self,
        release: str,
        only: Sequence[str],
        here: list[dict[str, Any]],
        known: Mapping[str, dict[str, Any]],
        placed: Mapping[str, dict[str, str]],
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """The workers to restart, those with the least work first; and why others are left out."""
        chosen, left_out = [], []
        for row in here:
            name = str(row["worker_id"])
            if only and name not in only:
                continue
            runs = str(known.get(name, {}).get("release", ""))
            attempts = {**placed.get(name, {}), **row["attempts"]}
            if not row["boot_id"]:
                left_out.append(f"{name} does not run now")
            elif self._w.skip_current and runs == release:
                left_out.append(f"{name} runs {release} already")
            elif self._w.idle_only and attempts:
                left_out.append(f"{name} runs {some(sorted(attempts.values()))}")
            else:
                chosen.append({"worker_id": name, "boot_id": row["boot_id"], "release": runs, "attempts": attempts})
        if not only:
            lives = {str(row["worker_id"]) for row in here}
            left_out += [f"{name} is not one that the controller started" for name in sorted(known.keys() - lives)]
        chosen.sort(key=lambda row: (len(row["attempts"]), row["worker_id"]))
        return chosen, left_out

    def grant(self, part: Sequence[dict[str, Any]]) -> Grant:
        """Of one batch: its workers by name, and by the boots that they had."""
        boots = hashlib.sha256(" ".join(str(row["boot_id"]) for row in part).encode()).hexdigest()[:12]
        return Grant("restart", "workers", " ".join(str(row["worker_id"]) for row in part), boots)

    def batch(self, gate: str, number: str, part: Sequence[dict[str, Any]]) -> Mutation:
        """Ends the workers of a batch, and comes back before the next ones are there."""
        names = [str(row["worker_id"]) for row in part]

        async def do() -> dict[str, Any]:
            placed = await to_thread(self._f.attempts)
            left = {}
            for row in part:
                more = {uid: key for uid, key in placed.get(row["worker_id"], {}).items() if uid not in row["attempts"]}
                if more:
                    left[row["worker_id"]] = f"it runs {some(sorted(more.values()))}, which nobody approved to end"
            wanted = [
                {
                    "worker_id": row["worker_id"],
                    "boot_id": row["boot_id"],
                    "attempts": sorted(row["attempts"]),
                    "mark": self._t.holder.procedure,
                }
                for row in part
                if row["worker_id"] not in left
            ]
            said = await to_thread(self._f.restart, wanted, TAKEN_OVER_S)
            return {**said, "left": {**left, **said["left"]}}

        async def look() -> World:
            now = {str(row["worker_id"]): row["boot_id"] for row in await to_thread(self._f.here)}
            old = [row for row in part if now.get(row["worker_id"]) == row["boot_id"]]
            return World.NOT_DONE if old else World.DONE

        async def result() -> dict[str, Any]:
            # Those that were left out would still have the boot that they had.
            return {"told": names, "left": {}, "failed": {}, "ended": []}

        return Mutation(
            id=f"batch-{number}",
            title=f"end {', '.join(names)}",
            gate=gate,
            grant=self.grant(part),
            do=do,
            look=look,
            result=result,
            timeout_s=TAKEN_OVER_S + 90.0,
        )

    def back(self, number: str, told: Sequence[str], part: Sequence[dict[str, Any]], release: str) -> Evidence:
        """Waits until the workers of a batch are well on the release, and sees them stay so: "" of each, or why it is not."""
        boots = {str(row["worker_id"]): str(row["boot_id"]) for row in part if row["worker_id"] in told}

        async def gather(report: Report) -> dict[str, str]:
            deadline = self._clock.monotonic() + self._w.timeout_s
            found: dict[str, str] = {}
            good: dict[str, str] = {}
            while True:
                for row in await self._workers():
                    name = str(row["worker_id"])
                    if name in boots and name not in found and row["healthy"] and row["boot_id"] != boots[name]:
                        found[name] = "" if row["release"] == release else f"it came back with release {row['release']}"
                        good[name] = str(row["boot_id"])
                waiting = boots.keys() - found.keys()
                if not waiting:
                    break
                if self._clock.monotonic() >= deadline:
                    found |= dict.fromkeys(waiting, f"it was not healthy within {self._w.timeout_s:g} s")
                    break
                await self._clock.sleep(LOOK_S)
            report({"lines": [f"{name}: {why or 'it is back'}" for name, why in sorted(found.items())]})
            return await self._stays(found, good)

        return Evidence(
            id=f"back-{number}",
            title=f"{', '.join(told) or 'nothing'} well again",
            gather=gather,
            timeout_s=self._w.timeout_s + self._w.window_s + 120.0,
        )

    async def _workers(self) -> list[dict[str, Any]]:
        """None while the controller does not answer: its workers are not to blame for that."""
        try:
            return await to_thread(self._f.workers)
        except IrisError:
            return []

    async def _stays(self, found: dict[str, str], good: dict[str, str]) -> dict[str, str]:
        until = self._clock.monotonic() + self._w.window_s
        while any(not why for why in found.values()) and (left := until - self._clock.monotonic()) > 0:
            await self._clock.sleep(min(LOOK_S, left))
            now = {str(row["worker_id"]): row for row in await self._workers()}
            if not now:
                continue
            for name in [name for name, why in found.items() if not why]:
                row = now.get(name)
                if row is None or not row["healthy"]:
                    found[name] = "it came back, and did not stay healthy"
                elif row["boot_id"] != good[name]:
                    found[name] = "it came back, and was started again"
        return found


def some(keys: Sequence[str]) -> str:
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
