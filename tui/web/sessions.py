"""How a page launches and attaches: always a launcher in the background, seen by a viewer."""

from __future__ import annotations

from collections.abc import Callable

from launcher.cluster.spec import Cluster
from launcher.hosts.credentials import PromptHandler
from launcher.session.attach import StoredRun
from launcher.session.control import RunControl
from launcher.session.viewing import Viewer
from launcher.store.runs import RunFolder
from tui.sessions import EndedRun, Sessions
from tui.web.launches import Launches


class ServedSessions(Sessions):
    """Sessions of a page: when it closes, its runs go on."""

    def __init__(self, launches: Launches, say: Callable[[str], None]) -> None:
        """`say` shows the person a line."""
        super().__init__()
        self._launches = launches
        self._say = say

    def launch(
        self, cluster: Cluster, text: str, ask: PromptHandler, resume: str | None = None
    ) -> RunControl:
        """Launches a cluster, once: while a run of that name lives, it is shown instead."""
        launched = self._launches.launch(cluster, text, resume)
        if launched.again:
            self._say("this cluster runs already; F9 ends it, then it can be launched anew")
        return self.view(launched.folder, ask)

    def attach(self, run_id: str, ask: PromptHandler) -> RunControl:
        """Shows a living run; one that nobody tends gets a launcher first."""
        folder = RunFolder.find(run_id)
        self._launches.attach(folder)
        return self.view(folder, ask)

    def take(self, run: StoredRun, ask: PromptHandler) -> RunControl:
        """The same, of a run that has been read already."""
        return self.attach(run.folder.run_id, ask)

    def hold(self, run: StoredRun, ask: PromptHandler) -> RunControl:
        """The same: nothing else is done to a run here."""
        return self.take(run, ask)

    def view(self, folder: RunFolder, ask: PromptHandler) -> Viewer:
        """Looks at a run; what its launcher asks, this page asks."""
        viewer = Viewer(
            folder,
            tended=lambda: self._launches.tended(folder),
            rescue=lambda: self._launches.attach(folder),
            ask=ask,
        )
        return self._keep(viewer)

    def close(self) -> list[EndedRun]:
        """Looks no more. Nothing is ended: there are no sessions in here."""
        return super().close()
