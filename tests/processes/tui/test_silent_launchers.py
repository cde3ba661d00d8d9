"""Launcher processes that say nothing, or are stopped at any of their words: the screen goes on,
and says it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from launcher import Cluster
from launcher.agent.processes import read_process
from launcher.client import launcher_link, launcher_process, supervision
from launcher.client.launcher_process import LauncherProcess
from launcher.client.run_client import RunClient
from launcher.cluster import library
from launcher.cluster.read import load
from launcher.ids import TaskId, new_run_id
from launcher.run.snapshot import Snapshot
from launcher.run.states import Outcome, RunPhase
from launcher.run.views import Views
from launcher.store import launcher_socket
from launcher.store.living_runs import Holder, LivingRun
from launcher.store.runs import RunFolder, socket_path
from launcher.store.stream import plain
from tests.support.cluster_texts import SLEEPERS
from tests.support.command import write
from tests.support.forked import with_popen
from tests.support.patience import PATIENCE, until, wait_until
from tests.support.screens import screen_text
from tests.support.snapshots import wait
from tests.support.terminal import living
from tui import main
from tui.app import TfmuxApp
from tui.config import Config
from tui.run_clients import RunClients
from tui.screens.dialogs import ReceiptScreen
from tui.screens.home import HomeScreen
from tui.screens.run_screen import RunScreen
from tui.screens.starting import StartingScreen

WORKER = TaskId("worker", 0)


@pytest.fixture
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a launcher process of these tests acts on a kill late, and must not be
    taken for one that stands still."""
    monkeypatch.setattr(supervision, "HEARD_SECONDS", PATIENCE)
    monkeypatch.setattr(supervision, "START_SECONDS", PATIENCE)


class Silent(LauncherProcess):
    """A launcher process that never says anything, and that the kernel does not know."""

    pid = 0

    def __init__(self) -> None:
        self.link, self.theirs = socket.socketpair()
        self.thread = threading.current_thread().name

    def order(self, order: dict[str, Any], lock: int | None = None) -> socket.socket:
        if lock is not None:
            os.close(lock)
        return self.link

    def kill(self) -> None:
        """Is no process."""

    def forget(self) -> None:
        """Has no file of errors."""


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
    client = RunClient(run, Views.of(snapshot), here)
    with there:
        try:
            yield client, there
        finally:
            client.close()


def snapshot_of(state: RunPhase, since: float, **fields: Any) -> Snapshot:
    """A run without hosts."""
    return Snapshot("seen-1", "seen", state, since, **fields)


@pytest.mark.usefixtures("no_hurry")
def test_only_the_clients_own_thread_connects_and_calls_listeners(
    tmp_path: Path, silent: list[Silent]
) -> None:
    """Another one that resumed the run closed the connection that this one had just made."""
    told = set()
    with followed(tmp_path, snapshot_of(RunPhase.RUNNING, 1.0)) as (client, theirs):
        client.subscribe(lambda _: told.add(threading.current_thread().name))
        theirs.close()
        client.restart(WORKER)
        wait(client, lambda s: any("not sent" in note for note in s.notes), "a note")
        wait(client, lambda _: silent, "another launcher")
    assert [process.thread for process in silent] == ["client"]
    assert told == {"client"}


@pytest.mark.usefixtures("no_hurry")
def test_a_launcher_that_sends_a_line_without_end_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher is no longer read, and the reason is reported."""
    monkeypatch.setattr(launcher_socket, "LONGEST_LINE", 1 << 20)
    with followed(tmp_path, snapshot_of(RunPhase.RUNNING, 1.0)) as (client, theirs):
        with pytest.raises(OSError):
            for _ in range(1 << 10):
                theirs.sendall(b"x" * (1 << 16))
        seen = wait(client, lambda s: s.notes, "a note")
        assert "longer than 1048576 bytes" in seen.notes[0]


@pytest.mark.usefixtures("no_hurry")
@pytest.mark.parametrize(
    "line",
    [b"null", b'{"changed": 7}', b'{"changed": [{"event": "task", "task": 7}]}', b"[" * 100_000],
)
def test_a_launcher_that_sends_no_message_is_left(
    tmp_path: Path, silent: list[Silent], line: bytes
) -> None:
    """The client goes on, under another one, and says so."""
    with followed(tmp_path, snapshot_of(RunPhase.RUNNING, 1.0)) as (client, theirs):
        theirs.sendall(line + b"\n")
        seen = wait(client, lambda s: s.notes, "a note")
        assert "sent a message that this version does not know" in seen.notes[0]
        wait(client, lambda _: silent, "another launcher")


@pytest.mark.usefixtures("no_hurry")
async def test_a_run_is_killed_before_its_launcher_has_told_its_tasks(tmp_path: Path) -> None:
    """Given a launcher process that has not said anything, when its run is killed as by Ctrl-C,
    then the kill is sent at once; when the launcher process says what is wrong, then the block
    opens with that end."""
    silent = Silent()
    begun: asyncio.Future[RunClient] = asyncio.get_running_loop().create_future()
    silent.theirs.settimeout(PATIENCE)
    file = write(tmp_path, 'name = "seen"\n[jobs.worker]\ntasks = ["localhost:auto"]\n')
    text = file.read_text() + 'command = ["true"]\n'
    opening = Cluster.from_text(text, tmp_path).launch(process=silent, begun=begun.set_result)
    entering = asyncio.create_task(opening.__aenter__())
    client = await asyncio.wait_for(begun, PATIENCE)
    client.press_kill()
    with silent.theirs.makefile("rb") as lines:
        said = [json.loads(await asyncio.to_thread(lines.readline)) for _ in range(2)]
    assert [one["command"] for one in said] == ["subscribe", "kill_all"]
    assert not entering.done() and not client.heard
    silent.theirs.sendall(b'{"error": "it cannot begin"}\n')
    run = await asyncio.wait_for(entering, PATIENCE)
    assert (run.exit_code, run.snapshot().launcher_error) == (4, "it cannot begin")
    await opening.__aexit__(None, None, None)
    silent.theirs.close()


# --- `tfmux kill` of a run whose launcher process does not answer --------------------------------


@contextmanager
def standing_still(folder: Path, backlog: int) -> Iterator[tuple[str, socket.socket]]:
    """A run with a launcher process that holds the lock, listens, and does nothing of itself."""
    jobs = '[jobs.worker]\ntasks = ["localhost:auto"]\ncommand = ["true"]\n'
    file = write(folder, f'name = "seen"\n{jobs}')
    cluster = load(file)
    run = RunFolder.create(new_run_id("seen"), file.read_text(), cluster)
    lock = run.take_lock()
    assert lock is not None
    entry = LivingRun(run.run_id, run.path, (), Holder(1), home="/root", living=True)
    os.pwrite(lock, entry.line(), 0)
    path = socket_path(run.run_id)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(backlog)
        try:
            yield run.run_id, server
        finally:
            path.unlink()
            os.close(lock)


@contextmanager
def killing(run_id: str) -> Iterator[list[int]]:
    """`tfmux kill` of the run; its exit code when it has ended."""
    codes: list[int] = []
    command = threading.Thread(target=lambda: codes.append(main.main(["kill", run_id])))
    command.start()
    yield codes
    command.join(PATIENCE)
    assert codes


@pytest.mark.usefixtures("no_hurry")
def test_a_kill_is_sent_before_the_launcher_has_said_anything(tmp_path: Path) -> None:
    """The launcher may be stopped: whoever waits for its state first waits in vain."""
    with standing_still(tmp_path, 1) as (run_id, server), killing(run_id) as codes:
        link, _ = server.accept()
        link.settimeout(PATIENCE)
        with link, link.makefile("rb") as lines:
            said = [json.loads(lines.readline())["command"] for _ in range(2)]
            way = {"outcome": Outcome.KILLED, "exit_code": 4, "ended": 2.0}
            ended = snapshot_of(RunPhase.ENDED, 1.0, **way)
            state = {"changed": [plain(record) for record in Views.of(ended).records()]}
            for message in (state, {"finished": True}):
                link.sendall(json.dumps(message).encode() + b"\n")
        assert said == ["subscribe", "kill_all"]
    assert codes == [4]


@pytest.mark.usefixtures("no_hurry")
def test_a_kill_takes_over_from_a_launcher_that_accepts_nobody(
    tmp_path: Path, silent: list[Silent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher's queue of connections is full: that is no answer, either."""
    monkeypatch.setattr(supervision, "HEARD_SECONDS", 0.1)
    with (
        standing_still(tmp_path, 0) as (run_id, _),
        launcher_socket.connect(run_id),
        killing(run_id),
    ):
        wait_until(lambda: silent, "another launcher")
        silent[0].theirs.sendall(b'{"error": "seen"}\n')


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
runpy.run_module("launcher.process.entry", run_name="__main__", alter_sys=True)
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
