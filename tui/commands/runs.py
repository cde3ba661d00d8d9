"""`tfmux ps`, `attach`, `kill` and `logs`: runs that were launched before."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from launcher.errors import TaskNotFoundError, TfmuxError
from launcher.ids import TaskId
from launcher.printable import printable
from launcher.run.snapshot import Snapshot
from launcher.run.states import Outcome, RunPhase
from launcher.session.attach import StoredRun, stored
from launcher.session.client import RunClient
from launcher.session.discovery import ActiveRun, ActiveRuns, active_runs
from launcher.store.runs import RunFolder
from tui.commands import launch
from tui.exits import Exit
from tui.headless import Follower, shown
from tui.outcome import queue_text, receipt_lines
from tui.stderr import message

_PACE = 0.02
_RELEASE_SECONDS = 20.0
"""Seconds that the release of the hosts may take after the receipt."""


def ps(arguments: argparse.Namespace) -> int:
    """Lists the runs that still live.

    ``--json``: ``[{"run", "name", "state", "launcher": pid | null, "hosts": [{"host", "agent":
    bool, "tasks": ["ps:0"], "unreachable": reason}]}]``.
    """
    found = asyncio.run(active_runs())
    _tell_unreadable(found)
    if arguments.json:
        sys.stdout.write(json.dumps([_as_json(run) for run in found.runs], indent=2) + "\n")
        return Exit.SUCCESS
    for run in found.runs:
        tended = f"launcher {run.launcher}" if run.launcher else "unsupervised: no launcher"
        sys.stdout.write(f"{printable(run.run_id)}  {run.state}  {tended}\n")
        if run.queued is not None:
            queue = queue_text(run.queued, run.queued_since, time.time())
            sys.stdout.write(f"  {queue}\n")
        for host in run.hosts:
            tasks = " ".join(str(task) for task in host.tasks) or "no task"
            said = printable(f"unreachable: {host.unreachable}") if host.unreachable else tasks
            if host.left:
                said = f"{tasks}: left over, no agent; tfmux kill {run.run_id} ends it"
            if host.agent or host.left or host.unreachable:
                sys.stdout.write(f"  {host.name}  {said}\n")
    if not found.runs and not found.unreadable:
        message("no active runs")
    return Exit.SUCCESS


def attach(arguments: argparse.Namespace) -> int:
    """Comes back to a run; returns its exit code."""
    run = stored(arguments.run, arguments.file)
    if run.damage:
        message(run.damage.told(run.folder.run_id))
    if run.over:
        outcome = run.snapshot().outcome
        message(f"{run.folder.run_id} has ended ({outcome})")
        code = run.snapshot().exit_code
        return Exit.SUCCESS if code is None else code
    return launch.attach(run.folder, arguments)


def kill(arguments: argparse.Namespace) -> int:
    """Ends one run or all, and prints each receipt.

    Raises:
        TfmuxError: neither a run nor `--all` was named.
    """
    code: int = Exit.SUCCESS
    if arguments.all:
        found = asyncio.run(active_runs())
        _tell_unreadable(found)
        code = Exit.UNCONFIRMED if found.unreadable else Exit.SUCCESS
        if not found.runs and not found.unreadable:
            message("no active runs")
        kills = [_begin_listed(run.run_id) for run in found.runs]
    elif arguments.run:
        kills = [_begin(arguments.run, arguments.file)]
    else:
        raise TfmuxError("which run? name it, or say --all; `tfmux ps` lists them")
    code = max([code, *(_end(kill) for kill in kills)])
    for kill in kills:
        if not isinstance(kill, int):
            kill.wait(_RELEASE_SECONDS)
    return code


def _begin(run_id: str, file: Path | None) -> RunClient | int:
    """Begins to end a run; the exit code where there is nothing to wait for."""
    folder = RunFolder.find(run_id) if file is None else stored(run_id, file).folder
    if folder.launcher_pid() is None:
        run = StoredRun(folder)
        if run.damage:
            message(run.damage.told(folder.run_id))
        if run.over:
            message(f"{folder.run_id} has ended already, confirmed")
            return Exit.SUCCESS
    client = RunClient.attach(folder)
    client.kill_all()
    return client


def _begin_listed(run_id: str) -> RunClient | int:
    """Begins to end one run among many: an error of it must not hold up the others."""
    try:
        return _begin(run_id, None)
    except Exception as error:
        message(f"{run_id} could not be killed from here: {error!r}")
        return Exit.UNCONFIRMED


def _end(kill: RunClient | int) -> int:
    if isinstance(kill, int):
        return kill
    while kill.snapshot().state is not RunPhase.ENDED:
        time.sleep(_PACE)
    return _tell_end(kill.snapshot())


def logs(arguments: argparse.Namespace) -> int:
    """Prints stored logs: one task's bytes as they are, or all tasks' lines with their names.
    On a terminal, lines with pictures of what it would act on, unless `--raw` is given.

    Raises:
        TaskNotFoundError: the run has no such task.
    """
    run = stored(arguments.run)
    tasks = [view.id for view in run.snapshot().tasks]
    if arguments.task:
        wanted = TaskId.parse(arguments.task) if ":" in arguments.task else None
        if wanted not in tasks:
            raise TaskNotFoundError(arguments.task, tasks)
        tasks = [task for task in tasks if task == wanted]
    followers = [Follower(run.folder.path / f"{task.stem}.log") for task in tasks]
    pictures, out = sys.stdout.isatty() and not arguments.raw, sys.stdout.buffer
    while True:
        more = False
        for task, follower in zip(tasks, followers, strict=True):
            if arguments.task and not pictures:
                data = follower.read()
                out.write(data)
                more = more or bool(data)
                continue
            name = b"" if arguments.task else f"{task} | ".encode()
            for line in follower.lines(last=not arguments.follow):
                text = line if arguments.raw else shown(line, pictures=pictures).encode()
                out.write(name + text + b"\n")
            more = more or follower.behind
        out.flush()
        if not more and not arguments.follow:
            return Exit.SUCCESS
        if not more:
            time.sleep(_PACE)


def _tell_unreadable(found: ActiveRuns) -> None:
    for run in found.runs:
        if run.problem:
            message(run.problem)
    for unreadable in found.unreadable:
        message(f"{unreadable.run_id} could not be read: {unreadable.reason}")


def _tell_end(snapshot: Snapshot) -> int:
    print(f"run {snapshot.run_id}:", flush=True)
    if snapshot.receipt is not None:
        for line in receipt_lines(snapshot.receipt, snapshot.run_id):
            print(f"  {line}", flush=True)
    if snapshot.allocation is not None and snapshot.allocation.released:
        print(f"  {printable(snapshot.allocation.released)}", flush=True)
    if snapshot.outcome is Outcome.DETACHED:
        message("another launcher took it over meanwhile")
        return Exit.UNCONFIRMED
    clean = snapshot.receipt is not None and snapshot.receipt.clean
    return Exit.SUCCESS if clean else Exit.UNCONFIRMED


def _as_json(run: ActiveRun) -> dict[str, object]:
    hosts = [
        {
            "host": host.name,
            "agent": host.agent,
            "tasks": [str(task) for task in host.tasks],
            "unreachable": host.unreachable,
        }
        for host in run.hosts
    ]
    return {
        "run": run.run_id,
        "name": run.name,
        "state": run.state,
        "launcher": run.launcher,
        "hosts": hosts,
    }
