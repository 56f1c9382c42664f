"""The tree that is released, frozen once: what is shown, approved, tested and built is one and the same.

Tracked, changed and untracked files, but not ignored ones, are written as a git tree through an index of its own, so that the
operator's index is not touched; the tree's id stands for every byte, mode and symlink. A build reads an export of that tree, never the
working directory, where somebody may be typing (rollout §1.3, but untracked files are part of the id).
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from iris_core.contracts import IrisError, UsageFailed

GIT: Final = (
    "git",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.quotePath=false",
    "-c", "advice.addEmbeddedRepo=false",
)  # fmt: skip
GIT_S: Final = 120.0
FETCH_S: Final = 60.0
SHOWN: Final = 5


@dataclass(frozen=True, slots=True)
class SourceTree:
    """A frozen tree and where it comes from.

    Attributes:
        id: The git tree's hash.
        root: The repository it was frozen from; its objects hold the content.
        branch: "(detached)" where there is none.
        base: The commit it was made from, "" in a repository without any.
        subject: That commit's first line.
        dirty: Paths that differ from the base, untracked ones included, in order.
        upstream: What it was compared with, "" if nothing was.
        ahead, behind: Commits that only we have, and that only the upstream has; None if that is not known.
        repositories: Repositories inside this one whose content a tree cannot hold: submodules and others.
    """

    id: str
    root: Path
    branch: str
    base: str
    subject: str
    dirty: tuple[str, ...]
    upstream: str = ""
    ahead: int | None = None
    behind: int | None = None
    repositories: tuple[str, ...] = ()

    def warnings(self) -> list[str]:
        """What a person has to approve besides: each line one thing."""
        lines = []
        if self.dirty:
            more = f" +{len(self.dirty) - SHOWN} more" if len(self.dirty) > SHOWN else ""
            lines.append(f"dirty: {', '.join(self.dirty[:SHOWN])}{more}")
        if self.behind:
            lines.append(f"behind {self.upstream} by {self.behind}: stale code")
        if self.ahead:
            lines.append(f"ahead of {self.upstream} by {self.ahead}: unmerged code")
        if self.upstream and self.ahead is None:
            lines.append(f"how it stands to {self.upstream} is not known")
        if self.repositories:
            lines.append(f"repositories inside are not part of it: {', '.join(self.repositories[:SHOWN])}")
        return lines


def as_value(tree: SourceTree) -> dict[str, Any]:
    """A tree as a journal holds it."""
    return {
        "id": tree.id,
        "root": str(tree.root),
        "branch": tree.branch,
        "base": tree.base,
        "subject": tree.subject,
        "dirty": list(tree.dirty),
        "upstream": tree.upstream,
        "ahead": tree.ahead,
        "behind": tree.behind,
        "repositories": list(tree.repositories),
        "warnings": tree.warnings(),
    }


def as_tree(value: dict[str, Any]) -> SourceTree:
    """The tree of a journal; one that an earlier release began does not say what the tree was compared with."""
    return SourceTree(
        value["id"], Path(value["root"]), value["branch"], value["base"], value["subject"], tuple(value["dirty"]),
        value.get("upstream", ""), value.get("ahead"), value.get("behind"), tuple(value.get("repositories", ())),
    )  # fmt: skip


def freeze(folder: Path, *, upstream: str = "", fetch: bool = False) -> SourceTree:
    """Write the tree around a folder as it is now.

    Args:
        folder: Anywhere in the repository.
        upstream: A remote branch to compare with, `origin/main`.
        fetch: Whether to fetch it first.

    Raises:
        UsageFailed: there is no repository.
        IrisError: git fails, a file cannot be read, or the upstream cannot be fetched.
    """
    root = Path(_out(folder, "rev-parse", "--show-toplevel"))
    if fetch and upstream:
        remote, _, branch = upstream.partition("/")
        _out(root, "fetch", "--quiet", remote, branch, timeout_s=FETCH_S)
    base = _out(root, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", may_fail=True)
    with tempfile.TemporaryDirectory(prefix="iris-tree-") as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        if base:
            _out(root, "read-tree", base, env=index)
        _out(root, "add", "--all", "--ignore-errors", "--", ".", env=index)
        tree = _out(root, "write-tree", env=index)
        entries = _out(root, "ls-files", "--stage", "-z", env=index).split("\0")
    changed = (
        _out(root, "diff-tree", "-r", "-z", "--name-only", "--no-renames", base, tree).split("\0")
        if base
        else [entry.partition("\t")[2] for entry in entries]
    )
    ahead, behind = _compared(root, base, upstream)
    return SourceTree(
        tree,
        root,
        _out(root, "symbolic-ref", "--quiet", "--short", "HEAD", may_fail=True) or "(detached)",
        base,
        _out(root, "log", "-1", "--format=%s", base) if base else "",
        tuple(sorted(name for name in changed if name)),
        upstream,
        ahead,
        behind,
        tuple(entry.partition("\t")[2] for entry in entries if entry.startswith("160000 ")),
    )


def has_remote(folder: Path, upstream: str) -> bool:
    """Whether the repository knows the remote of `origin/main`. Raises UsageFailed, IrisError as `freeze`."""
    return upstream.partition("/")[0] in _out(folder, "remote").split()


def _compared(root: Path, base: str, upstream: str) -> tuple[int | None, int | None]:
    if not (base and upstream):
        return None, None
    counts = _out(root, "rev-list", "--left-right", "--count", f"{upstream}...{base}", may_fail=True).split()
    if len(counts) != 2 or not all(count.isdigit() for count in counts):
        return None, None
    return int(counts[1]), int(counts[0])


def export(tree: SourceTree, to: Path) -> None:
    """Write the tree's files into an empty folder, with their modes and symlinks, whatever the working directory holds by now.

    Raises IrisError: the folder is not empty, git fails, the disk is full.
    """
    to.mkdir(parents=True, exist_ok=True)
    if any(to.iterdir()):
        raise IrisError(f"{to} is not empty")
    with tempfile.TemporaryDirectory(prefix="iris-tree-") as scratch:
        index = {"GIT_INDEX_FILE": str(Path(scratch) / "index")}
        _out(tree.root, "read-tree", tree.id, env=index)
        _out(tree.root, "checkout-index", "--all", "--force", f"--prefix={to.resolve()}/", env=index, timeout_s=GIT_S)


def read_file(tree: SourceTree, path: str) -> str | None:
    """One file of the tree as text, None if it has no such file. Raises IrisError: git fails."""
    if not _out(tree.root, "ls-tree", "--name-only", tree.id, "--", path):
        return None
    return _out(tree.root, "cat-file", "blob", f"{tree.id}:{path}")


def _out(
    folder: Path,
    *words: str,
    env: dict[str, str] | None = None,
    may_fail: bool = False,
    timeout_s: float = GIT_S,
) -> str:
    """What git prints, without the last newline. Raises IrisError."""
    said = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    try:
        done = subprocess.run(
            [*GIT, *words],
            cwd=folder,
            env={**said, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", **(env or {})},
            capture_output=True,
            timeout=timeout_s,
            check=False,
            # Ctrl-C is for whoever drives; only a fetch may have to ask at the terminal for a passphrase.
            start_new_session=words[0] != "fetch",
        )
    except FileNotFoundError:
        raise IrisError("git is not installed", hint="install git") from None
    except subprocess.TimeoutExpired:
        raise IrisError(f"git {words[0]} has not ended within {timeout_s:g} s") from None
    except OSError as error:
        raise IrisError(f"cannot run git: {error.strerror}") from error
    if done.returncode != 0:
        if may_fail:
            return ""
        raise _failed(words, folder, os.fsdecode(done.stderr))
    return os.fsdecode(done.stdout).rstrip("\n")


def _failed(words: Sequence[str], folder: Path, said: str) -> IrisError:
    line = " ".join(said.split())[:300].removeprefix("fatal: ")
    if "not a git repository" in line:
        return UsageFailed(
            f"{folder} is in no git repository",
            hint="a release is made from one: run this in the clone that is to be shipped",
        )
    return IrisError(f"git {words[0]}: {line}")
