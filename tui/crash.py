"""A crash of the screen: an error that nobody foresaw is no person's wish, so runs go on."""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App
from textual.worker import WorkerFailed

from launcher.printable import pictured
from launcher.run.states import RunPhase

if TYPE_CHECKING:
    from launcher.session.control import RunControl

FILE_NAME = "screen-errors.txt"


def run_app(app: App[int]) -> BaseException | None:
    """Runs an app to its end; returns what it crashed with."""
    try:
        app.run()
    except Exception as error:
        return error
    failed = app._exception  # Textual tells nobody else
    return failed.error if isinstance(failed, WorkerFailed) else failed


def is_ending(control: RunControl) -> bool:
    """The run is at its end, or its kill has begun."""
    state = control.snapshot().state
    return state in (RunPhase.KILLING, RunPhase.ENDED) or not control.living


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
