"""Results of hostile hosts: what they announce, send and leave out."""

from __future__ import annotations

import asyncio
import os
import stat
import tarfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, TypeVar, cast

import pytest

from launcher.agent import wire
from launcher.agent.collect import Archive
from launcher.agent.messages import Answer
from launcher.agent.requests import CollectCredit, CollectEnd, CollectOpen, Question, Request
from launcher.errors import AgentError
from launcher.files import collecting
from launcher.files.collecting import Results, fetch
from launcher.files.unpacking import Unpacker, UnpackError
from launcher.hosts.link import Link
from launcher.plan.model import HostPlan
from launcher.printable import printable
from launcher.run import events as ev
from tests.attacks.result_streams import END, file, member, unpack
from tests.patience import wait_until
from tests.testbed.frozen import FreezableDisk

A = TypeVar("A", bound=Answer)
PATHS = ("/results/out",)


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
    def of(cls, path: Path) -> Self:
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


class _CutWhileListing(Host):
    """The connection is lost when the host has listed its results for minutes, and comes back."""

    waited = 0.0

    async def ask(self, question: Question[A], timeout: float = 1.0) -> A:
        """Fails the first time."""
        if self.sessions == 1:
            self.waited = 3 * collecting.PATIENCE
            self.connected = False
            asyncio.get_running_loop().call_later(0.3, self._reconnect)
            raise AgentError("far", "the connection was lost")
        return await super().ask(question, timeout)

    def _reconnect(self) -> None:
        self.connected = True
        self.sessions += 1


def test_a_cut_after_minutes_of_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results are given up a minute after the cut, not a minute after the beginning."""
    host = _CutWhileListing.of(tree(tmp_path / "source"))
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + host.waited)
    monkeypatch.setattr(collecting, "time", clock)
    assert bring(host, tmp_path / "far").files == 4


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
        wait_until(
            lambda: not any(thread.name == "unpack" for thread in threading.enumerate()),
            "the thread has ended with the disk's return",
        )


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
