"""A handler that starts a program to save, at each of the ways in which a task is ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from launcher.ids import TaskId
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.patience import PATIENCE, wait_until

SCRIPT = """
import os, signal, subprocess, sys, time
task, attempt = os.environ["TFMUX_TASK"].rstrip(";").split("/")[1:]
SAVE = f"for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.05; done; echo {task} > saved-{attempt}"

def save(*_):
    if task == "worker:0":
        subprocess.run(["sh", "-c", SAVE], check=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("up")
while True:
    if task == "worker:1" and os.path.exists(f"exit-{attempt}"):
        sys.exit(int(open(f"exit-{attempt}").read()))
    time.sleep(0.02)
"""
WORKER = TaskId("worker", 0)


def ctrl_c(up: Up, folder: Path) -> None:
    up.press_ctrl_c()


def term(up: Up, folder: Path) -> None:
    up.process.terminate()


def kill(up: Up, folder: Path) -> None:
    command.run("kill", up.run_id)


def asked(up: Up, folder: Path, order: Callable[[RunClient], None]) -> None:
    client = RunClient.attach(RunFolder.find(up.run_id))
    try:
        order(client)
        wait_until((folder / "saved-1").exists, "it has saved", PATIENCE)
    finally:
        client.close()


def end_task(up: Up, folder: Path) -> None:
    asked(up, folder, lambda client: client.signal(WORKER, "TERM"))


def restart_task(up: Up, folder: Path) -> None:
    asked(up, folder, lambda client: client.restart(WORKER))


def another_ends(status: str) -> Callable[[Up, Path], None]:
    def end(up: Up, folder: Path) -> None:
        (folder / "exit").write_text(status)
        (folder / "exit").rename(folder / "exit-1")

    return end


def launcher_dies(up: Up, folder: Path) -> None:
    up.kill_launcher()


ENDS = {
    "Ctrl-C": ("", ctrl_c),
    "TERM": ("", term),
    "tfmux kill": ("", kill),
    "x": ("", end_task),
    "restart": ("", restart_task),
    "another fails": ("", another_ends("7")),
    "restart-all": ('on_failure = "restart-all"', another_ends("7")),
    "finish_timeout": ('success = "all"\nfinish_timeout = 1', another_ends("0")),
    "the launcher dies": ("", launcher_dies),
}
DEAR = ("TERM", "tfmux kill", "restart", "another fails", "finish_timeout")


@variants("how", [soak(each) if each in DEAR else each for each in ENDS], test=1)
def test_what_a_handler_starts_ends_by_itself(tmp_path: Path, how: str) -> None:
    """Given a task whose handler starts a program that saves, when the task is ended, however, then
    the program ends by itself and has saved."""
    rules, end = ENDS[how]
    text = one_task(SCRIPT, settings=rules, tasks=2).replace("grace = 2.0", "grace = 600")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        for task in ("worker:0", "worker:1"):
            up.log(task, "up")
        end(up, tmp_path)
        wait_until((tmp_path / "saved-1").exists, "it has saved", PATIENCE)
    if end is launcher_dies:
        assert command.run("kill", up.run_id).returncode == 0


LOADS = """
import os, signal, sys, time
def told(*_):
    print(f"{name} told\\n", end="")
    time.sleep(0.5)
    print(f"{name} ends\\n", end="")
    sys.exit(0)
name = "loader" if os.fork() == 0 else "trainer"
signal.signal(signal.SIGUSR1, told)
print(f"{name} up\\n", end="")
while True:
    time.sleep(0.01)
"""


def test_the_file_says_which_signal_comes_to_whom(tmp_path: Path) -> None:
    """Given a training with torch and a stop signal of its own, when it is ended, then its first
    process gets that signal, and its helper when the first one has ended."""
    rules = 'framework = "torch"\nstop_signal = "USR1"'
    text = one_task(LOADS, settings=rules).replace("grace = 2.0", "grace = 600")
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        for name in ("trainer", "loader"):
            up.log("worker:0", f"{name} up")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    said = [e["text"] for e in up.of("log") if not e["text"].endswith("up")]
    assert said == ["trainer told", "trainer ends", "loader told", "loader ends"]
