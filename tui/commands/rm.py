"""`tfmux rm`: deletes past runs, or what they have left on their hosts."""

from __future__ import annotations

import argparse
import sys

from launcher.errors import RunNotFoundError
from launcher.history.deletion import HeldRun, ResultsLeftError, delete_runs, held_runs
from launcher.history.kept_results import free_hosts
from launcher.history.named_runs import any_run
from launcher.hosts.auth_prompt import PromptHandler
from launcher.printable import printable
from launcher.store.runs import RunFolder
from tui.commands.asking import terminal_asker
from tui.exits import Exit
from tui.streams import message, print_lines


def rm(arguments: argparse.Namespace) -> int:
    """Deletes the runs and prints the id of each; what stays is said on stderr, and the code is
    then 1, or 2 where a run is not known. With `--hosts` the runs stay, and what they have left on
    their hosts is deleted."""
    if not arguments.runs and not arguments.hosts:
        message("rm needs a RUN, or --hosts")
        return Exit.USAGE
    if arguments.hosts and arguments.force:
        message("--force deletes runs, --hosts what they have left on hosts: give one of them")
        return Exit.USAGE
    if arguments.yes and not arguments.hosts:
        message("--yes answers the question of --hosts")
        return Exit.USAGE
    code: int = Exit.SUCCESS
    folders: dict[str, RunFolder] = {}
    for name in arguments.runs:
        try:
            folder = any_run(name)
            folders[folder.run_id] = folder
        except RunNotFoundError as error:
            message(str(error))
            code = Exit.USAGE
    ask = terminal_asker() if sys.stdin.isatty() and sys.stderr.isatty() else None
    if arguments.hosts:
        chosen = list(folders.values()) if arguments.runs else RunFolder.all()
        return code or _free(chosen, ask, yes=arguments.yes)
    for folder, problem in delete_runs(list(folders.values()), force=arguments.force, ask=ask):
        if problem is None:
            print_lines([printable(folder.run_id)])
            continue
        code = code or Exit.FAILED
        forced = f"; `tfmux rm --force {folder.run_id}` deletes them"
        message(f"{problem}{forced if isinstance(problem, ResultsLeftError) else ''}")
    return code


def _free(folders: list[RunFolder], ask: PromptHandler | None, *, yes: bool) -> int:
    """Has hosts delete what runs have left there, after a question; 1 where something stays."""
    found = list(held_runs(folders, ask))
    for one in found:
        for sentence in one.unreachable:
            message(sentence)
    code = Exit.FAILED if any(one.unreachable for one in found) else Exit.SUCCESS
    holding = [one for one in found if one.hosts]
    if not holding:
        if code is Exit.SUCCESS:
            message("no past run holds anything on its hosts")
        return code
    print_lines(_line(one) for one in holding)
    if not yes and not _agreed():
        return Exit.FAILED
    for one in holding:
        for host, why in free_hosts(one.run, one.hosts, ask).items():
            run_id = one.run.folder.run_id
            if why:
                message(printable(f"{run_id}: not deleted on {host}: {why}"))
                code = Exit.FAILED
            else:
                print_lines([printable(f"{run_id}: deleted on {host}")])
    return code


def _line(one: HeldRun) -> str:
    return printable(f"{one.run.folder.run_id}: {'; '.join(one.text)}")


def _agreed() -> bool:
    """Asks whether to delete; no terminal is no answer."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        message("nothing was deleted: there is no terminal to ask at; --yes deletes")
        return False
    try:
        answer = input("delete these files on the hosts? They cannot be brought back [y/N] ")
    except EOFError:
        return False
    return answer.strip().lower() in ("y", "yes")
