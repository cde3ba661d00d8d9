"""`tfmux up` and `tfmux demo`: launch a cluster file, on the screen or headless."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from launcher import api
from launcher.client.run_client import RunClient
from launcher.cluster.file_model import ClusterModel
from launcher.errors import TfmuxError
from launcher.store.runs import RunFolder, beside_notes
from tui import demos
from tui.commands.hosts_from import read_cluster
from tui.exits import Exit, exit_code
from tui.headless import run_headless
from tui.log.guesses import say_faults
from tui.streams import message, missing_terminal, write_line

if TYPE_CHECKING:
    from launcher.client.launcher_process import LauncherProcess
    from launcher.history.again import EarlierRun
    from tui.run_clients import EndedRun
    from tui.screens.prompt_dialogs import PromptDialogs


_FIRST_SECONDS = 2.0
"""Time for a launcher process to tell of the run before there is a screen: one that cannot begin
needs none."""


def up(arguments: argparse.Namespace) -> int:
    """Launches a cluster file, or a past run again; returns the run's exit code."""
    if getattr(arguments, "again", None) is None:
        if arguments.file is None:
            raise TfmuxError("name a cluster file, or launch the last run again: tfmux up --again")
        return launch(lambda: read_cluster(arguments, for_launch=True), arguments)
    if arguments.file or arguments.hosts_from or arguments.hostfile:
        raise TfmuxError("--again launches what was launched: leave out FILE and the hosts")
    from launcher.history.again import EarlierRun  # few need these
    from launcher.history.named_runs import any_run
    from tui.commands.which_run import last_run

    folder = any_run(arguments.again) if arguments.again else last_run()
    earlier = EarlierRun.read(folder)
    arguments.resume = arguments.resume or earlier.resumed
    return launch(lambda: (earlier.cluster, earlier.text), arguments, earlier)


def demo(arguments: argparse.Namespace) -> int:
    """Launches a demo and returns the run's exit code, or prints a line for each demo."""
    if not arguments.list:
        arguments.file = demos.find(arguments.name)
        demos.check_machine()
        return up(arguments)
    wide = max(len(name) for name in demos.names())
    for name in demos.names():
        sys.stdout.write(f"{name:<{wide}}  {demos.about(demos.find(name))}\n")
    return Exit.SUCCESS


def launch(
    read: Callable[[], tuple[ClusterModel, str]],
    arguments: argparse.Namespace,
    earlier: EarlierRun | None = None,
) -> int:
    """Launches the cluster, with its text, that `read` returns; returns the run's exit code.
    `earlier`: the run that is launched again."""
    cluster, text = read()
    process: LauncherProcess | None = getattr(arguments, "process", None)
    resume = getattr(arguments, "resume", None)
    named = getattr(arguments, "file", None) or earlier is not None
    beside = beside_notes(cluster) if named else []
    as_json = getattr(arguments, "json", False)
    headless = as_json or getattr(arguments, "headless", False)
    if not headless and (missing := missing_terminal()):
        message(f"no terminal on {missing}: continuing as with --headless")
        headless = True
    if headless:
        for sentence in beside:
            message(sentence)
        if earlier is not None:
            for sentence in (f"{earlier.folder.run_id} is launched again", *earlier.changes()):
                message(sentence)
        quiet = getattr(arguments, "quiet_remarks", False)
        return run_headless(
            lambda begun: api.Cluster(cluster, text).launch(
                resume=resume, process=process, begun=begun
            ),
            as_json=as_json,
            quiet_remarks=quiet,
        )
    prompts = _prompts()
    client = RunClient.launch(cluster, text, resume=resume, process=process, ask=prompts)
    for sentence in beside:
        client.note(sentence)
    if earlier is not None:
        from tui.run_clients import note_changes

        note_changes(client, earlier)
    return show(client, prompts)


def attach(folder: RunFolder, arguments: argparse.Namespace) -> int:
    """Follows a run that goes on; returns its exit code."""
    if arguments.headless or arguments.json or missing_terminal():
        return run_headless(
            lambda begun: api.Run.attach(folder.run_id, begun=begun),
            as_json=arguments.json,
            quiet_remarks=arguments.quiet_remarks,
        )
    prompts = _prompts()
    return show(RunClient.attach(folder, ask=prompts), prompts)


def _prompts() -> PromptDialogs:
    from tui.screens.prompt_dialogs import PromptDialogs

    return PromptDialogs()


def show(client: RunClient, prompts: PromptDialogs) -> int:
    """Opens the run screen, unless the run could not begin; returns the exit code. A screen that
    fails is opened once more; the run goes on in any case."""
    from tui import crash
    from tui.app import TfmuxApp
    from tui.job_signals import pass_on_signals
    from tui.run_clients import RunClients

    clients = RunClients(launched=[client])

    def present() -> RunClient:
        """The client of the run that was launched last."""
        return (clients.launched() or [client])[-1]

    pass_on_signals(present)
    error: BaseException | None = None
    try:
        client.await_state(_FIRST_SECONDS)
        if client.snapshot().tasks or client.living:
            error = crash.run_app_twice(
                lambda before: TfmuxApp(present(), prompts=prompts, clients=clients, before=before),
                lambda: present().folder.path,
                interrupt=clients.interrupt,
                terminate=clients.terminate,
                hang_up=clients.hang_up,
                is_ending=lambda: present().ending,
            )
            if error is not None:
                clients.detach_all()
    finally:
        # However the screen ended, no run may go on unwatched.
        ended = clients.close()
    print_reports(ended)
    if error is not None:
        return Exit.CRASHED
    last = ended[-1]
    return exit_code(last.snapshot.exit_code, detached=last.detached, doubt=last.doubt)


def print_reports(ended: Sequence[EndedRun]) -> None:
    """Says on stderr how runs have ended that were launched on a screen which has gone."""
    from tui.outcome import report

    for run in ended:
        write_line(report(run.snapshot, run.folder.path, detached=run.detached, doubt=run.doubt))
    say_faults()
