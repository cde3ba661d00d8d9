"""Files of a workdir that `.gitignore` files and `exclude` keep from hosts; the expected ones are
those that git lists."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.cluster.patterns import IgnoreRules
from launcher.files.listing import Tree
from launcher.files.staging import read_tree


def sent(root: Path, exclude: tuple[str, ...] = ()) -> set[str]:
    """The files of a tree that go to a host, without `.gitignore` files."""
    entries = read_tree(Tree("work", root, exclude)).entries
    return {entry.path for entry in entries if entry.kind == "f"} - {".gitignore"}


def make(root: Path, *names: str) -> None:
    """Makes empty files, and the directories above them."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


def test_a_link_to_a_directory_is_sent_as_a_link(tmp_path: Path) -> None:
    """Also one to the tree itself, which would have no end."""
    make(tmp_path, "data/a")
    (tmp_path / "latest").symlink_to("data")
    (tmp_path / "data/up").symlink_to("..")
    entries = {entry.path: entry.kind for entry in read_tree(Tree("work", tmp_path, ())).entries}
    assert {path for path, kind in entries.items() if kind == "f"} == {"data/a"}
    assert {path for path, kind in entries.items() if kind == "l"} == {"latest", "data/up"}


@pytest.mark.parametrize("line", ["foo\\", "!", "[z-a]", "[[:letter:]]", "[abc"])
def test_a_line_that_is_no_pattern_matches_nothing(line: str, tmp_path: Path) -> None:
    """The lines around it are applied."""
    make(tmp_path, "foo", "a", "b.tmp", "c.log")
    (tmp_path / ".gitignore").write_text(f"*.tmp\n{line}\n*.log\n")
    assert sent(tmp_path) == {"foo", "a"}


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("*.[[:alpha:]]", {"a b", "c.1", "d-", "e/f"}),
        ("*.[![:alpha:]]", {"a b", "b.x", "d-", "e/f"}),
        ("*[[:space:]]*", {"b.x", "c.1", "d-", "e/f"}),
        ("?[[:punct:]]", {"a b", "b.x", "c.1", "e/f"}),
        ("*.[[:digit:]x]", {"a b", "d-", "e/f"}),
        (r"e\/f", {"a b", "b.x", "c.1", "d-"}),
    ],
)
def test_patterns_of_posix(line: str, left: set[str], tmp_path: Path) -> None:
    """Classes of characters, and an escaped slash."""
    make(tmp_path, "a b", "b.x", "c.1", "d-", "e/f")
    (tmp_path / ".gitignore").write_text(line + "\n")
    assert sent(tmp_path) == left


def test_a_pattern_of_many_stars_takes_no_time(tmp_path: Path) -> None:
    """With an expression that backtracks it would be hours."""
    make(tmp_path, "a" * 200, "é" * 100, "a" * 199 + "b")
    (tmp_path / ".gitignore").write_text("*a" * 25 + "*b\n")
    assert sent(tmp_path) == {"a" * 200, "é" * 100}


def test_names_that_are_no_utf_8() -> None:
    """A class of characters holds whole characters; a byte that is none is in no class."""
    names = [os.fsdecode(name) for name in (b"x\xff", "xé".encode(), b"y\xff.tmp")]
    rules = IgnoreRules(["x[é]"])
    assert [rules.ignores(name) for name in names] == [None, True, None]


def test_the_innermost_file_decides(tmp_path: Path) -> None:
    """The innermost file takes back what an outer one ignores, but not what is below an ignored
    directory, and what it says of a directory is not said of the files in it."""
    make(tmp_path, "a.json", "configs/model.json", "configs/a.tmp", "configs/keep/b.tmp", "out/c")
    (tmp_path / ".gitignore").write_text("*.json\n*.tmp\nout/\n")
    (tmp_path / "configs/.gitignore").write_text("!*.json\n!keep/\n")
    (tmp_path / "out/.gitignore").write_text("!c\n")
    assert sent(tmp_path) == {"configs/.gitignore", "configs/model.json"}


def test_an_inner_file_takes_back_nothing_that_is_excluded(tmp_path: Path) -> None:
    """Neither `exclude` nor what is never sent."""
    make(tmp_path, "a/m.ckpt", "a/m.pyc", "a/.venv/x", "a/kept")
    (tmp_path / "a/.gitignore").write_text("!m.*\n!.venv/\n")
    assert sent(tmp_path, ("*.ckpt",)) == {"a/.gitignore", "a/kept"}


def test_a_directory_may_be_ignored_but_for_some_files(tmp_path: Path) -> None:
    """`a/**` ignores what is in a directory, not the directory."""
    make(tmp_path, "a/x", "a/keep.json", "b/x", "b/c/keep.json", "d")
    (tmp_path / ".gitignore").write_text("a/**\n!a/keep.json\n/*\n!*/\nb/**\n!b/**/\n!keep.json\n")
    assert sent(tmp_path) == {"a/keep.json", "b/c/keep.json"}
