"""Runs of a server's pages: a page comes and goes, its runs go on, and others find them."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.client.launcher_link import has_launcher
from launcher.client.run_client import RunClient
from launcher.cluster.file_model import ClusterModel
from launcher.errors import LockError
from launcher.history.control import RunControl
from launcher.history.run_list import read_run
from launcher.hosts.auth_prompt import PromptHandler
from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tui.run_clients import RunClients

FOLDER_VARIABLE = "TFMUX_SERVE"
"""Environment variable that tells a page its server's private folder."""
TOUCH = "--touch"
"""Word of a page's command: its browser is on a device with a touch screen and no mouse."""


class ServedRuns:
    """Runs that the pages of one server have launched or attached to: a file a run in the server's
    private folder, which holds the cluster's name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, run: RunControl) -> None:
        """Stores that a page has launched or attached to a run."""
        snapshot = run.snapshot()
        (self._folder / f"{snapshot.run_id}.run").write_text(snapshot.name)

    def living(self, name: str | None = None) -> list[RunFolder]:
        """The runs, of a cluster or all, that have a launcher process and have not ended, the
        newest first."""
        files = [path for path in self._folder.glob("*.run") if name in (None, path.read_text())]
        files.sort(key=lambda path: path.stat().st_mtime, reverse=True)
        runs = [RunFolder(runs_home() / path.stem) for path in files]
        return [run for run in runs if _lives(run) and read_run(run).summary.ended is None]

    @contextmanager
    def launching(self) -> Iterator[None]:
        """Lets one page launch at a time."""
        with (self._folder / "launching.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _lives(run: RunFolder) -> bool:
    try:
        return has_launcher(run)
    except LockError:  # a page that attaches to it says why that cannot be seen
        return False


class ServedClients(RunClients):
    """Runs of one page of `tfmux serve`, which shares them with the other pages."""

    _screen = False

    def __init__(self, served: ServedRuns, say: Callable[[str], None]) -> None:
        """`say` shows the person a line."""
        super().__init__()
        self._served = served
        self._say = say

    def launch(
        self, cluster: ClusterModel, text: str, ask: PromptHandler, resume: str | None = None
    ) -> RunControl:
        """Launches a cluster, once: while a run of that name lives, it is shown instead."""
        with self._served.launching():
            living = self._served.living(cluster.name)
            if living:
                self._say("this cluster is running already: kill it to launch it anew")
                return self.attach(living[0].run_id, ask)
            client = RunClient.launch(
                cluster, text, resume=resume, ask=ask, on_close="nothing", screen=False
            )
            self._served.add(client)
        return self._follow(client)

    def attach(self, run_id: str, ask: PromptHandler) -> RunControl:
        """Follows a run that goes on."""
        run = super().attach(run_id, ask)
        self._served.add(run)
        return run
