"""`tfmux up` and `tfmux demo`: launch a cluster file, on the screen or headless."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.cluster.file import load
from launcher.session.session import Session
from tui.detaching import detach_command
from tui.exits import Exit
from tui.headless import run_headless
from tui.report import report

if TYPE_CHECKING:
    from textual.app import App


def up(file: Path, arguments: argparse.Namespace) -> int:
    """Launches; returns the run's exit code."""
    cluster = load(file, for_launch=True)
    resume = getattr(arguments, "resume", None)
    session = Session.launch(cluster, file.read_text(), resume=resume)
    session.detach_with(detach_command(session))
    as_json = getattr(arguments, "json", False)
    headless = as_json or getattr(arguments, "headless", False)
    if not headless and not sys.stdout.isatty():
        print("tfmux: no terminal on stdout, going on headless", file=sys.stderr)
        headless = True
    if headless:
        return run_headless(session, as_json=as_json)
    return show(session)


def _end_by_machine(session: Session, app: App[int]) -> None:
    session.kill_all(by_person=False)
    app.exit()


def show(session: Session) -> int:
    """Opens the run screen on a session that has not been started; returns the exit code."""
    from tui import crash
    from tui.app import TfmuxApp
    from tui.screens.prompts import Asker

    asker = Asker()
    app = TfmuxApp(session, asker=asker)
    session.on_question(asker)
    session.start()
    for number in (signal.SIGTERM, signal.SIGHUP):
        # The screen may be gone already: the run is ended first, then the screen.
        signal.signal(number, lambda *_: _end_by_machine(session, app))
    error = None
    try:
        error = crash.run_app(app)
        if error is not None and not crash.is_ending(session):
            return crash.go_on([session], error)
    finally:
        # However the screen ended, the run must not go on unwatched: no second press is needed.
        if session.living:
            if session.snapshot().outcome is None:
                session.kill_all()
            session.wait()
    if error is not None:
        crash.tell(error, session.folder.path)
    snapshot = session.snapshot()
    print(report(snapshot, session.folder.path), file=sys.stderr)
    return Exit.FAILED if snapshot.exit_code is None else snapshot.exit_code
