"""`tfmux up` and `tfmux demo`: launch a cluster file, on the screen or headless."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.cluster.file import load
from launcher.run.states import RunPhase
from launcher.session.client import RunClient
from launcher.session.launcher_process import LauncherProcess
from launcher.store.runs import RunFolder
from tui.exits import Exit
from tui.headless import run_headless
from tui.report import report

if TYPE_CHECKING:
    from tui.screens.prompts import Asker


def up(file: Path, arguments: argparse.Namespace) -> int:
    """Launches; returns the run's exit code."""
    process = LauncherProcess()  # imports while we read the file
    try:
        cluster = load(file, for_launch=True)
        text = file.read_text()
    except BaseException:
        process.cancel()
        raise
    resume = getattr(arguments, "resume", None)
    as_json = getattr(arguments, "json", False)
    headless = as_json or getattr(arguments, "headless", False)
    if not headless and not sys.stdout.isatty():
        print("tfmux: no terminal on stdout, going on headless", file=sys.stderr)
        headless = True
    if headless:
        client = RunClient.launch(cluster, text, resume=resume, process=process, events=True)
        return run_headless(client, as_json=as_json)
    asker = _asker()
    client = RunClient.launch(cluster, text, resume=resume, process=process, ask=asker)
    return show(client, asker)


def attach(folder: RunFolder, arguments: argparse.Namespace) -> int:
    """Follows a run that goes on; returns its exit code."""
    if arguments.headless or arguments.json or not sys.stdout.isatty():
        client = RunClient.attach(folder, events=True)
        return run_headless(client, as_json=arguments.json)
    asker = _asker()
    return show(RunClient.attach(folder, ask=asker), asker)


def _asker() -> Asker:
    from tui.screens.prompts import Asker

    return Asker()


def show(client: RunClient, asker: Asker) -> int:
    """Opens the run screen; returns the exit code. A screen that fails is opened once more; the
    run goes on in any case."""
    from tui import crash
    from tui.app import TfmuxApp

    def end_by_machine(app: TfmuxApp) -> None:
        # The screen may be gone already: the run is ended first, then the screen.
        client.kill_all(by_person=False)
        app.exit()

    def hang_up(app: TfmuxApp) -> None:
        client.hang_up()
        app.exit()

    error: BaseException | None = None
    try:
        for again in (True, False):
            app = TfmuxApp(client, asker=asker)
            signal.signal(signal.SIGTERM, lambda *_, app=app: end_by_machine(app))
            signal.signal(signal.SIGHUP, lambda *_, app=app: hang_up(app))
            error = crash.run_app(app)
            if error is None:
                break
            crash.tell(error, client.folder.path)
            if crash.is_ending(client):
                error = None
                break
            if again:
                print("tfmux: opening the screen again", file=sys.stderr, flush=True)
    finally:
        # However the screen ended, the run must not go on unwatched: no second press is needed.
        if error is not None:
            client.detach()
        elif client.living and not client.closed:
            if client.snapshot().state not in (RunPhase.KILLING, RunPhase.ENDED):
                client.kill_all()
            client.wait()
    print(report(client.snapshot(), client.folder.path, detached=client.detached), file=sys.stderr)
    if error is not None:
        return Exit.CRASHED
    if client.detached:
        return Exit.SUCCESS
    code = client.snapshot().exit_code
    return Exit.FAILED if code is None else code
