"""Library of saved clusters, `$XDG_CONFIG_HOME/tfmux/clusters/NAME.toml`.

Files are written atomically: the new text goes to a temporary file that replaces the old one. A
deleted cluster is moved to a hidden folder, so that undo works after a restart.

A new file begins with a `#:schema` line, from which text editors know the keys (Taplo, Tombi, Even
Better TOML). It names a file of this machine, so that it works offline, by a path from the cluster
file: it holds no user name, and both may move together with the home.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from ..frozen import frozen
from ..paths import config_home
from .edit import ClusterDocument, EditError, line_end
from .reference import schema_text
from .saved_file import SaveError, write
from .values import LONGEST_NAME, name_problem

_SCHEMA_LINE = re.compile(r"\A\ufeff?(?:[ \t]*(?:#.*)?\r?\n)*?#:schema[ \t]+(\S+)")
_SCHEMA_FILE = "cluster.schema.json"


def folder() -> Path:
    """Returns the directory of saved clusters."""
    return config_home() / "clusters"


def saved() -> list[Path]:
    """Lists all saved clusters by name."""
    try:
        found = [path for path in folder().glob("*.toml") if not path.name.startswith(".")]
    except OSError:
        return []
    return sorted(found, key=lambda path: path.stem.lower())


def path_of(name: str) -> Path:
    """Returns the file of a saved cluster, which need not exist.

    Raises:
        SaveError: the name is not valid.
    """
    if problem := name_problem(name):
        raise SaveError(problem)
    return folder() / f"{name}.toml"


def plain_name(wanted: str) -> str:
    """Returns a name for a cluster that is like `wanted`, with room for a number."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", wanted).strip("-._")[: LONGEST_NAME - 6] or "cluster"


def free_name(wanted: str) -> str:
    """Returns `wanted`, or `wanted-N` with the first N that no saved cluster has."""
    stem = plain_name(wanted)
    taken = {path.stem.lower() for path in saved()}
    if stem.lower() not in taken:
        return stem
    base = re.sub(r"-\d+$", "", stem)
    return next(
        name for number in range(2, 10**6) if (name := f"{base}-{number}").lower() not in taken
    )


def free_path(folder: Path, stem: str) -> Path:
    """Returns the path of a new cluster file in any directory, whose name is like `stem`."""
    names = (f"{stem}{f'-{number}' if number > 1 else ''}.toml" for number in range(1, 10**6))
    return next(path for name in names if not os.path.lexists(path := folder / name))


def create(name: str, text: str) -> Path:
    """Saves a new cluster.

    Raises:
        SaveError: the name is taken or not valid, or the file cannot be written.
    """
    path = path_of(name)
    if path.exists():
        raise SaveError(f"there is already a cluster {name}: use another name")
    write(path, with_schema_line(with_name(text, name), path))
    return path


def duplicate(path: Path, name: str) -> Path:
    """Saves a copy under another name.

    Raises:
        SaveError: see `create`; or the original cannot be read.
    """
    try:
        return create(name, path.read_bytes().decode("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise SaveError(f"{path} cannot be read: {_reason(error)}") from None


def rename(path: Path, name: str) -> Path:
    """Renames a saved cluster, in the file as well. Nothing that happens in between, be it the end
    of this process, leaves no file, or one whose name and content disagree.

    Raises:
        SaveError: the name is taken or not valid, or the file cannot be moved; nothing has changed.
    """
    new = path_of(name)
    if new == path:
        return path
    if new.exists() and not new.samefile(path):
        raise SaveError(f"there is already a cluster {name}: use another name")
    try:
        text = path.read_bytes().decode("utf-8")
        named = with_name(text, name)
        if named == text or path.is_symlink() or new.exists():  # the last: only letters' case
            if named != text:
                write(path, named)
            os.rename(path, new)
        else:
            _move(path, new, named)
    except (OSError, UnicodeDecodeError) as error:
        raise SaveError(f"{path.name} cannot be renamed: {_reason(error)}") from None
    return new


def _move(path: Path, new: Path, text: str) -> None:
    """Writes a file under its new name, and then removes the old one."""
    mode = stat.S_IMODE(path.stat().st_mode)
    write(new, text)
    try:
        new.chmod(mode)
        path.unlink()
    except OSError:
        new.unlink()
        raise


@frozen
class Deleted:
    """A deleted cluster, which was moved to `aside`."""

    path: Path
    aside: Path

    def restore(self) -> Path:
        """Restores it, under another name if its own is taken.

        Raises:
            SaveError: it cannot be moved back.
        """
        target = self.path if not self.path.exists() else path_of(free_name(self.path.stem))
        try:
            os.rename(self.aside, target)
        except OSError as error:
            what = f"{self.path.name} cannot be restored: {_reason(error)}"
            raise SaveError(what) from None
        return target


def delete(path: Path) -> Deleted:
    """Moves a saved cluster to the folder of deleted clusters.

    Raises:
        SaveError: it cannot be moved.
    """
    aside = path.parent / ".deleted" / path.name
    try:
        aside.parent.mkdir(mode=0o700, exist_ok=True)
        os.replace(path, aside)
    except OSError as error:
        raise SaveError(f"{path.name} cannot be deleted: {_reason(error)}") from None
    return Deleted(path, aside)


def with_name(text: str, name: str) -> str:
    """Sets the cluster's `name` if the text has one, else it is the name of the file; a text that
    is not valid is returned unchanged."""
    try:
        document = ClusterDocument(text)
        return document.put(("name",), name).text if "name" in document.data else text
    except (ValueError, EditError):
        return text


def with_schema_line(text: str, path: Path) -> str:
    """Adds the `#:schema` line to the text of a new file, and writes the schema that it names. A
    line that names another schema is kept; where the schema cannot be written, none is added."""
    found = _SCHEMA_LINE.match(text)
    if found and Path(found[1]).name != _SCHEMA_FILE:
        return text
    schema = config_home() / _SCHEMA_FILE
    try:
        if not schema.exists() or schema.read_text(encoding="utf-8") != schema_text():
            write(schema, schema_text())
    except (OSError, UnicodeDecodeError, SaveError):
        return text
    place = quote(os.path.relpath(schema, os.path.abspath(path.parent)))
    if found:
        return text[: found.start(1)] + place + text[found.end(1) :]
    return f"#:schema {place}{line_end(text)}{text.removeprefix(chr(0xFEFF))}"


def deleted() -> Iterator[Deleted]:
    """Lists the deleted clusters, the last one first."""
    aside = folder() / ".deleted"
    with suppress(OSError):
        for path in sorted(aside.glob("*.toml"), key=lambda p: p.stat().st_ctime, reverse=True):
            yield Deleted(folder() / path.name, path)


def _reason(error: Exception) -> str:
    return (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8"
