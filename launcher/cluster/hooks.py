"""`[hooks]` table of a cluster file: programs of this machine that are told how a run goes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from ..agent.programs import program_problem
from .fields import Command, Key
from .table import Table


def hook_problem(command: Sequence[str], base: Path) -> str:
    """Reason for which the program of a hook cannot be run; empty if it can. A relative path starts
    from `base`."""
    return program_problem(os.path.expanduser(command[0]), None, str(base))


class Hooks(Table):
    """`[hooks]`: programs that the launcher process runs on the launching machine."""

    on_success: Annotated[
        Command | None,
        Key(
            "program and arguments, run on this machine when the run has ended with exit code 0. "
            "It gets the event as JSON on standard input. See `docs/hooks.md`"
        ),
    ] = None
    on_failure: Annotated[
        Command | None, Key("program for a run that has ended with exit code 1, 3 or 4")
    ] = None
    on_stall: Annotated[
        Command | None, Key("program for tasks whose next metric line is long overdue")
    ] = None
    on_end: Annotated[
        Command | None,
        Key("program for a run that has ended, however. It runs beside the ones above"),
    ] = None
