"""Which files of a workdir are results of tasks, and which of them a pattern means."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from launcher.agent.tree import (
    TreeEntry,
    begins,
    is_wanted,
    keep_results,
    parts_of,
    pattern_of,
    workdir_files,
)
from launcher.cluster.patterns import IgnoreRules
from launcher.on_host import transfer
from launcher.on_host.pipe import Pipe
from launcher.on_host.transfer import Staging, expanded
from tests.support.short_programs import Running

EMPTY = hashlib.sha256().hexdigest()


def staged(home: Path, *ignored: str) -> Path:
    """The stage of a run without files, with these rules of what is ignored."""
    stage = home / "1/stage"
    stage.parent.mkdir(parents=True)
    rules = [("", IgnoreRules(ignored).expressions())]

    def work(pipe: Pipe) -> None:
        Staging(pipe, str(home / "cache"), str(stage), "key").run([], rules)

    with Running(work) as program:
        program.receive()
        assert program.receive() == {"built": True}
    (stage / "work").mkdir()
    return stage


def results(stage: Path) -> set[str]:
    """The names of the results in it."""
    return {file.inside for file in workdir_files(str(stage), []) if file.result}


@pytest.mark.parametrize(
    ("rules", "names", "left"),
    [
        (["*.log", "!keep.log"], ["a.log", "keep.log", "a.log.txt"], {"a.log.txt"}),
        (["out/"], ["out/x", "deep/out/x", "outer"], {"outer"}),
        (["/out"], ["out", "deep/out"], {"deep/out"}),
        (["data/**/*.bin"], ["data/x.bin", "data/a/b/x.bin", "x.bin"], {"x.bin"}),
        (["[a-c]?"], ["ax", "dx", "abc"], {"dx", "abc"}),
        ([r"\#odd", "sp\\ ace", "("], ["#odd", "sp ace", "(", "()"], {"()"}),
        (["ä*"], ["äö", "a\nb"], {"a\nb"}),
    ],
)
def test_the_host_leaves_out_what_the_launcher_would(
    home: Path, rules: list[str], names: list[str], left: set[str]
) -> None:
    """By the same rules, which it has as expressions: those of `exclude`, where nothing that is
    taken back counts for the others."""
    stage = staged(home, *rules)
    for name in names:
        (stage / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / "work" / name).write_text("x")
    known = IgnoreRules(rules)

    def ignored(name: str) -> bool:
        folders = [f"{above}/" for above in map(str, Path(name).parents) if above != "."]
        return any(map(known.ignores, [*folders, name]))

    assert {name for name in names if not ignored(name)} >= left
    assert results(stage) == {name for name in names if not ignored(name)}


@pytest.mark.parametrize(
    ("pattern", "path", "wanted"),
    [
        ("*.ckpt", "deep/a.ckpt", True),
        ("out", "deep/out/a", True),
        ("./out/", "out/a", True),
        ("out/*", "out/a/b", True),
        ("out/*", "deep/out/a", False),
        ("out/**/b", "out/1/2/b", True),
        ("**/b", "b", True),
        ("**/b", ".hidden/b", False),
        ("a[1]", "a[1]", True),
        ("*", ".hidden", False),
        (".*", ".hidden", True),
        ("OUT", "out", False),
    ],
)
def test_patterns_of_results(pattern: str, path: str, wanted: bool) -> None:
    """A pattern is one of a path in the workdir, or without a slash of any part of one, as in a
    shell."""
    assert is_wanted(parts_of(path), parts_of(pattern)) is wanted


@pytest.mark.parametrize("pattern", ["*", "*/x", "**/x", "a/**", ".h/*", "a/b", "a[1]", "[a-z]"])
def test_what_a_pattern_has_brought_is_what_is_not_kept(home: Path, pattern: str) -> None:
    """Whatever is found by a pattern in `collect`, and nothing else, counts as brought."""
    names = ["x", "a/x", "a/b/x", ".h/x", "a/.h/x", "a[1]", "a1"]
    for name in names:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).touch()
    full = f"{home}/{pattern}"
    found = expanded(full)[1] if "*" in pattern or pattern == "[a-z]" else [full]
    folders = tuple(f"{path}/" for path in found)
    below = {name for name in names if f"{home}/{name}/".startswith(folders)}
    kept = {name for name in names if not begins(parts_of(f"{home}/{name}"), pattern_of(full))}
    assert kept == set(names) - below


def test_a_folder_that_is_no_result_by_its_own_words(home: Path) -> None:
    """Caches that say so, and virtual environments; not a folder that ignores something else, nor
    one that asks for it by a link."""
    stage = staged(home)
    for name, text in {"c": "# made by a tool\n*\n", "d": "*.x\n", "e": "*\n!f\n"}.items():
        (stage / "work" / name).mkdir()
        (stage / "work" / name / "f").touch()
        (stage / "work" / name / ".gitignore").write_text(text)
    (stage / "work/v/conda-meta").mkdir(parents=True)
    (stage / "work/v/f").touch()
    (stage / "work/l").mkdir()
    (stage / "work/l/f").touch()
    (stage / "work/l/.gitignore").symlink_to("../c/.gitignore")
    assert results(stage) == {"d/f", "d/.gitignore", "e/f", "e/.gitignore", "l/f", "l/.gitignore"}


def test_what_cannot_be_moved_stays_where_it_is(home: Path) -> None:
    """Nothing is thrown away, and the other files have moved."""
    stage, kept = staged(home), home / "1/results"
    for name in ("a", "b"):
        (stage / "work" / name).write_text(name)
    kept.mkdir()
    (kept / "a").mkdir()
    (kept / "a/x").touch()
    assert not keep_results(str(stage), str(kept))
    assert (stage / "work/a").read_text() == "a" and (kept / "b").read_text() == "b"


def test_a_huge_workdir_is_not_looked_through_for_long(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was counted by then is said, and that it is not all."""
    stage = staged(home)
    for number in range(30):
        (stage / f"work/{number}").write_text("x")
    monkeypatch.setattr(transfer, "MOST_COMPARED", 20)
    places = type("Places", (), {"stage": str(stage), "results": "there"})
    found = transfer.find_results(places, [], True)  # type: ignore[arg-type]
    assert (found["cut"], found["files"]) == (True, 20)


def test_results_of_runs_that_are_long_over_are_removed(home: Path) -> None:
    """With the folder of the run; not those of a run that has ended lately, nor the workdir of one
    that goes on, however old it is."""
    for name, age in (("old", 0), ("new", None), ("lives", 0), ("left", 0)):
        folder = home / f"{name}.far" / ("stage" if name in ("lives", "left") else "results")
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/file").touch()
        if name == "left":
            (folder.parent / "exit").write_text(json.dumps({}))
            os.utime(folder.parent / "exit", (0, 0))
        if age is not None:
            os.utime(folder, (age, age))
    staged(home)
    assert not (home / "old.far").exists()
    assert (home / "new.far/results/deep/file").exists()
    assert (home / "lives.far/stage/deep/file").exists()
    assert not (home / "left.far/stage").exists()


def test_a_changed_file_that_was_copied_is_a_result_whatever_ignores_it(home: Path) -> None:
    """Git tracks it, or it is in `data`: whoever had it copied means it. What is new beside it is
    as ignored as it is elsewhere."""
    stage = home / "1/stage"
    stage.parent.mkdir(parents=True)
    names = ["data/deep/a", "data/b", "tracked.log"]
    entries = [TreeEntry("work", name, "f", 0o644, 0, EMPTY) for name in names]
    rules = [("", IgnoreRules(["data/", "*.log"]).expressions())]

    def work(pipe: Pipe) -> None:
        Staging(pipe, str(home / "cache"), str(stage), "key").run(entries, rules)

    with Running(work) as program:
        program.receive()
        assert program.receive() == {"built": True}
    assert results(stage) == set()
    for name in ["data/deep/a", "data/deep/new", "data/other/new", "tracked.log", "new.log"]:
        (stage / "work" / name).parent.mkdir(exist_ok=True)
        (stage / "work" / name).write_text("changed")
    assert results(stage) == {"data/deep/a", "tracked.log"}
    assert keep_results(str(stage), str(home / "1/results"))
    assert not (stage / "work/data/deep/a").exists() and (stage / "work/data/b").exists()
