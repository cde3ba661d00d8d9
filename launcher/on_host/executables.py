"""Executables: whether a program can be run, and if not, why."""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import suppress

PROGRAM_SECONDS = 30.0
"""Time for a program of a host to answer, such as an interpreter."""
HEAD_BYTES = 256
"""Bytes at the beginning of a file in which the kernel looks for an interpreter."""
_ENV_VALUES = ("-u", "--unset", "-C", "--chdir")
"""Options of `env` with a value."""
_DEEPEST = 4
"""Interpreters that are scripts themselves."""


def program_problem(
    name: str, path: str | None, folder: str = "/", depth: int = 0, *, by_shell: bool = False
) -> str:
    """Reason for which a program cannot be run; empty if it can. Of a script the first line is
    read; a shell runs one that has none.

    `path` is the `PATH` on which it is looked for, None for this process's own; a relative name
    with a slash starts from `folder`.
    """
    if "/" not in name:
        found = shutil.which(name, path=path)
        if found:
            return _script_problem(found, path, depth, by_shell)
        for place in (os.environ.get("PATH", "") if path is None else path).split(os.pathsep):
            found = os.path.join(place, name)
            if os.path.isfile(found):
                return f"{found} is not executable"
        return f"{name} is not on PATH"
    whole = os.path.join(folder, name)
    if os.path.isdir(whole):
        return f"{whole} is a directory"
    if not os.path.exists(whole):
        return f"{whole}: no such file"
    if not os.access(whole, os.X_OK):
        return f"{whole} is not executable"
    return _script_problem(whole, path, depth, by_shell)


def _script_problem(file: str, path: str | None, depth: int, by_shell: bool) -> str:
    head = b""
    with suppress(OSError), open(file, "rb") as opened:  # it may be executed, and not read
        head = opened.read(HEAD_BYTES)
    why, interpreter = first_line(head, by_shell=by_shell)
    if not why and interpreter and depth < _DEEPEST:
        why = program_problem(interpreter, path, depth=depth + 1)
        why = why and f"its first line names {interpreter}: {why}"
    return why and f"{file}: {why}"


def first_line(head: bytes, *, by_shell: bool = False) -> tuple[str, str]:
    """What is wrong with the first line of a program, and the interpreter in it, by its path or the
    name behind `env`; both are empty for what is no script. A shell runs one without an interpreter
    itself."""
    bare = head[3:] if head.startswith(b"\xef\xbb\xbf") else head
    if not bare.startswith(b"#!"):
        text = bool(head.strip()) and b"\0" not in head and not by_shell
        return "it is text whose first line names no interpreter: #!/bin/sh" if text else "", ""
    if bare is not head:
        return "a byte order mark stands before the #! of its first line: save it without one", ""
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
    try:
        words = shlex.split(text)
    except ValueError:
        return "", ""
    for word in words:
        if word in _ENV_VALUES:
            break
        if not word.startswith("-") and "=" not in word:
            return "", word
    return "", ""
