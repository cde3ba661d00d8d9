"""Git's rule of what is ignored, read without git: the `.gitignore` files from the repository's
root on, `info/exclude`, `excludesFile`; a file that git tracks is never ignored.

git is not asked even where it is installed. It need not be there, it refuses repositories of other
owners, and it says nothing of directories outside of repositories, whose `.gitignore` files hold
here as well. One reader gives one answer everywhere, and knows the line that ignores a file.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..cluster.patterns import IgnoreRules
from ..frozen import frozen

_LARGEST_TEXT = 1 << 20
"""Bytes of a configuration or of a list of patterns that are read."""
_LARGEST_INDEX = 1 << 28
_DEEPEST = 10
"""Configuration files that include each other."""
_GITLINK, _SPARSE_FOLDER = 0o160000, 0o040000
_ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}


@frozen
class IgnoreRule:
    """The line that leaves a path out."""

    source: str
    """The file, as people are told."""
    line: int
    pattern: str

    def __str__(self) -> str:
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{place} ({self.pattern})"


@frozen
class Repository:
    """A work tree of git: its root, its own folder, and the folder that its work trees share."""

    root: str
    folder: str
    common: str

    @classmethod
    def at(cls, root: str) -> Repository | None:
        """The repository whose root is this directory; None: it is not one."""
        folder = os.path.join(root, ".git")
        if os.path.isfile(folder):  # of a further work tree, or of a submodule
            head, _, place = _text(folder).partition(":")
            if head != "gitdir":
                return None
            folder = os.path.normpath(os.path.join(root, place.strip()))
        if not os.path.isfile(os.path.join(folder, "HEAD")):
            return None
        common = _text(os.path.join(folder, "commondir")).strip()
        return cls(root, folder, os.path.normpath(os.path.join(folder, common)))

    @classmethod
    def around(cls, folder: str) -> Repository | None:
        """The repository that a directory is in; None: it is in none."""
        while True:
            found = cls.at(folder)
            if found is not None or folder == "/":
                return found
            folder = os.path.dirname(folder)


class GitIgnore:
    """What git ignores of a directory, which may be in a repository or have repositories in it.

    `enter` comes for each directory before what is in it is asked for.
    """

    def __init__(self, root: Path) -> None:
        self._shown = root
        real = os.path.realpath(root)
        self._root = real
        self._layers: list[tuple[str, IgnoreRules, str]] = []
        """For each list of patterns the absolute directory that it is about, and the file; the one
        that decides comes last."""
        self._tracked: set[str] = set()
        self._with_tracked: set[str] = set()
        self._ignored: dict[str, IgnoreRule] = {}
        """Directories that are ignored, but for the files in them that git tracks."""
        repository = Repository.around(real)
        if repository is None:
            return
        config = dict(_config(repository))
        self._add(repository.root, _excludes_file(repository, config))
        self._read(repository, config)
        above = os.path.dirname(real) if real != repository.root else ""
        parents = []
        while above and len(above) >= len(repository.root):
            parents.append(above)
            above = os.path.dirname(above) if above != "/" else ""
        for folder in reversed(parents):
            self._add(folder, os.path.join(folder, ".gitignore"))

    def enter(self, folder: str) -> None:
        """Reads what is said of this directory in it: a path below the root that ends in a slash,
        or nothing for the root."""
        whole = os.path.normpath(os.path.join(self._root, folder))
        if folder and (inner := Repository.at(whole)) is not None:
            self._read(inner, dict(_config(inner)))
        self._add(whole, os.path.join(whole, ".gitignore"))

    def rule(self, relative: str) -> IgnoreRule | None:
        """The line that ignores a path below the root (that of a directory ends in a slash); None:
        no line does."""
        if relative in self._tracked:
            return None
        parent = relative.rstrip("/").rpartition("/")[0]
        found = self._ignored.get(f"{parent}/") or self._decided(relative)
        if found is not None and relative in self._with_tracked:
            self._ignored[relative] = found
            return None
        return found

    def _decided(self, relative: str) -> IgnoreRule | None:
        whole = f"{self._root.rstrip('/')}/{relative}"
        for folder, rules, file in reversed(self._layers):
            base = f"{folder.rstrip('/')}/"
            if whole.startswith(base) and (line := rules.line(whole[len(base) :])) is not None:
                number, pattern, ignored = line
                return IgnoreRule(self._named(file), number, pattern) if ignored else None
        return None

    def _named(self, file: str) -> str:
        """A file of patterns as people know it."""
        inside = f"{self._root.rstrip('/')}/"
        return str(self._shown / file[len(inside) :]) if file.startswith(inside) else file

    def _add(self, folder: str, file: str) -> None:
        # Like git, which does not follow a link in a work tree.
        if file and not (os.path.basename(file) == ".gitignore" and os.path.islink(file)):
            if text := _text(file).removeprefix("\ufeff"):
                lines = [line.removesuffix("\r") for line in text.split("\n")]
                self._layers.append((folder, IgnoreRules(lines), file))

    def _read(self, repository: Repository, config: dict[str, str]) -> None:
        """Reads `info/exclude` of a repository, and the paths that it tracks below the root."""
        self._add(repository.root, os.path.join(repository.common, "info/exclude"))
        size = 32 if config.get("extensions.objectformat") == "sha256" else 20
        base = os.path.relpath(repository.root, self._root)
        above = os.path.relpath(self._root, repository.root)
        for name in tracked(os.path.join(repository.folder, "index"), size):
            if not base.startswith(".."):  # the root itself, or a repository in it
                path = name if base == "." else f"{base}/{name}"
            elif name.startswith(f"{above}/"):
                path = name[len(above) + 1 :]
            else:
                continue
            self._tracked.add(path)
            while (at := path.rstrip("/").rfind("/")) > 0:
                path = path[: at + 1]
                if path in self._with_tracked:
                    break
                self._with_tracked.add(path)


def tracked(index: str, hash_bytes: int) -> Iterator[str]:
    """Yields the paths in an index of git, those of directories (submodules, and what is left out
    of a sparse work tree) with a slash. Nothing where there is no index, or one of another kind."""
    try:
        with open(index, "rb") as file:
            data = file.read(_LARGEST_INDEX)
        yield from _paths(data, index, hash_bytes)
    except (OSError, struct.error, ValueError, IndexError):
        return


def _paths(data: bytes, index: str, hash_bytes: int) -> Iterator[str]:
    signature, version, count = struct.unpack_from(">4sII", data)
    if signature != b"DIRC" or version not in (2, 3, 4):
        return
    at, name = 12, b""
    for _ in range(count):
        (mode,) = struct.unpack_from(">I", data, at + 24)
        start, flags = at, at + 40 + hash_bytes
        long = version > 2 and data[flags] & 0x40
        at = flags + (4 if long else 2)
        if version == 4:
            cut, at = _varint(data, at)
            end = data.index(b"\0", at)
            name = name[: len(name) - cut] + data[at:end]
            at = end + 1
        else:
            end = data.index(b"\0", at)
            name = data[at:end]
            at = start + (end - start + 8) // 8 * 8
        folder = mode in (_GITLINK, _SPARSE_FOLDER) and not name.endswith(b"/")
        if name:  # a split index repeats entries without their names
            yield os.fsdecode(name) + ("/" if folder else "")
    while at + 8 < len(data) - hash_bytes:
        kind, size = struct.unpack_from(">4sI", data, at)
        if kind == b"link":
            shared = data[at + 8 : at + 8 + hash_bytes].hex()
            yield from tracked(
                os.path.join(os.path.dirname(index), f"sharedindex.{shared}"), hash_bytes
            )
        at += 8 + size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1


def _excludes_file(repository: Repository, config: dict[str, str]) -> str:
    path = config.get("core.excludesfile")
    if path is None:
        return os.path.join(_xdg(), "git/ignore")
    return os.path.join(repository.root, os.path.expanduser(path)) if path else ""


def _xdg() -> str:
    return os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")


def _config(repository: Repository) -> Iterator[tuple[str, str]]:
    """Yields the settings that hold in a repository, with those that win last."""
    files = []
    if os.environ.get("GIT_CONFIG_NOSYSTEM", "0").lower() in ("0", "false", "no", "off", ""):
        files.append(os.environ.get("GIT_CONFIG_SYSTEM", "/etc/gitconfig"))
    own = os.environ.get("GIT_CONFIG_GLOBAL")
    both = [os.path.join(_xdg(), "git/config"), os.path.expanduser("~/.gitconfig")]
    files += both if own is None else [own]
    for file in (*files, os.path.join(repository.common, "config")):
        yield from _settings(file, repository.folder, _DEEPEST)
    yield from _settings(os.path.join(repository.folder, "config.worktree"), "", _DEEPEST)


def _settings(file: str, git_folder: str, deeper: int) -> Iterator[tuple[str, str]]:
    """Yields the settings of a configuration file, with those of files that it includes."""
    for section, inner, name, value in _parse(_text(file)):
        if section == "include" and name == "path":
            included = True
        elif section == "includeif" and name == "path":
            included = _holds(inner, git_folder, os.path.dirname(file))
        else:
            yield (f"{section}.{name}", value)
            continue
        if included and deeper:
            path = os.path.join(os.path.dirname(file), os.path.expanduser(value))
            yield from _settings(path, git_folder, deeper - 1)


def _holds(condition: str, git_folder: str, base: str) -> bool:
    """Whether a condition is one on the place of the repository, and holds."""
    kind, _, pattern = condition.partition(":")
    if kind not in ("gitdir", "gitdir/i"):
        return False
    if pattern.startswith("./"):
        pattern = os.path.join(base, pattern[2:])
    pattern = os.path.expanduser(pattern)
    pattern = pattern if pattern.startswith("/") else f"**/{pattern}"
    pattern += "**" if pattern.endswith("/") else ""
    places = {git_folder, os.path.realpath(git_folder)}
    if kind == "gitdir/i":
        pattern, places = pattern.lower(), {place.lower() for place in places}
    rules = IgnoreRules([pattern])
    return any(rules.ignores(place.lstrip("/")) for place in places)


def _parse(text: str) -> Iterator[tuple[str, str, str, str]]:
    """Yields section, subsection, name and value of each line; names are in small letters."""
    section = inner = ""
    lines = iter(text.replace("\\\n", "\\\0").replace("\\\r\n", "\\\0").splitlines())
    for line in lines:
        line = line.strip(" \t\r")
        if line.startswith("["):
            head, _, line = line[1:].partition("]")
            if '"' in head:  # which may have a bracket in it
                head, _, line = f"{head}]{line}".partition('"]')
            section, _, inner = head.partition(" ")
            section, inner = section.lower(), inner.strip().strip('"').replace("\\", "")
            line = line.strip(" \t")
        if not line or line[0] in "#;":
            continue
        name, equals, value = line.partition("=")
        yield section, inner, name.strip().lower(), _value(value) if equals else "true"


def _value(text: str) -> str:
    """The value behind `=`: quotes and escapes are resolved, a comment is cut off."""
    found, keep, quoted, escaped = "", 0, False, False
    for each in text.lstrip(" \t"):
        if escaped:
            escaped = False
            found += "" if each == "\0" else _ESCAPES.get(each, each)
            keep = len(found)
        elif each == "\\":
            escaped = True
        elif each == '"':
            quoted = not quoted
            keep = len(found)
        elif each in "#;" and not quoted:
            break
        else:
            found += each
            keep = len(found) if quoted or each not in " \t" else keep
    return found[:keep]


def _text(file: str) -> str:
    """The text of a small file; empty where it cannot be read, or is none."""
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            return stream.read(_LARGEST_TEXT).decode(errors="replace")
    return ""
