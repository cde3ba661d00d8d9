"""A cluster file that a front end has checked: what its launcher process believes, and what not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from launcher import ClusterFileError
from launcher.cluster import problems, read
from launcher.cluster.read import load, loads, mark_of
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text

TEXT = cluster_text({"ps": 1, "worker": 2}, "checked", workdir="")
NAMELESS = TEXT.replace('name = "checked"\n', "")


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A word for each look at what must hold between the values of a file."""
    seen: list[str] = []
    limits = problems.limits

    def seen_limits(raw: Mapping[str, Any]) -> Iterator[problems.Violation]:
        seen.append("look")
        return limits(raw)

    monkeypatch.setattr(read, "limits", seen_limits)
    return seen


def stored(text: str, folder: Path) -> tuple[Path, str]:
    """A run's copy of a file that was checked for its launch, and the mark of the file."""
    cluster = loads(text, "checked.toml", folder, for_launch=True)
    run = RunFolder.create("checked-20261120-183002-7f3a", text, cluster)
    return run.cluster_file, cluster.file.checked


@pytest.mark.parametrize("text", [TEXT, NAMELESS, "\ufeff" + TEXT, "\ufeff" + NAMELESS])
def test_a_run_s_copy_is_not_checked_again(tmp_path: Path, looks: list[str], text: str) -> None:
    """Given a file that was checked, with a name of its own or with that of the file, when the
    run's copy is read with the mark of that check, then it is the same cluster, and was checked
    once."""
    copy, mark = stored(text, tmp_path)
    assert looks == ["look"] and mark
    again = load(copy, base=tmp_path, for_launch=True, checked=mark)
    assert looks == ["look"]
    assert again == loads(text, "checked.toml", tmp_path)


def test_a_copy_that_has_changed_is_checked(tmp_path: Path) -> None:
    """Given a run's copy in which two tasks have got one port since it was checked, when it is read
    with the mark of that check, then it is refused."""
    copy, mark = stored(TEXT, tmp_path)
    copy.write_text(TEXT.replace("localhost:auto", "localhost:2222"))
    with pytest.raises(ClusterFileError, match="2222"):
        load(copy, base=tmp_path, for_launch=True, checked=mark)


def test_a_copy_is_checked_by_another_version(
    tmp_path: Path, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a file that a screen has checked, and an upgrade since, when the launcher process of
    the new version reads the run's copy, then it checks it itself."""
    copy, mark = stored(TEXT, tmp_path)
    monkeypatch.setattr(read, "_PROGRAM", "another version")
    load(copy, base=tmp_path, for_launch=True, checked=mark)
    assert looks == ["look", "look"]


def test_values_are_checked_whatever_the_mark_says(tmp_path: Path) -> None:
    """Given a text with a value of another type, and its own mark, when it is read, then it is
    refused: a mark spares only what must hold between values."""
    text = TEXT.replace('workdir = ""', 'workdir = ""\ngrace = "soon"')
    copy = tmp_path / "cluster.toml"
    copy.write_text(text)
    with pytest.raises(ClusterFileError, match="grace"):
        load(copy, base=tmp_path, for_launch=True, checked=mark_of(text))


def test_a_file_that_was_not_checked_for_a_launch_has_no_mark(tmp_path: Path) -> None:
    """Given a file that was only looked at, without its local folders, when it is launched, then
    the launcher process checks it."""
    assert not loads(TEXT, "checked.toml", tmp_path).file.checked
