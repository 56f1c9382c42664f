"""Where a copied text goes, and that the words say so (console §1.7, 12)."""

from __future__ import annotations

import stat
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from iris_core.model.errors import ModelError
from iris_tui.copying import MOST_OSC52, Copier
from iris_tui.handing_over import HandingOver, file_name, program, unused

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class World:
    """A machine with some programs, and a terminal that remembers what it was sent."""

    def __init__(
        self, folder: Path, environment: Mapping[str, str], *programs: str, clipboard: str = "external"
    ) -> None:
        self.sent: list[str] = []
        self.ran: list[tuple[tuple[str, ...], bytes]] = []
        self.broken: set[str] = set()
        self.clipboard = clipboard
        self.copier = Copier(
            self.sent.append,
            folder,
            environment,
            find=lambda name: f"/usr/bin/{name}" if name in programs else None,
            run=self.run,
        )

    def run(self, words: tuple[str, ...], data: bytes) -> str:
        if words[0] in self.broken:
            raise subprocess.CalledProcessError(1, words)
        self.ran.append((words, data))
        return self.clipboard if "show-options" in words else ""


def test_a_clipboard_program_of_this_machine_comes_first(tmp_path: Path) -> None:
    world = World(tmp_path, {"WAYLAND_DISPLAY": "w0", "DISPLAY": ":0"}, "xclip", "wl-copy")
    done = world.copier.copy("/ada/train", "the id")
    assert (done.how, done.words) == ("native", "copied the id to the clipboard (wl-copy)")
    assert world.ran == [(("wl-copy",), b"/ada/train")] and not world.sent


def test_a_program_that_fails_is_followed_by_the_next_way(tmp_path: Path) -> None:
    world = World(tmp_path, {"DISPLAY": ":0"}, "xclip", "xsel")
    world.broken.add("xclip")
    assert "(xsel)" in world.copier.copy("x", "the id").words
    world.broken.add("xsel")
    assert world.copier.copy("x", "the id").how == "osc52"


def test_over_ssh_the_terminal_gets_it_and_not_the_machine_at_the_other_end(tmp_path: Path) -> None:
    world = World(tmp_path, {"DISPLAY": ":0", "SSH_CONNECTION": "1 2 3 4"}, "xclip")
    done = world.copier.copy("/ada/train", "the id")
    assert done.how == "osc52" and "terminal" in done.words and "OSC 52" in done.words
    assert world.sent == ["/ada/train"] and not world.ran


def test_in_tmux_it_is_said_when_the_clipboard_stays_empty(tmp_path: Path) -> None:
    world = World(tmp_path, {"TMUX": "/tmp/t,1,0"})
    done = world.copier.copy("x", "the id")
    assert done.how == "tmux" and not done.warn and (("tmux", "load-buffer", "-w", "-"), b"x") in world.ran
    world.clipboard = "off\n"
    done = world.copier.copy("x", "the id")
    assert done.warn and "set-clipboard is off" in done.words and "your clipboard has nothing" in done.words
    world.broken.add("tmux")
    done = world.copier.copy("x", "the id")
    assert done.how == "osc52" and done.warn and world.sent == ["x"]


def test_what_a_terminal_would_cut_goes_into_a_private_file_whole(tmp_path: Path) -> None:
    world = World(tmp_path / "state", {})
    most = MOST_OSC52 // 4 * 3
    assert world.copier.copy("x" * most, "the page").how == "osc52"
    done = world.copier.copy("x" * (most + 3), "the page")
    assert done.how == "file" and str(tmp_path / "state/copied.txt") in done.words and f"{MOST_OSC52:,}" in done.words
    written = tmp_path / "state/copied.txt"
    assert written.read_text() == "x" * (most + 3)
    assert stat.S_IMODE(written.stat().st_mode) == 0o600


@pytest.mark.parametrize("wanted, how", [("file", "file"), ("native", "file"), ("osc52", "osc52")])
def test_the_way_can_be_chosen(tmp_path: Path, wanted: str, how: str) -> None:
    assert World(tmp_path, {"IRIS_CLIPBOARD": wanted}).copier.copy("x", "the id").how == how


def test_nothing_is_claimed_when_nothing_worked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = World(tmp_path / "file", {"IRIS_CLIPBOARD": "file"}).copier.copy("x", "the id")
    assert done.how == "nowhere" and done.warn and "was not copied" in done.words


def test_names_of_files_say_what_is_in_them_and_take_no_others_place(tmp_path: Path) -> None:
    assert file_name("Describe /ada/[red]x/../0") == "describe-ada-red-x-..-0.txt"
    assert file_name("…") == "page.txt"
    path = tmp_path / "a.txt"
    assert unused(path) == path
    path.write_text("")
    assert unused(path) == tmp_path / "a-2.txt"


def test_pager_and_editor_are_the_operators_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PAGER", "VISUAL", "EDITOR"):
        monkeypatch.delenv(name, raising=False)
    assert (program(editor=False), program(editor=True)) == (["less"], ["vi"])
    monkeypatch.setenv("EDITOR", "code --wait")
    assert program(editor=True) == ["code", "--wait"]
    monkeypatch.setenv("PAGER", "'oops")
    with pytest.raises(ModelError, match="PAGER cannot be read"):
        program(editor=False)


class Hand(HandingOver):
    """The part of the app that hands texts over, with a terminal that can be left."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.left = 0

    def say(self, text: str, *, severity: str = "information") -> None:
        self.said.append(text)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        self.left += 1
        yield

    def refresh(self, **_: object) -> Hand:
        return self


def test_a_page_is_saved_under_its_title_and_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    hand = Hand()
    hand.save_text("one\ntwo", "Spec /ada/train", "")
    hand.save_text("three", "Spec /ada/train", "")
    assert (tmp_path / "spec-ada-train.txt").read_text() == "one\ntwo\n"
    assert (tmp_path / "spec-ada-train-2.txt").read_text() == "three\n"
    assert f"2 lines in {tmp_path}/spec-ada-train.txt" in hand.said[0]
    with pytest.raises(ModelError, match="File exists"):
        hand.save_text("four", "Spec /ada/train", "spec-ada-train.txt")


def test_the_pager_gets_a_copy_that_is_gone_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pager = tmp_path / "pager"
    pager.write_text(f'#!/bin/sh\ncat "$2" > "{tmp_path}/seen"\necho "$1 $2" > "{tmp_path}/words"\n')
    pager.chmod(0o700)
    monkeypatch.setenv("PAGER", f"{pager} -S")
    hand = Hand()
    hand.open_text("one\ntwo", "Spec /ada/train", editor=False)
    assert (tmp_path / "seen").read_text() == "one\ntwo\n" and hand.left == 1
    flag, path = (tmp_path / "words").read_text().split()
    assert flag == "-S" and path.endswith("/spec-ada-train.txt") and not Path(path).exists()
    monkeypatch.setenv("PAGER", str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="No such file or directory"):
        hand.open_text("one", "Spec /ada/train", editor=False)
