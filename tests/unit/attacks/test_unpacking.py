"""Unpacking of hostile streams of results: an error, and nothing written elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from launcher.files.collecting import merge
from launcher.files.unpacking import Unpacker, UnpackError, is_whole
from launcher.on_host.pipe import LENGTH
from launcher.on_host.transfer import BROKEN_OFF, WHOLE
from tests.support.result_streams import END, chunk, file, folder, member, unpack


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
