"""Results from a host that lies, a disk that hangs, and the oldest Python that is supported."""

from __future__ import annotations

import ast
import asyncio
import errno
import json
import os
import stat
import tarfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from launcher.agent import wire
from launcher.agent.collect import LENGTH, Archive
from launcher.agent.messages import Answer, ArchiveAnswer
from launcher.agent.requests import CollectCredit, CollectEnd, CollectOpen, Question, Request
from launcher.errors import AgentError
from launcher.files import collecting
from launcher.files.collecting import Results, fetch
from launcher.files.unpacking import Unpacker, UnpackError
from launcher.hosts.link import Link
from launcher.plan.model import HostPlan
from launcher.printable import printable
from launcher.run import events as ev
from tests.conftest import REPOSITORY
from tests.testbed.frozen import FreezableDisk

A = TypeVar("A", bound=Answer)
PATHS = ("/results/out",)
LATER = ("extractall", "extract", "unpack_archive", "data_filter", "tar_filter")


def member(**head: Any) -> bytes:
    """A member of the stream, without contents."""
    raw = json.dumps(head).encode()
    return LENGTH.pack(len(raw)) + raw


def folder(name: str) -> bytes:
    """A folder."""
    return member(name=name, kind="folder", mode=0o755)


def file(name: str, data: bytes = b"evil", **head: Any) -> bytes:
    """A file with its contents."""
    rest = {"size": len(data), "mode": 0o644, "mtime": 1, **head}
    return member(name=name, kind="file", **rest) + data


def link(name: str, target: str) -> bytes:
    """A symbolic link."""
    return member(name=name, kind="link", target=target)


END = LENGTH.pack(0)


def unpack(
    root: Path, *members: bytes, files: int = 0, links: int = 0, size: int | None = None
) -> Unpacker:
    """Unpacks a stream in odd chunks; so many files and links are announced."""
    root.mkdir(exist_ok=True)
    stream = b"".join(members)
    total = len(stream) if size is None else size
    unpacker = Unpacker(root, ArchiveAnswer(total, files, links, ()))
    try:
        for at in range(0, len(stream), 777):
            unpacker.feed(stream[at : at + 777])
        unpacker.finish()
    finally:
        unpacker.close()
    return unpacker


class Host:
    """A link to a host whose results are an `Archive`'s or a stream of one's own."""

    def __init__(self, answer: dict[str, Any], read: Callable[[int, int], bytes]) -> None:
        self.settings = SimpleNamespace(host="far")
        self.connected = True
        self.sessions = 1
        self.problems: Any = []
        self.answer = answer
        self._read = read
        self._up_to = self._sent = 0
        self._sink: Callable[[int, bytes], Awaitable[None]] | None = None
        self._work: set[asyncio.Task[None]] = set()

    @classmethod
    def of(cls, path: Path) -> Host:
        """An honest one."""
        archive = Archive([("out", str(path))])
        archive.allow(archive.total)
        return cls(archive.announcement.to_json(), lambda limit, at: archive.pread(limit, at))

    @classmethod
    def lying(cls, stream: bytes, **answer: Any) -> Host:
        """One that sends this."""
        told = {"size": len(stream), "files": 0, "links": 0, "absent": [], **answer}
        return cls(told, lambda limit, at: stream[at : at + limit])

    async def ask(self, question: Question[A], timeout: float = 1.0) -> A:
        """What the agent replies, checked as a link checks it."""
        body = {"problems": self.problems} if isinstance(question, CollectEnd) else self.answer
        answer: A = question.ANSWER.from_json(body, printable)
        return answer

    def send(self, request: Request) -> bool:
        """The launcher asks for bytes."""
        if isinstance(request, CollectOpen):
            self._sent = request.offset
        if isinstance(request, CollectOpen | CollectCredit):
            self._up_to = request.up_to
            work = asyncio.get_running_loop().create_task(self._flow())
            self._work.add(work)
            work.add_done_callback(self._work.discard)
        return True

    def receive(self, number: int, sink: Callable[[int, bytes], Awaitable[None]] | None) -> None:
        """Who gets the bytes."""
        self._sink = sink

    async def _flow(self) -> None:
        while self._sink is not None and self._sent < self._up_to:
            data = self._read(min(wire.DATA_BYTES, self._up_to - self._sent), self._sent)
            if not data:
                return
            at, self._sent = self._sent, self._sent + len(data)
            await self._sink(at, data)
            await asyncio.sleep(0)


def bring(host: Host, target: Path) -> collecting.Fetched:
    """Brings the results of a host."""
    work = fetch(cast(Link, host), PATHS, target, lambda done, total: None)
    return asyncio.run(work)


def results(host: Host, target: Path) -> tuple[bool, list[ev.Event]]:
    """Brings them as a run does; what it feeds to the run."""
    told: list[ev.Event] = []
    plan = cast(HostPlan, SimpleNamespace(name="far", local=False, collect=PATHS))

    async def main() -> bool:
        return await Results(target, told.append, lambda *_: None).bring(plan, cast(Link, host))

    return asyncio.run(main()), told


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Path]:
    """A file beside the results, which must stay what it is."""
    path = tmp_path / "outside"
    path.write_text("mine")
    yield path
    assert path.read_text() == "mine"
    there = {"outside", "root", "home", "source", "ssh", "run"}
    assert {one.name for one in tmp_path.iterdir()} <= there, "something was written elsewhere"


def tree(path: Path) -> Path:
    """Honest results."""
    (path / "deep").mkdir(parents=True)
    (path / "deep/model").write_bytes(os.urandom(3 << 20))
    (path / "table").write_text("1,2\n")
    (path / "tool").write_text("#!/bin/sh\n")
    (path / "tool").chmod(0o4755)
    (path / "latest").symlink_to("deep/model")
    return path


def test_results_on_debians_own_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.11.2 has none of tarfile's filters: the results are here all the same, byte for
    byte, with times and modes but not the set-user-ID bit."""
    for name in [name for name in vars(tarfile) if "filter" in name.lower()]:
        monkeypatch.delattr(tarfile, name)
    monkeypatch.delattr(tarfile.TarFile, "extraction_filter", raising=False)

    def extractall(self: object, path: object = ".", members: object = None) -> None:
        raise AssertionError("it would have been called without a filter")

    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    source, target = tree(tmp_path / "source"), tmp_path / "run/far"
    brought = bring(Host.of(source), target)
    assert (brought.files, brought.folder, brought.refused) == (4, target, ())
    for name in ("deep/model", "table", "tool"):
        there, here = source / name, target / "out" / name
        assert here.read_bytes() == there.read_bytes()
        assert int(here.stat().st_mtime) == int(there.stat().st_mtime)
    assert os.readlink(target / "out/latest") == "deep/model"
    assert stat.S_IMODE((target / "out/tool").stat().st_mode) & ~0o755 == 0
    assert [one.name for one in (tmp_path / "run").iterdir()] == ["far"]


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


def test_whatever_fails_the_results_are_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An exception that nobody thought of is an error of these results: the host keeps them."""

    def feed(self: Unpacker, data: bytes) -> None:
        raise AttributeError("module 'tarfile' has no attribute 'data_filter'")

    monkeypatch.setattr(Unpacker, "feed", feed)
    brought, told = results(Host.of(tree(tmp_path / "source")), tmp_path / "run")
    assert not brought
    missing = [one for one in told if isinstance(one, ev.ResultsMissing)]
    assert [(one.host, one.paths) for one in missing] == [("far", PATHS)]
    assert "data_filter" in missing[0].reason
    assert not any("are in" in one.text for one in told if isinstance(one, ev.NoteAdded))


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


@settings(max_examples=300, deadline=None, derandomize=True)
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


def test_odd_names_come_as_they_are_and_are_shown_printable(tmp_path: Path) -> None:
    """Control characters, direction overrides and bytes that are no UTF-8 are names like any
    other on disk; on the terminal they are harmless."""
    names = ["\x1b]0;evil\x07", "a\nb", "\u202egnp.exe", "\udcff\udcfe", "ünïcödé", "-rf", " "]
    source = tmp_path / "source"
    source.mkdir()
    for name in names:
        (source / name).write_text(name.encode(errors="surrogateescape").hex())
    bring(Host.of(source), tmp_path / "run/far")
    assert {path.name for path in (tmp_path / "run/far/out").iterdir()} == set(names)
    with pytest.raises(UnpackError) as caught:
        unpack(tmp_path / "root", member(name="\x1b[2J\u202e", kind="device"), END)
    assert str(caught.value).isprintable()


ANSWERS: list[dict[str, Any]] = [
    {"size": "12"},
    {"size": -1},
    {"size": 0},
    {"size": None},
    {"size": 1 << 70},
    {"files": 1.5},
    {"files": 7},
    {"links": []},
    {"absent": "no list"},
    {"absent": [1]},
]


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_a_hostile_announcement_is_an_error(answer: dict[str, Any], tmp_path: Path) -> None:
    """The host's answer is not believed to be of any type."""
    brought, told = results(Host.lying(END, **answer), tmp_path / "run")
    assert not brought
    assert [type(one) for one in told] == [ev.ResultsMissing]


@pytest.mark.parametrize("problems", [None, 7, "text", [{"a": 1}]])
def test_hostile_problems_are_an_error(problems: Any, tmp_path: Path) -> None:
    """What the host says at the end is not believed to be of any type either."""
    host = Host.lying(END)
    host.problems = problems
    assert not results(host, tmp_path / "run")[0]


def test_a_host_that_sends_more_than_was_asked_for(tmp_path: Path) -> None:
    """What it pours out does not pile up in memory: it is an error."""

    class Flood(Host):
        async def _flow(self) -> None:
            data = bytes(1 << 20)
            for at in range(0, 64 << 20, len(data)):
                if self._sink is not None:
                    await self._sink(at, data)

    brought, told = results(
        Flood({**Host.lying(END).answer, "size": 1 << 40}, lambda limit, at: b""), tmp_path
    )
    assert not brought
    assert "more than was asked for" in str(told[-1])


def test_an_incomplete_copy_is_not_called_complete(tmp_path: Path) -> None:
    """What came of results that are not whole lies in a folder that says so, and a second try
    does not stumble over it."""
    for _ in range(2):
        assert not results(Host.lying(file("a") + file("b"), files=3), tmp_path / "run")[0]
    assert results(Host.lying(file("a") + END, files=1), tmp_path / "run")[0]
    found = {one.name for one in (tmp_path / "run/collected").iterdir()}
    assert found == {"far", "far.partial", "far.partial-2"}


def test_a_disk_that_hangs_holds_up_nothing_else(
    testbed_possible: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the disk that results go to is frozen, the loop turns; they are given up after the
    patience, and come whole when the disk comes back in time."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "big").write_bytes(os.urandom(24 << 20))
    with FreezableDisk(tmp_path / "image", tmp_path / "disk") as disk:
        longest = asyncio.run(_bring_frozen(Host.of(source), disk, thaw=True))
        assert longest < 1.0
        copy = disk.mountpoint / "run/far/out/big"
        assert copy.read_bytes() == (source / "big").read_bytes()
        monkeypatch.setattr(collecting, "PATIENCE", 0.5)
        with pytest.raises(AgentError, match="the disk on this machine stalled"):
            asyncio.run(_bring_frozen(Host.of(source), disk, thaw=False))
        disk.thaw()
        deadline = time.monotonic() + 60
        while any(thread.name == "unpack" for thread in threading.enumerate()):
            assert time.monotonic() < deadline, "the thread did not end with the disk's return"
            time.sleep(0.05)


async def _bring_frozen(host: Host, disk: FreezableDisk, *, thaw: bool) -> float:
    """Brings to a frozen disk; the longest time between two turns of the loop."""
    disk.freeze()
    target = disk.mountpoint / "run/far"
    work = asyncio.create_task(fetch(cast(Link, host), PATHS, target, lambda done, total: None))
    longest, last = 0.0, time.monotonic()
    for _ in range(100):
        await asyncio.sleep(0.01)
        longest, last = max(longest, time.monotonic() - last), time.monotonic()
    if thaw:
        assert not work.done(), "it was to hang"
        await asyncio.to_thread(disk.thaw)
    await work
    return longest
