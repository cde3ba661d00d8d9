"""An agent whose user has reached the limit of processes and threads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import pytest

from launcher.agent import wire
from tests.support.agent_client import Client
from tests.support.patience import PATIENCE, wait_until
from tests.support.requirements import require
from tests.testbed import proc

UID = 200_000 + os.getpid()
"""A user that nobody is: the kernel counts the threads of a user on the whole machine."""
LIMIT = 40
# It may read the interpreter wherever that lies, and is bound by the limit as root is not.
RIGHTS = ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]
USER = ["setpriv", f"--reuid={UID}", f"--regid={UID}", "--clear-groups", *RIGHTS]
GREEDY = """
import threading, time
try:
    while True:
        threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
except RuntimeError:
    print("no more", flush=True)
time.sleep(1000)
"""


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A home of that user; nothing of its agents stays."""
    require("needs root to become another user" if os.geteuid() else None)
    folder = tempfile.mkdtemp(prefix="tfmux-home-", dir="/tmp")
    os.chown(folder, UID, UID)
    monkeypatch.setenv("HOME", folder)
    yield
    for path in (folder, f"/tmp/tfmux-{UID}"):
        shutil.rmtree(path, ignore_errors=True)


@pytest.mark.usefixtures("home")
def test_tasks_live_on_and_are_killed_at_the_limit() -> None:
    """Given a task that takes all threads of its user, when the agent is asked for more, then it
    and the tasks live on, it refuses what needs a thread, and a kill is confirmed."""
    limited = [*USER, "prlimit", f"--nproc={LIMIT}", "--"]
    with Client(f"t-{time.time_ns():x}"[-12:], before=limited) as client:
        client.hello()
        client.follow("w:0")
        pids = [client.start("w:1", ["sleep", "1000"])["pid"]]
        pids.append(client.start("w:0", [sys.executable, "-c", GREEDY])["pid"])
        client.log_until(b"no more\n")
        until = time.monotonic() + 3
        while time.monotonic() < until:  # each is a process that the agent has not seen yet
            subprocess.run(["sleep", "0.1"], check=True)
        client.send(wire.BEAT)
        client.get(wire.PONG)
        assert all((each := proc.read(pid)) is not None and each.alive for pid in pids)
        assert "no more processes and threads" in client.ask(wire.STATS, {})["error"]
        receipt = client.kill(grace=0.0)
        assert receipt["survivors"] == [] and receipt["confirmed"]
        wait_until(lambda: not any(map(alive, pids)), "they are dead")
        client.leave()


def alive(pid: int) -> bool:
    """A process is there and no zombie."""
    found = proc.read(pid)
    return found is not None and found.alive


def test_without_a_thread_nothing_is_taken_for_gone_and_all_is_ended() -> None:
    """Given a process that may start no thread, when it looks for a run's processes, then that
    fails instead of finding none, survivors have short names, and the watchdog still ends them."""
    script = """
import os, subprocess, threading
from launcher.agent import processes as proc, watchdog
from launcher.agent.processes import ProcessTracker
from launcher.agent.processes import become_subreaper
become_subreaper()
child = subprocess.Popen(["sleep", "1000"])
everyone = proc.table()
def refuse(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
try:
    ProcessTracker("nobody-20260101-000000-abcd").scan(everyone)
except OSError as error:
    print(error.strerror)
print(proc.command_lines([everyone[child.pid]]))
watchdog._PATIENCE = 1.0
watchdog.end_everything(ProcessTracker("nobody-20260101-000000-abcd"), ours=True)
print(os.path.exists(f"/proc/{child.pid}"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    said = done.stdout.splitlines()
    assert said[0].startswith("no more processes and threads may be started"), done.stderr
    assert said[1:] == ["['[sleep]']", "False"], done.stderr
