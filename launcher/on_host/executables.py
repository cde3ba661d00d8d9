"""Executables: whether a program can be run, and if not, why."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress

PROGRAM_SECONDS = 30.0
"""Time for a program of a host to answer, such as an interpreter."""
HEAD_BYTES = 256
"""Bytes at the beginning of a file in which the kernel looks for an interpreter."""


def program_problem(
    name: str, path: str | None, folder: str = "/", *, by_shell: bool = False
) -> str:
    """Reason for which a program cannot be run; empty if it can. Of a script the first line is
    read; a shell runs one that has none.

    `path` is the `PATH` on which it is looked for, None for this process's own; a relative name
    with a slash starts from `folder`.
    """
    why, file = _find(name, path, folder)
    if why:
        return why
    head = b""
    with suppress(OSError), open(file, "rb") as opened:  # it may be executed, and not read
        head = opened.read(HEAD_BYTES)
    why, interpreter = first_line(head, by_shell=by_shell)
    if interpreter:
        why = _find(interpreter, path, "/")[0]
        why = why and f"its first line names {interpreter}: {why}"
    return why and f"{file}: {why}"


def _find(name: str, path: str | None, folder: str) -> tuple[str, str]:
    """Reason for which there is no such program, and its file."""
    if "/" not in name:
        found = shutil.which(name, path=path)
        if found:
            return "", found
        for place in (os.environ.get("PATH", "") if path is None else path).split(os.pathsep):
            found = os.path.join(place, name)
            if os.path.isfile(found):
                return f"{found} is not executable", found
        return f"{name} is not on PATH", ""
    whole = os.path.join(folder, name)
    if os.path.isdir(whole):
        return f"{whole} is a directory", whole
    if not os.path.exists(whole):
        return f"{whole}: no such file", whole
    return "" if os.access(whole, os.X_OK) else f"{whole} is not executable", whole


def first_line(head: bytes, *, by_shell: bool = False) -> tuple[str, str]:
    """What is wrong with the first line of a program, and the interpreter in it, by its path or the
    name behind `env`; both are empty for what is no script. A shell runs one without an interpreter
    itself."""
    bare = head[3:] if head.startswith(b"\xef\xbb\xbf") else head
    if not bare.startswith(b"#!"):
        text = bool(head.strip()) and b"\0" not in head and not by_shell
        return "it is text whose first line names no interpreter: #!/bin/sh" if text else "", ""
    if bare is not head:
        return "a byte order mark is before the #! of its first line: save it without one", ""
    line, newline, _ = head[2:].partition(b"\n")
    if line.endswith(b"\r"):
        repair = "sed -i 's/\\r$//'"
        return f"its lines end as in Windows, and there is no such interpreter: {repair} FILE", ""
    if not newline and len(head) == HEAD_BYTES:
        return "", ""  # the kernel cuts it off
    words = line.decode(errors="surrogateescape").strip(" \t").split(None, 1)
    if not words:
        return "its first line names no interpreter", ""
    if os.path.basename(words[0]) == "env" and len(words) > 1:
        return _behind_env(words[1])
    return "", words[0] if words[0].startswith("/") else ""


def _behind_env(text: str) -> tuple[str, str]:
    """As `first_line`, of what stands behind `env`: the kernel passes it on as one argument."""
    if not text.startswith("-") and len(text.split()) > 1:
        return f"its first line has env look for a program called {text!r}: write env -S", ""
    words = text.split()
    name = words[1] if words[0] == "-S" and len(words) > 1 else words[0]
    return "", "" if "=" in name or name.startswith("-") else name
