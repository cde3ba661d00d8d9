"""Something in the launcher itself breaks: it ends, says what, and exits 4."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from launcher.agent import wire
from launcher.agent.folders import FolderError
from launcher.cluster import loads
from launcher.hosts.link import Link
from launcher.ids import new_run_id
from launcher.run import events as ev
from launcher.run.instructions import Instruction
from launcher.run.run import RunStateMachine
from launcher.run.states import Outcome, RunPhase
from launcher.run.views import Views
from launcher.session import control_socket
from launcher.session.attach import StoredRun
from launcher.session.client import RunClient
from launcher.session.connections import Connections
from launcher.session.control_socket import ControlSocket
from launcher.session.executor import Executor
from launcher.session.launcher import Launcher
from launcher.session.live_data import HostStats
from launcher.session.run_loop import RunLoop
from launcher.session.teardown import Teardown
from launcher.store.metrics import Extractor
from launcher.store.run_writer import RunWriter
from launcher.store.runs import RunFolder
from tests.command import write
from tests.faults.scenario import FaultScenario
from tests.paths import REPOSITORY
from tests.patience import PATIENCE, wait_until
from tests.streams import changes
from tests.testbed import guard
from tests.testbed.launcher_thread import LauncherThread, launch

FILE = """
name = "breaks"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["sh", "-c", "while true; do echo step 1 loss 2; sleep 0.05; done"]
workdir = ""
grace = 1
[start.ready]
worker = "started"
"""


def boom(*_: Any, **__: Any) -> Any:
    raise RuntimeError("boom")


async def boom_later(*_: Any, **__: Any) -> Any:
    raise RuntimeError("boom")


def handle_breaks(kind: type[ev.Event]) -> Callable[[pytest.MonkeyPatch], None]:
    """From an event of this kind on, the run decides nothing any more."""

    def spoil(patch: pytest.MonkeyPatch) -> None:
        broken = False
        real = RunStateMachine.handle

        def handle(run: RunStateMachine, event: ev.Event) -> list[Instruction]:
            nonlocal broken
            broken = broken or isinstance(event, kind)
            return boom() if broken else real(run, event)

        patch.setattr(RunStateMachine, "handle", handle)

    return spoil


def link_breaks(patch: pytest.MonkeyPatch) -> None:
    """At the first bytes that a task has written."""
    real = Link._handle

    def handle(link: Link, frame: Any) -> None:
        if frame.type == wire.LOG_SIZE:
            boom()
        real(link, frame)

    patch.setattr(Link, "_handle", handle)


BEFORE_A_KILL: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the worker that reads logs": lambda patch: patch.setattr(Extractor, "feed", boom),
    "the link": link_breaks,
    "a decision": handle_breaks(ev.MetricsSeen),
}
BREAKING_LOGINS = property(lambda _: SimpleNamespace(aclose=boom_later))
AT_THE_END: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a release": lambda patch: patch.setattr(Teardown, "release", boom_later),
    "the end": lambda patch: patch.setattr(Executor, "_finish", boom_later),
    "the kill": handle_breaks(ev.KillAll),
    "the receipt": handle_breaks(ev.ReceiptReceived),
    "the records": lambda patch: patch.setattr(Views, "pop_changed", boom),
    "the stream": lambda patch: patch.setattr(RunWriter, "_append", boom),
    "the last wait": lambda patch: patch.setattr(Launcher, "_finish_writing", boom_later),
    "logins": lambda patch: patch.setattr(Connections, "logins", BREAKING_LOGINS, raising=False),
}


def launched() -> RunClient:
    """A run whose task writes."""
    run = launch(loads(FILE, "breaks", Path.cwd()), FILE)
    task = run.snapshot().tasks[0].id
    wait_until(lambda: run.snapshot().task(task).pid or not run.living, "its task lives")
    return run


def check_end(run: RunClient) -> None:
    """It has ended with 4 and the reason, and nothing is left."""
    assert run.wait(30), "it hangs"
    seen = run.snapshot()
    assert seen.state is RunPhase.ENDED
    assert seen.exit_code == 4
    assert "boom" in seen.launcher_error
    assert seen.receipt is not None
    assert [host.host for host in seen.receipt.hosts] == ["localhost"]
    wait_until(lambda: not FaultScenario.here(seen.run_id), "nothing is left", 30)


@pytest.mark.parametrize("what", BEFORE_A_KILL)
def test_what_breaks_in_a_running_launcher_ends_the_run(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for the end; it comes, with a receipt or the host's name."""
    BEFORE_A_KILL[what](monkeypatch)
    run = launched()
    check_end(run)


@pytest.mark.parametrize("what", AT_THE_END)
def test_what_breaks_at_the_end_does_not_hold_it_up(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the kill on; two more keys do no harm."""
    run = launched()
    AT_THE_END[what](monkeypatch)
    for _ in range(3):
        run.press_kill()
    check_end(run)


def test_a_snapshot_that_cannot_be_made_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would see anything any more."""
    run = launched()
    monkeypatch.setattr(HostStats, "note_heard", boom)
    check_end(run)


def test_figures_of_hosts_are_no_reason_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and the run goes on to its own end."""
    monkeypatch.setattr(HostStats, "poll", boom_later)
    run = launched()
    wait_until(lambda: any("stats" in note for note in run.snapshot().notes), "it is said")
    run.kill_all()
    assert run.wait(30)
    assert run.snapshot().exit_code == 130 and not run.snapshot().launcher_error


def test_a_launcher_that_cannot_listen_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """It fails before anything was started."""
    monkeypatch.setattr(ControlSocket, "listening", boom)
    run = launch(loads(FILE, "breaks", Path.cwd()), FILE)
    assert run.wait(30)
    assert run.snapshot().exit_code == 4 and "boom" in run.snapshot().launcher_error


def test_a_launcher_that_breaks_before_it_begins_confirms_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What an earlier launcher started may live: no clean receipt, no end in the stream."""
    cluster = loads(FILE, "breaks", Path.cwd())
    folder = RunFolder.create(new_run_id(cluster.name), FILE, cluster)
    machine = RunStateMachine(cluster, folder.run_id)
    machine.handle(ev.Begin(1.0))
    machine.handle(ev.HostUp(1.5, "localhost", (), ""))
    folder.events.write_bytes(b"".join(changes(machine, 2.0)))
    assert not StoredRun(folder).over
    monkeypatch.setattr(ControlSocket, "listening", boom)
    run = RunClient.attach(folder, process=LauncherThread())
    assert run.wait(30)
    seen = run.snapshot()
    assert seen.exit_code == 4 and "boom" in seen.launcher_error
    assert seen.receipt is not None and not seen.receipt.clean
    assert [host.host for host in seen.receipt.hosts] == ["localhost"]
    run.close()
    assert not StoredRun(folder).over
    assert '"end"' not in folder.events.read_text()


HEADLESS = """
import sys
from pathlib import Path
from launcher.api import opened
from launcher.session.event_files import EventFiles
from launcher.session.teardown import Teardown
from tests.testbed.launcher_thread import launch_file
from tui.headless import run_headless

async def boom(*_):
    raise RuntimeError("boom")

Teardown.release = boom
file = Path(sys.argv[1])
def start(on_end):
    client = launch_file(file, on_end=on_end)
    return client, EventFiles(client.folder, from_end=False)

opening = opened(start, detach=False)
sys.exit(run_headless(opening, as_json=False))
"""


@pytest.fixture
def abandoned(tmp_path: Path) -> Iterator[RunFolder]:
    """A run that goes on although its launcher process has died."""
    text = FILE.replace("[run]", '[run]\non_disconnect = "keep"')
    run = RunClient.launch(loads(text, "breaks", tmp_path), text)
    wait_until(lambda: run.snapshot().state is RunPhase.RUNNING, "it runs")
    run.stay_alive()
    run.close()
    pid = run.folder.launcher_pid()
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: run.folder.launcher_pid() is None, "its launcher is dead")
    yield run.folder
    if not StoredRun(run.folder).over:
        with following(run.folder) as last:
            last.kill_all(force=True)
            assert last.wait(PATIENCE)
    assert not guard.tasks_here()


@contextmanager
def following(folder: RunFolder) -> Iterator[RunClient]:
    """A client that takes the run up, with a launcher on a thread."""
    client = RunClient.attach(folder, process=LauncherThread())
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize("error", [OSError("no room"), FolderError("/tmp: no room")], ids=repr)
def test_a_launcher_that_cannot_listen_ends_a_run_that_it_takes_up(
    abandoned: RunFolder, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Nobody else can connect to it, but whoever has started it wants the tasks dead."""

    def unusable(run_id: str) -> Path:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(control_socket, "socket_path", unusable)
        with following(abandoned) as client:
            client.kill_all()
            assert client.wait(PATIENCE)
            ended = client.snapshot()
    assert ended.receipt is not None and ended.receipt.clean
    assert [host.host for host in ended.receipt.hosts] == ["localhost"]
    assert any("no other client can connect" in note for note in ended.notes)
    assert not guard.tasks_here()


def test_a_launcher_that_cannot_take_a_run_up_confirms_nothing(
    abandoned: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks live: the receipt says so of their host, and the run is still to be ended."""
    with monkeypatch.context() as patch:
        patch.setattr(RunLoop, "main", boom_later)
        with following(abandoned) as client:
            assert client.wait(PATIENCE)
            ended = client.snapshot()
    assert guard.tasks_here()
    assert (ended.outcome, ended.exit_code) == (Outcome.FAILED, 4)
    assert ended.receipt is not None and not ended.receipt.clean
    assert [(host.host, host.confirmed) for host in ended.receipt.hosts] == [("localhost", False)]
    assert not StoredRun(abandoned).over


def test_the_command_exits_4_with_the_receipt_and_the_reason(tmp_path: Path) -> None:
    """It hung for ever, two Ctrl-C and TERM ignored."""
    argv = [sys.executable, "-c", HEADLESS, str(write(tmp_path, FILE))]
    process = subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 4, said
    assert "the launcher failed: release of localhost: RuntimeError: boom" in said
    assert "nothing is left on any host" in said
