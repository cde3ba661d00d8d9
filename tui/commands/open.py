"""`tfmux` and `tfmux FILE`: the home screen, or a cluster ready to be launched."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.paths import runs_home
from tui.exits import Exit

if TYPE_CHECKING:
    from launcher.session.session import Session
    from tui.screens.opening import Imported
    from tui.screens.page import Page
    from tui.sessions import EndedRun, Sessions


def home(files: Sequence[Path] = ()) -> int:
    """Opens the UI without a run. With a file, that cluster is shown, ready to be launched.

    Returns the exit code of the last run launched for a file; from the home screen alone 0, or
    4 where some host could not confirm that nothing is left; 70 when the screen itself failed.
    """
    from tui import crash
    from tui.app import TfmuxApp
    from tui.screens.opening import Opening

    opened: list[Sessions] = []

    def load() -> Imported:
        """The launcher and the editor, which nothing before the first frame needs."""
        from tui.screens.home import HomeScreen
        from tui.sessions import Sessions

        def pages() -> list[Page]:
            opened.append(Sessions())
            first = HomeScreen(opened[0], files)
            return [first, first.editor(files[0])] if len(files) == 1 else [first]

        return pages

    async def replace(pages: Sequence[Page]) -> Page:
        return await app.replace_pages(pages)

    app = TfmuxApp(pages=[Opening(load, replace)])

    def end(*_: object) -> None:
        # The screen may be gone already: the runs are ended first, then the screen.
        for sessions in opened:
            sessions.end_by_machine()
        app.exit()

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    error = None
    alive: list[Session] = []
    try:
        error = crash.run_app(app)
        if error is not None:
            every = [session for sessions in opened for session in sessions.all()]
            alive = [session for session in every if not crash.is_ending(session)]
            if not alive:
                crash.tell(error, runs_home().parent)
            code = crash.go_on(alive, error)
    finally:
        # However the screen ended, no run may go on unwatched.
        ended = [run for sessions in opened for run in sessions.close()]
    from tui.report import report

    going_on = {session.folder.run_id for session in alive}
    ended = [run for run in ended if run.folder.run_id not in going_on]
    for run in ended:
        print(report(run.snapshot, run.folder.path), file=sys.stderr)
    if error is not None:
        return code
    codes = [_code(run) for run in ended]
    if Exit.UNCONFIRMED in codes:
        return Exit.UNCONFIRMED
    return codes[-1] if files and codes else Exit.SUCCESS


def _code(run: EndedRun) -> int:
    code = run.snapshot.exit_code
    return Exit.FAILED if code is None else code
