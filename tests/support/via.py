"""Clusters on hosts that a command reaches, and what is left of them on this machine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support import command
from tests.support import fault_tasks as tasks
from tests.support.patience import wait_until
from tests.testbed import proc
from tests.testbed.proc import Process

ALL = ("ps:0", "worker:0", "worker:1")


SYSTEM_PYTHON = "/usr/bin/python3"


def cluster(
    folder: Path,
    hosts: str,
    places: Sequence[str] = ("c1", "c1", "c2"),
    *,
    modes: str = "",
    run: str = "lease = 600\ngrace = 1",
    env: str = "",
    more: str = "",
) -> Path:
    """A file of a ps and workers that keep a ledger of what they write."""
    first, *rest = (f"{place}:auto" for place in places)
    text = f"""
name = "via"
{hosts}
[jobs.ps]
tasks = ["{first}"]
[jobs.worker]
tasks = {json.dumps(rest)}
env = {{ MODES = "{modes}" }}
{more}
[run]
command = {json.dumps(tasks.command())}
env = {{ LEDGER = "/tmp/ledger", PACE = "0.03"{env} }}
{'workdir = ""' if "workdir" not in run else ""}
{run}
"""
    return command.write(folder, text)


def commands(run_id: str) -> list[Process]:
    """The living processes of this machine that reach a host of the run: commands of `via` and
    what they have started here."""
    mine = proc.pid_namespace(os.getpid())
    tag = f"TFMUX_AGENT={run_id};"
    return [p for p in proc.scan(mine, saying=tag) if p.alive]


def gone(look: Callable[[], list[Process]], what: str) -> None:
    """Waits until there is nothing; says what there is otherwise."""
    try:
        wait_until(lambda: not look(), what)
    except AssertionError:
        raise AssertionError(f"{what}: {[(p.pid, p.argv, p.tag) for p in look()]}") from None


def table(via: Sequence[str], python: str = SYSTEM_PYTHON) -> str:
    """A host of this machine's own network."""
    return f"""
[hosts.c1]
via = {json.dumps(via)}
address = "127.0.0.1"
python = "{python}"
"""
