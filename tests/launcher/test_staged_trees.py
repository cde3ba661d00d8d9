"""Staged trees that are kept for the next launch: what a task has done to them, and their end."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.agent import folders, wire
from launcher.agent import stage as agent_stage
from launcher.agent.files import FileRequests
from launcher.agent.folders import Folders
from launcher.agent.messages import StageStored
from launcher.agent.requests import StageManifest
from launcher.agent.stage import Stage
from launcher.agent.tree import TreeEntry
from launcher.files import staging
from tests.launcher.conftest import NOBODY


def launch(home: Path, run: str, files: dict[str, str], key: str = "key") -> tuple[Stage, Path]:
    """Builds the workdir of a run from these files; all launches have one cache."""
    (home / run).mkdir(exist_ok=True)
    stage = Stage(str(home / "cache"), str(home / run / "stage"), key)
    stage.entries = [
        TreeEntry("work", name, "f", 0o644, len(text), hashlib.sha256(text.encode()).hexdigest())
        for name, text in files.items()
    ]
    contents = {hashlib.sha256(text.encode()).hexdigest(): text for text in files.values()}
    for content in stage.missing():
        stage.feed(contents[content].encode())
    stage.build()
    return stage, home / run / "stage" / "work"


def found(work: Path) -> dict[str, str]:
    """The files of a workdir."""
    return {
        str(path.relative_to(work)): path.read_text() for path in work.rglob("*") if path.is_file()
    }


def test_a_directory_that_a_task_made_read_only_is_used_again(home: Path) -> None:
    """Files in it may change, come and go, and what the task left in a directory of its own is
    gone."""
    first = {"data/x": "x", "data/y": "y", "data/deep/z": "z"}
    stage, work = launch(home, "1", first)
    (work / "out/ro").mkdir(parents=True)
    (work / "out/ro/checkpoint").write_text("old")
    inode = (work / "data/y").stat().st_ino
    for name in ("out/ro", "out", "data/deep", "data"):
        (work / name).chmod(0o555)
    stage.keep_for_reuse()
    second = {"data/x": "changed", "data/y": "y", "data/new": "new"}
    stage, work = launch(home, "2", second)
    assert found(work) == second
    assert (work / "data/y").stat().st_ino == inode
    assert not (work / "out").exists() and not (work / "data/deep").exists()
    (work / "data").chmod(0)
    stage, work = launch(home, "2", first)
    assert found(work) == first


def test_another_users_files_are_not_in_the_next_run(home: Path) -> None:
    """They cannot be removed: neither from the tree of a run that is staged again, nor from one
    that was kept."""
    if os.getresuid() != (NOBODY, NOBODY, 0):
        pytest.skip("needs root, to make another user's files")
    files = {"a": "a"}
    stage, work = launch(home, "1", files)
    for _ in range(2):
        _leave_files_of_root(work)
        assert found(launch(home, "1", files)[1]) == files
    _leave_files_of_root(work)
    stage.keep_for_reuse()
    trees = home / "cache/trees"
    assert not trees.exists()
    trees.mkdir()
    (home / "1/stage").rename(trees / "key")
    (home / "1/stage.index").rename(trees / "key.index")
    assert found(launch(home, "2", files)[1]) == files


def _leave_files_of_root(work: Path) -> None:
    os.seteuid(0)
    (work / "out").mkdir()
    (work / "out/checkpoint").write_text("old")
    os.seteuid(NOBODY)


def test_a_tree_that_was_not_used_for_long_goes_with_its_index(home: Path) -> None:
    """Those of other launches stay."""
    for key in ("old", "new"):
        stage, _ = launch(home, key, {"a": "a"}, key)
        stage.keep_for_reuse()
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


@pytest.mark.large
def test_one_answer_names_no_more_contents_than_a_frame_holds(home: Path) -> None:
    """The rest is named when the manifest comes again."""
    stage = Stage(str(home / "cache"), str(home / "stage"), "")
    stage.entries = [
        TreeEntry("work", f"{n}", "f", 0o644, 1, hashlib.sha256(b"%d" % n).hexdigest())
        for n in range(63_000)
    ]
    answer = stage.begin()
    assert len(answer.missing) == agent_stage.MOST_MISSING and not answer.built
    wire.encode(wire.REPLY, {"id": 1, **answer.to_json()})


def test_a_content_of_which_a_part_has_come_is_continued(home: Path) -> None:
    """By the next manifest, also behind one that never became whole; where that does not want it,
    or nothing follows, the part is removed."""
    entries, contents = [], []
    for name in ("a", "b", "c"):
        data = name.encode() * 1000
        digest = hashlib.sha256(data).hexdigest()
        entries.append(TreeEntry("work", name, "f", 0o644, len(data), digest))
        contents.append(data)

    def stage(wanted: list[TreeEntry], before: Stage | None = None) -> Stage:
        new = Stage(str(home / "cache"), str(home / "stage"), "", before)
        new.entries = wanted
        return new

    def parts() -> list[str]:
        return [path.name for path in (home / "cache").rglob("*.*")]

    first = stage(entries)
    first.begin()
    first.feed(contents[0] + contents[1][:400])
    assert len(parts()) == 1
    second = stage([entries[2], entries[1]], stage([], first))
    answer = second.begin()
    assert (answer.missing, answer.begun) == ((entries[1].content, entries[2].content), 400)
    second.feed(contents[1][400:] + contents[2][:1])
    third = stage(entries[:2], second)
    assert third.begin().built and parts() == []
    assert (home / "stage/work/b").read_bytes() == contents[1]
    fourth = stage(entries, third)
    fourth.begin()
    fourth.feed(contents[2][:1])
    stage([], fourth).close()
    assert parts() == []


def test_a_manifest_of_long_paths_is_cut_by_its_bytes() -> None:
    """Each part fits into a frame, and nothing is lost."""
    path = "/".join(["\u00fc" * 120] * 8)
    entries = [TreeEntry("work", f"{path}/{n}", "d", 0o755, 0, "") for n in range(5000)]
    parts = staging._parts(entries)
    assert [entry for part in parts for entry in part] == entries
    assert all(len(StageManifest(part, key="k").encode()) < wire.MAX_BODY for part in parts)


def test_contents_beyond_what_may_wait_for_the_disk_are_refused(home: Path) -> None:
    """A launcher that does not wait for its agent's disk must not fill the agent's memory."""
    done: list[Callable[[], None]] = []
    files = FileRequests(Folders("staged-1", "far", None, {"HOME": str(home)}), done.append)
    disk = threading.Event()

    def hang() -> None:
        disk.wait(60)

    files._staging.do(hang)
    channel: Any = SimpleNamespace(contents_received=0, contents_stored=0, sent=[])
    channel.send = channel.sent.append
    half = bytes(wire.STAGE_WINDOW // 2)
    files.contents(channel, half)
    files.contents(channel, half)
    with pytest.raises(wire.WireError, match="may wait"):
        files.contents(channel, b"x")
    disk.set()
    files.close()
    for act in done:
        act()
    assert channel.sent == [StageStored(len(half)), StageStored(2 * len(half))]
