"""The journal of a rollout that exists only on paper: one cluster is done, the second is in its watch. For pictures and for tests.

It is written as the engine would have, so that whatever reads journals reads this one. Its times are relative to the clock of the sample.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

NAME: Final = "rollout-20251231-235200-5a1e"
OLD: Final = "41c07be6b2f95a0d8f6f39d3e1d1f7e6c0a2b9d4"
NEW: Final = "9e2f51c3a7d84b60b1c5e8f0d2a4967c3be1f508"
CANDIDATES: Final = (
    ("lab", "local", 4, ""),
    ("rack-a", "manual", 12, ""),
    ("rack-b", "manual", 48, ""),
    ("tpu-west", "gcp", 96, "this release does not roll out to gcp clusters"),
)
"""Name, kind, capacity, and why it cannot be taken."""
CHECKS: Final = (
    ("the rollout record can be read", "{store}, 41c07be6b2f9 is committed"),
    ("the lock is free", "nobody holds it"),
    ("the controller runs", "41c07be6b2f9 it serves"),
    ("the controller answers", "57 tasks run"),
    ("git runs", "/usr/bin/git"),
    ("there is room for a release", "212GB free"),
)


class _Journal:
    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.records: list[dict[str, Any]] = []

    def add(self, kind: str, event: str, before_s: float, **more: Any) -> None:
        self.records.append(
            {"type": kind, "at_ms": self.now_ms - round(before_s * 1000), "by": "ada", "event": event, **more}
        )

    def gathered(self, event: str, title: str, before_s: float, value: Any) -> None:
        self.add("gathering", event, before_s + 1, title=title)
        self.add("gathered", event, before_s, value=value)

    def done(self, event: str, title: str, before_s: float, value: Any = None) -> None:
        self.add("intent", event, before_s + 1, title=title, grant=title)
        self.add("done", event, before_s, value=value)

    def asked(self, event: str, title: str, before_s: float, *, answer: str = "approve", tier: int = 3) -> None:
        self.add(
            "asked", event, before_s + 20, title=title, tier=tier, name="", grants=[], effects=[], undo=[], command="",
            choices=["approve", "stop"], evidence=None, token="4c1b2f6e9a70", again=False,
        )  # fmt: skip
        if answer:
            self.add("answered", event, before_s, choice=answer, reason="", token="4c1b2f6e9a70")


def sample_of(at_ms: int, number: int, tree: str, **more: Any) -> dict[str, Any]:
    """One look at a cluster, a little different each time."""
    return {
        "at_ms": at_ms, "reachable": True, "tree": tree, "boot_id": f"boot-{tree[:4]}", "version": "1", "ready": True, "problems": [],
        "workers_total": 12, "workers_healthy": 12 - (number == 1), "jobs": {"running": 9}, "failures": number // 4,
        "tasks": {"running": 57 - (number % 3), "pending": 6 + (3 * number) % 5}, "failures_since_ms": at_ms - 3_600_000,
        "lag_ms": 2.0 + (7 * number) % 5, "store": "serving", "store_lag_ms": 40 + (90 * number) % 200, **more,
    }  # fmt: skip


def sample_records(now_ms: int, samples: int = 13) -> list[dict[str, Any]]:
    """The whole journal, up to so many samples of the second watch."""
    made = _Journal(now_ms)
    names = ["lab", "rack-a", "rack-b"]
    made.add("started", "", 900, procedure="rollout", arguments={"clusters": names})
    made.add("step", "looking", 899, title="Look at the tree and at every cluster")
    tree = {
        "id": NEW, "root": "/src/iris", "branch": "main", "base": "5f0c2d9b" * 5, "subject": "Place gangs by their topology",
        "dirty": [], "upstream": "origin/main", "ahead": 0, "behind": 0, "warnings": [],
    }  # fmt: skip
    made.gathered("tree-state", "the tree", 897, tree)
    for name in names:
        made.add("gathering", f"{name}/needs", 896, title=f"what {name} needs")
        found = [
            {"what": what, "why": "", "ok": True, "detail": how.format(store=f"gs://iris-{name}")}
            for what, how in CHECKS
        ]
        for check in found:
            made.add("progress", f"{name}/needs", 895, value=check)
        made.add("gathered", f"{name}/needs", 894, value=found)
    made.asked("tree", f"Ship tree {NEW[:12]} to lab, rack-a, rack-b", 860)
    for number, (name, began) in enumerate((("lab", 850.0), ("rack-a", 300.0))):
        made.add("step", f"{name}/begin", began, title=f"{name}: {NEW[:12]}")
        at_ms = now_ms - round(began * 1000)
        made.gathered(f"{name}/snapshot", f"how {name} is before", began - 1, sample_of(at_ms, 0, OLD))
        made.asked(f"{name}/restart", f"Restart the controller of {name}", began - 30)
        for at, (event, title) in enumerate(
            (("lock", f"take the lock of {name}"), ("stage", f"build and stage {NEW[:12]}"), ("checkpoint", "take a checkpoint"),
             ("pending", "write the record: pending"), ("stop", "stop the controller"), ("start", f"start {NEW[:12]}"))
        ):  # fmt: skip
            saved = f"gs://iris-{name}/controller-state/1767225000000" if event in ("checkpoint", "stop") else None
            made.done(f"{name}/{event}", title, began - 40 - 3 * at, saved)
        made.gathered(f"{name}/health", "health", began - 60, {"url": "", "boot_id": ""})
        made.done(f"{name}/commit", "write the record: committed", began - 61)
        standing = {"phase": "committed", "image": NEW, "previous_image": OLD, "rollback_checkpoint": ""}
        made.gathered(f"{name}/record", f"the record of {name}", began - 62, standing)
        made.gathered(f"{name}/downtime", f"how long {name} did not answer", began - 63, {"seconds": 2.4 + number})
        made.done(f"{name}/smoke", "submit deploy-smoke-1767224700", began - 64, "/ada/deploy-smoke-1767224700")
        made.add("gathering", f"{name}/watch", began - 65, title=f"watch {name} for 300 s")
        taken = 21 if number == 0 else samples
        for step in range(taken):
            moment = now_ms - round((began - 65 - 15 * step) * 1000)
            value = sample_of(moment, step + 2 * (step > 0), NEW, after_s=15.0 * step)
            made.add("progress", f"{name}/watch", began - 65 - 15 * step, value=value)
        if number == 0:
            made.add("gathered", f"{name}/watch", 485, value={"samples": [], "seconds": 300.0})
            smoke = {
                "job": "/ada/deploy-smoke-1767224700",
                "state": "succeeded",
                "ended": True,
                "passed": True,
                "lines": ["hello world"],
            }
            made.gathered(f"{name}/smoke-end", "the end of deploy-smoke-1767224700", 484, smoke)
            made.gathered(
                f"{name}/verdict", f"the verdict on {name}", 483, {"passed": True, "concerns": [], "notes": []}
            )
            made.done(f"{name}/unlock", "give the lock back", 482)
            made.asked(f"{name}/next", f"{name} runs {NEW[:12]} and is well: go on to rack-a", 330, tier=1)
    return made.records


def write_sample(folder: Path, now_ms: int, samples: int = 13) -> str:
    """Writes the journal into a folder; its id."""
    lines = (json.dumps(record, separators=(",", ":")) for record in sample_records(now_ms, samples))
    (folder / f"{NAME}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return NAME
