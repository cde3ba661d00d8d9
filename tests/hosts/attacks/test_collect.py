"""Results of hostile hosts: what they announce, send and leave out."""

from __future__ import annotations

import asyncio
import os
import stat
import tarfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from launcher.errors import AgentError
from launcher.files import collecting
from launcher.files.collecting import Results, fetch
from launcher.files.unpacking import Unpacker, UnpackError
from launcher.hosts import bootstrap
from launcher.hosts.link import Link
from launcher.hosts.programs import HostProgram
from launcher.hosts.transport import Transport
from launcher.on_host.pipe import LENGTH, Pipe
from launcher.on_host.transfer import PIECE, collect
from launcher.plan.run_plan import HostPlan
from launcher.run import events as ev
from tests.support.patience import wait_until
from tests.support.result_streams import END, block, chunk, file, member, unpack
from tests.support.short_programs import Running, message
from tests.testbed.frozen import FreezableDisk

PATHS = ("/results/out",)


class Session(Transport):
    """A session of the program that fetches results, behind its marker and its first message."""

    def __init__(self, nonce: str, talk: Callable[[], bytes]) -> None:
        self._said = [bootstrap.marker(nonce) + b"\n" + bootstrap.EVERY_BYTE + message({})]
        self._talk = talk
        self.written = bytearray()

    async def read(self) -> bytes:
        """The next bytes."""
        return self._said.pop() if self._said else await asyncio.to_thread(self._talk)

    def write(self, data: bytes) -> None:
        """Hears the launcher."""
        self.written += data

    async def drain(self) -> None: ...

    async def aclose(self) -> None: ...

    @property
    def complaint(self) -> str:
        return ""


class Host:
    """A link to a host whose program says this."""

    def __init__(self, *said: bytes) -> None:
        self.settings = SimpleNamespace(host="far")
        self.connected = True
        self.sessions = 1
        self.said = [*said]

    @classmethod
    def lying(cls, stream: bytes, problems: object = (), **answer: Any) -> Host:
        """One whose stream, announcement and last word are these."""
        told = {"size": len(stream), "files": 0, "links": [], "absent": [], "present": 0, **answer}
        return cls(message(told), block(stream), block(b""), message({"problems": problems}))

    def close(self) -> None:
        """Ends what it has begun."""

    async def start_program(self) -> HostProgram:
        """A session in which the host says what it has to say."""

        async def open_session(nonce: str) -> Session:
            return Session(nonce, lambda: self.said.pop(0) if self.said else b"")

        return await HostProgram.start("run", "far", open_session)


class Honest(Host):
    """A link to a host with the real program."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.programs: list[Running] = []

    async def start_program(self) -> HostProgram:
        """Its work is done in a thread here."""
        running = Running(self._work).__enter__()
        self.programs.append(running)

        async def open_session(nonce: str) -> Session:
            session = Session(nonce, running.read_some)

            def write(data: bytes) -> None:
                if session.written:  # its first is its own source
                    running.write(data)
                session.written += data

            async def hang_up() -> None:
                running.hang_up()

            session.write = write  # type: ignore[method-assign]
            session.aclose = hang_up  # type: ignore[method-assign]
            return session

        return await HostProgram.start("run", "far", open_session)

    def _work(self, pipe: Pipe) -> None:
        collect(pipe, [(name, str(self._path)) for name, _ in pipe.receive()["paths"]])

    def close(self) -> None:
        """Ends what it has begun."""
        for running in self.programs:
            running.__exit__(None, None, None)


def bring(host: Host, target: Path) -> collecting.Fetched:
    """Brings the results of a host."""
    work = fetch(cast(Link, host), PATHS, target, lambda done, total: None)
    try:
        return asyncio.run(work)
    finally:
        host.close()


def results(host: Host, target: Path) -> tuple[bool, list[ev.Event]]:
    """Brings them as a run does; what it feeds to the run."""
    told: list[ev.Event] = []
    plan = cast(HostPlan, SimpleNamespace(name="far", local=False, collect=PATHS))

    async def main() -> bool:
        return await Results(target, told.append, lambda *_: None).bring(plan, cast(Link, host))

    try:
        return asyncio.run(main()), told
    finally:
        host.close()


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
    """Given Python 3.11.2, whose `tarfile` has no filters, when results are fetched, then contents
    and times are as on the host, without the set-user-ID bit, and a link is refused."""
    for name in [name for name in vars(tarfile) if "filter" in name.lower()]:
        monkeypatch.delattr(tarfile, name)
    monkeypatch.delattr(tarfile.TarFile, "extraction_filter", raising=False)

    def extractall(self: object, path: object = ".", members: object = None) -> None:
        raise AssertionError("it would have been called without a filter")

    monkeypatch.setattr(tarfile.TarFile, "extractall", extractall)
    source, target = tree(tmp_path / "source"), tmp_path / "run/far"
    brought = bring(Honest(source), target)
    assert (brought.files, brought.folder) == (3, target)
    assert brought.refused == ("out/latest, a symbolic link",)
    for name in ("deep/model", "table", "tool"):
        there, here = source / name, target / "out" / name
        assert here.read_bytes() == there.read_bytes()
        assert int(here.stat().st_mtime) == int(there.stat().st_mtime)
    assert not (target / "out/latest").is_symlink()
    assert stat.S_IMODE((target / "out/tool").stat().st_mode) & ~0o755 == 0
    assert [one.name for one in (tmp_path / "run").iterdir()] == ["far"]


def test_whatever_fails_the_results_are_said_to_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an unpacker that fails as nobody thought of, when results are fetched, then they count
    as missing with that reason, so that the host keeps them, and no note says where they are."""

    def feed(self: Unpacker, data: bytes) -> None:
        raise AttributeError("module 'tarfile' has no attribute 'data_filter'")

    monkeypatch.setattr(Unpacker, "feed", feed)
    brought, told = results(Honest(tree(tmp_path / "source")), tmp_path / "run")
    assert not brought
    missing = [one for one in told if isinstance(one, ev.ResultsMissing)]
    assert [(one.host, one.paths) for one in missing] == [("far", PATHS)]
    assert "data_filter" in missing[0].reason
    assert not any("are in" in one.text for one in told if isinstance(one, ev.NoteAdded))


def test_odd_names_come_as_they_are_and_are_shown_printable(tmp_path: Path) -> None:
    """Given file names with control characters, direction overrides and bytes that are no UTF-8,
    when results come, then they keep these names on the disk, and an error shows them printable."""
    names = ["\x1b]0;evil\x07", "a\nb", "\u202egnp.exe", "\udcff\udcfe", "ünïcödé", "-rf", " "]
    source = tmp_path / "source"
    source.mkdir()
    for name in names:
        (source / name).write_text(name.encode(errors="surrogateescape").hex())
    bring(Honest(source), tmp_path / "run/far")
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
    {"links": 0},
    {"links": [{}]},
    {"absent": ["x"] * 101},
    {"absent": "no list"},
    {"absent": [1]},
    {"present": -1},
    {"present": None},
]


@pytest.mark.parametrize("answer", ANSWERS, ids=str)
def test_a_hostile_announcement_is_an_error(answer: dict[str, Any], tmp_path: Path) -> None:
    """Given a host that announces its results with values of a wrong type or size, when they are
    fetched, then they are missing, and nothing else is reported."""
    brought, told = results(Host.lying(END, **answer), tmp_path / "run")
    assert not brought
    assert [type(one) for one in told] == [ev.ResultsMissing]


@pytest.mark.parametrize("problems", [None, 7, "text", [{"a": 1}]])
def test_hostile_problems_are_an_error(problems: Any, tmp_path: Path) -> None:
    """Given a host whose last word on its results is no list of texts, when they are fetched, then
    they do not count as fetched."""
    assert not results(Host.lying(END, problems), tmp_path / "run")[0]


def test_a_host_that_sends_more_than_was_asked_for(tmp_path: Path) -> None:
    """Given a host that pours out 64 MiB of a huge file, when the launcher has asked for less, then
    the results are missing with that reason. So nothing piles up in memory."""

    size = 1 << 40
    told = {"size": size, "files": 1, "links": [], "absent": [], "present": 0}
    head = member(name="big", kind="file", size=size - 200, mode=0o644, mtime=1)
    filled = block(chunk(bytes(PIECE - LENGTH.size)))
    for flood in ([block(bytes(1 << 20))] * 64, [filled * 256]):
        brought, told_here = results(Host(message(told), block(head), *flood), tmp_path)
        assert not brought
        assert "sent more than requested" in str(told_here[-1])


def test_an_incomplete_copy_is_not_called_complete(tmp_path: Path) -> None:
    """Given two fetches that break off, when a third one succeeds, then its copy alone has the
    host's name, and each incomplete one lies in a folder called partial."""
    for _ in range(2):
        assert not results(Host.lying(file("a") + file("b"), files=3), tmp_path / "run")[0]
    brought, told = results(Host.lying(file("a") + END, files=1), tmp_path / "run")
    assert brought, told
    found = {one.name for one in (tmp_path / "run/collected").iterdir()}
    assert found == {"far", "far.partial", "far.partial-2"}


class _CutWhileListing(Honest):
    """The connection is lost when the host has listed its results for minutes, and comes back."""

    waited = 0.0

    async def start_program(self) -> HostProgram:
        """Fails the first time."""
        if self.sessions == 1:
            self.waited = 3 * collecting.PATIENCE
            self.connected = False
            asyncio.get_running_loop().call_later(0.3, self._reconnect)
            raise AgentError("far", "the connection was lost")
        return await super().start_program()

    def _reconnect(self) -> None:
        self.connected = True
        self.sessions += 1


def test_a_cut_after_minutes_of_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a host that has listed its results for three times the launcher's patience, when its
    link is cut and comes back, then the results are fetched: patience begins with the cut."""
    host = _CutWhileListing(tree(tmp_path / "source"))
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + host.waited)
    monkeypatch.setattr(collecting, "time", clock)
    assert bring(host, tmp_path / "far").files == 3


def test_a_disk_that_hangs_holds_up_nothing_else(
    testbed_possible: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given results on their way to a disk that hangs, when it answers in time, then they are
    whole, else they are given up after the patience; and the event loop turns all the while."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "big").write_bytes(os.urandom(24 << 20))
    with FreezableDisk(tmp_path / "image", tmp_path / "disk") as disk:
        host = Honest(source)
        asyncio.run(_bring_frozen(host, disk, thaw=True))
        host.close()
        copy = disk.mountpoint / "run/far/out/big"
        assert copy.read_bytes() == (source / "big").read_bytes()
        monkeypatch.setattr(collecting, "PATIENCE", 0.5)
        host = Honest(source)
        with pytest.raises(UnpackError, match="the disk on this machine stalled"):
            asyncio.run(_bring_frozen(host, disk, thaw=False))
        host.close()
        disk.thaw()
        wait_until(
            lambda: not any(thread.name == "unpack" for thread in threading.enumerate()),
            "the thread has ended with the disk's return",
        )


async def _bring_frozen(host: Host, disk: FreezableDisk, *, thaw: bool) -> None:
    """Brings to a frozen disk; it thaws when the loop has turned a hundred times."""
    disk.freeze()
    target = disk.mountpoint / "run/far"
    work = asyncio.create_task(fetch(cast(Link, host), PATHS, target, lambda done, total: None))
    for _ in range(100):
        await asyncio.sleep(0.01)
    if thaw:
        assert not work.done(), "it was to hang"
        await asyncio.to_thread(disk.thaw)
    await work
