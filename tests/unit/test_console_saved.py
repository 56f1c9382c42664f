"""What the console remembers of a cluster: given back the next time, private, bounded, and never in the way."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

import pytest

from iris_tui.saved import MOST_BYTES, MOST_LINES, Saved, load_saved, saved_file

if TYPE_CHECKING:
    from pathlib import Path


def test_what_is_written_is_read_back_and_only_by_its_owner() -> None:
    saved = load_saved("lab")
    assert (saved.screen, saved.views, saved.histories, saved.filters) == ("", {}, {}, {})
    saved.screen, saved.subject = "job", "/ada/train"
    saved.views["jobs"] = {"filter": "state:running", "sort": "age"}
    saved.history("command").append("jobs state:failed")
    saved.named("job")["mine"] = "user:ada !state:failed"
    assert saved.write() == ""
    assert load_saved("lab") == saved
    assert stat.S_IMODE(saved_file("lab").stat().st_mode) == 0o600
    assert os.listdir(saved_file("lab").parent) == ["lab.json"], "nothing is left beside it"


@pytest.mark.parametrize("name", ["../../etc/passwd", "127.0.0.1:10000", "a/b", "x" * 300, "日本"])
def test_any_name_of_a_cluster_is_a_file_in_the_folder(name: str) -> None:
    saved = load_saved(name)
    saved.screen = "jobs"
    assert saved.write() == ""
    assert [path.parent for path in saved_file(name).parent.iterdir()] == [saved_file("lab").parent]
    assert load_saved(name).screen == "jobs"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"version": 99, "screen": "jobs"}',
        '{"version": 1, "screen": 7, "views": [1], "histories": {"a": "x"}, "filters": {"job": [1]}}',
        '{"version": 1, "views": {"jobs": 3}, "histories": {"a": [1, null, "' + "y" * 600 + '"]}, "filters": {"job": {"n": 1}}}',
        "[" * 100_000,
        '{"version": 1, "screen": "jobs", "subject": "' + "z" * MOST_BYTES + '"}',
    ],
    ids=["empty", "torn", "list", "other release", "wrong kinds", "wrong parts", "deep", "large"],
)  # fmt: skip
def test_a_file_that_makes_no_sense_is_as_good_as_none(text: str) -> None:
    path = saved_file("lab")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    saved = load_saved("lab")
    assert (saved.screen, saved.views) == ("", {})
    assert not any(saved.histories.values()) and not any(saved.filters.values())


def test_it_stays_small_whatever_was_typed() -> None:
    saved = load_saved("lab")
    saved.named("job")["kept"] = "user:ada"
    for asked in range(100):
        saved.history(f"asked {asked}").extend(f"{number} " + "x" * 490 for number in range(200))
    saved.history("command").append("y" * 5000)
    saved.views["jobs"] = {"filter": "f" * MOST_BYTES}
    assert saved.write() == ""
    assert saved_file("lab").stat().st_size <= MOST_BYTES
    assert load_saved("lab").filters == {"job": {"kept": "user:ada"}}, "what somebody named is kept longest"
    saved = Saved(saved_file("lab"))
    saved.history("command").extend([str(number) for number in range(200)])
    saved.write()
    assert json.loads(saved_file("lab").read_text())["histories"]["command"][0] == str(200 - MOST_LINES)


def test_a_folder_that_cannot_be_written_is_said_and_nothing_more(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "cannot write" in Saved(tmp_path / "file" / "lab.json").write()
    assert Saved().write() == ""
