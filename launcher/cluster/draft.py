"""A cluster file while it is being edited: its text, what is wrong with it, undo, and the disk.

The text is the truth. A text that is no TOML can be kept and repaired as a text, but is not
saved: nobody could read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ..errors import ClusterFileError, Problem
from .clusters import SaveError, Stamp, write
from .edit import ClusterText
from .file import loads
from .spec import Cluster

_MOST_STEPS = 500


class Disk(StrEnum):
    """How the file stands to what was last read or written here."""

    SAME = "same"
    CHANGED = "changed"
    GONE = "gone"


@dataclass(frozen=True)
class Examined:
    """What a text says."""

    text: str
    document: ClusterText | None
    """None: it is no TOML."""
    cluster: Cluster | None
    """None: something is wrong with it."""
    problems: tuple[Problem, ...]


def examine(text: str, path: Path) -> Examined:
    """Reads a text as the cluster file `path`."""
    try:
        document: ClusterText | None = ClusterText(text)
    except ValueError:
        document = None
    try:
        cluster = loads(text, str(path), path.absolute().parent)
    except ClusterFileError as error:
        return Examined(text, document, None, error.problems)
    return Examined(text, document, cluster, ())


class Draft:
    """The text of one file, its past, and what is on disk."""

    def __init__(self, path: Path) -> None:
        """Reads the file; a missing one is an empty text.

        Raises:
            SaveError: it cannot be read as text.
        """
        self.path = path
        text = _read(path)
        self._stamp = Stamp.of(path)
        self._saved: str | None = text
        if text is None:
            self._saved, text = None, ""
        self.now = examine(text, path)
        self._past: list[Examined] = []
        self._future: list[Examined] = []
        self._kind = ""

    @property
    def modified(self) -> bool:
        """The text differs from what was last read or written."""
        return self.now.text != self._saved

    def edit(self, change: Examined, kind: str = "") -> None:
        """Takes a new text; steps of the same `kind` in a row are undone together."""
        if change.text == self.now.text:
            return
        if not kind or kind != self._kind:
            self._past = [*self._past[-_MOST_STEPS:], self.now]
        self._kind = kind
        self._future.clear()
        self.now = change

    def undo(self) -> bool:
        """Takes the last step back; False when there is none."""
        if not self._past:
            return False
        self._future.append(self.now)
        self.now = self._past.pop()
        self._kind = ""
        return True

    def redo(self) -> bool:
        """Takes an undone step again; False when there is none."""
        if not self._future:
            return False
        self._past.append(self.now)
        self.now = self._future.pop()
        return True

    def disk(self) -> Disk:
        """Looks whether somebody else has written the file."""
        stamp = Stamp.of(self.path)
        if stamp == self._stamp:
            return Disk.SAME
        if stamp is None:
            return Disk.GONE
        try:
            text = _read(self.path)
        except SaveError:
            return Disk.CHANGED
        if text == self._saved:  # touched, or written anew as it was
            self._stamp = stamp
            return Disk.SAME
        return Disk.CHANGED

    def reload(self) -> None:
        """Takes up what is on disk; undo brings the text from before back.

        Raises:
            SaveError: it cannot be read.
        """
        text = _read(self.path)
        if text is None:
            raise SaveError(f"{self.path} is not there any more")
        self.edit(examine(text, self.path))
        self._saved = text
        self._stamp = Stamp.of(self.path)

    def accept_disk(self) -> None:
        """What is on disk now is known, and the text here is to replace it."""
        self._stamp = Stamp.of(self.path)
        self._saved = None

    def save(self, path: Path | None = None) -> None:
        """Writes the text, to another file when one is given.

        Raises:
            SaveError: nobody could read it, or it cannot be written.
        """
        if self.now.document is None:
            first = self.now.problems[0]
            raise SaveError(f"nobody could read this file: line {first.line}: {first.message}")
        target = self.path if path is None else path
        self._stamp = write(target, self.now.text)
        self._saved = self.now.text
        if path is not None:
            self.path = path
            self.now = examine(self.now.text, path)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SaveError(f"{path} is not UTF-8: it can only be changed elsewhere") from None
    except OSError as error:
        raise SaveError(f"{path} cannot be read: {error.strerror}") from None
