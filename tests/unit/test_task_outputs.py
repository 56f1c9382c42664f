"""Archives of what tasks leave behind: what gets in, what stays out, every way to fail, and the end of their time."""

from __future__ import annotations

import asyncio
import io
import os
import socket
import tarfile
import threading
from pathlib import Path

import pytest
import zstandard

from iris_controller import task_outputs
from iris_controller.store.outputs import MAX_TEXT, from_json, to_json
from iris_controller.worker import outputs
from iris_core.config.cluster import parse_config
from iris_core.contracts import UsageFailed
from iris_core.wire.gen.iris.v1.common_pb2 import TaskOutputs, TaskOutputsStatus
from iris_core.wire.gen.iris.v1.worker_pb2 import TaskOutputsPolicy
from providers.objects.file import FileStore

UID = "0123456789abcdef"
DAY_MS = 86_400_000


class World:
    """An attempt's folder and a place for its archive."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "work" / "output"
        self.folder.mkdir(parents=True)
        self.kept = root / "kept"
        self.policy = TaskOutputsPolicy(
            destination=f"file://{self.kept}", ttl_ms=7 * DAY_MS, max_bytes=1 << 20, max_entries=100,
            finalization_timeout_ms=60_000,
        )  # fmt: skip

    def save(self) -> TaskOutputs:
        async def main() -> TaskOutputs:
            return await outputs.save(UID, self.folder, self.policy, asyncio.get_running_loop().create_future())

        found = asyncio.run(main())
        assert not (self.folder.parent / outputs.ARCHIVE).exists()
        return found

    def archive(self, found: TaskOutputs) -> tarfile.TarFile:
        assert found.url.startswith(f"file://{self.kept}/") and found.url.endswith(f"/{UID}/outputs.tar.zst")
        data = Path(found.url.removeprefix("file://")).read_bytes()
        assert len(data) == found.archive_bytes
        return tarfile.open(fileobj=io.BytesIO(zstandard.ZstdDecompressor().decompressobj().decompress(data)))

    def stored(self) -> list[Path]:
        return [path for path in self.kept.rglob("*") if path.is_file()] if self.kept.exists() else []


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_what_lies_in_the_folder_comes_back_and_nothing_from_outside(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("SECRET")
    inside = world.folder
    (inside / "a" / "b").mkdir(parents=True)
    (inside / "a" / "b" / "model.bin").write_bytes(bytes(range(256)) * 100)
    (inside / "run.sh").write_text("#!/bin/sh\n")
    (inside / "run.sh").chmod(0o755)
    (inside / "empty").mkdir()
    (inside / "out").symlink_to(secret)
    (inside / "key").symlink_to(secret / "key")
    os.link(inside / "run.sh", inside / "same.sh")
    (inside / os.fsdecode(b"name-\xff-\xe2\x98\x83")).write_text("odd")
    os.mkfifo(inside / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.relpath(inside / "socket"))
    found = world.save()
    listener.close()
    assert (found.status, found.error, found.skipped) == (outputs.UPLOADED, "", 2)
    assert found.total_bytes == 25_600 + len("#!/bin/sh\n") + 3
    tar = world.archive(found)
    names = tar.getnames()
    assert sorted(names) == sorted(
        [
            "a",
            "a/b",
            "a/b/model.bin",
            "empty",
            "key",
            os.fsdecode(b"name-\xff-\xe2\x98\x83"),
            "out",
            "run.sh",
            "same.sh",
        ]
    )
    assert found.entries == len(names) and names.index("a") < names.index("a/b") < names.index("a/b/model.bin")
    model = tar.extractfile("a/b/model.bin")
    assert model is not None and model.read() == bytes(range(256)) * 100
    assert tar.getmember("out").issym() and tar.getmember("key").issym()
    assert tar.getmember("run.sh").mode & 0o777 == 0o755
    assert {(member.uid, member.gid, member.uname) for member in tar} == {(0, 0, "")}
    assert b"SECRET" not in b"".join(f.read() for member in tar if member.isreg() and (f := tar.extractfile(member)))


@pytest.mark.parametrize("kind", ["empty", "missing"])
def test_a_folder_with_nothing_in_it_makes_no_archive(world: World, kind: str) -> None:
    if kind == "missing":
        world.folder.rmdir()
    assert world.save() == TaskOutputs(status=outputs.EMPTY)
    assert world.stored() == []


def test_nothing_is_kept_beyond_the_limits(world: World) -> None:
    (world.folder / "sparse").touch()
    os.truncate(world.folder / "sparse", 1 << 40)
    found = world.save()
    assert found.status == outputs.FAILED and "more than 1MiB" in found.error
    (world.folder / "sparse").unlink()
    for number in range(101):
        (world.folder / str(number)).touch()
    found = world.save()
    assert found.status == outputs.FAILED and "more than 100 files and folders" in found.error
    assert world.stored() == []
    (world.folder / "0").unlink()
    assert world.save().status == outputs.UPLOADED


def test_a_folder_that_is_something_else_is_not_followed(world: World, tmp_path: Path) -> None:
    world.folder.rmdir()
    world.folder.symlink_to("/etc")
    found = world.save()
    assert found.status == outputs.FAILED and "replaced the folder" in found.error
    assert world.stored() == []


@pytest.mark.parametrize(
    ("destination", "said"),
    [
        ("", "set task_outputs.destination"),
        ("s3://bucket/x", "file://, gs:// and ssh:// only"),
        ("file://host/x", "not a folder"),
    ],
)
def test_without_a_place_it_says_so(world: World, destination: str, said: str) -> None:
    (world.folder / "a").write_text("a")
    world.policy.destination = destination
    found = world.save()
    assert found.status == outputs.UNAVAILABLE and said in found.error


def test_a_place_that_refuses_is_one_line(world: World, tmp_path: Path) -> None:
    (world.folder / "a").write_text("a")
    (tmp_path / "file").write_text("")
    world.policy.destination = f"file://{tmp_path}/file/below"
    found = world.save()
    assert found.status == outputs.FAILED and found.error.startswith("the outputs could not be kept: ")
    assert "\n" not in found.error and not found.url


@pytest.mark.parametrize("how", ["time", "stop"])
def test_a_place_that_hangs_ends_with_the_time_or_with_the_task(
    world: World, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, released, left = threading.Event(), threading.Event(), threading.Event()

    def hang(store: FileStore, name: str, path: Path) -> None:
        reached.set()
        released.wait(60)
        left.set()

    monkeypatch.setattr(FileStore, "put_file", hang)
    (world.folder / "a").write_text("a")
    if how == "time":
        world.policy.finalization_timeout_ms = 1

    async def main() -> TaskOutputs:
        stopping: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        saving = asyncio.ensure_future(outputs.save(UID, world.folder, world.policy, stopping))
        if how == "stop":
            await asyncio.to_thread(reached.wait, 60)
            stopping.set_result(None)
        return await saving

    found = asyncio.run(main())
    released.set()
    assert found.status == outputs.FAILED
    assert ("not done within 0.001 s" if how == "time" else "stopped meanwhile") in found.error
    assert not reached.is_set() or left.wait(60)


def test_a_worker_is_not_believed_beyond_its_bounds() -> None:
    told = TaskOutputs(status=outputs.UPLOADED, url="x\x1b[2J" * 1000, entries=-1, total_bytes=5, error="a\nb")
    kept = from_json(to_json(told))
    assert kept is not None
    assert len(kept.url) <= MAX_TEXT and "\x1b" not in kept.url and "\n" not in kept.error
    assert (kept.entries, kept.total_bytes, kept.status) == (0, 5, outputs.UPLOADED)
    assert to_json(TaskOutputs()) == "" and to_json(TaskOutputs(status=99)) == ""  # type: ignore[arg-type]
    assert from_json("") is None
    for status in TaskOutputsStatus.keys()[1:]:
        said = TaskOutputs(status=status, error="why")
        assert from_json(to_json(said)) == said


def test_archives_go_with_their_day_and_nothing_else_goes(tmp_path: Path) -> None:
    policy = TaskOutputsPolicy(destination=f"file://{tmp_path}", ttl_ms=2 * DAY_MS)
    now = [1_790_000_000_000]
    store = FileStore(tmp_path)
    for age in range(6):
        store.put(outputs.object_name(f"{age:016x}", now[0] - age * DAY_MS), b"x")
    for name in ("0000", "README", "1970/a", "notaday-xx/file", "9999-12-31/uid/outputs.tar.zst"):
        store.put(name, b"mine")
    expiry = task_outputs.Expiry(policy, lambda: now[0])
    assert expiry.remove_expired() == 3
    left = [info.name for info in store.list("")]
    assert [name.split("/")[1] for name in left if name.startswith("20")] == [f"{age:016x}" for age in (2, 1, 0)]
    assert {"0000", "README", "1970/a", "notaday-xx/file", "9999-12-31/uid/outputs.tar.zst"} < set(left)
    assert expiry.remove_expired() == 0
    now[0] += 10 * DAY_MS
    assert expiry.remove_expired() == 3


def test_the_policy_that_workers_are_told() -> None:
    text = "name: a\nplatform: {local: }\n"
    plain = task_outputs.policy(parse_config(text), "file:///state/remote/")
    assert plain == TaskOutputsPolicy(
        destination="file:///state/remote/task-outputs", ttl_ms=7 * DAY_MS, max_bytes=2_147_483_648, max_entries=10_000,
        finalization_timeout_ms=300_000,
    )  # fmt: skip
    elsewhere = parse_config("name: a\nplatform: {manual: }\n")
    assert task_outputs.policy(elsewhere, "file:///state/remote").destination == ""
    assert task_outputs.policy(elsewhere, "gs://bucket/x").destination == "gs://bucket/x/task-outputs"
    section = "task_outputs: {destination: 'gs://b/c/', ttl_days: 1, max_bytes: 5MB, max_entries: 7, finalization_timeout: {seconds: 9}}"
    told = task_outputs.policy(parse_config(text + section), "file:///state")
    assert told == TaskOutputsPolicy(
        destination="gs://b/c", ttl_ms=DAY_MS, max_bytes=5_000_000, max_entries=7, finalization_timeout_ms=9_000
    )


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("{destination: nowhere}", "is not an object store"),
        ("{ttl_days: 0}", "outside 1..3660"),
        ("{max_bytes: 0}", "too few"),
        ("{max_bytes: many}", "not a size"),
        ("{max_entry: 5}", "max_entries"),
        ("{finalization_timeout: 5}", "outside 1000.."),
    ],
)
def test_a_wrong_section_is_named(section: str, said: str) -> None:
    with pytest.raises(UsageFailed) as refused:
        parse_config(f"name: a\nplatform: {{local: }}\ntask_outputs: {section}\n")
    assert said in f"{refused.value.message} {refused.value.hint}"
