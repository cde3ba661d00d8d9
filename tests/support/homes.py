"""The app on its home screen, and runs that it finds."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from launcher.cluster.read import loads
from launcher.run import events as ev
from launcher.run.machine import RunStateMachine
from launcher.store.runs import RunFolder
from tests.support.cluster_texts import SLEEPERS
from tests.support.fakes import write_end
from tests.support.screens import shows
from tests.support.streams import changes
from tui.app import TfmuxApp
from tui.run_clients import RunClients
from tui.screens.home import HomeScreen

TEXT = SLEEPERS.format(name="mine")


@asynccontextmanager
async def home(*files: Path, size: tuple[int, int] = (160, 45)) -> AsyncIterator[Pilot[int]]:
    """The app on its home screen; every run that it opened is ended afterwards."""
    clients = RunClients()
    app = TfmuxApp(pages=[HomeScreen(clients, files)])
    try:
        async with app.run_test(size=size, notifications=True) as pilot:
            await shows(pilot, "demos")
            yield pilot
    finally:
        clients.close()


def begun_run(name: str, *events: ev.Event) -> RunFolder:
    """A run's folder as a launcher leaves it that has died behind the last of the events."""
    cluster = loads(TEXT, "mine.toml", Path("/srv"))
    folder = RunFolder.create(f"{name}-20261120-183002-{os.urandom(2).hex()}", TEXT, cluster)
    machine = RunStateMachine(cluster, folder.run_id)
    for event in (ev.Begin(1000.0), *events):
        machine.handle(event)
    folder.events.write_bytes(b"".join(changes(machine, 1001.0)))
    return folder


def ended_run(name: str, **fields: Any) -> RunFolder:
    """A run's folder as a launcher leaves it at the end of the run."""
    folder = begun_run(name)
    write_end(folder, 1000.0, 1062.0, **fields)
    return folder


@pytest.fixture
def active() -> Iterator[Callable[[str], RunFolder]]:
    """Makes runs that have a launcher, and two lines of log."""
    locks = []

    def make(name: str) -> RunFolder:
        folder = begun_run(name, ev.HostUp(1000.5, "localhost"))
        for index in range(2):
            (folder.path / f"worker-{index}.log").write_text(f"{name} {index}\n")
        lock = folder.take_lock()
        assert lock is not None
        locks.append(lock)
        return folder

    yield make
    for lock in locks:
        os.close(lock)
