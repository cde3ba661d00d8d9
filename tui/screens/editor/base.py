"""What the parts of the editor share: the draft, the sheets, and making an edit."""

from __future__ import annotations

from collections.abc import Callable

from launcher.cluster.draft import Disk, Draft, Examined
from launcher.cluster.edit import ClusterText, EditError
from launcher.cluster.paste import PasteError
from tui.screens.editor.sheets import HostSheet, JobSheet, RunSheet, Sheet, TaskSheet
from tui.screens.editor.table import EditTable
from tui.screens.page import Page
from tui.screens.prompts import Asker
from tui.sessions import Sessions


class EditorBase(Page):
    """The editor without its screen, which says what is shown."""

    def __init__(self, sessions: Sessions, asker: Asker) -> None:
        super().__init__()
        self.sessions = sessions
        self.asker = asker
        self._draft: Draft | None = None
        self._page = "hosts"
        self._told_disk = Disk.SAME
        self._host = HostSheet()
        self._job = JobSheet()
        self._tasks = TaskSheet("")
        self._run = RunSheet()

    @property
    def draft(self) -> Draft:
        """The file being edited."""
        assert self._draft is not None
        return self._draft

    # what the screen provides

    @property
    def _table(self) -> EditTable | None:
        """The table that has the focus."""
        raise NotImplementedError

    def _sheet(self, table: EditTable) -> Sheet:
        """What a table shows."""
        raise NotImplementedError

    def _show_all(self, *, file_too: bool = True) -> None:
        """Shows the draft everywhere."""
        raise NotImplementedError

    def _show_title(self, now: Examined) -> None:
        """Shows the title line."""
        raise NotImplementedError

    def _take(self, document: ClusterText, kind: str = "") -> None:
        """Takes an edit as one step."""
        raise NotImplementedError

    def _missing(self) -> list[str]:
        """Hosts that tasks name and that are nowhere defined."""
        raise NotImplementedError

    def action_page(self, page: str) -> None:
        """Goes to a page."""
        raise NotImplementedError

    # an edit

    def _try(self, change: Callable[[ClusterText], ClusterText]) -> None:
        """Makes an edit; what cannot be done is said."""
        document = self.draft.now.document
        if document is None:
            self.notify("first make the file readable, on page 4")
            return
        try:
            self._take(change(document))
        except (EditError, PasteError, ValueError) as error:
            self.notify(str(error), severity="error", timeout=10, markup=False)
