"""Executables: whether a program can be run, and if not, why."""

from __future__ import annotations

import os
import shutil


def program_problem(name: str, path: str | None, folder: str = "/") -> str:
    """Reason for which a program cannot be run; empty if it can.

    `path` is the `PATH` on which it is looked for, None for this process's own; a relative name
    with a slash starts from `folder`.
    """
    if "/" not in name:
        if shutil.which(name, path=path):
            return ""
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
    return "" if os.access(whole, os.X_OK) else f"{whole} is not executable"
