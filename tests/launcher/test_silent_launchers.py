"""Launchers that say nothing, too much, or not what a client knows."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.ids import TaskId
from launcher.run.snapshot import Snapshot
from launcher.run.states import RunPhase
from launcher.session import control_connection, launcher_link
from launcher.session.client import RunClient
from launcher.session.launcher_process import LauncherProcess
from launcher.store.runs import RunFolder
from tests.launcher.snapshots import wait

WORKER = TaskId("worker", 0)


class Silent(LauncherProcess):
    """A launcher process that never says anything."""

    def __init__(self) -> None:
        self.link, self.theirs = socket.socketpair()
        self.thread = threading.current_thread().name

    def order(self, order: dict[str, Any], lock: int | None = None) -> socket.socket:
        if lock is not None:
            os.close(lock)
        return self.link


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Silent]]:
    """Launcher processes that clients start, and that never say anything."""
    started: list[Silent] = []

    def start() -> Silent:
        started.append(Silent())
        return started[-1]

    monkeypatch.setattr(launcher_link, "LauncherProcess", start)
    yield started
    for process in started:
        process.theirs.close()


@contextmanager
def followed(folder: Path, snapshot: Snapshot) -> Iterator[tuple[RunClient, socket.socket]]:
    """A client and the launcher's end of its connection."""
    here, there = socket.socketpair()
    run = RunFolder(folder / snapshot.run_id)
    run.path.mkdir()
    client = RunClient(run, snapshot, here)
    with there:
        try:
            yield client, there
        finally:
            client.close()


def snapshot_of(state: RunPhase, since: float, **fields: Any) -> Snapshot:
    """A run without hosts."""
    return Snapshot("seen-1", "seen", state, (), (), since, **fields)


@pytest.mark.large
def test_a_kill_that_lasts_starts_one_other_launcher_at_most(
    tmp_path: Path, silent: list[Silent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each one that takes the run over begins the kill anew: a host that answers late would never
    have its time."""
    monkeypatch.setattr(launcher_link, "_KILL_SECONDS", 0.05)
    past = time.time() - 60
    killing = snapshot_of(RunPhase.KILLING, past, kill_deadline=past)
    with followed(tmp_path, killing) as (client, _):
        client.kill_all()
        wait(client, lambda _: silent, "another launcher")
        end = time.monotonic() + 1.0  # twenty times as long as it takes to start the next
        while time.monotonic() < end:
            assert len(silent) == 1
            time.sleep(0.01)


@pytest.mark.large
def test_only_the_clients_own_thread_connects_and_calls_listeners(
    tmp_path: Path, silent: list[Silent]
) -> None:
    """Another one that resumed the run closed the connection that this one had just made."""
    told = set()
    with followed(tmp_path, snapshot_of(RunPhase.RUNNING, 1.0)) as (client, theirs):
        client.subscribe(lambda _: told.add(threading.current_thread().name))
        theirs.close()
        wait(client, lambda _: client.unsupervised, "unsupervised")
        client.restart(WORKER)
        wait(client, lambda s: any("not sent" in note for note in s.notes), "a note")
        client.resume()
        assert not client.unsupervised
        wait(client, lambda _: silent, "another launcher")
    assert [process.thread for process in silent] == ["client"]
    assert told == {"client"}


def test_a_launcher_that_sends_a_line_without_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is no longer read, and it is said why."""
    monkeypatch.setattr(control_connection, "LONGEST_LINE", 1 << 20)
    with followed(tmp_path, snapshot_of(RunPhase.RUNNING, 1.0)) as (client, theirs):
        with pytest.raises(OSError):
            for _ in range(1 << 10):
                theirs.sendall(b"x" * (1 << 16))
        seen = wait(client, lambda s: s.notes, "a note")
        assert "longer than 1048576 bytes" in seen.notes[0]


@pytest.mark.parametrize(
    "line", [b"null", b'{"changes": []}', b'{"changes": {"tasks": {"7": {}}}}', b"[" * 100_000]
)
def test_a_launcher_that_sends_no_message_is_left(tmp_path: Path, line: bytes) -> None:
    """The client goes on, and says so."""
    with followed(tmp_path, snapshot_of(RunPhase.RUNNING, 1.0)) as (client, theirs):
        theirs.sendall(line + b"\n")
        seen = wait(client, lambda s: s.notes, "a note")
        assert "sends what this program does not know" in seen.notes[0]
        wait(client, lambda _: client.unsupervised, "unsupervised")
