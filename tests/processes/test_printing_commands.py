"""Commands that print: what a terminal gets, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.paths import REPOSITORY

CLUSTER = r"""
name = "odd"
[jobs.worker]
tasks = ["localhost:auto"]
command = ["echo", "one\u001b]52;c;b25l\u0007", "two\nlines"]
ready = "started"
[run]
workdir = ""
env = { WORD = "\u001b[2J\u202e" }
"""


def test_plan_writes_nothing_that_a_terminal_acts_on(tmp_path: Path) -> None:
    """The file may come from elsewhere; a pipe and `--json` get it as it is."""
    file = write(tmp_path, CLUSTER)
    leader, follower = os.openpty()
    words = [sys.executable, "-P", "-m", "tui.main", "plan", str(file)]
    subprocess.run(words, cwd=REPOSITORY, stdout=follower, check=True)
    os.close(follower)
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "one␛]52;c;b25l␇" in shown and "WORD='␛[2J␦'" in shown
    assert "'two\r\nlines'" in shown
    assert not {"\x1b", "\x07", "\u202e"} & {*shown}
    assert "\x1b]52;c;b25l\x07" in command.run("plan", str(file)).stdout


def test_logs_of_a_task_that_is_not_there(tmp_path: Path) -> None:
    """Also where its name is none: the tasks that there are, and wrong usage."""
    command.run("up", str(write(tmp_path, CLUSTER)), "--headless")
    ((folder,), _) = RunFolder.scan()
    for name in ("worker:7", "worker:x", "worker", ":"):
        done = command.run("logs", folder.run_id, name)
        assert done.returncode == 2, done.stderr
        assert done.stderr == f"tfmux: the run has no task {name!r}; it has worker:0\n"


@variants("words", [(), ("worker:0",)], ids=["all", "one"], test=1)
def test_following_logs_ends_with_the_run(tmp_path: Path, words: tuple[str, ...]) -> None:
    """Given a run that ended before, or one that ends meanwhile: all lines, and exit code 0."""
    script = "import pathlib, time\nprint('first', flush=True)\n" + (
        f"while not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.05)\n"
    )
    script += "print('last')"
    with Up("up", str(write(tmp_path, one_task(script))), "--json") as up:
        up.state("worker:0", "ready")
        following = [sys.executable, "-P", "-m", "tui.main", "logs", "-f", up.run_id, *words]
        with subprocess.Popen(following, cwd=REPOSITORY, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline().endswith(b"first\n")
            (tmp_path / "go").touch()
            assert process.stdout.read().endswith(b"last\n")
        assert process.returncode == 0
        assert up.wait() == 0, up.transcript()
    done = command.run(*following[4:])
    assert done.returncode == 0 and done.stdout.splitlines()[-1].endswith("last")


def test_following_logs_is_left_with_ctrl_c(tmp_path: Path) -> None:
    """Without a traceback, as a command that a person has ended."""
    file = write(tmp_path, one_task("import time; print('two', flush=True); time.sleep(1000)"))
    with Up("up", str(file), "--json") as up:
        up.state("worker:0", "ready")
        words = [sys.executable, "-P", "-m", "tui.main", "logs", "-f", up.run_id]
        with subprocess.Popen(
            words,
            cwd=REPOSITORY,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        ) as process:
            assert process.stdout and process.stderr
            assert b"two" in process.stdout.readline()
            process.send_signal(signal.SIGINT)
            assert process.stderr.read() == b""
        assert process.returncode == 130
        up.press_ctrl_c()
        assert up.wait() == 130
