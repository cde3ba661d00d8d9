"""`~` in commands and environments: no shell reads them, so the plan puts the host's home in.

A word that begins with `~/` is in the home of the host on which its task runs, and in variables
also each part of a list with colons. Elsewhere in a word `~/` stays, as in a shell.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Sequence

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "csh", "tcsh", "busybox")
_SCRIPT = re.compile(r"-[a-z]*c")
TILDE_INSIDE = re.compile(r"(?:\A-[A-Za-z]|\A--?[\w.-]+=|\A[\w.-]+=|[=,@]|\Afile://)~/")
"""A `~` that stays, where a home was meant."""


def with_home(word: str) -> str:
    """A word of a command, in which a leading `~` has become a placeholder."""
    return "{home}" + word[1:] if word == "~" or word.startswith("~/") else word


def command_with_home(command: Sequence[str]) -> list[str]:
    """The words of a command; a script that a shell reads is left to that."""
    return [word if script else with_home(word) for word, script in words_and_scripts(command)]


def value_with_home(value: str) -> str:
    """The value of a variable."""
    return ":".join(map(with_home, value.split(":"))) if "~" in value else value


def with_home_inside(text: str) -> str:
    """A word or a value whose first `~` inside of it has become a placeholder."""
    return re.sub(r"~/", "{home}/", text, count=1)


def words_and_scripts(command: Sequence[str]) -> list[tuple[str, bool]]:
    """The words, each with whether it is a script of a shell."""
    found, shell, asked = [], False, False
    for word in command:
        found.append((word, asked))
        asked = shell and _SCRIPT.fullmatch(word) is not None
        shell = shell or posixpath.basename(word) in _SHELLS
    return found
