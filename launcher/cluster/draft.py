"""Cluster file that is being edited: what its text says, and the file on disk behind it.

A text that is not valid TOML can be kept and corrected, but not saved.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path

from ..errors import ClusterFileError, Problem
from ..frozen import frozen
from ..paths import Stamp
from .edit import ClusterDocument
from .file_model import ClusterModel
from .generated import render_import
from .key_lines import KeyLines
from .library import free_path, plain_name, with_schema_line
from .read import model_of, parse_toml
from .saved_file import SaveError, write
from .shorthand import MOST_BYTES, ShorthandError, understand_file


class FileStatus(StrEnum):
    """State of the file on disk since it was last read or written here."""

    UNCHANGED = "unchanged"
    CHANGED = "changed"
    DELETED = "deleted"


@frozen
class ParsedDraft:
    """Text of a cluster file with all that was read from it."""

    text: str
    document: ClusterDocument | None
    """None: the text is not valid TOML, or too large or too deep for a cluster file."""
    cluster: ClusterModel | None
    """None: there are problems."""
    problems: tuple[Problem, ...]
    lines: KeyLines
    """Lines of the keys; of a text that is not valid, those before the error."""


def parse(text: str, path: Path) -> ParsedDraft:
    """Parses a text as the cluster file `path`."""
    toml = parse_toml(text)
    document = None if toml.values is None else ClusterDocument(text, toml.values)
    cluster: ClusterModel | None = None
    problems: tuple[Problem, ...] = ()
    try:
        cluster = model_of(toml, str(path), path.absolute().parent)
    except ClusterFileError as error:
        problems = error.problems
    return ParsedDraft(text, document, cluster, problems, toml.lines)


class Draft:
    """The file behind an edited text."""

    def __init__(self, path: Path) -> None:
        """Reads the file; a missing one is an empty text.

        Raises:
            SaveError: the file cannot be read as text.
        """
        self.path = path
        self.saved = _read(path)
        """The text that was last read or written; None while there is no such file."""
        self._stamp = Stamp.of(path)

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
        if text == self.saved:  # only its times have changed
            self._stamp = stamp
            return FileStatus.UNCHANGED
        return FileStatus.CHANGED

    def reload(self) -> str:
        """Reads the file again.

        Raises:
            SaveError: the file cannot be read.
        """
        text = _read(self.path)
        if text is None:
            raise SaveError(f"{self.path}: the file no longer exists")
        self.saved, self._stamp = text, Stamp.of(self.path)
        return text

    def accept_disk(self) -> None:
        """Accepts the file as it is on disk now; the next `save` will replace it."""
        self.saved, self._stamp = None, Stamp.of(self.path)

    def save(self, now: ParsedDraft, path: Path | None = None) -> str:
        """Writes a text, to another file when one is given, and returns it as it was written: a
        file that is new gets the `#:schema` line.

        Raises:
            SaveError: the text is no TOML of a cluster file, or the file cannot be written.
        """
        if now.document is None:
            first = now.problems[0]
            where = f"fix line {first.line} before saving: " if first.line else ""
            raise SaveError(f"not valid TOML: {where}{first.message}")
        target = self.path if path is None else path
        text = now.text if os.path.exists(target) else with_schema_line(now.text, target)
        self._stamp = write(target, text)
        self.saved, self.path = text, target
        return text


@frozen
class ImportedDraft:
    """A new cluster, made of the file of another program."""

    path: Path
    """Where the cluster will be saved: a name that no file has."""
    text: str
    sentence: str
    """What was understood, and what was left out."""


def imported(path: Path) -> ImportedDraft | None:
    """Makes a cluster of a TFJob, a Compose file, a host file and the like; None for a cluster file
    and where there is no file.

    Raises:
        SaveError: the file is neither, or cannot be read.
    """
    if path.suffix.lower() == ".toml" or not os.path.isfile(path):
        return None
    if os.path.getsize(path) > MOST_BYTES:
        raise SaveError(f"{path.name} is larger than 1 MiB: this is not a cluster")
    text = _read(path) or ""
    if not text.strip() or _is_cluster_file(text):
        return None
    try:
        understood = understand_file(text, path.name)
    except ShorthandError as error:
        raise SaveError(f"{path.name} is not a cluster file: {error}") from None
    stem = plain_name(understood.name or path.stem)
    target = free_path(path.parent, stem)
    return ImportedDraft(target, render_import(understood, target.stem), understood.sentence)


def _is_cluster_file(text: str) -> bool:
    """Whether a text has a table of cluster files, also where it is no valid TOML."""
    return bool(_TABLE.search(text))


_TABLE = re.compile(r"^\s*\[(?:hosts|jobs|run|start|slurm|defaults)(?:\.[^\]\n]+)?\]", re.MULTILINE)


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        raise SaveError(f"{path} is not UTF-8: convert it to UTF-8 first") from None
    except OSError as error:
        raise SaveError(f"{path} cannot be read: {error.strerror}") from None
