"""The stop signal of a kill: who gets it, once, and who has the grace; by the agent alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from tests.support.agent_client import Client
from tests.support.budgets import budget

LONG = 600.0
"""A grace that no test waits for: all processes have ended by themselves when the receipt comes."""

SAVE = """\
i=0
while [ $i -lt 20 ]; do sleep 0.03; i=$((i + 1)); done
echo saved
"""
"""A program that saves for the time of many looks, and has no handler."""

TRAIN = """\
import multiprocessing, os, signal, subprocess, sys, time

def save(*_):
    print("saving")
    {save}
    sys.exit(0)

if __name__ == "__main__":
    signal.signal(15, save)
    print("up")
    while True:
        time.sleep(0.01)
"""

HANDLERS = {
    "program": "subprocess.run(['sh', 'save.sh'], check=True)",
    "shell": "assert os.system('sh save.sh') == 0",
    "pipe": "print(subprocess.check_output('sh save.sh | cat', shell=True, text=True))",
    "below": "subprocess.run(['sh', '-c', 'sh -c \"sh save.sh; :\"; :'], check=True)",
    "fork": "os.fork() or os.execlp('sh', 'sh', 'save.sh')",
    "daemon": "subprocess.Popen(['sh', 'save.sh'], start_new_session=True)",
    "no mark": "subprocess.Popen(['env', '-i', '/bin/sh', 'save.sh'], start_new_session=True)",
    "chain": "[os.fork() and os._exit(0) or time.sleep(0.03) for _ in range(10)]; print('saved')",
    "pool": "multiprocessing.get_context('spawn').Pool(2).map(os.system, ['sh save.sh'])",
}


@pytest.fixture
def client() -> Iterator[Client]:
    """A launcher's channel to the agent of a run of its own, which nothing else ends."""
    with Client(lease=LONG) as channel:
        channel.hello()
        yield channel
        channel.kill()
        channel.leave()


def written(folder: Path, handler: str = HANDLERS["program"]) -> Path:
    """The programs in a folder of their own."""
    (folder / "save.sh").write_text(SAVE)
    (folder / "train.py").write_text(TRAIN.format(save=handler))
    return folder


def start(client: Client, folder: Path, *argv: str, **said: Any) -> None:
    """Starts a task in a folder, and waits until its handler is there."""
    answer = client.start("w:0", argv, cwd=str(folder), env={"PYTHONUNBUFFERED": "1"}, **said)
    assert not answer["error"], answer
    client.follow("w:0")
    client.log_until(b"up")


def ended_by_itself(client: Client) -> bytes:
    """Kills everything; returns the log when all has ended by itself."""
    receipt = client.kill(grace=LONG)
    assert receipt["confirmed"] and not receipt["survivors"], receipt
    size = client.get(wire.EOF, task="w:0")["size"]
    while len(client.logs[0]) < size:
        assert client.receive()
    return bytes(client.logs[0])


@pytest.mark.parametrize("handler", HANDLERS)
def test_what_a_handler_starts_has_the_grace(client: Client, tmp_path: Path, handler: str) -> None:
    """Given a task whose handler starts programs to save, when it is killed, then these end by
    themselves, and the kill waits for them."""
    start(client, written(tmp_path, HANDLERS[handler]), sys.executable, "train.py")
    assert b"saved" in ended_by_itself(client)
    assert client.get(wire.EXITED, task="w:0")["status"] == 0


SCRIPTS = {
    "trap": "trap 'sh save.sh; exit 0' TERM; echo up; while :; do sleep 0.05; done",
    "no trap": "python train.py; echo not reached",
    "background": "python train.py & wait; echo not reached",
    "wrapper": "python train.py & trap 'exit 3' TERM; wait",
    "two wrappers": "sh -c 'python train.py; :'; echo not reached",
}


@pytest.mark.parametrize("shell", ["bash", "dash"])
@pytest.mark.parametrize("stop", ["all", "first"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_the_programs_of_scripts_save(
    client: Client, tmp_path: Path, script: str, stop: str, shell: str
) -> None:
    """Given a shell script, with and without a trap, when it is killed, then the program that it
    runs saves, also where the script itself has ended at once."""
    text = SCRIPTS[script].replace("python", sys.executable)
    (written(tmp_path) / "run.sh").write_text(text)
    start(client, tmp_path, shell, "run.sh", stop=stop)
    log = ended_by_itself(client)
    assert b"saved" in log and b"not reached" not in log


SUPERVISOR = """\
import signal, subprocess
signal.signal(15, lambda *_: None)
while True:
    subprocess.run(["sh", "child.sh"])
"""
COUNTS = """\
import os, signal, subprocess, time
child = None
def save(*_):
    global child
    print("saving")
    child = subprocess.Popen(["sh", "-c", "while [ ! -e go ]; do sleep 0.02; done; echo saved"])
signal.signal(15, save)
while child is None or child.poll() is None:
    print("up")
    time.sleep(0.02)
"""

FORKS = """\
import os, time
number = 0
print("up")
while True:
    if os.fork() == 0:
        {child}
        time.sleep(1000)
    time.sleep(0.002)
    number += 1
    if number == 100:
        os.fork()
"""
CHILDREN = {
    "child": "pass",
    "session": "os.setsid()",
    "program": "os.execlp('sleep', 'sleep', '1000')",
}


@pytest.mark.parametrize("child", CHILDREN)
def test_what_was_forked_before_the_signal_gets_it(
    client: Client, tmp_path: Path, child: str
) -> None:
    """Given tasks that fork as fast as kills look, without a handler, when they are killed, then
    all that they have forked ends by the signal, time and again."""
    (tmp_path / "forks.py").write_text(FORKS.format(child=CHILDREN[child]))
    for attempt in range(1, budget(3, 100) + 1):
        start(client, tmp_path, sys.executable, "-u", "forks.py", attempt=attempt)
        receipt = client.kill(grace=LONG)
        assert receipt["confirmed"] and receipt["signalled"] > 1, receipt


def test_a_child_that_is_started_again_has_the_rest_of_the_grace(
    client: Client, tmp_path: Path
) -> None:
    """Given a supervisor that starts its child again when that ends, when it is killed, then the
    new child gets no signal, and the end of the grace ends both."""
    child = "trap 'echo ended; exit' TERM; while :; do echo up; sleep 0.02; done"
    (tmp_path / "child.sh").write_text(child)
    (tmp_path / "supervisor.py").write_text(SUPERVISOR)
    start(client, tmp_path, sys.executable, "supervisor.py")
    client.send(wire.KILL, {"id": 7001, "tasks": None, "grace": LONG})
    client.log_until(b"ended\n" + 20 * b"up\n")  # the time of many looks
    assert client.kill(grace=0.0)["confirmed"]
    assert client.logs[0].count(b"ended") == 1


def test_a_process_gets_one_signal_however_many_kills_there_are(
    client: Client, tmp_path: Path
) -> None:
    """Given a task whose end has begun, when everything is killed, then neither the task nor what
    its handler has started gets another signal, while a neighbour gets its own."""
    (tmp_path / "train.py").write_text(COUNTS)
    client.start("w:1", ["sleep", "1000"])
    start(client, tmp_path, sys.executable, "train.py")
    client.send(wire.KILL, {"id": 7001, "tasks": ["w:0"], "grace": LONG})
    client.log_until(b"saving")
    client.send(wire.KILL, {"id": 7002, "tasks": ["w:0", "w:1"], "grace": LONG})
    client.get(wire.EXITED, task="w:1", signal="TERM")
    client.send(wire.KILL, {"id": 7003, "tasks": None, "grace": LONG})
    client.log_until(b"saving\n" + 50 * b"up\n")  # the time of many looks
    (tmp_path / "go").touch()
    assert client.get(wire.RECEIPT, ids=[7002])["signalled"] == 2
    receipt = client.get(wire.RECEIPT, ids=[7003])  # the neighbour was gone before
    assert receipt["confirmed"] and receipt["signalled"] == 1, receipt
    assert client.logs[0].count(b"saving") == 1 and b"saved" in client.logs[0]
    client.get(wire.EXITED, task="w:0", status=0)
