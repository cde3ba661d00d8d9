"""Staged trees that are kept for the next launch: what a task has done to them, and their end."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from launcher.agent import folders
from launcher.agent.folders import Folders
from launcher.agent.tree import TreeEntry, keep_for_reuse
from launcher.on_host.pipe import Pipe, PipeEnded
from launcher.on_host.transfer import Staging
from tests.support.fixtures.launcher import NOBODY
from tests.support.short_programs import Running, message


def staging(home: Path, data: bytes) -> Running:
    """The program on a host that stages a workdir of one file for the run 1."""
    (home / "1").mkdir()
    entry = TreeEntry("work", "a", "f", 0o644, len(data), hashlib.sha256(data).hexdigest())

    def work(pipe: Pipe) -> None:
        Staging(pipe, str(home / "cache"), str(home / "1/stage"), "key").run([entry])

    return Running(work)


def launch(home: Path, run: str, files: dict[str, str], key: str = "key") -> Path:
    """Stages the workdir of a run from these files; all launches have one cache."""
    (home / run).mkdir(exist_ok=True)
    entries, contents = [], {}
    for name, text in files.items():
        digest = hashlib.sha256(text.encode()).hexdigest()
        entries.append(TreeEntry("work", name, "f", 0o644, len(text), digest))
        contents[digest] = text
    stage = home / run / "stage"

    def work(pipe: Pipe) -> None:
        Staging(pipe, str(home / "cache"), str(stage), key).run(entries)

    with Running(work) as program:
        for content in program.receive()["missing"]:
            program.write(contents[content].encode())
        assert program.receive() == {"built": True}
    return stage / "work"


def keep(work: Path) -> None:
    """The run is over."""
    keep_for_reuse(str(work.parent))


def found(work: Path) -> dict[str, str]:
    """The files of a workdir."""
    return {
        str(path.relative_to(work)): path.read_text() for path in work.rglob("*") if path.is_file()
    }


def test_a_directory_that_a_task_made_read_only_is_used_again(home: Path) -> None:
    """Files in it may change, come and go, and what the task left in a directory of its own is
    gone."""
    first = {"data/x": "x", "data/y": "y", "data/deep/z": "z"}
    work = launch(home, "1", first)
    (work / "out/ro").mkdir(parents=True)
    (work / "out/ro/checkpoint").write_text("old")
    inode = (work / "data/y").stat().st_ino
    for name in ("out/ro", "out", "data/deep", "data"):
        (work / name).chmod(0o555)
    keep(work)
    second = {"data/x": "changed", "data/y": "y", "data/new": "new"}
    work = launch(home, "2", second)
    assert found(work) == second
    assert (work / "data/y").stat().st_ino == inode
    assert not (work / "out").exists() and not (work / "data/deep").exists()
    (work / "data").chmod(0)
    work = launch(home, "2", first)
    assert found(work) == first


def test_another_users_files_are_not_in_the_next_run(home: Path) -> None:
    """They cannot be removed: neither from the tree of a run that is staged again, nor from one
    that was kept."""
    if os.getresuid() != (NOBODY, NOBODY, 0):
        pytest.skip("needs root, to make another user's files")
    files = {"a": "a"}
    work = launch(home, "1", files)
    for _ in range(2):
        _leave_files_of_root(work)
        assert found(launch(home, "1", files)) == files
    _leave_files_of_root(work)
    keep(work)
    trees = home / "cache/trees"
    assert not trees.exists()
    trees.mkdir()
    (home / "1/stage").rename(trees / "key")
    (home / "1/stage.index").rename(trees / "key.index")
    assert found(launch(home, "2", files)) == files


def _leave_files_of_root(work: Path) -> None:
    os.seteuid(0)
    (work / "out").mkdir()
    (work / "out/checkpoint").write_text("old")
    os.seteuid(NOBODY)


def test_a_tree_that_was_not_used_for_long_goes_with_its_index(home: Path) -> None:
    """Trees of other launches stay."""
    for key in ("old", "new"):
        keep(launch(home, key, {"a": "a"}, key))
    trees = home / "cache/trees"
    os.utime(trees / "old.index", (0, 0))
    (home / "cache/pruned").unlink()
    launch(home, "1", {"a": "a"}, "other")
    assert {path.name for path in trees.iterdir()} == {"new", "new.index"}


def test_only_contents_are_pruned_from_a_cache_that_others_share(home: Path) -> None:
    """Stamps of `prepare` lines, whatever their age, and what else lies in a shared home."""
    launch(home, "1", {"a": "a"})
    cache = home / "cache"
    (content,) = (each for each in cache.glob("??/*") if each.is_file())
    others = [cache / "prepared/0123.host", cache / "hashes/one", cache / "file"]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.touch()
    for path in (content, *others):
        os.utime(path, (0, 0))
    (cache / "pruned").unlink()
    launch(home, "2", {"b": "b"})
    assert not content.exists() and all(path.exists() for path in others)


def test_the_runs_folder_goes_with_read_only_directories(
    monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """A link in it is removed, and where it leads nothing is changed."""
    monkeypatch.setattr(folders, "_TEMPORARY", str(home))
    run = Folders("run-1", "far", None, {"XDG_STATE_HOME": str(home / "state")})
    run.make()
    for name in ("other/closed", f"{run.run}/stage/work/ro/inner"):
        (home / name).mkdir(parents=True)
        (home / name / "file").touch()
        (home / name).chmod(0)
    (home / run.run / "stage/work/ro/link").symlink_to(home / "other/closed")
    (home / run.run / "stage/work/ro").chmod(0o555)
    run.remove(proven=True)
    assert not Path(run.run).exists()
    assert (home / "other/closed").stat().st_mode & 0o777 == 0
    (home / "other/closed").chmod(0o700)  # for the fixture


def test_a_launcher_that_was_cut_off_does_not_replace_what_the_next_has_built(home: Path) -> None:
    """Its program was slower; tasks may run in the trees that have come after it."""
    with staging(home, b"slow") as slow:
        assert len(slow.receive()["missing"]) == 1
        built = launch(home, "1", {"b": "b"})
        slow.write(b"slow")
        assert slow.read_some() == b""
    assert found(built) == {"b": "b"}
    names = sorted(path.name for path in (home / "1").iterdir())
    assert names == ["stage", "stage.index", "stage.turn"]


def test_a_content_that_came_in_part_is_removed(home: Path) -> None:
    """The connection ended in the middle of it."""
    with staging(home, bytes(1000)) as cut:
        cut.receive()
        cut.write(bytes(400))
    assert isinstance(cut.error, PipeEnded)
    assert not [path for path in (home / "cache").rglob("*") if path.is_file()]


def test_contents_that_changed_while_they_were_sent_are_asked_for_again(home: Path) -> None:
    """They are not kept; the launcher sends other entries, and may do so without the file."""
    with staging(home, b"this") as changed:
        (content,) = changed.receive()["missing"]
        changed.write(b"that")
        assert changed.receive() == {"changed": [content]}
        digest = hashlib.sha256(b"that one").hexdigest()
        changed.write(message({"entries": [["work", "a", "f", 0o640, 8, digest]]}))
        assert changed.receive() == {"missing": [digest]}
        changed.write(b"that one")
        assert changed.receive() == {"built": True}
    assert (home / "1/stage/work/a").read_bytes() == b"that one"
    assert (home / "1/stage/work/a").stat().st_mode & 0o777 == 0o640
    kept = [path.name for path in (home / "cache").glob("??/*") if path.is_file()]
    assert kept == [digest]
