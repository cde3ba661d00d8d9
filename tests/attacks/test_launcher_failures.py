"""Something in the launcher itself breaks: it ends, says what, and exits 4."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from launcher.cluster.file import loads
from launcher.hosts.link import Link
from launcher.hosts.ssh import Logins
from launcher.run import events as ev
from launcher.run.run import Run
from launcher.run.states import RunState
from launcher.session import engine, session
from launcher.session.figures import Figures
from launcher.session.leaving import Leaving
from launcher.session.session import Session
from launcher.store.metrics import Extractor
from launcher.store.runs import Journal
from tests.command import write
from tests.conftest import REPOSITORY
from tests.faults.scene import Scene
from tests.launcher.agent_client import wait_until

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
        real = Run.handle

        def handle(run: Run, event: ev.Event) -> list[ev.Instruction]:
            nonlocal broken
            broken = broken or isinstance(event, kind)
            return boom() if broken else real(run, event)

        patch.setattr(Run, "handle", handle)

    return spoil


def link_breaks(patch: pytest.MonkeyPatch) -> None:
    """At the first bytes that a task has written."""
    real = Link._handle

    async def handle(link: Link, frame: Any) -> None:
        if frame.type == wire.SIZE:
            boom()
        await real(link, frame)

    patch.setattr(Link, "_handle", handle)


BEFORE_A_KILL: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the worker that reads logs": lambda patch: patch.setattr(Extractor, "feed", boom),
    "the link": link_breaks,
    "a decision": handle_breaks(ev.MetricSeen),
}
AT_THE_END: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "letting go": lambda patch: patch.setattr(Leaving, "leave", boom_later),
    "the end": lambda patch: patch.setattr(engine.Engine, "_finish", boom_later),
    "the kill": handle_breaks(ev.KillAll),
    "the receipt": handle_breaks(ev.Receipted),
    "the records": lambda patch: patch.setattr(engine, "changes", boom),
    "the journal": lambda patch: patch.setattr(Journal, "_append", boom),
    "the last wait": lambda patch: patch.setattr(Session, "_finish_writing", boom_later),
    "logins": lambda patch: patch.setattr(Logins, "aclose", boom_later),
}


def launched() -> Session:
    """A run whose task writes."""
    run = Session.launch(loads(FILE, "breaks", Path.cwd()), FILE)
    run.start()
    task = run.snapshot().tasks[0].id
    wait_until(lambda: run.snapshot().task(task).pid or not run.living, "its task lives")
    return run


def check_end(run: Session) -> None:
    """It has ended with 4 and the reason, and nothing is left."""
    assert run.wait(30), "it hangs"
    seen = run.snapshot()
    assert seen.state is RunState.ENDED
    assert seen.exit_code == 4
    assert "boom" in seen.launcher_error
    assert seen.receipt is not None
    assert [host.host for host in seen.receipt.hosts] == ["localhost"]
    wait_until(lambda: not Scene.here(seen.run_id), "nothing is left", 30)


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
        run.kill_all()
    check_end(run)


def test_a_snapshot_that_cannot_be_made_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody would see anything any more."""
    run = launched()
    monkeypatch.setattr(Figures, "added_to", boom)
    check_end(run)


def test_figures_of_hosts_are_no_reason_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said, and the run goes on to its own end."""
    monkeypatch.setattr(Figures, "poll", boom_later)
    run = launched()
    wait_until(lambda: any("figures" in note for note in run.snapshot().notes), "it is said")
    run.kill_all()
    assert run.wait(30)
    assert run.snapshot().exit_code == 130 and not run.snapshot().launcher_error


def test_a_thread_that_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """The launcher's thread fails before its loop runs anything."""
    monkeypatch.setattr(session, "open_door", boom)
    run = Session.launch(loads(FILE, "breaks", Path.cwd()), FILE)
    run.start()
    assert run.wait(30)
    assert run.snapshot().exit_code == 4 and "boom" in run.snapshot().launcher_error


HEADLESS = """
import sys
from pathlib import Path
from launcher.cluster.file import load
from launcher.session.figures import Figures
from launcher.session.leaving import Leaving
from launcher.session.session import Session
from tui.headless import run_headless

async def boom(*_):
    raise RuntimeError("boom")

Leaving.leave = boom
file = Path(sys.argv[1])
sys.exit(run_headless(Session.launch(load(file), file.read_text()), as_json=False))
"""


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
    assert "the launcher failed: letting go of hosts: RuntimeError: boom" in said
    assert "nothing is left on any host" in said
