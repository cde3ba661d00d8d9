"""What hosts are sent: files to start in, the bundled trainer where it is named, and else nothing
but the agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.budgets import variants
from tests.support.command import Up, python_task, write
from tests.testbed.inprocess import SshServer

SHOWS = """
import os, time
links = [os.path.realpath("/proc/self/fd/" + name) for name in os.listdir("/proc/self/fd")]
print("hook", any("tfmux-stacks" in link for link in links), flush=True)
time.sleep(1000)
"""


@contextmanager
def running(server: SshServer, folder: Path, more: str) -> Iterator[tuple[Up, Path]]:
    """A task on the in-process SSH server, which says whether its Python has the hook for stacks;
    and the run's folder there."""
    text = (
        f'name = "sent"\n{server.host_toml("far", sys.executable)}\n'
        '[jobs.worker]\ntasks = ["far:auto"]\n'
        f"[run]\ncommand = {json.dumps(python_task(SHOWS))}\ngrace = 1\n{more}\n"
    )
    with Up("up", str(write(folder, text)), "--json") as up:
        up.log("worker:0", "hook")
        (there,) = (server.home / ".local/state/tfmux").iterdir()
        yield up, there


def test_a_task_without_files_gets_none(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a task that starts in no copy of a workdir and does not name the trainer, when it runs,
    then its host has the scripts that come with the agent, of which its Python has imported the
    hook, and no staged files, which have been neither sent nor announced."""
    with running(ssh_server, tmp_path, 'workdir = ""') as (up, there):
        assert up.log("worker:0", "hook")["text"] == "hook True"
        assert sorted(path.name for path in (there / "tools").iterdir()) == [
            *("prepare.py", "stacks", "warm.py")
        ]
        assert not (there / "stage").exists()
        assert not any(event.get("staged_total_files") for event in up.of("host"))
    assert not there.exists(), "a clean end takes all of it"


@variants(
    "more",
    [
        'workdir = ""\nsetup = ": -m trainer"',
        'workdir = ""\nenv = { WHERE = "{trainer}" }',
        'workdir = ""\nprepare = ["test -f $PYTHONPATH/trainer/__main__.py"]',
    ],
    test=1,
)
def test_the_trainer_goes_where_it_is_named(
    ssh_server: SshServer, tmp_path: Path, more: str
) -> None:
    """Given a command, variable or `prepare` line that names the bundled trainer, when the task
    runs, then its host has it."""
    with running(ssh_server, tmp_path, more) as (_, there):
        assert (there / "stage" / "trainer" / "trainer" / "__main__.py").exists()


def test_a_workdir_goes_without_the_trainer(ssh_server: SshServer, tmp_path: Path) -> None:
    """Given a workdir that is copied, when the task does not name the trainer, then its host has
    the workdir alone."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "data.txt").write_text("data")
    with running(ssh_server, tmp_path, 'workdir = "work"') as (_, there):
        assert [path.name for path in (there / "stage").iterdir()] == ["work"]
        assert (there / "stage" / "work" / "data.txt").read_text() == "data"
