"""A launcher process that is stopped at any of its words: the screen goes on, and says it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from launcher.agent.processes import read_process
from launcher.cluster import library
from launcher.session import launcher_process
from tests.support.cluster_texts import SLEEPERS
from tests.support.forked import with_popen
from tests.support.patience import PATIENCE, until, wait_until
from tests.support.screens import screen_text
from tests.support.terminal import living
from tui.app import TfmuxApp
from tui.config import Config
from tui.run_clients import RunClients
from tui.screens.dialogs import ReceiptScreen
from tui.screens.home import HomeScreen
from tui.screens.run_screen import RunScreen
from tui.screens.starting import StartingScreen

STOPPER = """
import asyncio, os, runpy, signal, sys

moment, number = sys.argv[1], int(sys.argv[2])
del sys.argv[1:3]
words = 0

def stop():
    os.kill(os.getpid(), signal.SIGSTOP)

write = asyncio.StreamWriter.write

def stops(self, data):
    global words
    to_client = data.startswith((b'{"changed"', b'{"prompts"', b'{"finished"'))
    words += to_client
    if to_client and words == number and moment == "before":
        stop()
    write(self, data)
    if to_client and words == number and moment == "after":
        stop()

asyncio.StreamWriter.write = stops
if moment == "order":
    stop()
runpy.run_module("launcher.session.process", run_name="__main__", alter_sys=True)
"""
"""A launcher process that stops itself: before its order, or before or after a word of its."""
SAVED = "sleepers"


class Launchers:
    """The launcher processes that are started: the first one stops itself."""

    def __init__(self, program: Path, moment: str, number: int) -> None:
        self.started: list[subprocess.Popen[bytes]] = []
        self._stopper = [sys.executable, "-P", str(program), moment, str(number)]

    def popen(self, argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """Starts one."""
        words = [*argv] if self.started else [*self._stopper, *argv[4:]]
        self.started.append(subprocess.Popen(words, **options))
        return self.started[-1]

    @property
    def stopped(self) -> bool:
        """The first one stands still."""
        if not self.started:
            return False
        process = read_process(self.started[0].pid)
        return process is not None and process.state == "T"


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Path]:
    """The program of the launcher process that stops itself."""
    file = tmp_path / "stopper.py"
    file.write_text(STOPPER)
    yield file


@asynccontextmanager
async def stopped(
    program: Path, monkeypatch: pytest.MonkeyPatch, moment: str, number: int
) -> AsyncIterator[tuple[Pilot[int], Launchers]]:
    """A home screen on which a cluster was launched, whose launcher process has stopped itself."""
    launchers = Launchers(program, moment, number)
    monkeypatch.setitem(vars(launcher_process), "subprocess", with_popen(launchers.popen))
    library.create(SAVED, SLEEPERS.format(name=SAVED))
    clients = RunClients()
    app = TfmuxApp(pages=[HomeScreen(clients)], config=Config())
    try:
        async with app.run_test(size=(120, 40), notifications=True) as pilot:
            await until(lambda: shown(pilot, SAVED), "the cluster")
            await pilot.press("l")
            await until(lambda: launchers.stopped, "the launcher process stands still")
            yield pilot, launchers
        clients.close()
    finally:
        for process in launchers.started:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGCONT)
    wait_until(lambda: not living(), "no task is left")
    for process in launchers.started:
        process.wait(PATIENCE)


def shown(pilot: Pilot[int], text: str) -> bool:
    """Whether a text stands on the screen."""
    assert isinstance(pilot.app, TfmuxApp)
    return any(text in row for row in screen_text(pilot.app))


@pytest.mark.parametrize(
    ("moment", "number"), [("order", 0), ("before", 1), ("after", 1), ("before", 3), ("after", 3)]
)
async def test_the_kill_key_ends_a_run_whose_launcher_process_stands_still(
    program: Path, monkeypatch: pytest.MonkeyPatch, moment: str, number: int
) -> None:
    """Given a launcher process that is stopped, before its order or at one of its words, then the
    screen names it and hears keys; F9 ends the run, and the stopped process with it: continued, it
    would start tasks behind the receipt."""
    async with stopped(program, monkeypatch, moment, number) as (pilot, launchers):
        first = launchers.started[0]
        await until(lambda: shown(pilot, f"(pid {first.pid}) is stopped"), "what stands still")
        await pilot.press("f9")
        await until(lambda: first.poll() is not None, "the end of the stopped process")
        await until(
            lambda: isinstance(pilot.app.screen, ReceiptScreen | HomeScreen), "the run's end"
        )
        assert first.returncode == -signal.SIGKILL


@pytest.mark.parametrize(("moment", "number"), [("order", 0), ("before", 1)])
async def test_a_launch_that_stands_still_is_left(
    program: Path, monkeypatch: pytest.MonkeyPatch, moment: str, number: int
) -> None:
    """Given a launcher process that is stopped before it has told of the run, when Escape is
    pressed, then the home screen is there, and hears keys; the end of the screen ends the run."""
    async with stopped(program, monkeypatch, moment, number) as (pilot, launchers):
        await pilot.press("escape")
        await until(lambda: isinstance(pilot.app.screen, HomeScreen), "the home screen")
        await pilot.press("slash", *"sleep")
        await until(lambda: shown(pilot, "rows with sleep"), "the filter")
        assert launchers.stopped


async def test_a_launch_that_stands_still_is_tried_again(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a launcher process that is stopped before its order, when the run is launched again,
    then the next one is on the screen, and the first process is ended, its run with it."""
    async with stopped(program, monkeypatch, "order", 0) as (pilot, launchers):
        await until(lambda: isinstance(pilot.app.screen, StartingScreen), "what begins")
        await pilot.press("l")
        await until(lambda: isinstance(pilot.app.screen, RunScreen), "the next run")
        await until(lambda: launchers.started[0].poll() is not None, "the end of the first")
        await until(living, "a task of it")
