"""`tfmux` and `tfmux FILE`: the home screen, or a cluster ready to be launched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from launcher.errors import TfmuxError
from launcher.paths import runs_home
from tui.exits import Exit, exit_code
from tui.streams import missing_terminal

if TYPE_CHECKING:
    import argparse

    from tui.app import TfmuxApp
    from tui.run_clients import RunClients
    from tui.screens.opening import Imported
    from tui.screens.page import Page


def open_files(arguments: argparse.Namespace) -> int:
    """Opens the UI with cluster files, one alone ready to launch; without a terminal, launches it.
    Returns the exit code.

    Raises:
        TfmuxError: several files, and no terminal.
    """
    missing = missing_terminal()
    if not missing:
        return home(arguments.files)
    if len(arguments.files) > 1:
        raise TfmuxError(f"several cluster files need a terminal on {missing}: name one")
    from tui.commands import launch

    arguments.file = arguments.files[0]
    return launch.up(arguments)


def home(files: Sequence[Path] = ()) -> int:
    """Opens the UI without a run, with a file ready to launch; returns the exit code.

    A screen that fails is opened once more; the runs go on in any case. The code is that of the
    last run launched for a file; from the home screen alone 0, or 4 where some host could not
    confirm that nothing is left; 70 when the screen has failed twice.
    """
    from tui import crash

    opened: list[RunClients] = []

    def folder() -> Path:
        alive = [run for clients in opened for run in clients.launched() if run.living]
        return alive[-1].folder.path if alive else runs_home().parent

    def interrupt() -> None:
        for clients in opened:
            clients.interrupt()

    def terminate() -> None:
        for clients in opened:
            clients.terminate()

    def hang_up() -> None:
        for clients in opened:
            clients.hang_up()

    error: BaseException | None = None
    try:
        error = crash.run_app_twice(
            lambda before: _app(files, opened, before),
            folder,
            interrupt=interrupt,
            terminate=terminate,
            hang_up=hang_up,
        )
        if error is not None:
            for clients in opened:
                clients.detach_all()
    finally:
        # However the screen ended, no run may go on unwatched.
        ended = [run for clients in opened for run in clients.close()]
    if ended:
        from tui.commands.launch import print_reports

        print_reports(ended)
    if error is not None:
        return Exit.CRASHED
    codes = [
        exit_code(run.snapshot.exit_code, detached=run.detached, doubt=run.doubt) for run in ended
    ]
    if Exit.UNCONFIRMED in codes:
        return Exit.UNCONFIRMED
    return codes[-1] if files and codes else Exit.SUCCESS


def _app(files: Sequence[Path], opened: list[RunClients], before: TfmuxApp | None) -> TfmuxApp:
    """The app with its first page; `opened` gets what holds its runs, or has it already from
    `before`, a screen that failed."""
    from tui.app import TfmuxApp
    from tui.screens.opening import Opening

    def load() -> Imported:
        """The launcher and the editor, which nothing before the first frame needs."""
        from launcher.client.standby import Standby
        from tui.run_clients import RunClients
        from tui.screens.home import HomeScreen

        def pages() -> list[Page]:
            clients = opened[0] if opened else RunClients(Standby())
            opened[:] = [clients]
            first = HomeScreen(clients, files)
            return [first, first.editor(files[0])] if len(files) == 1 else [first]

        return pages

    async def replace(pages: Sequence[Page]) -> Page:
        page = await app.replace_pages(pages)
        if app.control is not None:  # of a screen that failed
            app.open_run(app.control)
        return page

    app = TfmuxApp(pages=[Opening(load, replace)], before=before)
    return app
