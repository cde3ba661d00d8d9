"""A crash of the screen: an error that nobody foresaw is no person's wish, so runs go on."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from textual.app import App
from textual.worker import WorkerFailed

from launcher.printable import pictured
from launcher.run.states import RunPhase
from launcher.session.session import Session
from tui.exits import Exit
from tui.headless import run_headless
from tui.report import report

FILE_NAME = "screen-errors.txt"
TAKEOVER_SECONDS = 30.0
"""How long the launcher in the background may need until it has taken the run over."""


def run_app(app: App[int]) -> BaseException | None:
    """Runs an app to its end; returns what it crashed with."""
    try:
        app.run()
    except Exception as error:
        return error
    failed = app._exception  # Textual tells nobody else
    return failed.error if isinstance(failed, WorkerFailed) else failed


def is_ending(session: Session) -> bool:
    """The run is at its end, or its kill has begun: there is nothing to be left to anyone."""
    snapshot = session.snapshot()
    over = snapshot.state in (RunPhase.KILLING, RunPhase.ENDED)
    return over or snapshot.outcome is not None or not session.living


def go_on(sessions: Sequence[Session], error: BaseException) -> int:
    """Leaves runs to launchers in the background; what nobody takes over goes on here, headless.

    Returns the exit code. The error is told after that has begun: the runs come first.
    """
    for session in sessions:
        session.detach()
    for session in sessions:
        tell(error, session.folder.path)
    codes: list[int] = [Exit.CRASHED]
    for session in sessions:
        if session.wait(TAKEOVER_SECONDS):
            print(report(session.snapshot(), session.folder.path), file=sys.stderr, flush=True)
            continue
        print(
            f"tfmux: no launcher in the background has taken {session.folder.run_id} over: it goes "
            "on here, without a screen; Ctrl-C ends it",
            file=sys.stderr,
            flush=True,
        )
        codes.append(run_headless(session, as_json=False, started=True))
    return codes[-1]


def tell(error: BaseException, folder: Path) -> None:
    """Says on stderr that the screen has failed, and where the whole error was saved."""
    lines = traceback.format_exception(error)
    last = pictured(traceback.format_exception_only(error)[-1].strip())
    print(f"tfmux: the screen failed: {last}", file=sys.stderr, flush=True)
    file = folder / FILE_NAME
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8", errors="replace") as out:
            out.write(f"{when}\n{''.join(lines)}\n")
    except OSError as problem:
        print(f"tfmux: {file}: {problem.strerror}; the error was:", file=sys.stderr)
        print(
            "".join(pictured(line) + "\n" for line in "".join(lines).splitlines()), file=sys.stderr
        )
    else:
        print(f"tfmux: the whole error is in {file}", file=sys.stderr, flush=True)
