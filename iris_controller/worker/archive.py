"""Unpacks a bundle where nothing in it can reach outside its folder or fill the disk (targets §6 S7, DESIGN §11).

A bundle comes from whoever may submit a job. So: names are plain relative paths, each once, also on a file system that ignores
case; only directories, regular files and links that stay inside; only stored and deflated members, because CPython decompresses
the others without a bound; members that do not overlap; and limits on count, size and ratio that hold for what really comes out,
whatever the headers say. Links are made last, and nothing is ever written through one.
"""

from __future__ import annotations

import itertools
import os
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_CHUNK = 256 * 1024
_LINK_BYTES = 4096
_LOCAL_HEADER = 30
_UNSOUND = (
    zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, EOFError, ValueError, OverflowError, RuntimeError,
)  # fmt: skip


class Refused(Exception):
    """The archive is not acceptable; the message names the member and says why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """`ratio` counts only once `free` bytes have come out."""

    entries: int = 100_000
    total: int = 10 * 1024**3
    ratio: int = 250
    free: int = 256 * 1024**2


LIMITS = Limits()


def check_name(name: str) -> list[str]:
    """The components of a relative, normalised path. Raises Refused."""
    shown = ascii(name if len(name) <= 100 else name[:100] + "…")
    if "\0" in name:
        raise Refused(f"the name {shown} contains a NUL")
    if name.startswith("/"):
        raise Refused(f"the name {shown} is absolute")
    parts = name.split("/")
    if ".." in parts:
        raise Refused(f"the name {shown} leaves the work directory")
    if "" in parts or "." in parts:
        raise Refused(f"the name {shown} is not a plain relative path")
    encoded = [os.fsencode(part) for part in parts]
    if any(len(part) > 255 for part in encoded) or sum(map(len, encoded)) + len(parts) > 4000:
        raise Refused(f"the name {shown} is too long")
    return parts


def unpack(
    archive: Path, target: Path, limits: Limits = LIMITS, before: Callable[[int], None] = lambda size: None
) -> None:
    """Unpacks into the existing, empty `target`. Raises Refused (`target` is then to be thrown away) or OSError.

    `before` is told how many bytes will come out at most, before anything is written; what it raises comes through.
    """
    size = archive.stat().st_size
    try:
        with open(archive, "rb") as file:
            if _count(file, limits.entries) > limits.entries:
                raise Refused(f"it has more than {limits.entries} members")
            with zipfile.ZipFile(file) as source:
                members = _checked(source, size, limits)
                before(sum(info.file_size for info, _, kind in members if kind == stat.S_IFREG))
                _write(source, members, target, size, limits)
    except _UNSOUND as error:
        raise Refused(f"it is no sound zip archive: {error}") from None


_Member = tuple[zipfile.ZipInfo, list[str], int]


def _checked(source: zipfile.ZipFile, size: int, limits: Limits) -> list[_Member]:
    """Every member with its path and kind (S_IFDIR, S_IFREG or S_IFLNK), nothing read yet."""
    members: list[_Member] = []
    kinds: dict[str, tuple[str, bool]] = {}
    total = 0
    for info in source.infolist():
        # ZipInfo cuts the name at a NUL; the original says what the archive holds.
        folder = info.orig_filename.endswith("/")
        parts = check_name(info.orig_filename[:-1] if folder else info.orig_filename)
        kind = _kind(info, folder)
        if info.header_offset < 0:
            raise Refused("it is no sound zip archive: a member lies before its start")
        total += info.file_size
        if total > limits.total:
            raise Refused(f"it unpacks to more than {limits.total} bytes")
        if total > limits.free and total > size * limits.ratio:
            raise Refused(f"it unpacks to more than {limits.ratio} times its size")
        _claim(parts, kind == stat.S_IFDIR, kinds)
        members.append((info, parts, kind))
    spans = sorted(
        (info.header_offset, info.header_offset + _LOCAL_HEADER + info.compress_size) for info, _, _ in members
    )
    for (_, end), (start, _) in itertools.pairwise(spans):
        if start < end:
            raise Refused("its members overlap")
    return members


def _kind(info: zipfile.ZipInfo, folder: bool) -> int:
    shown = ascii(info.filename)
    mode = info.external_attr >> 16
    kind = stat.S_IFMT(mode) or (stat.S_IFDIR if folder else stat.S_IFREG)
    if info.flag_bits & 0x1:
        raise Refused(f"{shown} is encrypted")
    if info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise Refused(f"{shown} is compressed by a method that is not accepted (only deflate is)")
    if kind not in {stat.S_IFDIR, stat.S_IFREG, stat.S_IFLNK} or folder != (kind == stat.S_IFDIR):
        raise Refused(f"{shown} is neither a file, a directory nor a link")
    if kind == stat.S_IFREG and mode & (stat.S_ISUID | stat.S_ISGID):
        raise Refused(f"{shown} has the setuid or setgid bit")
    if _has_link_field(info.extra):
        raise Refused(f"{shown} is a hard link")
    return kind


def _has_link_field(extra: bytes) -> bool:
    """PKWARE's Unix field: after 12 bytes of times and ids it holds the target of a link."""
    at = 0
    while at + 4 <= len(extra):
        tag, length = struct.unpack_from("<HH", extra, at)
        if tag == 0x000D and length > 12:
            return True
        at += 4 + length
    return False


def _claim(parts: list[str], folder: bool, kinds: dict[str, tuple[str, bool]]) -> None:
    """Each path once, and what has something below it is a directory; compared without case."""
    for depth in range(1, len(parts) + 1):
        path = "/".join(parts[:depth])
        is_folder = folder or depth < len(parts)
        known = kinds.get(path.casefold())
        if known is None:
            kinds[path.casefold()] = (path, is_folder)
        elif known[0] != path:
            raise Refused(f"{path!a} and {known[0]!a} differ only in case")
        elif known[1] != is_folder:
            raise Refused(f"{path!a} is a directory and something else")
        elif not is_folder:
            raise Refused(f"{path!a} is there twice")


def _write(source: zipfile.ZipFile, members: list[_Member], target: Path, size: int, limits: Limits) -> None:
    root = os.path.realpath(target)
    made = {root}
    links: list[tuple[str, bytes]] = []
    total = 0
    for info, parts, kind in members:
        path = os.path.join(root, *parts)
        folder = path if kind == stat.S_IFDIR else os.path.dirname(path)
        if folder not in made:
            os.makedirs(folder, 0o755, exist_ok=True)
            made.add(folder)
        if kind == stat.S_IFDIR:
            continue
        with source.open(info) as member:
            if kind == stat.S_IFLNK:
                links.append((path, member.read(_LINK_BYTES + 1)))
                continue
            total += _copy(member, path, (info.external_attr >> 16) & 0o777, limits.total - total)
        if total > limits.total:
            raise Refused(f"it unpacks to more than {limits.total} bytes")
        if total > limits.free and total > size * limits.ratio:
            raise Refused(f"it unpacks to more than {limits.ratio} times its size")
    for path, text in links:
        _link(path, text, root)
    # Only with all links in place is it known where one leads that goes through another.
    for path, _ in links:
        end = os.path.realpath(path)
        if end != root and not end.startswith(root + os.sep):
            raise Refused(f"the link {os.path.relpath(path, root)!a} leaves the work directory")


def _copy(member: IO[bytes], path: str, mode: int, limit: int) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    size = 0
    with os.fdopen(fd, "wb", buffering=0) as file:
        while size <= limit and (chunk := member.read(_CHUNK)):
            view = memoryview(chunk)
            while view:
                view = view[file.write(view) or 0 :]
            size += len(chunk)
        os.fchmod(fd, (mode or 0o644) | 0o600)
    return size


def _link(path: str, text: bytes, root: str) -> None:
    shown = ascii(os.path.relpath(path, root))
    if not text or len(text) > _LINK_BYTES or b"\0" in text:
        raise Refused(f"the link {shown} has no usable target")
    if text.startswith(b"/"):
        raise Refused(f"the link {shown} has an absolute target")
    os.symlink(text, os.fsencode(path))


def _count(file: IO[bytes], limit: int) -> int:
    """How many members the directory at the end lists, counting no further than just over `limit`.

    zipfile makes an object for each before anybody can look at their number.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 65_557 - 20))
    tail = file.read()
    end = tail.rfind(b"PK\x05\x06")
    if end < 0 or len(tail) - end < 22:
        raise Refused("it is no zip archive")
    length = struct.unpack_from("<L", tail, end + 12)[0]
    directory_end = size - len(tail) + end
    if end >= 20 and tail[end - 20 : end - 16] == b"PK\x06\x07":
        file.seek(max(0, directory_end - 20 - 56))
        wide = file.read(56)
        if wide[:4] != b"PK\x06\x06" or len(wide) < 56:
            raise Refused("it is no sound zip archive: its wide directory is damaged")
        length = struct.unpack_from("<Q", wide, 40)[0]
        directory_end -= 76
    start = directory_end - length
    if start < 0:
        raise Refused("it is no sound zip archive: its directory is damaged")
    file.seek(start)
    directory = file.read(length)
    at = count = 0
    while at + 46 <= len(directory) and count <= limit:
        name, extra, comment = struct.unpack_from("<HHH", directory, at + 28)
        at += 46 + name + extra + comment
        count += 1
    return count
