"""Kills by the agent alone: real processes that misbehave, on this machine, and its receipts."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from pathlib import Path

import pytest

from launcher.agent import processes as agent_proc
from launcher.agent import wire
from tests.support.agent_client import Client, family, sleepers
from tests.support.patience import wait_until
from tests.testbed import proc

DAEMON = """
import os, sys
mark = sys.argv[1]
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        null = os.open("/dev/null", os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(null, fd)
        os.execve("/usr/bin/env", ["env", "-i", "/bin/sh", "-c", "sleep 1000; :", mark], {})
    os._exit(0)
os.wait()
print("born", flush=True)
"""
"""Leaves a daemon: in a session of its own, nobody's child, its environment empty."""


def test_a_task_that_ignores_term_is_killed_after_the_grace(client: Client) -> None:
    """TERM at once, KILL after the grace and not before; the receipt counts both processes."""
    script = "import signal, subprocess, time; signal.signal(15, signal.SIG_IGN);"
    script += "subprocess.Popen(['sleep', '1000']); print('up'); time.sleep(1000)"
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"up")
    receipt = client.kill(grace=0.5)
    assert receipt["survivors"] == []
    assert receipt["signalled"] == 2
    assert receipt["seconds"] >= 0.5
    assert len(family(client.run_id)) == 3  # watchdog, agent, bridge


def test_a_daemon_with_an_emptied_environment_is_found(client: Client) -> None:
    """Nothing ties it to the task but its birth below the agent; the kill still ends it."""
    mark = f"mark-{client.run_id}"
    client.python("w:0", DAEMON, mark)
    client.get(wire.EXITED, task="w:0", status=0)
    wait_until(lambda: sleepers(mark), "the daemon runs")
    assert all("TFMUX_TASK" not in p.environ for p in sleepers(mark))
    assert client.kill()["survivors"] == []
    assert sleepers(mark) == []


SAVES = """
import os, signal, sys, time
def save(*_):
    print("saving")
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    print("saved")
    sys.exit(0)
signal.signal(15, save)
print("up")
while True:
    signal.pause()
"""
"""Saves when it is told to end, for as long as a file is not there."""


def test_a_kill_of_one_task_takes_no_grace_from_the_others(client: Client, tmp_path: Path) -> None:
    """Given two tasks that save within the grace of a kill of everything, when one of them is
    killed at once, then the other one saves to its end."""
    go = tmp_path / "go"
    for number, task in enumerate(("w:0", "w:1")):
        client.python(task, SAVES, str(go))
        client.follow(task, number)
    for number in range(2):
        client.log_until(b"up", number)
    client.send(wire.KILL, {"id": 7001, "tasks": None, "grace": 60.0})
    for number in range(2):
        client.log_until(b"saving", number)
    receipt = client.kill(["w:0"], grace=0.0)
    assert receipt["tasks"] == ["w:0"] and receipt["survivors"] == []
    client.get(wire.EXITED, task="w:0", signal="KILL")
    go.touch()
    client.log_until(b"saved", 1)
    client.get(wire.EXITED, task="w:1", status=0)
    assert client.get(wire.RECEIPT, ids=[7001])["signalled"] == 2


def test_every_process_that_term_has_ended_is_counted(client: Client) -> None:
    """Processes that end by TERM are gone before CONT could follow: they count all the same."""
    for number in range(4):
        client.start(f"w:{number}", ["sleep", "1000"])
    assert client.kill(grace=30.0)["signalled"] == 4


def test_a_task_that_stops_itself_gets_its_term(client: Client) -> None:
    """CONT follows TERM: a stopped task ends by its own handler, well within the grace."""
    script = "import os, signal, sys\n"
    script += "signal.signal(15, lambda *_: (print('bye'), sys.exit(3)))\n"
    script += "print('stopping'); os.kill(os.getpid(), signal.SIGSTOP)\n"
    script += "signal.pause()"
    started = client.python("w:0", script)
    wait_until(lambda: (p := proc.read(started["pid"])) and p.state == "T", "it is stopped")
    receipt = client.kill(grace=30.0)
    assert receipt["survivors"] == [] and receipt["seconds"] < 20
    client.follow("w:0")
    assert b"bye" in client.log_until(b"bye")


def test_a_process_whose_main_thread_has_ended_is_alive(client: Client) -> None:
    """The process table shows it as a zombie while its other thread works on: it is killed."""
    script = """
import ctypes, os, threading, time
def work():
    for number in range(100000):
        os.write(1, b"working %d\\n" % number)
        time.sleep(0.05)
threading.Thread(target=work).start()
libc = ctypes.CDLL(None)
libc.pthread_exit.restype = None
libc.syscall(60, 0)
"""
    started = client.python("w:0", script)
    client.follow("w:0")
    wait_until(lambda: (p := proc.read(started["pid"])) and p.state == "Z", "its leader is dead")
    client.log_until(b"working 20\n")
    receipt = client.kill()
    assert receipt["signalled"] == 1 and receipt["survivors"] == []
    client.get(wire.EOF, task="w:0")
    wait_until(lambda: proc.read(started["pid"]) is None, "it is reaped")


def test_many_forks_are_caught(client: Client) -> None:
    """Hundreds of children that ignore TERM and fork on are all gone after one kill."""
    script = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for depth in range(7):
    os.fork()
os.write(1, b"x")
while True:
    if os.fork() == 0:
        time.sleep(0.05)
        os._exit(0)
    os.wait()
"""
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"x" * 128)
    receipt = client.kill(grace=0.1)
    assert receipt["survivors"] == [] and receipt["signalled"] >= 128
    assert len(family(client.run_id)) == 3


def test_a_task_that_closes_its_output_is_still_a_task(client: Client) -> None:
    """The end of its output is not its end: it is killed, and only then told as ended."""
    script = "import os, time; os.closerange(0, 100); time.sleep(1000)"
    started = client.python("w:0", script)
    wait_until(lambda: not os.listdir(f"/proc/{started['pid']}/fd"), "its output is closed")
    assert client.kill()["signalled"] == 1
    assert client.get(wire.EXITED, task="w:0")["signal"] == "KILL"


def test_a_grandchild_that_holds_the_output_does_not_hide_the_end(client: Client) -> None:
    """The exit is told though the pipe is still open; the end of the output comes when the
    grandchild is killed, and its last words are in the log."""
    script = "import subprocess; print('leaving', flush=True);"
    grandchild = 'trap "echo ended; exit" TERM; echo armed; sleep 1000 & wait'
    client.python("w:0", f"{script} subprocess.Popen(['sh', '-c', {grandchild!r}])")
    assert client.get(wire.EXITED, task="w:0")["status"] == 0
    client.follow("w:0")
    client.log_until(b"armed")
    assert client.kill(grace=10.0)["survivors"] == []
    text = b"leaving\narmed\nended\n"
    assert client.log_until(b"ended") == text
    assert client.get(wire.EOF, task="w:0")["size"] == len(text)


def test_a_task_of_a_like_name_and_another_run_are_not_touched(client: Client) -> None:
    """`w:1` does not hit `w:10`, and nothing of a run hits another run's tasks, nor one whose
    id merely begins alike, nor somebody's process with a like command line."""
    others = [
        {"TFMUX_TASK": f"{client.run_id}x/w:1/1;"},
        {"TFMUX_TASK": "another-run/w:1/1;"},
        {"TFMUX_NOTE": f"TFMUX_TASK={client.run_id}/w:1/1;"},
        {},
    ]
    argv = ["sleep", "1000"]
    bystanders = [
        subprocess.Popen(argv, env={**os.environ, **env}, start_new_session=True) for env in others
    ]
    try:
        one, ten = client.start("w:1", argv), client.start("w:10", argv)
        client.kill(["w:1"])
        assert proc.read(one["pid"]) is None
        survivor = proc.read(ten["pid"])
        assert survivor is not None and survivor.alive
        client.kill()
        assert proc.read(ten["pid"]) is None
        assert [bystander.poll() for bystander in bystanders] == [None] * len(bystanders)
    finally:
        for bystander in bystanders:
            bystander.kill()
            bystander.wait()


def test_two_hosts_of_a_run_may_be_one_machine(client: Client) -> None:
    """An agent leaves alone what belongs to the run's other agent on the same machine, daemons
    included; when that one is dead, what it left is anybody's to end."""
    mark = f"other-{client.run_id}"
    client.start("w:0", ["sleep", "1000"])
    with Client(client.run_id, host="there", local=True) as other:
        other.hello()
        theirs = other.python("w:1", DAEMON + "\nimport time; time.sleep(1000)", mark)
        wait_until(lambda: sleepers(mark), "the daemon runs")
        assert client.kill()["signalled"] == 1
        process = proc.read(theirs["pid"])
        assert process is not None and process.alive and sleepers(mark)
        other.kill()
        other.leave()
    assert sleepers(mark) == []


def test_a_second_press_does_not_wait_for_the_grace(client: Client) -> None:
    """The next kill cuts the grace of the one before short; one receipt answers all presses."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(99)"
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"up")
    for ident, grace in ((101, 600.0), (102, 600.0), (103, 0.0)):
        client.send(wire.KILL, {"id": ident, "tasks": None, "grace": grace})
    receipt = client.get(wire.RECEIPT)
    assert receipt["ids"] == [101, 102, 103]
    assert receipt["survivors"] == [] and receipt["signalled"] == 1


def test_nothing_starts_while_everything_is_being_killed(client: Client) -> None:
    """A start that arrives behind the kill is refused, not started and forgotten."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(99)"
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"up")
    client.send(wire.KILL, {"id": 1, "tasks": None, "grace": 1.0})
    late = client.start("w:1", ["sleep", "1000"])
    assert late["error"] == "the run is being ended" and late["pid"] == 0
    assert client.get(wire.RECEIPT)["signalled"] == 1


def test_a_receipt_that_nobody_heard_is_in_the_next(client: Client) -> None:
    """A kill that ended while the launcher was cut off: who asks again is told what that kill
    had signalled."""
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up'); time.sleep(99)"
    client.python("w:0", script)
    client.follow("w:0")
    client.log_until(b"up")
    client.send(wire.KILL, {"id": 1, "tasks": None, "grace": 0.3})
    client.close()
    wait_until(lambda: len(family(client.run_id)) == 2, "the task is dead")
    with Client(client.run_id) as again:
        again.hello()
        receipt = again.kill()
        assert receipt["signalled"] == 1 and receipt["survivors"] == []
        again.leave()


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_a_pid_that_is_used_again_is_not_signalled_without_a_pidfd(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On kernels before 5.3, and where a container forbids it."""

    def refuse(pid: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pidfd_open", refuse)
    with subprocess.Popen(["sleep", "1000"]) as process:
        found = agent_proc.read_process(process.pid)
        assert found is not None
        assert not agent_proc.send(found._replace(start=found.start - 1), (signal.SIGKILL,))
        assert process.poll() is None
        assert agent_proc.send(found, (signal.SIGKILL,))
        assert process.wait() == -signal.SIGKILL
