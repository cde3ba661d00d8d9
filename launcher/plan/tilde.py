"""`~` in commands and environments: no shell reads them, so the plan puts the host's home in.

A word that begins with `~/` is in the home of the host on which its task runs, and in variables
also each part of a list with colons. Elsewhere in a word `~/` stays, as in a shell.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from ..cluster.file_model import ClusterModel

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "busybox")
_SCRIPT = re.compile(r"-[a-z]*c")
_INSIDE = re.compile(r"(?:\A-[A-Za-z]|\A--?[\w.-]+=|\A[\w.-]+=|[=,@]|\Afile://)~/")


def with_home(word: str) -> str:
    """A word of a command, in which a leading `~` has become a placeholder."""
    return "{home}" + word[1:] if word == "~" or word.startswith("~/") else word


def command_with_home(command: Sequence[str]) -> list[str]:
    """The words of a command; a script that a shell reads is left to that."""
    return [word if script else with_home(word) for word, script in _words(command)]


def value_with_home(value: str) -> str:
    """The value of a variable."""
    return ":".join(map(with_home, value.split(":"))) if "~" in value else value


def tilde_problems(cluster: ClusterModel, job: str = "", host: str = "") -> Iterator[str]:
    """Which words of commands and variables have a `~/` that stays as it is, and what to write
    instead: of a job on a host, or of all. The cluster file is read, not what has been put in."""
    jobs = [cluster.jobs[job]] if job else list(cluster.jobs.values())
    hosts = [cluster.hosts[host]] if host in cluster.hosts else []
    for table in jobs:
        if problem := _command_problem(table.command or cluster.run.command or ()):
            yield problem
    for env in (cluster.run.env, *(one.env for one in (hosts if host else cluster.hosts.values()))):
        yield from filter(None, (_value_problem(name, value) for name, value in env.items()))
    for table in jobs:
        yield from filter(None, (_value_problem(*pair) for pair in table.env.items()))


def _command_problem(words: Sequence[str]) -> str:
    for word, script in _words(words):
        if not script and _INSIDE.search(word):
            return f"{word} has a ~ that no shell reads: write {_repaired(word)}"
    return ""


def _repaired(word: str) -> str:
    return re.sub(r"~/", "{home}/", word, count=1)


def _value_problem(name: str, value: str) -> str:
    if any(_INSIDE.search(part) for part in value.split()):
        return f"{name} = {value} has a ~ that no shell reads: write {_repaired(value)}"
    return ""


def _words(command: Sequence[str]) -> list[tuple[str, bool]]:
    """The words, each with whether it is a script of a shell."""
    found, shell, asked = [], False, False
    for word in command:
        found.append((word, asked))
        asked = shell and _SCRIPT.fullmatch(word) is not None
        shell = shell or posixpath.basename(word) in _SHELLS
    return found
