"""State of an editor: the draft, and the file with the text that is being typed into a cell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from launcher.cluster.draft import Draft, FileStatus, ParsedDraft, parse
from launcher.cluster.edit import ClusterDocument, EditError
from launcher.cluster.shorthand import ShorthandError, missing_hosts
from tui.screens.editor.document_edits import all_tasks, engine_of

Change = Callable[[ClusterDocument], ClusterDocument]
EDIT_ERRORS = (EditError, ShorthandError, ValueError)
"""Raised by edits that cannot be made, with a sentence to show."""
UNREADABLE = "not valid TOML: fix it on the File page first"


class EditorState:
    """Draft and trial, shown and changed by all parts of an editor. It has no widgets."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._draft: Draft | None = None
        self._trial: ParsedDraft | None = None
        self._trial_of: ParsedDraft | None = None
        self.reported_disk = FileStatus.UNCHANGED
        """The last state of the file on disk that the user was told of."""

    def load(self) -> None:
        """Reads the file.

        Raises:
            SaveError: it cannot be read as text.
        """
        self._draft = Draft(self._path)

    @property
    def loaded(self) -> bool:
        """The file has been read."""
        return self._draft is not None

    @property
    def draft(self) -> Draft:
        assert self._draft is not None
        return self._draft

    @property
    def trial(self) -> ParsedDraft | None:
        """The file with the text being typed, once that is checked and until the draft changes."""
        return self._trial if self._trial_of is self.draft.now else None

    @trial.setter
    def trial(self, trial: ParsedDraft | None) -> None:
        self._trial, self._trial_of = trial, self.draft.now

    @property
    def displayed(self) -> ParsedDraft:
        """The draft, or the trial while there is one."""
        return self.trial or self.draft.now

    @property
    def document(self) -> ClusterDocument | None:
        """The draft's document; None while the text is not valid TOML."""
        return self.draft.now.document

    def edit(self, change: Change) -> None:
        """Changes the document, as one step of undo.

        Raises:
            EditError, ShorthandError, ValueError: the change cannot be made.
        """
        if self.document is None:
            raise EditError(UNREADABLE)
        text = change(self.document).text
        self.trial = None
        self.draft.edit(parse(text, self.draft.path))

    def set_text(self, text: str) -> bool:
        """Replaces the text; False if it is the same. Steps of typing are undone together."""
        if text == self.draft.now.text:
            return False
        self.draft.edit(parse(text, self.draft.path), "text")
        return True

    def missing_hosts(self) -> list[str]:
        """Hosts that tasks name and the file does not define."""
        if self.document is None or engine_of(self.document) is not None:
            return []
        return missing_hosts(all_tasks(self.document), self.document.table("hosts"))
