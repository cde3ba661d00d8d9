"""MPI libraries of programs, as the loader of this machine finds them."""

from __future__ import annotations

import os
import re
from typing import Sequence

from ..agent.asked import ask_program

_LDD_SECONDS = 10.0
_LIBRARY = re.compile(r"\s*(?:\S*/)?(libp?mpi(?:ch)?(?:_\w+|fort\w*|cxx)?(?:-\w+)?\.so[\w.]*)\b")
_SCRIPT_BYTES = 256


def mpi_library(path: str) -> str:
    """The MPI library that a program, or a library of its, is linked with; empty if none, or where
    there is no `ldd`. Nothing of the program is run but the loader."""
    try:
        said = ask_program(["ldd", path], _LDD_SECONDS, {**os.environ, "LC_ALL": "C"}, os.getcwd())
    except (OSError, ValueError):
        return ""
    for line in (
        b"".join(() if said is None else said[1:2]).decode(errors="replace").splitlines()[:2000]
    ):
        found = _LIBRARY.match(line)
        if found:
            return found.group(1)[:80]
    return ""


def interpreter(path: str) -> Sequence[str]:
    """The words of the first line of a script that names its interpreter; none of other files."""
    try:
        with open(path, "rb") as file:
            first = file.read(_SCRIPT_BYTES).partition(b"\n")[0]
    except OSError:
        return ()
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    return words
