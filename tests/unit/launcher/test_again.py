"""A past run as it can be launched again: what has changed since, and the file to edit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from launcher.cluster.read import load
from launcher.errors import ClusterFileError
from launcher.history.again import EarlierRun, editable_file
from launcher.ids import new_run_id
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import cluster_text

HOUR = 3600.0


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A directory with a program, a cluster file and what is ignored."""
    tmp_path /= "project"
    (tmp_path / "src").mkdir(parents=True)
    (tmp_path / "src/train.py").write_text("1")
    (tmp_path / "data.csv").write_text("1")
    (tmp_path / "notes.tmp").write_text("1")
    (tmp_path / ".gitignore").write_text("*.tmp\n")
    (tmp_path / "mnist.toml").write_text(cluster_text({"worker": 2}, exclude=["*.csv"]))
    return tmp_path


def launched(file: Path) -> RunFolder:
    """The folder of a run of a cluster file, launched in an hour: all files here are older."""
    cluster = load(file)
    folder = RunFolder.create(new_run_id(cluster.name), file.read_text(), cluster)
    later = folder.launched + HOUR
    os.utime(folder.cluster_file, (later, later))
    return folder


def make_old(folder: RunFolder) -> None:
    """The run was launched an hour ago: all files here are younger."""
    before = folder.launched - 2 * HOUR
    os.utime(folder.cluster_file, (before, before))


def test_nothing_has_changed(workdir: Path) -> None:
    """No sentence; a name that the copy has got from the file's is no change."""
    earlier = EarlierRun.read(launched(workdir / "mnist.toml"))
    assert earlier.changes() == []
    assert earlier.cluster.name == "mnist" and earlier.cluster.base == workdir


def test_a_file_of_the_workdir_has_changed(workdir: Path) -> None:
    """The first one by name, and the number of the others: what is not copied does not count, nor
    does the cluster file."""
    folder = launched(workdir / "mnist.toml")
    make_old(folder)
    earlier = EarlierRun.read(folder)
    (sentence,) = earlier.changes()
    assert sentence == (
        ".gitignore and 1 other file of the workdir have changed since: "
        "this run has them as they are now"
    )
    (workdir / ".gitignore").unlink()
    (workdir / "notes.tmp").unlink()
    (sentence,) = earlier.changes()
    assert sentence.startswith("src/train.py of the workdir has changed since: ")


def test_a_copy_with_old_times_is_a_change(workdir: Path) -> None:
    """`cp -p` and `rsync -t` put a file there whose time is older than the run."""
    folder = launched(workdir / "mnist.toml")
    make_old(folder)
    for path in (".gitignore", "notes.tmp"):
        (workdir / path).unlink()
    os.utime(workdir / "src/train.py", (1000.0, 1000.0))
    assert "src/train.py" in EarlierRun.read(folder).changes()[0]


def test_the_cluster_file_has_changed(workdir: Path) -> None:
    folder = launched(workdir / "mnist.toml")
    (workdir / "mnist.toml").write_text(cluster_text({"worker": 7}))
    earlier = EarlierRun.read(folder)
    assert earlier.changes() == ["mnist.toml has changed since: this run has it as it was"]
    assert len(earlier.cluster.jobs["worker"].tasks) == 2


def test_no_workdir_is_looked_at_where_nothing_is_copied(workdir: Path) -> None:
    (workdir / "mnist.toml").write_text(cluster_text({"worker": 1}, workdir=""))
    folder = launched(workdir / "mnist.toml")
    make_old(folder)
    assert EarlierRun.read(folder).changes() == []


def test_a_workdir_that_has_gone(workdir: Path) -> None:
    """The launch is refused, in a sentence that names the directory."""
    text = cluster_text({"worker": 1}, workdir="src")
    (workdir / "mnist.toml").write_text(text)
    folder = launched(workdir / "mnist.toml")
    (workdir / "src/train.py").unlink()
    (workdir / "src").rmdir()
    with pytest.raises(ClusterFileError, match="workdir"):
        EarlierRun.read(folder)


def test_the_file_to_edit(workdir: Path) -> None:
    """That of the launch, by whatever name; changed, it is the same file; gone, the copy of the run
    is a new one beside where it was, by a name that nothing has."""
    file = workdir / "mnist.toml"
    folder = launched(file)
    assert editable_file(folder)[:2] == (file, None)
    file.rename(workdir / "renamed.toml")
    (workdir / "mnist-2.toml").write_text(cluster_text({"worker": 9}, name="other"))
    text = cluster_text({"worker": 2}, name="mnist", exclude=["*.csv"])
    (workdir / "renamed.toml").write_text(text)
    path, new, note = editable_file(folder)
    assert (path, new) == (workdir / "renamed.toml", None) and "has changed" in note
    (workdir / "renamed.toml").unlink()
    path, new, note = editable_file(folder)
    assert path == workdir / "mnist.toml" and "not saved yet" in note
    assert new == folder.cluster_file.read_text()
    file.mkdir()
    assert editable_file(folder)[0] == workdir / "mnist-3.toml"
