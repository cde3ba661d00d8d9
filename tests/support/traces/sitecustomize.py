"""Writes down which functions of the launcher's main thread are called once a kill has come.

For each launcher process that has this folder on its PYTHONPATH; `TRACE_FILE` gets them in their
order, each as its file below `TRACE_ROOT`, its name, and for a frame that is encoded its kind. Not
among them are comprehensions and lambdas, which are read where they stand, and the constructor
that frozen dataclasses share, as those that Python compiles are not.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any

FIRST, FRAME = "ControlSocket._dispatch", "encode"
CONSTRUCTOR = "_init"
_MOST = 100_000


def begin(argv: Sequence[str]) -> None:
    """Traces a process with these arguments, if it is to be traced."""
    if "TRACE_FILE" not in os.environ or "launcher.process.entry" not in argv:
        return
    file, root = os.environ["TRACE_FILE"], os.environ["TRACE_ROOT"]
    calls: list[str] = []
    begun = False

    def profile(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal begun
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(root) or len(calls) > _MOST:
            return
        if code.co_qualname == FIRST:
            begun = begun or "kill_all" in str(frame.f_locals.get("message"))
        if begun and code.co_name != CONSTRUCTOR and not code.co_name.startswith("<"):
            kind = frame.f_locals.get("kind", "") if code.co_name == FRAME else ""
            calls.append(f"{code.co_filename.removeprefix(root)}\t{code.co_qualname}\t{kind}\n")

    def write() -> None:
        sys.setprofile(None)
        with open(f"{file}.new", "w", encoding="utf-8") as out:
            out.writelines(calls)
        os.replace(f"{file}.new", file)

    atexit.register(write)
    sys.setprofile(profile)


begin(sys.orig_argv)
