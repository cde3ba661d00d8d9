"""Results of tasks: which files they are, what a pattern means, and hostile streams of them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from launcher.agent.tree import (
    TreeEntry,
    begins,
    is_wanted,
    keep_results,
    kept_files,
    parts_of,
    pattern_of,
    workdir_files,
)
from launcher.files.collecting import merge
from launcher.files.unpacking import Unpacker, UnpackError, is_whole
from launcher.on_host import prepare, transfer
from launcher.on_host.pipe import LENGTH, Pipe
from launcher.on_host.transfer import BROKEN_OFF, WHOLE, Staging, expanded
from tests.support.result_streams import END, chunk, file, folder, member, unpack
from tests.support.short_programs import Running

EMPTY = hashlib.sha256().hexdigest()


def staged(home: Path, *names: str) -> Path:
    """The stage of a run with these empty files."""
    stage = home / "1/stage"
    stage.parent.mkdir(parents=True)
    entries = [TreeEntry("work", name, "f", 0o644, 0, EMPTY) for name in names]

    def work(pipe: Pipe) -> None:
        Staging(pipe, str(home / "cache"), str(stage), "key").run(entries)

    with Running(work) as program:
        program.receive()
        assert program.receive() == {"built": True}
    (stage / "work").mkdir(exist_ok=True)
    return stage


def results(stage: Path) -> set[str]:
    """The names of the results in it."""
    return {file.inside for file in workdir_files(str(stage), []) if file.result}


SAVED = [
    "checkpoints/step1.pt",
    "model.pt",
    "lightning_logs/version_0/checkpoints/last.ckpt",
    "lightning_logs/version_0/.gitignore",
    "runs/Jan01/events.out.tfevents.1.host",
    "mlruns/0/meta.yaml",
    "wandb/.gitignore",
    "wandb/run-1/files/output.log",
    "outputs/2026-01-01/00-00-00/.hydra/config.yaml",
    ".aim/run",
    ".git/refs/dvc",
    ".cache/huggingface/model.safetensors",
    "out",
    "build/lib.so",
    "a.tmp",
    ".ipynb_checkpoints/a.ipynb",
    "core.123",
    "venv/notes.txt",
    "\udcff\udcfe.bin",
    "a\nb",
]
"""What git ignores in repositories of this trade, and names that nobody expects."""
MADE_BY_TOOLS = {
    "deep/__pycache__/tool.cpython-311.pyc": "__pycache__",
    "old.pyc": "*.pyc",
    ".venv/bin/python": ".venv",
    "env/pyvenv.cfg": "env",
    "env/lib/site.py": "env",
    "conda/conda-meta/history": "conda",
    ".cache/pip/http/1": ".cache/pip",
    "web/node_modules/a/index.js": "node_modules",
    ".pytest_cache/v/x": ".pytest_cache",
}
"""By-products, and by what name each is known."""


def put(stage: Path, names: Iterable[str]) -> None:
    """Makes these files in the workdir, as a task does."""
    for name in names:
        (stage / "work" / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / "work" / name).write_text("*")


def test_only_by_products_by_name_are_no_results(home: Path) -> None:
    """Checkpoints and logs stay, wherever git ignores them or a tool has written `*` into a
    `.gitignore`; bytecode, environments and caches do not, and are named."""
    stage = staged(home)
    put(stage, [*SAVED, *MADE_BY_TOOLS])
    assert results(stage) == set(SAVED)
    found = {
        file.inside: file.by_product
        for file in workdir_files(str(stage), [], by_products=True)
        if not file.result
    }
    assert found == MADE_BY_TOOLS
    places = type("Places", (), {"stage": str(stage), "results": "there"})
    said = transfer.find_results(places, [], True)  # type: ignore[arg-type]
    assert (said["files"], said["by_products"]) == (len(SAVED), len(MADE_BY_TOOLS))
    assert said["by_product_names"] == sorted(set(MADE_BY_TOOLS.values()))
    assert keep_results(str(stage), str(home / "1/results"))
    kept = {file.inside for file in kept_files(str(home / "1/results"), [])}
    assert kept == set(SAVED)


def test_what_is_written_above_the_workdir_stays(home: Path) -> None:
    """`../results`, `../x.pt` and `../../x` of a task lie in the run's folder: they stay with the
    others, under names that lead nowhere, and `..` in a pattern means them."""
    stage = staged(home)
    (stage / "results").mkdir()
    (stage / "results/a.pt").touch()
    (stage / "x.pt").touch()
    (home / "1/models").mkdir()
    (home / "1/models/b.pt").touch()
    (home / "1/agent.log").touch()
    names = {
        "above-workdir/results/a.pt",
        "above-workdir/x.pt",
        "above-workdir/above-workdir/models/b.pt",
    }
    assert results(stage) == names
    assert keep_results(str(stage), str(home / "1/results"))
    assert {file.inside for file in kept_files(str(home / "1/results"), [])} == names
    assert is_wanted(parts_of("above-workdir/results/a.pt"), parts_of("../results"))


def test_links_holes_and_closed_files_stay_as_they_are(home: Path) -> None:
    """Two names of one file, a hole of a terabyte, a link to a directory elsewhere, a file that
    nobody may read: each is moved, not copied."""
    stage = staged(home, "sent.txt")
    work, kept = stage / "work", home / "1/results"
    put(stage, ["step5.pt", "closed"])
    (work / "latest.pt").hardlink_to(work / "step5.pt")
    with open(work / "sparse", "wb") as file:
        file.truncate(1 << 40)
    (work / "scratch").symlink_to("/scratch/me")
    (work / "closed").chmod(0)
    with open(work / "sent.txt", "r+") as file:
        file.write("x")
    assert keep_results(str(stage), str(kept))
    assert os.path.samefile(kept / "latest.pt", kept / "step5.pt")
    assert (kept / "sparse").stat().st_blocks == 0 and (kept / "sent.txt").read_text() == "x"
    assert os.readlink(kept / "scratch") == "/scratch/me" and (kept / "closed").exists()


def test_a_clock_that_is_set_back_makes_no_result_invisible(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a workdir whose `prepare` lines have ended, when a task saves files whose times all lie
    before that, then these are results, and what the lines have made is not."""
    stage = staged(home, "sent.txt", "same.txt")
    put(stage, ["built/lib.so", "built/count"])
    with monkeypatch.context() as patch:
        patch.chdir(stage / "work")
        prepare.mark_prepared()
    put(stage, ["model.pt", "sent.txt"])
    with open(stage / "work/built/count", "a") as file:
        file.write("2")
    prepared = stage.with_name("stage.prepared")
    said = prepared.read_bytes()
    prepared.unlink()
    prepared.write_bytes(said)  # its times are later now than those of all results
    assert results(stage) == {"model.pt", "sent.txt", "built/count"}


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


def test_a_file_that_may_not_be_read_is_left_out_and_named_before_anything_is_sent(
    home: Path,
) -> None:
    """The others are announced, with what they take."""
    stage = staged(home)
    put(stage, ["open.pt", "closed.pt", "folder/x"])
    (stage / "work/closed.pt").chmod(0)
    (stage / "work/folder").chmod(0)
    found = transfer.CollectedMembers({})
    found.add_paths([("work", str(stage / "work"))])
    names = [head["name"] for head, *_ in found.members if head["kind"] == "file"]
    assert names == ["work/open.pt"]
    said = {problem.partition(": ")[0].rstrip("/"): problem for problem in found.problems}
    assert set(said) == {str(stage / "work/closed.pt"), str(stage / "work/folder")}
    assert all("Permission denied" in problem for problem in said.values())
    (stage / "work/folder").chmod(0o700)


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
    that goes on, however old it is, but that of one whose agent could not move them (`stuck`)."""
    for name, age in (("old", 0), ("new", None), ("lives", 0), ("left", 0), ("stuck", 0)):
        folder = home / f"{name}.far" / ("results" if name in ("old", "new") else "stage")
        (folder / "deep").mkdir(parents=True)
        (folder / "deep/file").touch()
        if name in ("lives", "left"):
            (folder.parent / "began").touch()
        if name == "left":
            (folder.parent / "exit").write_text(json.dumps({}))
            os.utime(folder.parent / "exit", (0, 0))
        if age is not None:
            os.utime(folder, (age, age))
    staged(home)
    assert not (home / "old.far").exists()
    assert (home / "new.far/results/deep/file").exists()
    assert (home / "lives.far/stage/deep/file").exists()
    assert not (home / "left.far/stage").exists() and not (home / "stuck.far/stage").exists()


def test_a_changed_file_that_was_copied_is_a_result_whatever_its_name(home: Path) -> None:
    """Whoever had a file of an environment copied means it; what is new beside it is as much a
    by-product as it is elsewhere."""
    stage = staged(home, "env/pyvenv.cfg", "env/a", "env/b", "old.pyc")
    assert results(stage) == set()
    put(stage, ["env/a", "env/new", "env/other/new", "old.pyc", "new.pyc"])
    assert results(stage) == {"env/a", "old.pyc"}
    assert keep_results(str(stage), str(home / "1/results"))
    assert not (stage / "work/env/a").exists() and (stage / "work/env/b").exists()


# Unpacking of hostile streams of results: an error, and nothing written elsewhere.


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A file beside the results, which must stay what it is."""
    path = tmp_path / "outside"
    path.write_text("mine")
    yield path
    assert path.read_text() == "mine"
    there = {"outside", "root", "home", "source", "ssh", "run"}
    assert {one.name for one in tmp_path.iterdir()} <= there, "something was written elsewhere"


def head(name: str, size: int) -> bytes:
    """A file whose contents are to follow."""
    return member(name=name, kind="file", size=size, mode=0o644, mtime=1)


HOSTILE: dict[str, tuple[tuple[bytes, ...], int]] = {
    "upwards": ((file("../evil"), END), 1),
    "upwards inside": ((folder("a"), file("a/../../evil"), END), 1),
    "upwards to a file": ((file("../outside"), END), 1),
    "a folder upwards": ((folder("../evil"), END), 0),
    "absolute": ((file("/tmp/evil"), END), 1),
    "dot": ((file("."), END), 1),
    "empty": ((file(""), END), 1),
    "empty component": ((folder("a"), file("a//b"), END), 1),
    "nul": ((file("a\0b"), END), 1),
    "no name at all": ((file("\ud800"), END), 1),
    "long component": ((file("n" * 256), END), 1),
    "long path": ((file("a/" * 3000 + "b"), END), 1),
    "device": ((member(name="a", kind="device", major=1, minor=3), END), 0),
    "pipe": ((member(name="a", kind="fifo"), END), 0),
    "hard link": ((member(name="a", kind="hardlink", target="../outside"), END), 0),
    "no kind": ((member(name="a"), END), 0),
    "file twice": ((file("a"), file("a"), END), 2),
    "symbolic link": ((member(name="a", kind="link", target=".."), file("a/outside"), END), 1),
    "file where a folder is": ((folder("a"), file("a"), END), 1),
    "folder where a file is": ((file("a"), folder("a"), END), 1),
    "in a file": ((file("a"), file("a/b"), END), 2),
    "in no folder": ((file("a/b"), END), 1),
    "fewer files": ((file("a"), END), 2),
    "more files": ((file("a"), file("b"), END), 1),
    "no end": ((file("a"),), 1),
    "behind the end": ((END, file("a")), 1),
    "longer than said": ((file("a", b"x" * 500, size=100), END), 1),
    "shorter than said": ((file("a", b"x" * 100, size=500), END), 1),
    "huge": ((file("a", size=1 << 62), END), 1),
    "negative": ((file("a", b"", size=-1), END), 1),
    "a size in words": ((file("a", b"", size="12"), END), 1),
    "a size that is true": ((file("a", b"x", size=True), END), 1),
    "a fraction": ((file("a", b"", size=1.5), END), 1),
    "a mode in words": ((file("a", b"", mode="rwx"), END), 1),
    "head too long": ((LENGTH.pack(1 << 31), b"x" * 4096), 0),
    "no JSON": ((LENGTH.pack(4), b"\xff\xfe\0\1", END), 0),
    "deep JSON": ((LENGTH.pack(60_000), b"[" * 60_000, END), 0),
    "a list": ((LENGTH.pack(2), b"[]", END), 0),
    "a chunk too long": ((head("a", 4), chunk(b"evil!"), WHOLE, END), 1),
    "chunks too long": ((head("a", 4), chunk(b"evi"), chunk(b"ls"), WHOLE, END), 1),
    "a chunk that never comes": ((head("a", 4), LENGTH.pack(1 << 31), b"evil", END), 1),
    "broken off twice": ((head("a", 4), BROKEN_OFF, BROKEN_OFF, END), 1),
    "a tar archive": ((b"evil".ljust(100, b"\0") + b"0000644\0" * 3 + bytes(1024),), 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_stream_is_an_error_and_writes_nothing_elsewhere(
    name: str, tmp_path: Path, outside: Path
) -> None:
    """Given a stream of results that leaves its folder, is not as announced or no stream at all,
    when it is unpacked, then that is an error, and nothing outside the folder is written."""
    members, files = HOSTILE[name]
    with pytest.raises((UnpackError, OSError)):
        unpack(tmp_path / "root", *members, files=files)


def test_more_members_than_were_announced(tmp_path: Path) -> None:
    """Given a stream of results with more files than the ten announced, when it is unpacked, then
    that is an error, and only ten files are there."""
    stream = b"".join(file(f"f{number}", b"") for number in range(11)) + bytes(1 << 20)
    with pytest.raises(UnpackError, match="more files"):
        unpack(tmp_path / "root", stream, files=10, size=1 << 40)
    assert len(list((tmp_path / "root").iterdir())) == 10


def resume(root: Path, *members: bytes, files: int) -> None:
    """Unpacks a stream into what an earlier one has left."""
    stream = b"".join(members)
    unpacker = Unpacker(root, len(stream), files, resumes=True)
    try:
        unpacker.feed(stream)
        unpacker.finish()
    finally:
        unpacker.close()


def test_a_file_goes_on_where_it_ends_and_is_whole(outside: Path) -> None:
    """With its time to the nanosecond, by which a part of it is known."""
    root = outside.parent / "root"
    (root / "a").mkdir(parents=True)
    (root / "a/part").write_bytes(b"first ")
    (root / "a/old").write_bytes(b"something longer")
    part = file("a/part", b"second", offset=6, mtime=7, nanoseconds=5)
    resume(root, folder("a"), part, file("a/old", b"new"), END, files=2)
    assert (root / "a/part").read_bytes() == b"first second"
    assert (root / "a/part").stat().st_mtime_ns == 7 * 10**9 + 5
    assert (root / "a/old").read_bytes() == b"new"


@pytest.mark.parametrize("offset", [3, 9, -1, 1 << 62, True, "5"])
def test_a_file_that_does_not_go_on_where_it_ends_is_refused(outside: Path, offset: object) -> None:
    """Nothing is written into it."""
    root = outside.parent / "root"
    root.mkdir()
    (root / "part").write_bytes(b"first")
    with pytest.raises(UnpackError):
        resume(root, file("part", b"x", offset=offset), END, files=1)
    assert (root / "part").read_bytes() == b"first"


@pytest.mark.parametrize("planted", ["link", "pipe", "folder", "linked folder"])
def test_what_stands_in_the_place_of_a_part_is_not_written_to(outside: Path, planted: str) -> None:
    """A link to another file or folder, or what is no file at all."""
    root = outside.parent / "root"
    root.mkdir()
    if planted == "link":
        (root / "part").symlink_to(outside)
    elif planted == "pipe":
        os.mkfifo(root / "part")
    elif planted == "folder":
        (root / "part").mkdir()
    else:
        (root / "folder").symlink_to(outside.parent)
    name = "folder/outside" if planted == "linked folder" else "part"
    with pytest.raises((UnpackError, OSError)):
        resume(root, file(name), END, files=1)


def test_a_file_that_is_broken_off_is_not_there(outside: Path) -> None:
    """Nor with zeros, nor with what had come of it now or before; the others are whole, in as many
    chunks as they come."""
    root = outside.parent / "root"
    lost = head("lost", 1 << 30) + chunk(b"half") + BROKEN_OFF
    parts = head("whole", 6) + chunk(b"abc") + chunk(b"def") + WHOLE
    unpacker = unpack(root, lost, parts, head("never", 9), BROKEN_OFF, END, files=3, size=1 << 31)
    assert unpacker.broken_off == ["lost", "never"]
    assert {one.name: one.read_bytes() for one in root.iterdir()} == {"whole": b"abcdef"}


def test_what_an_interrupted_stream_has_left_does_not_pass_for_whole(outside: Path) -> None:
    """Given a file of which half has come, when something else is fetched, then that goes to the
    results and the half stays where it is."""
    root, results = outside.parent / "root", outside.parent / "run"
    (root / "deep").mkdir(parents=True)
    unpacker = Unpacker(root, 1 << 20, 1, resumes=True)
    unpacker.feed(head("deep/big", 100) + chunk(b"half"))
    unpacker.close()
    assert not is_whole((root / "deep/big").stat())
    resume(root, file("other", b"other"), END, files=1)
    merge(root, results)
    assert {str(one.relative_to(results)) for one in results.rglob("*")} == {"deep", "other"}
    assert (root / "deep/big").stat().st_size == 4
    rest = head("deep/big", 4)[:-1] + b', "offset": 4}'
    rest = LENGTH.pack(len(rest) - LENGTH.size) + rest[LENGTH.size :]
    resume(root, rest, chunk(b"rest"), WHOLE, END, files=1)
    merge(root, results)
    assert (results / "deep/big").read_bytes() == b"halfrest" and not root.exists()


def test_what_a_pattern_matches_is_collected_once_and_looked_at_once(tmp_path: Path) -> None:
    """Given a folder and a file in it that match alike, then the file is one member; and ten times
    as many files take about ten times as many calls, not a hundred times."""
    nested = tmp_path / "nested" / "ckpt"
    nested.mkdir(parents=True)
    (nested / "ckpt-1").write_text("x")
    found = transfer.CollectedMembers({})
    found.add_paths([("nested", str(tmp_path / "nested" / "**" / "ckpt*"))])
    names = [member.head["name"] for member in found.members]
    assert names == ["ckpt", "ckpt/ckpt-1"]

    def calls(count: int) -> int:
        folder = tmp_path / str(count)
        folder.mkdir()
        for number in range(count):
            (folder / f"{number:04}").touch()
        made, members = 0, transfer.CollectedMembers({})

        def see(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        sys.setprofile(see)
        try:
            members.add_paths([(folder.name, f"{folder}/*")])
        finally:
            sys.setprofile(None)
        assert len(members.members) == count
        return made

    assert calls(1000) < 15 * calls(100)
