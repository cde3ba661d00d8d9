"""One page in a browser: the app in a process of its own, started by the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tui.app import TfmuxApp
from tui.crash import report, run_app
from tui.exits import Exit
from tui.screens.home import HomeScreen
from tui.screens.page import Page
from tui.web.clients import FOLDER_VARIABLE, TOUCH, ServedClients, ServedRuns

_LOOK = 1.0
_OF_PAGES = (
    FOLDER_VARIABLE,
    "TEXTUAL_DRIVER",
    "TEXTUAL_FPS",
    "TEXTUAL_COLOR_SYSTEM",
    "TERM_PROGRAM",
    "TERM_PROGRAM_VERSION",
    "COLUMNS",
    "ROWS",
)


class PageApp(TfmuxApp):
    """The app of a page, which goes when its server has gone."""

    def __init__(self, files: Sequence[Path], served: ServedRuns, *, touch: bool = False) -> None:
        clients = ServedClients(served, self.notify)
        home = HomeScreen(clients, files)
        pages: list[Page] = [home]
        if len(files) == 1:
            pages.append(home.editor(files[0]))
        living = served.living()
        first = clients.attach(living[0].run_id, home.prompts) if living else None
        super().__init__(first, pages)
        self.set_class(touch, "-touch")
        self.clients = clients
        self._server = os.getppid()

    def on_mount(self) -> None:
        for name in _OF_PAGES:  # launcher processes inherit the environment, and tasks theirs
            os.environ.pop(name, None)
        self.set_interval(_LOOK, self._check_server)

    def _check_server(self) -> None:
        if os.getppid() != self._server:  # it was killed, and nobody can see this page
            self.exit()


def main(words: Sequence[str]) -> int:
    """Shows the living run of this server, or the file, or the home screen."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    files = [Path(word) for word in words if word != TOUCH]
    app = PageApp(files, ServedRuns(folder), touch=TOUCH in words)
    try:
        error = run_app(app)
    finally:
        app.clients.close()
    if error is not None:
        report(error, folder)
        return Exit.CRASHED
    return app.return_code or 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
