"""Listing of what is copied to a host: `check`, `plan` and a launch ask it, and get one answer.

A directory is read without its contents: which files, directories and links go, which links do not
and why. What is ignored is not in a listing; `Copied.problem` says for one path which line leaves
it out.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ..agent.by_products import BYTECODE, ENVIRONMENT, ENVIRONMENT_MARKS
from ..cluster.patterns import IgnoreRules
from ..errors import TfmuxError
from ..frozen import frozen
from .gitignore import GitIgnore, IgnoreRule

MARKER = ".tfmux-check-"
"""Beginning of the name of a file by which a preflight finds shared directories."""
_NEVER = (f"{BYTECODE}/", "*.pyc", f"{ENVIRONMENT}/", ".tfmux/", f"{MARKER}*")
_GIT = ".git"
_KEYS = ".ssh"
GONE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ESTALE)
"""What is said of a file that has been removed meanwhile, or replaced by something else."""
_MOST_LINKS = 40


@frozen
class Tree:
    """Local directory that is copied to the folder `name` on hosts."""

    name: str
    root: Path
    exclude: tuple[str, ...] = ()
    prefix: str = ""
    """Prefix of every path: the trainer's package keeps its name."""
    filtered: bool = True
    """Whether `.gitignore` files and the patterns of what is never sent apply."""
    git: bool = True
    """Whether what git ignores is left out where the tree is `filtered`."""
    skip: frozenset[str] = frozenset()
    """Directories that are in another tree."""
    exclude_places: tuple[str, ...] = ()
    """Where people find each pattern of `exclude`."""
    named: bool = True
    """The directory is named by its whole path: it is copied even if it is a home."""
    top: Path | None = None
    """The local directory that is the folder `name`; None: `root` without the prefix."""


class Listed(NamedTuple):
    """A file ("f"), directory ("d") or link ("l") that is copied: its path in the tree's folder,
    the local one, permissions, size, and a link's target there."""

    path: str
    source: str
    kind: str
    mode: int
    size: int
    target: str


class LeftOut(NamedTuple):
    """A link that is not copied, and why."""

    path: str
    why: str


@frozen
class Listing:
    """All that is copied of a tree, and the links that are not."""

    listed: tuple[Listed, ...]
    left_out: tuple[LeftOut, ...]
    note: str = ""
    """Why git was not asked what it ignores; empty where it was, or is not needed."""


def list_tree(tree: Tree) -> Listing:
    """Walks a tree; blocks, so call it in a thread. What vanishes meanwhile is passed over.

    Raises:
        TfmuxError: the directory is not there or is not copied without being named, or something
            in it cannot be read.
    """
    listed: list[Listed] = []
    left_out: list[LeftOut] = []
    rules = _Rules(tree)
    for relative, path, info in _walk(tree, rules):
        name = tree.prefix + relative if relative != "." else tree.prefix.rstrip("/") or "."
        mode = stat.S_IMODE(info.st_mode) & 0o777
        if stat.S_ISDIR(info.st_mode):
            listed.append(Listed(name, path, "d", mode, 0, ""))
        elif stat.S_ISREG(info.st_mode):
            if not os.access(path, os.R_OK) and os.path.lexists(path):
                raise TfmuxError(f"{path}: {os.strerror(errno.EACCES)}")
            listed.append(Listed(name, path, "f", mode, info.st_size, ""))
        elif stat.S_ISLNK(info.st_mode):
            try:
                target, why = _target(tree, name, path)
            except OSError:  # it has been removed, or replaced
                continue
            if why:
                left_out.append(LeftOut(name, why))
            else:
                listed.append(Listed(name, path, "l", 0o777, 0, target))
    return Listing(tuple(listed), tuple(left_out), rules.note)


def refusal(folder: Path) -> str:
    """Reason for which a directory is copied to hosts only where it is named by its whole path;
    empty if there is none."""
    if why := _too_much(folder):
        return why
    keys = folder / _KEYS
    return _keys(str(keys)) if keys.is_dir() else ""


def _too_much(folder: Path) -> str:
    real = os.path.realpath(folder)
    if _KEYS in real.split("/"):
        return f"{folder}: refused to copy SSH keys to hosts: name the directory by its whole path"
    todo = "work in a directory of the project; to copy nothing write "
    todo += "workdir = \"\" (tfmux run --workdir ''), to copy all of it workdir = "
    if real == "/":
        return f'{folder}: refused to copy all files of this machine to hosts: {todo}"/"'
    if real in _homes():
        return f'{folder}: refused to copy your home to hosts: {todo}"~"'
    return ""


def _keys(path: str) -> str:
    return (
        f'{path}: refused to copy SSH keys to hosts: write exclude = ["{_KEYS}"], or the whole '
        "path of the directory in workdir to copy them"
    )


def _homes() -> set[str]:
    homes = {os.path.expanduser("~")}
    try:
        homes.add(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass  # a number without an account
    return {os.path.realpath(home) for home in homes}


def walk(tree: Tree) -> Iterator[tuple[str, str, os.stat_result]]:
    """Yields directories, files and links below the root that are not ignored; an ignored directory
    is not entered. Blocks.

    Raises:
        TfmuxError: the directory is not there or is not copied without being named, or something
            in it cannot be read.
    """
    yield from _walk(tree, _Rules(tree))


def _walk(tree: Tree, rules: _Rules) -> Iterator[tuple[str, str, os.stat_result]]:
    root = str(tree.root)
    if not os.path.isdir(root):
        raise TfmuxError(f"{root}: not a directory; correct workdir or data")
    if not tree.named and (why := _too_much(tree.root)):
        raise TfmuxError(why)
    todo = [("", os.stat(root))]
    while todo:
        folder, info = todo.pop()
        place = os.path.join(root, folder) if folder else root
        try:
            with os.scandir(place) as listing:
                found = sorted(listing, key=lambda item: item.name)
        except OSError as error:
            if folder and error.errno in GONE:
                continue
            raise TfmuxError(f"{place.rstrip('/') or '/'}: {error.strerror}") from error
        if tree.filtered:
            rules.enter(folder)
        yield folder.rstrip("/") or ".", place, info
        for item in found:
            relative = f"{folder}{item.name}"
            if relative in tree.skip:
                continue
            try:
                info = item.stat(follow_symlinks=False)
            except OSError as error:
                if error.errno in GONE:
                    continue
                raise TfmuxError(f"{item.path}: {error.strerror}") from error
            directory = stat.S_ISDIR(info.st_mode)
            if tree.filtered and rules.leave_out(relative, directory=directory):
                continue
            if directory:
                if item.name == _KEYS and not tree.named:
                    raise TfmuxError(_keys(item.path))
                todo.append((f"{relative}/", info))
            else:
                yield relative, item.path, info


class _Rules:
    """Rules of what is not copied. Those of `exclude`, and of what is never copied, come first."""

    def __init__(self, tree: Tree) -> None:
        self._root = str(tree.root)
        self._places = tree.exclude_places or ("exclude",) * len(tree.exclude)
        self._excluded = IgnoreRules([*_NEVER, *tree.exclude])
        self._git = GitIgnore(tree.root) if tree.filtered and tree.git else None

    def enter(self, folder: str) -> None:
        """Reads the rules in a directory, whose path is empty or ends in a slash."""
        if self._git is not None:
            self._git.enter(folder)

    @property
    def note(self) -> str:
        """Why git was not asked what it ignores; empty where it was."""
        return "" if self._git is None else self._git.note

    def leave_out(self, relative: str, *, directory: bool) -> bool:
        """Whether a path is not copied."""
        path = relative + ("/" if directory else "")
        if self._own(relative, path, directory):
            return True
        return self._git is not None and self._git.ignores(path)

    def why(self, relative: str, *, directory: bool) -> str:
        """Reason for which a path is not copied; empty if it is."""
        path = relative + ("/" if directory else "")
        if why := self._own(relative, path, directory):
            return why
        if self._git is None or not self._git.ignores(path):
            return ""
        return f"left out by {self._git.rule(path) or 'git, which ignores it'}"

    def _own(self, relative: str, path: str, directory: bool) -> str:
        """Reason for which tfmux itself, or `exclude`, leaves a path out."""
        name = relative.rpartition("/")[2]
        if name == _GIT:
            return "tfmux copies no .git"
        line = self._excluded.line(path)
        if line is not None and line[2]:
            number = line[0] - len(_NEVER)
            if number < 1:
                return f"tfmux copies no {line[1].rstrip('/')}"
            return f"left out by {IgnoreRule(self._places[number - 1], 0, line[1])}"
        if directory and line is None and (mark := _environment(self._root, relative)):
            return f"a virtual environment ({mark}), which holds paths of this machine alone"
        return ""


def _environment(root: str, relative: str) -> str:
    """The mark of a virtual environment, which holds absolute paths of this machine; empty if a
    directory has none."""
    folder = os.path.join(root, relative)
    return next((mark for mark in ENVIRONMENT_MARKS if os.path.exists(f"{folder}/{mark}")), "")


def _target(tree: Tree, name: str, path: str) -> tuple[str, str]:
    """Where a link leads in the tree's folder, and why it is not copied.

    Raises:
        OSError: it is no link any more.
    """
    content = os.readlink(path)
    target = os.path.normpath(os.path.join(os.path.dirname(name), content))
    if content.startswith("/") or target == ".." or target.startswith("../"):
        whole = os.path.normpath(os.path.join(os.path.dirname(path), content))
        found = _inside(tree, whole)
        if found is None:
            where = "" if os.path.exists(path) else " and does not exist"
            return "", f"a link to {content}, which is outside of {tree.top or tree.root}{where}"
        target, content = found, os.path.relpath(found, os.path.dirname(name) or ".")
    beside = any(target == place or target.startswith(f"{place}/") for place in tree.skip)
    if not beside and not os.path.exists(path):
        return "", f"a link to {content}, which does not exist"
    return content, ""


def _inside(tree: Tree, whole: str) -> str | None:
    """The path in the tree's folder that a local path has; None: it is outside."""
    top, prefix = (tree.root, tree.prefix) if tree.top is None else (tree.top, "")
    for base in (str(top), os.path.realpath(top)):
        for path in (whole, os.path.realpath(whole)):
            if path == base or path.startswith(f"{base.rstrip('/')}/"):
                return os.path.normpath(prefix + os.path.relpath(path, base))
    return None


class Copied:
    """What is copied into the workdir of a host, by its paths there."""

    def __init__(self, trees: Sequence[tuple[Tree, Listing]]) -> None:
        self._trees = [tree for tree, _ in trees]
        self.left_out = tuple(each for _, listing in trees for each in listing.left_out)
        """The links that are not copied."""
        self.notes = tuple(dict.fromkeys(listing.note for _, listing in trees if listing.note))
        """Sentences on repositories of which git does not say what it ignores."""
        self._listed = {each.path: each for _, listing in trees for each in listing.listed}
        self._folders = {"", "."}
        for path in self._listed:
            while (path := os.path.dirname(path)) and path not in self._folders:
                self._folders.add(path)
        files = [each for each in self._listed.values() if each.kind == "f"]
        self.files, self.bytes = len(files), sum(each.size for each in files)

    def largest(self) -> tuple[str, int]:
        """The first part of paths below which most bytes are, and their number."""
        sizes = {"": 0}
        for each in self._listed.values():
            first = each.path.partition("/")[0]
            sizes[first] = sizes.get(first, 0) + each.size
        return max(sizes.items(), key=lambda pair: pair[1])

    def find(self, path: str) -> Listed | None:
        """The file or directory at a path, behind all links; None: there is none."""
        place = self._followed(path)
        if place in self._folders:
            return self._listed.get(place) or Listed(place, "", "d", 0o755, 0, "")
        return self._listed.get(place)

    def below(self, path: str) -> Iterator[str]:
        """Yields the paths of the files and links below a directory."""
        place = self._followed(path)
        prefix = "" if place in ("", ".") else f"{place}/"
        return (each for each in self._listed if each.startswith(prefix))

    def local(self, path: str) -> str:
        """The path on this machine that a path has, or would have if it were copied; or nothing."""
        for tree in reversed(self._trees):  # data directories come after the one that they are in
            prefix = tree.prefix.rstrip("/")
            if not prefix or path == prefix or path.startswith(f"{prefix}/"):
                return os.path.normpath(f"{tree.root}/{path[len(prefix) :]}")
        return ""

    def is_file_here(self, path: str) -> bool:
        """Whether a path is that of a file or of a link on this machine, or is behind a link that
        is not copied."""
        if any(path.startswith(f"{link.path}/") for link in self.left_out):
            return True
        local = self.local(path)
        return bool(local) and (os.path.isfile(local) or os.path.islink(local))

    def problem(self, path: str) -> str:
        """Reason for which a path is not there, though it is on this machine; empty if it is there,
        or on neither."""
        place = self._followed(path)
        if place in self._listed or place in self._folders:
            return ""
        for each in self.left_out:
            if place == each.path or place.startswith(f"{each.path}/"):
                return f"{each.path} is not copied: it is {each.why}"
        local = self.local(place)
        if not local or not os.path.lexists(local):
            return ""
        return self._rule(place)

    def _followed(self, path: str) -> str:
        """A path without the links in it, as far as it is copied."""
        links = 0
        path = os.path.normpath(path)
        at = 0
        while True:
            at = path.find("/", at + 1)
            part = path if at < 0 else path[:at]
            found = self._listed.get(part)
            if found is not None and found.kind == "l" and links < _MOST_LINKS:
                links += 1
                rest = "" if at < 0 else path[at:]
                path = os.path.normpath(f"{os.path.dirname(part) or '.'}/{found.target}{rest}")
                at = 0
            elif at < 0:
                return path

    def _rule(self, place: str) -> str:
        """The rule that leaves a path out which is on this machine."""
        for tree in self._trees:
            prefix = tree.prefix.rstrip("/")
            if not tree.filtered or not place.startswith(prefix):
                continue
            rules, parts = _Rules(tree), place[len(prefix) :].strip("/").split("/")
            for count in range(1, len(parts) + 1):
                folder = "/".join(parts[: count - 1])
                rules.enter(f"{folder}/" if folder else "")
                inside = "/".join(parts[:count])
                directory = count < len(parts) or os.path.isdir(f"{tree.root}/{inside}")
                if why := rules.why(inside, directory=directory):
                    shown = f"{inside}/" if directory else inside
                    return f"{shown} is not copied: {_as_clause(why)}"
        return f"{place} is not copied: it is not a file"


def _as_clause(why: str) -> str:
    return f"it is {why}" if why.startswith(("left", "a ")) else why
