"""docs/console.md: every screen of the console has its paragraph, and its picture is there and holds nothing of the machine it was made on."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from iris_tui.registry import SCREENS

DOCS = Path(__file__).resolve().parents[2] / "docs"


def sections() -> dict[str, str]:
    parts = re.split(r"^## (\S+)$", (DOCS / "console.md").read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_no_screen_is_described_that_there_is_not() -> None:
    assert set(sections()) <= set(SCREENS)


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_has_its_paragraph_and_its_picture(name: str) -> None:
    words = " ".join(sections()[name].split())
    assert "?" in words, "the question that it answers"
    for letter in filter(None, [SCREENS[name].letter]):
        assert f"`v {letter}`" in words
    assert f"![{SCREENS[name].title}](pictures/{name}.svg)" in words, "make pictures"
    picture = (DOCS / "pictures" / f"{name}.svg").read_text()
    drawn = "".join(ElementTree.fromstring(picture).itertext()).replace("\xa0", " ")
    assert "LIVE" in drawn and "lab" in drawn
    assert not re.search(r"/(home|root|tmp|Users)/|Traceback", drawn)
    assert not re.search(r"(?:href|src|url)\s*[=(]\s*[\"']?https?:", picture), "a picture asks nothing of another host"
