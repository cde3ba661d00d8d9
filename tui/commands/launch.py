"""`tfmux up` and `tfmux demo`: launch a cluster file, on the screen or headless."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from launcher import api
from launcher.cluster import ClusterModel
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder
from tui import demos
from tui.commands.hosts_from import read_cluster
from tui.exits import Exit, exit_code
from tui.headless import run_headless
from tui.streams import message, missing_terminal, write_line

if TYPE_CHECKING:
    from launcher.session.launcher_process import LauncherProcess
    from tui.screens.prompt_dialogs import PromptDialogs


def up(arguments: argparse.Namespace) -> int:
    """Launches a cluster file; returns the run's exit code."""
    return launch(lambda: read_cluster(arguments, for_launch=True), arguments)


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


def launch(read: Callable[[], tuple[ClusterModel, str]], arguments: argparse.Namespace) -> int:
    """Launches the cluster, with its text, that `read` returns; returns the run's exit code."""
    cluster, text = read()
    process: LauncherProcess | None = getattr(arguments, "process", None)
    resume = getattr(arguments, "resume", None)
    as_json = getattr(arguments, "json", False)
    headless = as_json or getattr(arguments, "headless", False)
    if not headless and (missing := missing_terminal()):
        message(f"no terminal on {missing}, going on headless")
        headless = True
    if headless:
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
    from tui.outcome import report

    pass_on_signals(lambda: client)
    error: BaseException | None = None
    try:
        client.await_state()
        if client.snapshot().tasks:
            error = crash.run_app_twice(
                lambda: TfmuxApp(client, prompts=prompts),
                lambda: client.folder.path,
                terminate=client.terminate,
                hang_up=client.hang_up,
                is_ending=lambda: client.ending,
            )
    finally:
        # However the screen ended, the run must not go on unwatched.
        if error is not None:
            client.detach()
        elif client.living and not client.closed:
            if not client.ending:
                client.kill_all()
            client.wait()
    write_line(report(client.snapshot(), client.folder.path, detached=client.detached))
    if error is not None:
        return Exit.CRASHED
    return exit_code(client.snapshot().exit_code, detached=client.detached)
