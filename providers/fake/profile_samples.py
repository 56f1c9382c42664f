"""Kept profiles of a small cluster, and a fake controller's answers about them: lists, bytes, and captures that give what is scripted."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from iris_core.contracts import RpcFailed
from iris_core.wire.gen.iris.v1 import profiles_pb2 as pb

if TYPE_CHECKING:
    from providers.fake.client import FakeClient

MINUTE: Final = 60_000
TREE: Final = {
    (
        "main (/j/train.py)",
        "step (/j/train.py)",
        "forward (/j/model.py)",
        "matmul (/v/lib/python3.11/site-packages/torch/mm.py)",
    ): 5.0,
    ("main (/j/train.py)", "step (/j/train.py)", "forward (/j/model.py)"): 1.0,
    ("main (/j/train.py)", "step (/j/train.py)", "backward (/j/model.py)"): 2.6,
    ("main (/j/train.py)", "load_batch (/j/data.py)", "read (/usr/lib/python3.11/gzip.py)"): 0.9,
    ("main (/j/train.py)", "load_batch (/j/data.py)", "decompress (libz.so.1)"): 0.4,
    ("monitor (/j/watch.py)",): 0.1,
}
STATS: Final = {
    "total_num_allocations": 1200,
    "total_bytes_allocated": 3_600_000_000,
    "metadata": {"peak_memory": 900_000_000},
    "allocation_size_histogram": [
        {"min_bytes": 0, "max_bytes": 1023, "count": 900},
        {"min_bytes": 1024, "max_bytes": 3_000_001, "count": 300},
    ],
    "top_allocations_by_size": [
        {"location": "load_batch:/j/data.py:31", "size": 3_000_000_000},
        {"location": "forward:/j/model.py:8", "size": 400_000_000},
    ],
    "top_allocations_by_count": [{"location": "forward:/j/model.py:8", "count": 900}],
}
DUMP: Final = """Process 4242: python train.py
Python v3.11.9 (/usr/bin/python3.11)

Thread 4242 (active+gil): "MainThread"
    all_reduce (dist.py:88)
    step (train.py:41)
    main (train.py:90)
"""


def speedscope(tree: dict[tuple[str, ...], float]) -> bytes:
    """A file with these stacks, the outermost frame first."""
    frames: list[dict[str, str]] = []
    numbers: dict[str, int] = {}
    samples = []
    for stack in tree:
        sample = []
        for label in stack:
            if label not in numbers:
                numbers[label] = len(frames)
                name, _, file = label.partition(" (")
                frames.append({"name": name, "file": file.rstrip(")")})
            sample.append(numbers[label])
        samples.append(sample)
    profile = {"type": "sampled", "name": "t", "unit": "seconds", "samples": samples, "weights": list(tree.values())}
    return json.dumps({"shared": {"frames": frames}, "profiles": [profile]}).encode()


class FakeProfiles:
    """What a fake controller keeps. `attach` makes its client answer for it; a capture gives the profile of its kind."""

    def __init__(self, client: FakeClient) -> None:
        self.client = client
        self.kept: dict[str, tuple[pb.ProfileRecord, bytes]] = {}
        self.capped = False
        self.dumps: dict[str, str | Exception] = {}
        """Thread dumps by target; an exception is raised instead."""
        now = client.now_ms
        self.keep(
            "p-cpu-1",
            "/ada/train-llama/0",
            pb.PROFILE_TYPE_CPU,
            pb.PROFILE_FORMAT_SPEEDSCOPE,
            speedscope(TREE),
            now - 4 * MINUTE,
            attempt_id=0,
            rate_hz=20,
            duration_seconds=10,
            trigger=pb.PROFILE_TRIGGER_ON_DEMAND,
            vm_id="h100-0",
        )
        self.keep(
            "p-cpu-2",
            "/ada/train-llama/1",
            pb.PROFILE_TYPE_CPU,
            pb.PROFILE_FORMAT_SPEEDSCOPE,
            speedscope({**TREE, ("main (/j/train.py)", "load_batch (/j/data.py)"): 6.0}),
            now - 2 * MINUTE,
            attempt_id=0,
            rate_hz=20,
            duration_seconds=10,
            trigger=pb.PROFILE_TRIGGER_PERIODIC,
            vm_id="h100-1",
        )
        self.keep(
            "p-mem-1",
            "/ada/train-llama/0",
            pb.PROFILE_TYPE_MEMORY,
            pb.PROFILE_FORMAT_STATS,
            json.dumps(STATS).encode(),
            now - 60 * MINUTE,
            attempt_id=0,
            duration_seconds=10,
            trigger=pb.PROFILE_TRIGGER_ON_DEMAND,
            vm_id="h100-0",
        )
        self.keep(
            "p-thr-1",
            "/ada/train-llama/2",
            pb.PROFILE_TYPE_THREADS,
            pb.PROFILE_FORMAT_TEXT,
            DUMP.encode(),
            now - 9 * MINUTE,
            attempt_id=0,
            trigger=pb.PROFILE_TRIGGER_PERIODIC,
            vm_id="h100-2",
        )
        self.keep("p-html-1", "/system/controller", pb.PROFILE_TYPE_MEMORY, pb.PROFILE_FORMAT_HTML, b"<html>", now - 90 * MINUTE,
                  trigger=pb.PROFILE_TRIGGER_ON_DEMAND, vm_id="controller-self")  # fmt: skip

    def keep(self, name: str, source: str, kind: Any, shape: Any, data: bytes, at_ms: int, **fields: Any) -> None:
        """One more profile."""
        record = pb.ProfileRecord(
            profile_id=name,
            source=source,
            type=kind,
            format=shape,
            captured_at_ms=at_ms,
            size_bytes=len(data),
            **fields,
        )
        self.kept[name] = (record, data)

    def attach(self) -> FakeProfiles:
        """From now on the client answers for it."""
        for name in ("list_profiles", "get_profile", "profile_task"):
            setattr(self.client, f"_{name}", getattr(self, name))
        self.client.plans.harmless.add("ControllerService/ProfileTask")
        return self

    def list_profiles(self, request: pb.ListProfilesRequest) -> pb.ListProfilesResponse:
        """The newest first."""
        found: list[pb.ProfileRecord] = [
            record
            for record, _ in self.kept.values()
            if (not request.types or record.type in request.types) and record.source.startswith(request.prefix)
        ]
        found.sort(key=lambda one: -one.captured_at_ms)
        return pb.ListProfilesResponse(profiles=found, capped=self.capped)

    def get_profile(self, request: pb.GetProfileRequest) -> pb.GetProfileResponse:
        """Its bytes."""
        if request.profile_id not in self.kept:
            raise RpcFailed("NOT_FOUND", f"no profile {request.profile_id}", code="profile_not_found")
        record, data = self.kept[request.profile_id]
        return pb.GetProfileResponse(record=record, profile_data=data)

    def profile_task(self, request: pb.ProfileTaskRequest) -> pb.ProfileTaskResponse:
        """Captures at once."""
        scripted = self.dumps.get(request.target, DUMP)
        if isinstance(scripted, Exception):
            raise scripted
        data = {
            pb.PROFILE_TYPE_CPU: speedscope(TREE),
            pb.PROFILE_TYPE_MEMORY: json.dumps(STATS).encode(),
        }.get(request.options.type, scripted.encode())
        name = f"p-new-{len(self.kept)}"
        self.keep(
            name, request.target, request.options.type, request.options.format or pb.PROFILE_FORMAT_TEXT, data,
            self.client.now_ms, trigger=pb.PROFILE_TRIGGER_ON_DEMAND, rate_hz=20, duration_seconds=request.options.duration_seconds,
        )  # fmt: skip
        return pb.ProfileTaskResponse(profile_data=data, record=self.kept[name][0])
