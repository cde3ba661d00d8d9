"""Kills that are ordered more than once for one reason: no grace is cut short."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from launcher.cluster.read import load
from launcher.hosts.auth_prompt import AuthPrompt
from launcher.run.states import Outcome, RunPhase
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder, socket_path
from tests.support import command
from tests.support.budgets import variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.saving_task import await_lines, cluster, is_killed, only_run
from tests.support.snapshots import wait
from tests.testbed import guard
from tui.run_clients import RunClients

DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('trains', flush=True)
time.sleep(1000)
"""


def clients(folder: RunFolder) -> int:
    """How many clients have come to the launcher, beside the one that has launched it."""
    path = str(socket_path(folder.run_id).with_suffix(""))  # it was bound by another ending
    with open("/proc/net/unix") as table:
        rows = [line.split() for line in table if path in line]
    return len([state for *_, state, _, _ in rows if state == "03"])


async def nobody(prompt: AuthPrompt) -> None:
    """Answers no prompt."""


@contextmanager
def headless(file: Path, *, stdout: int, stderr: int) -> Iterator[subprocess.Popen[bytes]]:
    """`tfmux up --headless` in a session of its own, whose terminal is stdout where that is one."""

    def become_foreground() -> None:
        if os.isatty(1):
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)

    words = [sys.executable, "-m", "tui.main", "up", str(file), "--headless"]
    up = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        cwd=REPOSITORY,
        start_new_session=True,
        preexec_fn=become_foreground,
    )
    with up:
        try:
            yield up
        finally:
            up.kill()


def test_a_reader_that_ends_with_the_same_ctrl_c(tmp_path: Path) -> None:
    """`tfmux up FILE --headless | tee log`: Ctrl-C ends tee as well, and the next line of the task
    that is saving finds nobody."""
    file, said = cluster(tmp_path), tmp_path / "said"
    with said.open("wb") as err:
        with headless(file, stdout=subprocess.PIPE, stderr=err.fileno()) as up:
            assert up.stdout is not None
            assert up.stdout.readline() == b"worker:0 | trains\n"
            up.send_signal(signal.SIGINT)
            up.stdout.close()
            wait_until(lambda: is_killed(only_run()), "the first order", PATIENCE)
            wait_until(lambda: "stdout was closed" in said.read_text(), "the second", PATIENCE)
            await_lines(only_run(), 5)
            (tmp_path / "go on").touch()
            assert up.wait(PATIENCE) == 130
    assert "stdout was closed" in said.read_text()
    assert (tmp_path / "saved").exists()


@variants("rule", ["kill", "detach"], test=1)
def test_a_terminal_that_is_closed_under_a_run_without_a_screen(tmp_path: Path, rule: str) -> None:
    """SIGHUP, and an error for each line from then on: one kill with its grace, or none at all."""
    file = cluster(tmp_path, settings=f'on_hangup = "{rule}"')
    ours, theirs = pty.openpty()
    with headless(file, stdout=theirs, stderr=theirs) as up:
        os.close(theirs)
        text = b""
        while b"trains" not in text:
            text += os.read(ours, 1000)
        os.close(ours)
        if rule == "kill":
            wait_until(lambda: is_killed(only_run()), "the first order", PATIENCE)
            await_lines(only_run(), 10)
            (tmp_path / "go on").touch()
            assert up.wait(PATIENCE) == 143
            assert (tmp_path / "saved").exists()
            return
        assert up.wait(PATIENCE) == 0
    run = only_run()
    await_lines(run, 1)
    assert not is_killed(run)
    (tmp_path / "go on").touch()
    assert command.run("kill", run.run_id).returncode == 0


@variants("how", [RunClients.terminate, RunClients.hang_up], test=1)
def test_a_home_screen_that_is_told_to_end(tmp_path: Path, how: object) -> None:
    """The signal ends the runs, and so does the end of the app."""
    assert callable(how)
    file, clients = cluster(tmp_path), RunClients()
    (tmp_path / "go on").touch()
    client = clients.launch(load(file), file.read_text(), nobody)
    wait(client, lambda s: s.state is RunPhase.RUNNING, "running")
    wait_until(lambda: client.logs.open(client.snapshot().tasks[0].id).size, "its trap is there")
    how(clients)
    (ended,) = clients.close()
    assert ended.snapshot.outcome is Outcome.TERMINATED
    assert (tmp_path / "saved").exists()


def test_two_people_press_the_key(tmp_path: Path) -> None:
    """The first press of a person has its grace, whoever ordered the end before; what the screens
    then offer, KILL now, any of them can press."""
    file = cluster(tmp_path, DEAF)
    first = RunClient.launch(load(file), file.read_text())
    first.await_state(PATIENCE)
    second = RunClient.attach(first.folder)
    try:
        wait_until(lambda: first.logs.open(first.snapshot().tasks[0].id).size, "it is deaf")
        first.kill_all(by_person=False)
        before = wait(second, lambda s: s.kill_deadline, "a kill")
        assert not before.kill_asked
        second.press_kill()
        asked = wait(first, lambda s: s.kill_asked, "a person's kill")
        assert asked.kill_deadline == before.kill_deadline and guard.tagged_here()
        first.press_kill()
        assert first.wait(PATIENCE) and second.wait(PATIENCE)
    finally:
        second.close()
        first.close()
    assert not guard.tasks_here()


@variants("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "term"], test=1)
def test_one_signal_after_the_end_gives_up_what_is_still_under_way(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The run was a success, and its hook is at work: that is ended, and it is said."""
    hook = "import os, time; open('begun', 'w').close(); time.sleep(1000)"
    text = one_task("print('done')") + f"[hooks]\non_end = {json.dumps(['python3', '-c', hook])}\n"
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        wait_until((tmp_path / "begun").exists, "the hook runs", PATIENCE)
        up.wait_for(lambda e: e.get("state") == "ended", "the end")
        up.process.send_signal(number)
        assert up.wait() == 0, up.transcript()
    notes = "\n".join(e["note"] for e in up.of("note"))
    assert "results and hooks that were still under way are given up" in notes
    assert "killed" in notes and "killed after" not in notes, notes


def test_the_command_kills_at_once_only_where_that_is_said(tmp_path: Path) -> None:
    with Up("up", str(cluster(tmp_path, DEAF)), "--json") as up:
        up.log("worker:0", "trains")
        again = [sys.executable, "-m", "tui.main", "kill", up.run_id]
        killing = [subprocess.Popen(again, cwd=REPOSITORY) for _ in range(2)]
        try:
            wait_until(lambda: clients(only_run()) == 2, "both are connected", PATIENCE)
            wait_until(lambda: is_killed(only_run()), "an order", PATIENCE)
            end = time.monotonic() + 1.0  # the other order comes, too
            while time.monotonic() < end:
                assert guard.tagged_here()
                time.sleep(0.05)
            assert command.run("kill", up.run_id, "--force").returncode == 0
            assert [one.wait(PATIENCE) for one in killing] == [0, 0]
        finally:
            for one in killing:
                one.kill()
                one.wait()
        assert up.wait() == 130, up.transcript()
