"""Draft of a cluster file that is being edited: its text, its problems, undo, and the file on disk.

A text that is not valid TOML can be kept and corrected, but not saved.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..errors import ClusterFileError, Problem
from .edit import ClusterDocument
from .library import with_schema_line
from .model import ClusterModel
from .read import loads
from .saved_file import SaveError, Stamp, write

_MOST_STEPS = 500


class FileStatus(StrEnum):
    """State of the file on disk since it was last read or written here."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    DELETED = "deleted"


@dataclass(frozen=True)
class ParsedDraft:
    """Text of a cluster file with all that was read from it."""

    text: str
    document: ClusterDocument | None
    """None: the text is not valid TOML."""
    cluster: ClusterModel | None
    """None: there are problems."""
    problems: tuple[Problem, ...]


def parse(text: str, path: Path) -> ParsedDraft:
    """Parses a text as the cluster file `path`."""
    try:
        document: ClusterDocument | None = ClusterDocument(text)
    except ValueError:
        document = None
    try:
        cluster = loads(text, str(path), path.absolute().parent)
    except ClusterFileError as error:
        return ParsedDraft(text, document, None, error.problems)
    return ParsedDraft(text, document, cluster, ())


class Draft:
    """Text of one file with its history."""

    def __init__(self, path: Path) -> None:
        """Reads the file; a missing one is an empty text.

        Raises:
            SaveError: the file cannot be read as text.
        """
        self.path = path
        text = _read(path)
        self._stamp = Stamp.of(path)
        self._saved: str | None = text
        if text is None:
            self._saved, text = None, ""
        self.now = parse(text, path)
        self._past: list[ParsedDraft] = []
        self._future: list[ParsedDraft] = []
        self._kind = ""

    @property
    def modified(self) -> bool:
        """The text differs from what was last read or written."""
        return self.now.text != self._saved

    def edit(self, change: ParsedDraft, kind: str = "") -> None:
        """Sets a new text; consecutive steps of the same `kind` are undone together."""
        if change.text == self.now.text:
            return
        if not kind or kind != self._kind:
            self._past = [*self._past[-_MOST_STEPS:], self.now]
        self._kind = kind
        self._future.clear()
        self.now = change

    def undo(self) -> bool:
        """Undoes the last step; False when there is none."""
        if not self._past:
            return False
        self._future.append(self.now)
        self.now = self._past.pop()
        self._kind = ""
        return True

    def redo(self) -> bool:
        """Redoes an undone step; False when there is none."""
        if not self._future:
            return False
        self._past.append(self.now)
        self.now = self._future.pop()
        return True

    def file_status(self) -> FileStatus:
        """Checks whether another program has written the file."""
        stamp = Stamp.of(self.path)
        if stamp == self._stamp:
            return FileStatus.UNCHANGED
        if stamp is None:
            return FileStatus.DELETED
        try:
            text = _read(self.path)
        except SaveError:
            return FileStatus.CHANGED
        if text == self._saved:  # only its times have changed
            self._stamp = stamp
            return FileStatus.UNCHANGED
        return FileStatus.CHANGED

    def reload(self) -> None:
        """Reads the file again; undo restores the text from before.

        Raises:
            SaveError: the file cannot be read.
        """
        text = _read(self.path)
        if text is None:
            raise SaveError(f"{self.path}: the file no longer exists")
        self.edit(parse(text, self.path))
        self._saved = text
        self._stamp = Stamp.of(self.path)

    def accept_disk(self) -> None:
        """Accepts the file as it is on disk now; the next `save` will replace it."""
        self._stamp = Stamp.of(self.path)
        self._saved = None

    def save(self, path: Path | None = None) -> None:
        """Writes the text, to another file when one is given. A file that is new gets the
        `#:schema` line.

        Raises:
            SaveError: the text is not valid TOML, or the file cannot be written.
        """
        if self.now.document is None:
            first = self.now.problems[0]
            raise SaveError(f"not valid TOML: fix line {first.line} before saving: {first.message}")
        target = self.path if path is None else path
        text = self.now.text if os.path.exists(target) else with_schema_line(self.now.text, target)
        self._stamp = write(target, text)
        self._saved = text
        self.path = target
        self.now = parse(text, target)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SaveError(f"{path} is not UTF-8: convert it to UTF-8 first") from None
    except OSError as error:
        raise SaveError(f"{path} cannot be read: {error.strerror}") from None
