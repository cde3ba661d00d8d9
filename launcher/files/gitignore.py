"""Files that git ignores, as git itself says.

It is asked once for each repository that is met, without the programs that a configuration may
name, and for ten seconds in all. Where it is not installed, refuses a repository of another owner
or does not answer, and outside of repositories, the `.gitignore` files alone count; of a
repository that is said (`GitIgnore.note`).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ..agent.asked import AskedProgram
from ..cluster.patterns import IgnoreRules
from ..frozen import frozen
from ..printable import printable

_SECONDS = 10.0
_MOST_BYTES = 64 << 20
"""Bytes of an answer: a directory that is ignored is one entry."""
_MOST_REPOSITORIES = 200
_LARGEST_TEXT = 1 << 20
_IGNORED = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
_GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_LINE = re.compile(r'"?(?P<file>[^\n]*?)"?:(?P<line>\d+):(?P<pattern>[^\t\n]*)\t')


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


@dataclass
class _Region:
    """A part of the tree: a repository, or what is in none."""

    folder: str
    """Its path below the root, which ends in a slash, or nothing."""
    ignored: frozenset[str] | None = None
    """Paths below `folder`, those of directories with a slash; None: git has not said them."""
    layers: list[tuple[str, IgnoreRules, str]] = field(default_factory=list)
    """For each list of patterns the absolute directory that it is about, and the file; the one
    that decides comes last."""


class GitIgnore:
    """What git ignores of a directory, which may be in a repository or have repositories in it.

    `enter` comes for each directory before what is in it is asked for.
    """

    def __init__(self, root: Path) -> None:
        self.note = ""
        """Why git was not asked about a repository; empty where it was."""
        self._shown = root
        self._root = os.path.realpath(root)
        self._until = time.monotonic() + _SECONDS
        self._repositories = 0
        self._regions: dict[str, _Region] = {}
        """The region of each directory that was entered."""

    def enter(self, folder: str) -> None:
        """Reads what is said of this directory in it: a path below the root that ends in a slash,
        or nothing for the root."""
        whole = os.path.normpath(os.path.join(self._root, folder))
        if not folder:
            region = self._root_region()
        elif os.path.lexists(os.path.join(whole, ".git")):
            region = self._repository(folder, whole)
        else:
            region = self._regions[_above(folder)]
        self._regions[folder] = region
        if region.ignored is None:
            _add(region, whole)

    def ignores(self, relative: str) -> bool:
        """Whether a path below the root (that of a directory ends in a slash) is ignored."""
        region = self._regions[_above(relative)]
        if region.ignored is None:
            return self._decided(region, relative) is not None
        return "./" in region.ignored or relative[len(region.folder) :] in region.ignored

    def rule(self, relative: str) -> IgnoreRule | None:
        """The line that ignores a path; None where no line does, or git does not tell it."""
        region = self._regions[_above(relative)]
        if region.ignored is None:
            return self._decided(region, relative)
        place = os.path.normpath(os.path.join(self._root, region.folder))
        said, _ = self._ask(place, ("check-ignore", "-v", "--", relative[len(region.folder) :]))
        found = _LINE.match(os.fsdecode(said or b""))
        if found is None or found["pattern"].startswith("!"):
            return None
        top, _ = self._ask(place, ("rev-parse", "--show-toplevel"))
        file = os.path.join(os.fsdecode(top or b"").rstrip("\n") or place, found["file"])
        return IgnoreRule(self._named(file), int(found["line"]), found["pattern"])

    def _root_region(self) -> _Region:
        above = [self._root]
        while above[-1] != "/" and not os.path.lexists(os.path.join(above[-1], ".git")):
            above.append(os.path.dirname(above[-1]))
        if not os.path.lexists(os.path.join(above[-1], ".git")):
            return _Region("")
        region = self._repository("", self._root)
        if region.ignored is None:
            for folder in reversed(above[1:]):
                _add(region, folder)
        return region

    def _repository(self, folder: str, whole: str) -> _Region:
        """The region of a repository, which git is asked about."""
        self._repositories += 1
        if self._repositories > _MOST_REPOSITORIES:
            said, why = None, f"there are more than {_MOST_REPOSITORIES} repositories"
        else:
            said, why = self._ask(whole, _IGNORED)
        if said is None:
            shown = self._named(f"{whole}/")
            self.note = self.note or (
                f"git does not say what it ignores in {shown} ({why}): its .gitignore files alone "
                "count, also for files that git tracks"
            )
            return _Region(folder)
        return _Region(folder, frozenset(map(os.fsdecode, said.split(b"\0"))))

    def _ask(self, folder: str, words: Sequence[str]) -> tuple[bytes | None, str]:
        """What git prints in a directory; None, and why, where it has no answer."""
        if time.monotonic() > self._until:
            return None, f"it has taken more than {_SECONDS:.0f} s"
        env = {n: value for n, value in os.environ.items() if not n.startswith("GIT_")}
        try:
            program = AskedProgram([*_GIT, *words], env=env, cwd=folder)
        except FileNotFoundError:
            return None, "git is not installed"
        except OSError as error:
            return None, error.strerror or str(error)
        said = program.answer(self._until, _MOST_BYTES)
        if said is None:
            return None, f"no answer in {_SECONDS:.0f} s"
        if said.status != 0 or len(said.out) >= _MOST_BYTES:
            lines = said.errors.decode(errors="replace").strip().splitlines()
            return None, printable(lines[0], 200) if lines else f"status {said.status}"
        return said.out, ""

    def _decided(self, region: _Region, relative: str) -> IgnoreRule | None:
        whole = f"{self._root.rstrip('/')}/{relative}"
        for folder, rules, file in reversed(region.layers):
            base = f"{folder.rstrip('/')}/"
            if whole.startswith(base) and (line := rules.line(whole[len(base) :])) is not None:
                number, pattern, ignored = line
                return IgnoreRule(self._named(file), number, pattern) if ignored else None
        return None

    def _named(self, file: str) -> str:
        """A file of patterns as people know it."""
        inside = f"{self._root.rstrip('/')}/"
        return str(self._shown / file[len(inside) :]) if file.startswith(inside) else file


def _above(path: str) -> str:
    """The directory that a path is in, with a slash at its end, or nothing."""
    parent = path.rstrip("/").rpartition("/")[0]
    return f"{parent}/" if parent else ""


def _add(region: _Region, folder: str) -> None:
    """Adds the `.gitignore` of a directory; like git, which does not follow a link there."""
    file = os.path.join(folder, ".gitignore")
    if text := _text(file).removeprefix("\ufeff"):
        lines = [line.removesuffix("\r") for line in text.split("\n")]
        region.layers.append((folder, IgnoreRules(lines), file))


def _text(file: str) -> str:
    """The text of a small file; empty where it cannot be read, or is none."""
    with suppress(OSError):
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
        with open(descriptor, "rb") as stream:
            return stream.read(_LARGEST_TEXT).decode(errors="replace")
    return ""
