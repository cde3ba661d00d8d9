"""Preparation of a launch before the first task starts."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from launcher.errors import AgentError
from launcher.files import staging
from launcher.files.listing import Tree
from launcher.hosts.programs import HostProgram
from launcher.run import events as ev
from launcher.session.preparation import LaunchPreparation
from launcher.subprocesses import Workers
from tests.support.cluster_texts import STAGED
from tests.support.patience import PATIENCE
from tests.support.shells import FakeShell
from tests.support.short_programs import Talker, message


class Reached:
    """A host that has all contents and counts how often it builds the trees."""

    connected = True
    sessions = 1

    def __init__(self) -> None:
        self.built = 0
        self.talkers: list[Talker] = []
        self.asked = asyncio.Event()

    async def start_program(self) -> HostProgram:
        """Files come."""
        self.built += 1
        said: list[dict[str, Any]] = [{}, {"missing": []}, {"built": True}]

        async def open_session(nonce: str) -> Talker:
            self.asked.set()
            self.talkers.append(Talker(nonce, *map(message, said)))
            return self.talkers[-1]

        return await HostProgram.start("staged-1", "far", open_session)


async def test_files_that_go_to_a_host_again_go_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host was cut off and is back while its files are still being read here: the trees are
    built once. Built a second time they would be gone for a moment, after tasks have started."""
    may_read = threading.Event()

    def read(tree: Tree) -> staging.Manifest:
        may_read.wait(PATIENCE)
        return staging.Manifest((), {})

    monkeypatch.setattr(staging, "read_tree", read)
    link: Any = Reached()
    preparation, told = prepared(link, tmp_path)
    twice = [asyncio.create_task(preparation.stage("far")) for _ in range(2)]
    await asyncio.sleep(0)
    may_read.set()
    await asyncio.wait(twice)
    assert link.built == 1
    assert [type(event) for event in told] == [ev.Staged]


def prepared(link: Any, folder: Path) -> tuple[LaunchPreparation, list[ev.Event]]:
    """The preparation of a run with nothing to send, on one host, and what it tells."""
    shell: Any = FakeShell(STAGED, folder, {"far": link})
    return LaunchPreparation(shell), shell.fed


async def test_the_program_that_was_begun_takes_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program is started while other hosts are logged in to; but a program that belongs to a
    connection which was cut is ended, and another one takes the files."""
    monkeypatch.setattr(staging, "read_tree", lambda tree: staging.Manifest((), {}))
    link: Any = Reached()
    preparation, told = prepared(link, tmp_path)
    preparation.begin_program("far")
    await asyncio.create_task(preparation.stage("far"))
    assert link.built == 1
    preparation.begin_program("far")
    await asyncio.sleep(0)
    link.sessions = 2
    await asyncio.create_task(preparation.stage("far"))
    assert link.built == 3
    assert [type(event) for event in told] == [ev.Staged, ev.Staged]
    assert all(talker.closed for talker in link.talkers)


async def test_a_program_that_nobody_needed_is_ended(tmp_path: Path) -> None:
    """The run was killed while it connected."""
    link: Any = Reached()
    preparation, _ = prepared(link, tmp_path)
    preparation.begin_program("far")
    await link.asked.wait()
    await preparation.aclose()
    assert [talker.closed for talker in link.talkers] == [True]


async def test_a_program_that_cannot_be_started_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its failure counts where the files are due, and not for ever."""
    monkeypatch.setattr(staging, "read_tree", lambda tree: staging.Manifest((), {}))
    link: Any = Reached()
    works = link.start_program

    async def fail() -> HostProgram:
        raise AgentError("far", "no more processes there")

    preparation, told = prepared(link, tmp_path)
    link.start_program = fail
    preparation.begin_program("far")
    await asyncio.create_task(preparation.stage("far"))
    link.start_program = works
    await asyncio.create_task(preparation.stage("far"))
    assert [type(event) for event in told] == [ev.HostRefused, ev.Staged]


async def test_a_machine_without_threads_refuses_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launch ends with a sentence; it was taken for a fault of the launcher."""

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    asyncio.get_running_loop().set_default_executor(Workers())  # as the launcher's loop
    link: Any = Reached()
    preparation, told = prepared(link, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        await preparation.stage("far")
    (refused,) = told
    assert isinstance(refused, ev.HostRefused) and refused.host == "far"
    assert "starts no more threads" in refused.reason and not link.built
