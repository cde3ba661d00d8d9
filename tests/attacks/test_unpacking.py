"""Unpacking of hostile streams of results: an error, and nothing written elsewhere."""

from __future__ import annotations

import ast
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from launcher.agent.collect import LENGTH
from launcher.files.unpacking import UnpackError
from tests.attacks.result_streams import END, file, folder, link, member, unpack
from tests.budgets import examples
from tests.paths import REPOSITORY

LATER = ("extractall", "extract", "unpack_archive", "data_filter", "tar_filter")


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A file beside the results, which must stay what it is."""
    path = tmp_path / "outside"
    path.write_text("mine")
    yield path
    assert path.read_text() == "mine"
    there = {"outside", "root", "home", "source", "ssh", "run"}
    assert {one.name for one in tmp_path.iterdir()} <= there, "something was written elsewhere"


@pytest.mark.large
def test_nothing_is_unpacked_by_what_the_oldest_python_lacks() -> None:
    """Nobody in the launching machine's packages calls `tarfile`'s or `shutil`'s unpacking, whose
    filters came with Python 3.11.4."""
    found = []
    for package in ("launcher", "tui"):
        for path in (REPOSITORY / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and node.attr in LATER:
                    found.append(f"{path}:{node.lineno}")
    assert found == []


HOSTILE: dict[str, tuple[tuple[bytes, ...], int, int]] = {
    "upwards": ((file("../outside"), END), 1, 0),
    "upwards inside": ((folder("a"), file("a/../../outside"), END), 1, 0),
    "absolute": ((file("/tmp/evil"), END), 1, 0),
    "dot": ((file("."), END), 1, 0),
    "empty": ((file(""), END), 1, 0),
    "empty component": ((folder("a"), file("a//b"), END), 1, 0),
    "nul": ((file("a\0b"), END), 1, 0),
    "no name at all": ((file("\ud800"), END), 1, 0),
    "long component": ((file("n" * 256), END), 1, 0),
    "long path": ((file("a/" * 3000 + "b"), END), 1, 0),
    "device": ((member(name="a", kind="device", major=1, minor=3), END), 0, 0),
    "pipe": ((member(name="a", kind="fifo"), END), 0, 0),
    "hard link": ((member(name="a", kind="hardlink", target="../outside"), END), 0, 0),
    "no kind": ((member(name="a"), END), 0, 0),
    "file twice": ((file("a"), file("a"), END), 2, 0),
    "file and link of one name": ((file("a"), link("a", "b"), END), 1, 1),
    "through a link": ((link("a", ".."), file("a/outside"), END), 1, 1),
    "link, link of that name": ((link("a", "b"), link("a", "c"), END), 0, 2),
    "file where a folder is": ((folder("a"), file("a"), END), 1, 0),
    "folder where a file is": ((file("a"), folder("a"), END), 1, 0),
    "in a file": ((file("a"), file("a/b"), END), 2, 0),
    "in no folder": ((file("a/b"), END), 1, 0),
    "fewer files": ((file("a"), END), 2, 0),
    "more files": ((file("a"), file("b"), END), 1, 0),
    "more links": ((link("a", "b"), link("c", "b"), END), 0, 1),
    "fewer links": ((END,), 0, 1),
    "no end": ((file("a"),), 1, 0),
    "behind the end": ((END, file("a")), 1, 0),
    "longer than said": ((file("a", b"x" * 500, size=100), END), 1, 0),
    "shorter than said": ((file("a", b"x" * 100, size=500), END), 1, 0),
    "huge": ((file("a", size=1 << 62), END), 1, 0),
    "negative": ((file("a", b"", size=-1), END), 1, 0),
    "a size in words": ((file("a", b"", size="12"), END), 1, 0),
    "a size that is true": ((file("a", b"x", size=True), END), 1, 0),
    "a fraction": ((file("a", b"", size=1.5), END), 1, 0),
    "a mode in words": ((file("a", b"", mode="rwx"), END), 1, 0),
    "head too long": ((LENGTH.pack(1 << 31), b"x" * 4096), 0, 0),
    "no JSON": ((LENGTH.pack(4), b"\xff\xfe\0\1", END), 0, 0),
    "deep JSON": ((LENGTH.pack(60_000), b"[" * 60_000, END), 0, 0),
    "a list": ((LENGTH.pack(2), b"[]", END), 0, 0),
    "a tar archive": ((b"evil".ljust(100, b"\0") + b"0000644\0" * 3 + bytes(1024),), 1, 0),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_stream_is_an_error_and_writes_nothing_elsewhere(
    name: str, tmp_path: Path, outside: Path
) -> None:
    """Whatever is not as announced ends the unpacking."""
    members, files, links = HOSTILE[name]
    with pytest.raises((UnpackError, OSError)):
        unpack(tmp_path / "root", *members, files=files, links=links)


@pytest.mark.parametrize(
    "links",
    [
        [("a", "/etc/passwd")],
        [("a", "..")],
        [("a", "../outside")],
        [("d/a", "../../outside")],
        [("d/a", "../d/../../outside")],
        [("a", ".."), ("b", "a/outside")],
        [("a", "."), ("b", "a/../outside")],
        [("a", "d"), ("b", "a/../../outside")],
        [("a", "d/e"), ("b", "a/../../../outside")],
        [("b", "nowhere/../../outside"), ("nowhere", ".")],
        [("a", "./" * 2100 + "../outside")],
        [("a", "d/../" * 900 + "../outside")],
        [("a", "x" * 5000)],
        [("a", "")],
        [("a", "d\0/b")],
    ],
)
def test_links_that_lead_outside_are_left_out(
    links: list[tuple[str, str]], tmp_path: Path, outside: Path
) -> None:
    """Chains, steps upwards, targets beyond PATH_MAX: the last one is never made, and what is
    made leads nowhere else."""
    root = tmp_path / "root"
    members = [folder("d"), folder("d/e"), *(link(*one) for one in links), END]
    unpacker = unpack(root, *members, links=len(links))
    refused = [text.split()[2] for text in unpacker.refused]
    assert set(refused) & {links[0][0], links[-1][0]}
    assert_inside(root)


def test_the_walk_out_of_pythons_own_filter(tmp_path: Path, outside: Path) -> None:
    """Folders with long names and short links to them, until a path is longer than PATH_MAX and
    `realpath` gives up: here each step is opened, so nothing is believed."""
    root, long = tmp_path / "root", "d" * 247
    members, path, short = [], "", ""
    links = 0
    for letter in "abcdefghijklmnop":
        members += [folder(f"{path}{long}")] if len(path) < 3500 else []
        members.append(link(f"{short}{letter}", long))
        path, short, links = f"{path}{long}/", f"{short}{letter}/", links + 1
    escape = f"{short}{'l' * 254}"
    members += [link(escape, "../" * 16), link("escape", f"{escape}/../../outside"), END]
    with pytest.raises((UnpackError, OSError)):
        unpack(root, *members, links=links + 2)
    assert_inside(root)


def assert_inside(root: Path) -> None:
    """Every link below `root` leads to a place below `root`, or in a circle."""
    for base, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = os.path.join(base, name)
            if os.path.islink(path) and not _is_circle(path):
                real = os.path.realpath(path)
                assert real == str(root) or real.startswith(f"{root}/"), (path, os.readlink(path))


def _is_circle(path: str) -> bool:
    try:
        os.stat(path)
    except OSError as error:
        return error.errno == errno.ELOOP
    return False


_STEP = st.sampled_from(["a", "b", "c", ".", "..", ""])
_TARGET = st.lists(_STEP, min_size=1, max_size=6).map("/".join)
_NAME = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)


@pytest.mark.large
@examples(100)
@given(
    folders=st.lists(_NAME, max_size=5, unique=True).map(lambda names: sorted(names, key=len)),
    links=st.lists(st.tuples(_NAME, _TARGET), max_size=6),
)
def test_no_set_of_links_leads_outside(
    tmp_path_factory: pytest.TempPathFactory, folders: list[str], links: list[tuple[str, str]]
) -> None:
    """Any folders, any links: what was made before an error leads nowhere else either."""
    root = tmp_path_factory.mktemp("links").resolve() / "root"
    members = [*map(folder, folders), *(link(*one) for one in links), END]
    try:
        unpack(root, *members, links=len(links))
    except (UnpackError, OSError):
        pass
    assert_inside(root)


def test_a_million_members_where_ten_were_announced(tmp_path: Path) -> None:
    """It ends at the eleventh."""
    stream = b"".join(file(f"f{number}", b"") for number in range(11)) + bytes(1 << 20)
    with pytest.raises(UnpackError, match="more files"):
        unpack(tmp_path / "root", stream, files=10, size=1 << 40)
    assert len(list((tmp_path / "root").iterdir())) == 10


def test_links_that_fill_the_memory(tmp_path: Path) -> None:
    """Targets are remembered until the end, but not without bound."""
    many = [link(f"l{number}", "x" * 4000) for number in range(5000)]
    with pytest.raises(UnpackError, match="links"):
        unpack(tmp_path / "root", *many, links=1 << 40, size=1 << 50)
