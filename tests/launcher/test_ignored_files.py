"""Files of a workdir that `.gitignore` files and `exclude` keep from hosts; the expected ones are
those that git lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from launcher.files.staging import Tree, read_tree


def sent(root: Path, exclude: tuple[str, ...] = ()) -> set[str]:
    """The files of a tree that go to a host, without `.gitignore` files."""
    entries = read_tree(Tree("work", root, exclude)).entries
    return {entry.path for entry in entries if entry.kind == "f"} - {".gitignore"}


def make(root: Path, *names: str) -> None:
    """Makes empty files, and the directories above them."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).touch()


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
