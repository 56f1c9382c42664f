"""Checkpoints that are looked at: unpacked once, checked in the same pass, kept under a cap, and never a reason to fail."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest

from iris_controller.checkpoint import restore
from iris_controller.checkpoint.cache import Cache, limit_from_environment
from iris_controller.checkpoint.layout import COMPRESSED, DATABASE, MANIFEST, BadCheckpoint
from iris_controller.checkpoint.opening import Phase, Progress, unpacked
from iris_controller.store.database import StateDir, migrate, open_reader, open_writer, shipped_migrations
from iris_core.contracts import IrisError, UsageFailed
from providers.objects import open_store
from tests.unit.checkpoint_world import T0, checkpoint, job_count, make_state

ROOT = Path(__file__).resolve().parents[2]


class Saved:
    """Checkpoints of 3, 4, … jobs in one store (`more`), a cache beside them, and what was told while opening."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.places: list[Path] = []
        self.sizes: list[int] = []
        self.more(1)
        self.told: list[Progress] = []
        self.notes: list[str] = []
        self.cache = Cache(folder / "cache" / "checkpoints", 1 << 30)

    def more(self, count: int) -> None:
        """So many checkpoints more."""
        for n in range(len(self.places), len(self.places) + count):
            state = make_state(self.folder / f"state{n}", jobs=3 + n)
            made = checkpoint(state, open_store(f"file://{self.folder}/r"), T0 + n)
            self.places.append(self.folder / "r" / "controller-state" / str(made.epoch_ms))
            self.sizes.append(made.database_bytes)

    def open(self, n: int = 0, cache: Cache | None = None) -> tuple[int, bool]:
        """How many jobs are in it, and whether it was there already."""
        found = unpacked(str(self.places[n]), self.told.append, self.notes.append, cache or self.cache)
        try:
            assert found.epoch_ms == T0 + n
            return job_count(found.database), found.cached
        finally:
            found.close()

    def unpackings(self) -> int:
        return sum(told.phase is Phase.UNPACKING and told.done_bytes == 0 for told in self.told)

    def entries(self) -> list[Path]:
        return sorted(self.cache.folder.iterdir()) if self.cache.folder.exists() else []


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Saved:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return Saved(tmp_path)


def test_opening_tells_how_far_it_is_and_the_second_unpacks_nothing(saved: Saved) -> None:
    assert saved.open() == (3, False)
    phases = list(dict.fromkeys(told.phase for told in saved.told))
    assert phases == [Phase.LOOKING, Phase.UNPACKING, Phase.UPGRADING], (
        "a manifest's digest in place of a look at every page"
    )
    size = (saved.places[0] / COMPRESSED).stat().st_size
    read = [told for told in saved.told if told.phase is Phase.UNPACKING]
    assert read[0].done_bytes == 0 and read[-1].done_bytes == size and {told.total_bytes for told in read} == {size}
    saved.told.clear()
    assert saved.open() == (3, True)
    assert [told.phase for told in saved.told] == [Phase.LOOKING]
    assert not saved.notes


def test_what_is_kept_is_its_owners_alone(saved: Saved) -> None:
    before = os.umask(0o000)
    try:
        saved.open()
    finally:
        os.umask(before)
    (entry,) = saved.entries()
    assert stat.S_IMODE(saved.cache.folder.stat().st_mode) == stat.S_IMODE(entry.stat().st_mode) == 0o700
    assert stat.S_IMODE((entry / DATABASE).stat().st_mode) == 0o600


def change(path: Path) -> None:
    """A write that leaves size and time of the last write as they were."""
    was = path.stat()
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"!")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))


@pytest.mark.parametrize(
    "damage",
    [
        lambda entry: change(entry / DATABASE),
        lambda entry: os.truncate(entry / DATABASE, 4096),
        lambda entry: (entry / DATABASE).unlink(),
        lambda entry: (entry / "entry.json").write_text("{"),
        lambda entry: (entry / "entry.json").unlink(),
        lambda entry: (entry / "entry.json").write_text(
            (entry / "entry.json").read_text().replace('"boot": "', '"boot": "another-')
        ),
    ],
    ids=["changed", "torn", "gone", "torn entry", "no entry", "before a crash of the machine"],
)
def test_an_entry_that_is_not_as_it_was_left_is_made_anew(saved: Saved, damage: object) -> None:
    saved.open()
    (entry,) = saved.entries()
    damage(entry)  # type: ignore[operator]
    assert saved.open() == (3, False)
    assert saved.open() == (3, True)
    assert len(saved.entries()) == 1 and saved.unpackings() == 2


def test_a_link_in_the_place_of_an_entry_is_not_followed(saved: Saved, tmp_path: Path) -> None:
    saved.open()
    (entry,) = saved.entries()
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert saved.cache.get(entry.name) is None
    assert saved.open()[0] == 3, "it goes on without"
    assert "cannot be kept" in saved.notes[0] and saved.notes[0].count("\n") == 0


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda raw: raw[:-20], "its manifest says"),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), "damaged"),
        (lambda raw: b"x" * len(raw), "neither compressed by zstd nor a SQLite file"),
    ],
)
def test_a_torn_or_foreign_file_is_said_in_one_line_and_not_kept(saved: Saved, damage: object, says: str) -> None:
    path = saved.places[0] / COMPRESSED
    path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(BadCheckpoint, match=says) as failed:
        saved.open()
    assert str(saved.places[0]) in failed.value.message and "\n" not in failed.value.message
    assert not saved.entries() and not os.listdir(saved.folder / "tmp")


def test_one_without_a_manifest_has_every_page_looked_at_and_is_not_kept(saved: Saved) -> None:
    (saved.places[0] / MANIFEST).unlink()
    assert saved.open() == (3, False)
    assert Phase.CHECKING in {told.phase for told in saved.told}
    # As `serve` says it (`test_checkpoint_restore.py`).
    assert saved.notes == [f"file://{saved.places[0]} has no manifest: it is taken as a checkpoint of an older release"]
    assert not saved.entries() and not os.listdir(saved.folder / "tmp")
    raw = bytearray((saved.folder / "state0" / "db" / DATABASE).read_bytes())
    raw[4096:8192] = os.urandom(4096)
    (saved.places[0] / COMPRESSED).write_bytes(raw)
    with pytest.raises(BadCheckpoint, match="damaged"):
        saved.open()


def test_giving_up_in_the_middle_leaves_nothing_behind(saved: Saved) -> None:
    class GivenUp(IrisError):
        pass

    def tell(told: Progress) -> None:
        if told.done_bytes:
            raise GivenUp("no more")

    with pytest.raises(GivenUp):
        unpacked(str(saved.places[0]), tell, saved.notes.append, saved.cache)
    assert not saved.entries() and not os.listdir(saved.folder / "tmp")


def test_two_at_once_end_with_one_entry(saved: Saved) -> None:
    both = threading.Barrier(2)

    def tell(told: Progress) -> None:
        if told.phase is Phase.UPGRADING:
            both.wait(30)

    found = []

    def work() -> None:
        opened = unpacked(str(saved.places[0]), tell, saved.notes.append, saved.cache)
        found.append(job_count(opened.database))
        opened.close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [3, 3] and len(saved.entries()) == 1 and not saved.notes
    assert saved.open() == (3, True)


def test_the_least_recently_used_goes_first_and_never_what_is_read(saved: Saved) -> None:
    saved.more(2)
    cache = Cache(saved.cache.folder, sum(saved.sizes) - 1)
    for n in (0, 1):
        saved.open(n, cache)
    for moment, entry in enumerate(sorted(saved.entries(), key=lambda e: job_count(e / DATABASE))):
        os.utime(entry / "entry.json", (moment, moment))
    saved.open(0, cache)  # used again, so the other one is older now
    saved.open(2, cache)
    assert sorted(job_count(entry / DATABASE) for entry in saved.entries()) == [3, 5]

    reading = unpacked(str(saved.places[0]), cache=cache)
    os.utime(reading.database.parent / "entry.json", (0, 0))
    saved.open(1, cache)
    assert sorted(job_count(entry / DATABASE) for entry in saved.entries()) == [3, 4]
    assert job_count(reading.database) == 3
    reading.close()


def test_what_does_not_fit_under_the_cap_is_unpacked_beside_it(saved: Saved) -> None:
    saved.more(1)
    saved.open(0)
    assert saved.open(1, Cache(saved.cache.folder, saved.sizes[1] - 1)) == (4, False)
    assert "do not fit" in saved.notes[0] and "IRIS_CHECKPOINT_CACHE" in saved.notes[0]
    assert len(saved.entries()) == 1, "nothing was given up for what would not fit anyhow"
    saved.notes.clear()
    assert saved.open(1, Cache(saved.cache.folder, 0)) == (4, False)
    assert not saved.notes, "that was asked for"


def test_a_place_that_cannot_be_used_is_said_once_and_gone_without(saved: Saved) -> None:
    saved.cache.folder.parent.mkdir()
    saved.cache.folder.write_text("in the way")
    assert saved.open() == (3, False)
    (note,) = saved.notes
    assert str(saved.cache.folder) in note and "\n" not in note
    assert not os.listdir(saved.folder / "tmp")


def test_a_full_disk_is_one_line(saved: Saved) -> None:
    """Files of this process may have 64 KiB: the kernel's own refusal, in the cache and in the folder that stands in for it."""
    code = f"""
import resource, signal, tempfile
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
tempfile.tempdir = {str(saved.folder / "tmp")!r}
from pathlib import Path
from iris_controller.checkpoint.cache import Cache
from iris_controller.checkpoint.opening import unpacked
from iris_core.contracts import IrisError
try:
    unpacked({str(saved.places[0])!r}, note=print, cache=Cache(Path({str(saved.cache.folder)!r}), 1 << 30))
except IrisError as error:
    print(error.message)
    print(error.hint)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60, cwd=ROOT
    )
    note, message, hint = done.stdout.splitlines()
    assert "cannot be kept in" in note and "file too large" in note
    assert message.startswith("the checkpoint cannot be unpacked in") and "TMPDIR" in hint
    assert not saved.entries() and not os.listdir(saved.folder / "tmp")


def test_a_disk_without_room_is_noticed_before_anything_is_written(
    saved: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(saved.folder)
    monkeypatch.setattr(restore.shutil, "disk_usage", lambda _: usage._replace(free=restore.SPARE_BYTES + 10))  # type: ignore[attr-defined]
    with pytest.raises(IrisError, match="does not fit: 10 are free"):
        saved.open()
    assert saved.unpackings() == 2 and "10 are free" in saved.notes[0]


def test_what_a_killed_one_left_in_the_cache_is_removed(saved: Saved) -> None:
    saved.cache.folder.mkdir(parents=True)
    for name in (".new-left", ".old-left"):
        (saved.cache.folder / name).mkdir()
        (saved.cache.folder / name / DATABASE).write_bytes(b"half")
    saved.open()
    assert [entry.name[0] != "." for entry in saved.entries()] == [True]


def test_a_checkpoint_of_an_older_release_is_brought_to_this_schema_once(saved: Saved) -> None:
    state = StateDir(saved.folder / "older")
    state.acquire()
    shipped = shipped_migrations()
    with closing(open_writer(state.database)) as connection:
        migrate(connection, T0, shipped[:-2])
    made = checkpoint(state, open_store(f"file://{saved.folder}/o"), T0)
    state.release()
    place = saved.folder / "o" / "controller-state" / str(made.epoch_ms)
    before = (place / COMPRESSED).read_bytes()
    for cached in (False, True):
        opened = unpacked(str(place), cache=saved.cache)
        with closing(open_reader(opened.database)) as reader:
            names = [row[0] for row in reader.execute("SELECT name FROM schema_migrations ORDER BY name")]
        assert (names, opened.cached) == ([name for name, _ in shipped], cached)
        opened.close()
    assert (place / COMPRESSED).read_bytes() == before


def test_a_checkpoint_of_a_newer_release_is_refused_and_says_so(saved: Saved) -> None:
    state = make_state(saved.folder / "newer", jobs=1)
    with closing(sqlite3.connect(state.database)) as connection, connection:
        connection.execute("INSERT INTO schema_migrations VALUES ('9999_later', 1)")
    made = checkpoint(state, open_store(f"file://{saved.folder}/n"), T0)
    with pytest.raises(IrisError, match="newer release"):
        unpacked(str(saved.folder / "n" / "controller-state" / str(made.epoch_ms)), cache=saved.cache)


def test_the_cap_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert limit_from_environment() == 8 << 30
    monkeypatch.setenv("IRIS_CHECKPOINT_CACHE", "2GiB")
    assert limit_from_environment() == 2 << 30
    monkeypatch.setenv("IRIS_CHECKPOINT_CACHE", "much")
    with pytest.raises(UsageFailed, match="IRIS_CHECKPOINT_CACHE"):
        limit_from_environment()


def test_an_entry_says_what_it_is_of(saved: Saved) -> None:
    saved.open()
    (entry,) = saved.entries()
    manifest = json.loads((saved.places[0] / MANIFEST).read_bytes())
    assert entry.name.startswith(manifest["files"][0]["sha256"])
