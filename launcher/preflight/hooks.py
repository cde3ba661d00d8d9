"""Check of the programs of `[hooks]`, which run on this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ..cluster.model import ClusterModel, hook_problem
from .findings import Check, Finding, warning

_TODO = "correct the program, or install it on this machine"


async def check_hooks(
    cluster: ClusterModel, check: Check, host: str, report: Callable[[Finding], None]
) -> None:
    """Warns of hooks that could not be run, in the cell of `check` and `host`: a run goes on
    without them."""
    for key, command in cluster.hooks:
        if command is None:
            continue
        if problem := await asyncio.to_thread(hook_problem, command, cluster.base):
            sentence = f"{cluster.where('hooks', key)}: {problem}, here on the launching machine"
            report(warning(check, "hook-missing", host, f"{key}: missing", sentence, _TODO))
