"""Unpacking refuses every known trick and writes nothing outside (targets S7)."""

from __future__ import annotations

import io
import os
import stat
import struct
import zipfile
from typing import TYPE_CHECKING

import pytest

from iris_controller.worker.archive import Limits, Refused, check_name, unpack
from iris_controller.worker.disk_room import NoRoom, Room, require
from iris_controller.worker.staging import Folders, remove, stage
from iris_core.model.quantities import format_size

if TYPE_CHECKING:
    from pathlib import Path


def member(name: str, mode: int = 0o644, kind: int = stat.S_IFREG) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (kind | mode) << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def archive(path: Path, *members: tuple[zipfile.ZipInfo | str, bytes]) -> Path:
    file = path / "bundle.zip"
    with zipfile.ZipFile(file, "w") as target:
        for info, data in members:
            target.writestr(info if isinstance(info, zipfile.ZipInfo) else member(info), data)
    return file


def link(name: str, to: str) -> tuple[zipfile.ZipInfo, bytes]:
    return member(name, 0o777, stat.S_IFLNK), to.encode()


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "box" / "workdir"
    folder.mkdir(parents=True)
    (tmp_path / "secret").write_text("outside")
    return folder


def outside(target: Path) -> set[str]:
    box = target.parent
    return {str(path) for path in box.parent.rglob("*") if not str(path).startswith(str(target))}


def test_what_is_good_arrives_with_modes_and_links(tmp_path: Path, target: Path) -> None:
    file = archive(
        tmp_path,
        (member("bin/run.sh", 0o755), b"#!/bin/sh\n"),
        ("a/b/c.txt", b"text"),
        (member("empty/", 0o2755, stat.S_IFDIR), b""),
        link("a/up", "../bin/run.sh"),
        link("dangling", "not/there"),
        ("naïve ∂.txt", b""),
    )
    unpack(file, target)
    assert (target / "a/b/c.txt").read_text() == "text"
    assert os.access(target / "bin/run.sh", os.X_OK) and not os.access(target / "a/b/c.txt", os.X_OK)
    assert (target / "a/up").is_symlink() and (target / "a/up").read_bytes() == b"#!/bin/sh\n"
    assert os.readlink(target / "dangling") == "not/there"
    assert (target / "empty").is_dir() and (target / "naïve ∂.txt").exists()


BAD_NAMES = [
    "../out", "a/../../out", "/etc/out", "a//b", "./a", "a/./b", "a/..", "..", ".", "x" * 256, "d/" * 2000 + "x",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_is_no_plain_relative_path_is_refused(tmp_path: Path, target: Path, name: str) -> None:
    before = outside(target)
    file = archive(tmp_path, (name, b"gotcha"))
    with pytest.raises(Refused):
        unpack(file, target)
    assert outside(target) - before == {str(file)} and not any(target.iterdir())


def test_a_nul_in_a_name_is_refused(tmp_path: Path, target: Path) -> None:
    file = archive(tmp_path, ("goodXname", b""))
    file.write_bytes(file.read_bytes().replace(b"goodXname", b"good\0name"))
    with pytest.raises(Refused, match="NUL"):
        unpack(file, target)


@pytest.mark.parametrize(
    "links",
    [
        [link("l", "/etc/passwd")],
        [link("l", "../../secret")],
        [link("a/l", "../../secret")],
        [link("a/b/s", ".."), link("t", "a/b/s/../../..")],
        [link("a/b/deep", "../.."), link("t", "a/b/deep/..")],
        [link("l", "x\0y")],
        [link("l", "x" * 5000)],
        [link("l", "")],
    ],
)
def test_a_link_that_leaves_is_refused(
    tmp_path: Path, target: Path, links: list[tuple[zipfile.ZipInfo, bytes]]
) -> None:
    file = archive(tmp_path, ("a/b/file", b""), *links)
    with pytest.raises(Refused, match="link"):
        unpack(file, target)


def test_nothing_is_written_through_a_link(tmp_path: Path, target: Path) -> None:
    file = archive(tmp_path, link("d", "../.."), ("d/secret", b"overwritten"))
    with pytest.raises(Refused, match="directory and something else"):
        unpack(file, target)
    assert (tmp_path / "secret").read_text() == "outside"


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ([("a", b"1"), ("a", b"2")], "twice"),
        ([("Read.me", b"1"), ("read.ME", b"2")], "case"),
        ([("Dir/x", b"1"), ("dir/y", b"2")], "case"),
        ([("a", b"1"), ("a/b", b"2")], "something else"),
        ([("a/b", b"1"), ("a", b"2")], "something else"),
        ([(member("f", 0o4755), b"")], "setuid"),
        ([(member("f", 0o2755), b"")], "setuid"),
        ([(member("dev", 0o644, stat.S_IFCHR), b"")], "neither a file"),
        ([(member("dev", 0o644, stat.S_IFBLK), b"")], "neither a file"),
        ([(member("pipe", 0o644, stat.S_IFIFO), b"")], "neither a file"),
        ([(member("file/", 0o644, stat.S_IFREG), b"")], "neither a file"),
        ([(member("dir", 0o755, stat.S_IFDIR), b"")], "neither a file"),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_of_a_bad_kind_is_refused(
    tmp_path: Path, target: Path, members: list[tuple[zipfile.ZipInfo | str, bytes]], why: str
) -> None:
    file = archive(tmp_path, *members)
    with pytest.raises(Refused, match=why):
        unpack(file, target)


def test_a_hard_link_is_refused(tmp_path: Path, target: Path) -> None:
    info = member("hard")
    info.extra = struct.pack("<HH", 0x000D, 18) + b"\0" * 12 + b"secret"
    with pytest.raises(Refused, match="hard link"):
        unpack(archive(tmp_path, (info, b"")), target)


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_method_without_a_bound_is_refused(tmp_path: Path, target: Path, method: int) -> None:
    info = member("f")
    info.compress_type = method
    with pytest.raises(Refused, match="method"):
        unpack(archive(tmp_path, (info, b"data")), target)


def test_a_bomb_stops_at_size_and_ratio(tmp_path: Path, target: Path) -> None:
    file = archive(tmp_path, ("zeros", bytes(50_000_000)))
    with pytest.raises(Refused, match="times its size"):
        unpack(file, target, Limits(free=1_000_000, ratio=100))
    with pytest.raises(Refused, match="more than 1000000 bytes"):
        unpack(file, target, Limits(total=1_000_000))
    assert not any(target.iterdir())


def test_a_size_that_lies_writes_no_more_than_it_says(tmp_path: Path, target: Path) -> None:
    file = archive(tmp_path, ("zeros", bytes(5_000_000)))
    data = bytearray(file.read_bytes())
    struct.pack_into("<L", data, data.rfind(b"PK\x01\x02") + 24, 10)
    file.write_bytes(data)
    with pytest.raises(Refused, match="sound"):
        unpack(file, target)
    assert sum(path.stat().st_size for path in target.iterdir()) <= 10


def test_more_members_than_the_limit_are_refused_before_they_are_objects(tmp_path: Path, target: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as zipped:
        for number in range(70_000):  # over 65,535: the directory is a wide one
            zipped.writestr(member(str(number)), b"")
    file = tmp_path / "many.zip"
    file.write_bytes(buffer.getvalue())
    with pytest.raises(Refused, match="more than 69999 members"):
        unpack(file, target, Limits(entries=69_999))
    assert not any(target.iterdir())


def test_members_that_overlap_are_refused(tmp_path: Path, target: Path) -> None:
    file = archive(tmp_path, ("a", os.urandom(1000)), ("b", os.urandom(1000)))
    data = bytearray(file.read_bytes())
    second = data.rfind(b"PK\x01\x02")
    struct.pack_into("<L", data, second + 42, 0)  # b's header is a's too
    file.write_bytes(data)
    with pytest.raises(Refused, match="overlap"):
        unpack(file, target)


def test_an_encrypted_member_is_refused(tmp_path: Path, target: Path) -> None:
    file = archive(tmp_path, ("a", b"data"))
    data = bytearray(file.read_bytes())
    data[data.rfind(b"PK\x01\x02") + 8] |= 1
    file.write_bytes(data)
    with pytest.raises(Refused, match="encrypted"):
        unpack(file, target)


@pytest.mark.parametrize("cut", [0, 1, 30, 60, 100])
def test_a_damaged_archive_is_refused(tmp_path: Path, target: Path, cut: int) -> None:
    file = archive(tmp_path, ("a", os.urandom(100)))
    file.write_bytes(file.read_bytes()[cut + 1 :][: -cut or None] if cut else b"")
    with pytest.raises(Refused, match="zip archive"):
        unpack(file, target)


def test_check_name_gives_the_components() -> None:
    assert check_name("a/b c/.d") == ["a", "b c", ".d"]


def test_files_of_the_job_come_over_the_bundle_and_never_through_a_link(tmp_path: Path) -> None:
    file = archive(tmp_path, ("a", b"old"), ("deep/x", b""), link("l", "deep/x"))
    folders = Folders(tmp_path / "attempt")
    stage(folders, file, {"a": b"new", "l": b"own", "new/b": b"b"}, ["echo 1"])
    assert (folders.workdir / "a").read_bytes() == b"new"
    assert (folders.workdir / "l").read_bytes() == b"own" and (folders.workdir / "deep/x").read_bytes() == b""
    assert (folders.workdir / "new/b").read_bytes() == b"b" and folders.script(1).read_text() == "echo 1"
    assert stat.S_IMODE(folders.root.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", ["../x", "/x", "a\0b", "", "d", "a/b"])
def test_a_bad_file_of_the_job_is_refused(tmp_path: Path, name: str) -> None:
    file = archive(tmp_path, ("d/x", b""), ("a", b""))
    with pytest.raises(Refused, match="file of the job"):
        stage(Folders(tmp_path / "attempt"), file, {name: b""}, [])


def test_what_a_task_locked_away_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "attempt"
    (folder / "locked/inner").mkdir(parents=True)
    (folder / "locked/inner/file").write_text("x")
    (folder / "link").symlink_to(tmp_path)
    for path in (folder / "locked/inner", folder / "locked"):
        path.chmod(0)
    remove(folder)
    assert not folder.exists() and tmp_path.exists()
    remove(folder)


def test_what_has_no_room_is_not_begun_and_what_fits_is_never_refused(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    free = disk.f_bavail * disk.f_frsize
    with pytest.raises(NoRoom, match=r"no space left on device: .* are needed") as caught:
        require(tmp_path, 4 * free, 8 * free)
    assert not caught.value.room.is_the_jobs, "the job keeps its word"
    with pytest.raises(NoRoom, match=r"more than the 1KB of disk that the job asked for"):
        require(tmp_path, 4 * free, 1000)
    require(tmp_path, 100_000, 1)
    folders = Folders(tmp_path / "attempt")
    stage(folders, archive(tmp_path, ("a", b"x" * 5000)), {}, [], asked=1)
    assert (folders.workdir / "a").stat().st_size == 5000


KB = 1000


@pytest.mark.parametrize(
    ("need", "free", "total", "asked", "jobs"),
    [
        (300, 400, 500, 0, False),  # it fits
        (300, 400, 500, 1, False),  # and what fits is never asked after
        (300, 100, 500, 300, False),  # the job keeps its word: the machine is too full
        (300, 40, 64, 5 * KB * KB, False),  # or too small (field case C16)
        (300, 40, 64, 0, False),
        (300, 250, 500, 200, True),  # the machine had what was asked for, and the job brings more
        (300, 100, 500, 200, False),  # it had less than that
        (300, 100, 200, 150, True),  # no such disk could hold it, were it empty
        (9 * KB * KB, 6 * KB * KB, 20 * KB * KB, 0, True),  # a job that asks for none
        (9 * KB * KB, 4 * KB * KB, 20 * KB * KB, 0, False),
    ],
)
def test_whose_fault_it_is_that_there_is_no_room(need: int, free: int, total: int, asked: int, jobs: bool) -> None:
    room = Room(need * KB, free * KB, total * KB, asked * KB)
    assert room.is_the_jobs is jobs
    assert all(format_size(size * KB) in room.words for size in (need, free, total)) or room.fits
