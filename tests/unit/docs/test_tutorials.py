"""`docs/tutorials.md` leads from the tutorials' programs to files, names and demos that exist."""

from __future__ import annotations

import re

import pytest

from tests.support.manual import Page
from tests.support.paths import REPOSITORY
from trainer.modes import MODES

PAGE = Page(REPOSITORY / "docs" / "tutorials.md")
_PLACE = re.compile(r"`((?:trainer|docs|tui)/[\w/.-]+)`((?:: |, )(?:`\w+`(?:, )?)+)?")
PLACES = [
    (path, name)
    for path, names in _PLACE.findall(PAGE.prose)
    for name in re.findall(r"`(\w+)`", names) or [""]
]
DEMOS = {path.stem for path in (REPOSITORY / "tui" / "demos").glob("*.toml")}


@pytest.mark.parametrize(("path", "name"), PLACES)
def test_a_place_in_the_source_exists(path: str, name: str) -> None:
    """The file, and what is named behind it: a function, a class or a constant of its module."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    assert not name or re.search(rf"^ *(?:def|class) {name}\b|^{name}\b", text, re.MULTILINE)


def test_the_second_column_names_modes_and_demos() -> None:
    """The second column of each row names modes and demos in backquotes."""
    rows = [line.split("|") for line in PAGE.prose.splitlines() if line.count("|") == 4]
    named = {
        word
        for row in rows
        if "trainer/" in row[3]
        for word in re.findall(r"`([a-z-]+)(?: --\w+)?`", row[2])
    }
    assert len(named) > 12
    assert named <= DEMOS | set(MODES)


def test_the_page_names_each_mode_that_trains() -> None:
    """TensorFlow 2's strategies have no tutorial of TensorFlow 1."""
    later = {"ps-strategy", "all-reduce", "evaluate", "tf1"}
    words = {word for span in re.findall(r"`([^`]+)`", PAGE.prose) for word in span.split()}
    assert {mode for mode in MODES if " " not in mode} - later <= words
