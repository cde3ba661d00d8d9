"""Crashes of the screen: the error is saved, the screen opened again, and runs go on."""

from __future__ import annotations

import gc
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.worker import WorkerFailed

from launcher.client.latch import Latch
from launcher.decision import Decision
from launcher.printable import pictured
from tui.log.guesses import MISSING, pop_faults
from tui.streams import message, without_secrets

if TYPE_CHECKING:
    from tui.app import TfmuxApp

FILE_NAME = "screen-errors.txt"


def run_app(app: TfmuxApp) -> BaseException | None:
    """Runs an app to its end; returns what it crashed with."""
    gc.freeze()  # a sixth of the screen's time under a flood went into looking at modules
    try:
        app.run()
    except Exception as error:
        return error
    failed = app._exception  # Textual tells nobody else
    return failed.error if isinstance(failed, WorkerFailed) else failed


def run_app_twice(
    make: Callable[[TfmuxApp | None], TfmuxApp],
    folder: Callable[[], Path],
    *,
    interrupt: Callable[[], None],
    terminate: Callable[[], None],
    hang_up: Callable[[], None],
    is_ending: Callable[[], bool] = lambda: False,
) -> BaseException | None:
    """Runs an app; one that crashes is made and run once more, unless its run `is_ending`. `make`
    gets the one that has crashed, whose keys the next one goes on with.

    The error is saved in `folder`. INT calls `interrupt`, TERM `terminate`, a closed terminal
    `hang_up`, before the app ends: the screen may be gone already. Returns the error of the second
    crash.
    """
    told, decision = Latch(), Decision()
    before: TfmuxApp | None = None
    for again in (True, False):
        app = before = make(before)
        for number, act in (
            (signal.SIGINT, interrupt),
            (signal.SIGTERM, terminate),
            (signal.SIGHUP, hang_up),
        ):
            _on_signal(number, act, app, told, decision)
        error = run_app(app)
        report_guesses(folder())
        if error is None or told.is_set():  # a page that is just being opened fails on its way out
            return None
        report(error, folder())
        if is_ending():
            return None
        if again:
            message("opening the screen again")
    return error


def _on_signal(
    number: signal.Signals,
    act: Callable[[], None],
    app: TfmuxApp,
    told: Latch,
    decision: Decision,
) -> None:
    """Has a signal `act` and end the app, which has been `told` then; not one that belongs to the
    last decision."""

    def handle(*_: object) -> None:
        if not decision.is_new():
            return
        told.set()
        act()
        app.exit()

    signal.signal(number, handle)


def report_guesses(folder: Path) -> None:
    """Says which sentences could not be made of what programs have printed, each kind once."""
    for error in pop_faults():
        report(error, folder, MISSING)


def report(error: BaseException, folder: Path, what: str = "the screen failed") -> None:
    """Says on stderr that the screen has failed, or something else that has, and where the whole
    error was saved."""
    said = without_secrets("".join(traceback.format_exception(error)))
    message(f"{what}: {pictured(traceback.format_exception_only(error)[-1].strip())}")
    file = folder / FILE_NAME
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8", errors="replace") as out:
            out.write(f"{when}\n{said}\n")
    except OSError as problem:
        message(f"{file}: {problem.strerror}; the error was:")
        print("".join(pictured(line) + "\n" for line in said.splitlines()), file=sys.stderr)
    else:
        message(f"the whole error is in {file}")
