"""`tfmux kill`: ends runs and prints their receipts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable

from launcher.client.launcher_link import has_launcher
from launcher.client.launcher_process import LauncherProcess
from launcher.client.run_client import RunClient
from launcher.errors import ClusterFileError, TfmuxError
from launcher.history.run_list import active_runs
from launcher.history.stored import StoredRun
from launcher.printable import printable
from launcher.run.snapshot import Snapshot
from launcher.run.states import Outcome, RunPhase
from launcher.store.runs import RunFolder
from launcher.store.stream import read_stream
from tui.commands.ps import print_unreadable
from tui.commands.which_run import named_or_active
from tui.exits import Exit, exit_code, first_of
from tui.streams import message, print_lines

_PACE = 0.02
_RELEASE_SECONDS = 20.0
"""Seconds that the release of the hosts may take after the receipt."""


def kill(arguments: argparse.Namespace) -> int:
    """Ends one run, without a name the one active run, or all, and prints each receipt.

    Raises:
        TfmuxError: all are to be forgotten.
        RunNotFoundError: no run was named, and none or several are active.
    """
    if arguments.all and arguments.forget:
        raise TfmuxError("--forget is for one run: name it")
    code: int = Exit.SUCCESS
    if arguments.all:
        found = active_runs()
        print_unreadable(found)
        code = Exit.UNCONFIRMED if found.unreadable else Exit.SUCCESS
        if not (found.runs or found.unreadable):
            message("no active runs")
        kills = [_begin_listed(run.folder, arguments.force) for run in found.runs]
    else:
        folder, with_file = named_or_active(arguments), arguments.file is not None
        kills = [_begin(folder, arguments.force, with_file=with_file, process=arguments.process)]
    code = first_of([code, *(_end(kill) for kill in kills)])
    from tui.outcome import result_lines

    for kill in kills:
        if not isinstance(kill, int):
            kill.wait(_RELEASE_SECONDS)
            print_lines(f"  {line}" for line in result_lines(kill.snapshot()))
            if arguments.forget and not kill.snapshot().clean:
                _forget(kill.snapshot())
    return code


def _forget(snapshot: Snapshot) -> None:
    """Takes a run from the list of active runs, and says what may live."""
    from launcher.run.state import named

    receipt = snapshot.receipt
    hosts = [host for host in receipt.hosts if not host.confirmed] if receipt is not None else []
    names = named(printable(host.host) for host in hosts) or "its hosts"
    message(f"{snapshot.run_id} is no longer listed; its processes may still run on {names}")
    RunFolder.find(snapshot.run_id).forget()


def _begin(
    folder: RunFolder,
    force: bool,
    *,
    with_file: bool = False,
    process: LauncherProcess | None = None,
) -> RunClient | int:
    """Begins to end a run, with a launcher process that was started beforehand if it needs one;
    the exit code where there is nothing to wait for. `with_file`: its cluster file was given."""
    if not has_launcher(folder):
        stream = read_stream(folder.events, folder.run_id)
        ended = stream.end is not None or stream.views.run.state is RunPhase.ENDED
        # Which makes a plan: not while a kill waits.
        if ended and (run := StoredRun(folder)).over:
            if run.damage:
                message(run.damage.describe(folder.run_id))
            message(f"{folder.run_id} has ended already, confirmed")
            return Exit.SUCCESS
    try:
        client = RunClient.kill(folder, force=force, process=process)
        if client.damage:
            message(client.damage.describe(folder.run_id))
        return client
    except ClusterFileError as error:
        if not with_file:
            message(
                f"tfmux kill {folder.run_id} --file FILE uses another copy of its cluster file:"
            )
        raise error


def _begin_listed(folder: RunFolder, force: bool) -> RunClient | int:
    """Begins to end one run among many: an error of it must not hold up the others."""
    try:
        return _begin(folder, force)
    except Exception as error:
        message(f"{folder.run_id} could not be killed: {error!r}")
        return Exit.UNCONFIRMED


def _end(kill: RunClient | int) -> int:
    if isinstance(kill, int):
        return kill
    from tui.outcome import receipt_lines  # the run is ending meanwhile

    while kill.snapshot().state is not RunPhase.ENDED:
        time.sleep(_PACE)
    snapshot = kill.snapshot()
    return _print_end(snapshot, receipt_lines(snapshot))


def _print_end(snapshot: Snapshot, receipt: Iterable[str]) -> int:
    lines = [f"run {snapshot.run_id}:", *(f"  {line}" for line in receipt)]
    if snapshot.allocation is not None and snapshot.allocation.released:
        lines.append(f"  {printable(snapshot.allocation.released)}")
    print_lines(lines)
    if snapshot.receipt is None and snapshot.launcher_error:
        message(snapshot.launcher_error)
    if snapshot.outcome is Outcome.TAKEN_OVER:
        message(f"another launcher ({snapshot.taken_by}) has taken it over: nothing was ended here")
        return exit_code(snapshot.exit_code, detached=False)
    return Exit.SUCCESS if snapshot.clean else Exit.UNCONFIRMED
