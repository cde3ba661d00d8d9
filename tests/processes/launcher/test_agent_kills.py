"""Kills by the agent alone: processes that misbehave, survive or are left behind, and its
receipts."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from launcher.agent import processes as agent_proc
from launcher.agent import wire
from tests.support.agent_client import Client, family, sleepers, state_folder, watchdog_and_agent
from tests.support.budgets import variants
from tests.support.patience import PATIENCE, wait_until
from tests.testbed import proc
from tests.testbed.frozen import FreezableDisk, Freezer

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


WRITER = """
import os, sys
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
while True:
    os.write(file, b"x" * 4096)
    os.fsync(file)
"""


class Stuck(NamedTuple):
    """Processes of a task that no signal ends, until they are let go."""

    pids: tuple[int, ...]
    let_go: Callable[[], None]


@contextmanager
def frozen_group(client: Client, folder: Path) -> Iterator[Stuck]:
    """The task and its child, which has left its session and emptied its environment, are in a
    frozen cgroup."""
    script = "setsid env -i sleep 1000 & exec sleep 1000"
    pid = client.start("w:0", ["sh", "-c", script])["pid"]
    child = wait_for_child(pid)
    with Freezer(folder / "freezer") as freezer:
        freezer.freeze(pid, child)
        yield Stuck((pid, child), freezer.thaw)


@contextmanager
def frozen_child(client: Client, folder: Path) -> Iterator[Stuck]:
    """The task itself ends; a child of it, a daemon without a mark, is in a frozen cgroup."""
    pid = client.start("w:0", ["sh", "-c", "setsid env -i sleep 1000 & exec sleep 1000"])["pid"]
    child = wait_for_child(pid)
    with Freezer(folder / "freezer") as freezer:
        freezer.freeze(child)
        yield Stuck((child,), freezer.thaw)


@contextmanager
def frozen_disk(client: Client, folder: Path) -> Iterator[Stuck]:
    """The task writes to a disk that hangs."""
    with FreezableDisk(folder / "disk.image", folder / "disk") as disk:
        file = disk.mountpoint / "checkpoint"
        pid = client.python("w:0", WRITER, str(file))["pid"]
        wait_until(lambda: file.exists() and file.stat().st_size, "it writes")
        disk.freeze()
        wait_until(lambda: (p := proc.read(pid)) and p.state == "D", "it hangs")
        yield Stuck((pid,), disk.thaw)
        disk.thaw()
        wait_until(lambda: proc.read(pid) is None, "it has gone")


def wait_for_child(pid: int) -> int:
    """The child of a shell, once that is its own program."""
    found: list[int] = []

    def there() -> bool:
        found[:] = [p.pid for p in proc.scan() if p.ppid == pid and p.argv[:1] == ("sleep",)]
        return bool(found)

    wait_until(there, "it has a child")
    return found[0]


def living(pids: tuple[int, ...]) -> list[int]:
    """Pids of `pids` that live."""
    return [pid for pid in pids if (process := proc.read(pid)) is not None and process.alive]


def named(receipt: dict[str, Any]) -> set[int]:
    """The pids of a receipt's survivors."""
    return {one["pid"] for one in receipt["survivors"]}


@variants("way", [frozen_group, frozen_child, frozen_disk], test=1)
def test_survivors_are_never_confirmed_and_their_agent_stays(way: Any, tmp_path: Path) -> None:
    """Given a task that outlives KILL, when everything is killed, the launcher goes and the lease
    ends, then no receipt is confirmed and the same agent is there as long as they live: the next
    launcher hears of them by name. When they have gone, the agent goes with its proof."""
    with ExitStack() as stack, Client(lease=1.0) as client:
        agent = client.hello()["pid"]
        stuck = stack.enter_context(way(client, tmp_path))
        receipt = client.kill(grace=0.1)
        assert named(receipt) == set(stuck.pids) == set(living(stuck.pids))
        assert not receipt["confirmed"]
        client.close()
        wait_until(lambda: "ending all tasks" in log_of(client), "the lease has ended")
        with Client(client.run_id, lease=1.0) as again:
            assert again.hello()["pid"] == agent
            receipt = again.kill()
            assert named(receipt) == set(stuck.pids) and not receipt["confirmed"]
        stuck.let_go()
        wait_until(lambda: family(client.run_id) == [], "the agent has gone by itself")
        with Client(client.run_id) as last:
            assert last.hello()["pid"] != agent
            assert last.kill()["confirmed"]
            last.leave()


def log_of(client: Client) -> str:
    return (state_folder(client.run_id) / "agent.log").read_text()


@variants(
    ("way", "end"),
    [(frozen_disk, "told"), (frozen_group, "killed"), (frozen_child, "left")],
    test=1,
)
def test_an_agent_that_goes_beside_survivors_leaves_a_doubt(
    way: Any, end: str, tmp_path: Path
) -> None:
    """Given survivors, when their agent is told to end, is killed, or is let go by a launcher, then
    no later agent confirms anything: before they have gone, nor after."""
    with ExitStack() as stack, Client() as client:
        client.hello()
        stuck = stack.enter_context(way(client, tmp_path))
        assert not client.kill()["confirmed"]
        watchdog, agent = watchdog_and_agent(client.run_id)
        if end == "left":
            client.send(wire.LEAVE, {"remove": True})
        else:
            number = signal.SIGTERM if end == "told" else signal.SIGKILL
            proc.signal_process(agent, number)
        client.everything()
        assert proc.wait_gone(watchdog)
        assert living(stuck.pids)
        with Client(client.run_id) as again:
            again.hello()
            receipt = again.kill()
            assert not receipt["confirmed"] and "earlier agent" in receipt["doubt"]
            again.leave()
        stuck.let_go()
        wait_until(lambda: not living(stuck.pids), "they have gone")
        with Client(client.run_id) as last:
            last.hello()
            receipt = last.kill()
            assert receipt["survivors"] == [] and not receipt["confirmed"]
            assert "earlier agent" in receipt["doubt"]
            last.leave()


def test_on_the_launching_machine_survivors_keep_their_agent(tmp_path: Path) -> None:
    """The end of the channel is the launcher's death there, and ends everything again: it is no
    proof, either."""
    with ExitStack() as stack, Client(lease=600.0, local=True) as client:
        agent = client.hello()["pid"]
        stuck = stack.enter_context(frozen_group(client, tmp_path))
        assert not client.kill()["confirmed"]
        client.close()
        wait_until(lambda: "ending all tasks" in log_of(client), "it acts")
        with Client(client.run_id, lease=600.0, local=True) as again:
            assert again.hello()["pid"] == agent
            assert not again.kill()["confirmed"]
            stuck.let_go()
            wait_until(lambda: not living(stuck.pids), "they have gone")
            receipt = again.kill()
            assert receipt["confirmed"] and receipt["survivors"] == []
            again.leave()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")


def test_under_keep_the_end_of_survivors_is_proven(tmp_path: Path) -> None:
    """Given survivors under `keep`, when they have gone, then the agent goes, too, and the next one
    has no doubt."""
    rules: dict[str, Any] = {"lease": 3.0, "on_disconnect": "keep"}
    with ExitStack() as stack, Client(**rules) as client:
        client.hello()
        stuck = stack.enter_context(frozen_child(client, tmp_path))
        assert not client.kill()["confirmed"]
        client.close()
        stuck.let_go()
        wait_until(lambda: family(client.run_id) == [], "the agent has gone by itself")
        with Client(client.run_id, **rules) as last:
            last.hello()
            assert last.kill()["confirmed"]
            last.leave()


def test_a_receipt_of_one_task_names_its_survivors(client: Client, tmp_path: Path) -> None:
    """And its neighbour goes on."""
    neighbour = client.start("w:1", [sys.executable, "-c", "import time; time.sleep(1000)"])
    with frozen_child(client, tmp_path) as stuck:
        receipt = client.kill(["w:0"])
        assert named(receipt) == set(stuck.pids) and not receipt["confirmed"]
        assert os.path.exists(f"/proc/{neighbour['pid']}")
        assert named(client.kill()) == set(stuck.pids)


LEFT_DAEMON = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 3)
        os.execvp("sleep", ["sleep", "1000"])
    os._exit(0)
os.wait()
"""
POPEN = "import subprocess; subprocess.Popen(['sleep', '1000'])"
CLOSED = "</dev/null >/dev/null 2>&1"


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


BACKGROUND = {
    "nohup": ["sh", "-c", f"nohup sleep 1000 {CLOSED} &"],
    "holds-the-output": ["sh", "-c", "sleep 1000 &"],
    "subshell": ["sh", "-c", f"(sleep 1000 {CLOSED} & ) ; :"],
    "own-session": ["setsid", "--fork", "sh", "-c", "sleep 1000; :"],
    "disowned": ["bash", "-c", f"sleep 1000 {CLOSED} & disown -a"],
    "double-fork": python(LEFT_DAEMON),
    "popen": python(POPEN),
    "in-a-script": ["sh", "-c", "sh -c 'sh -c \"sleep 1000 &\" &' ; exit 0"],
}
FOREGROUND = {
    "waits": ["sh", "-c", "sleep 0.1 & sleep 0.2 & wait"],
    "daemon-that-ends": ["setsid", "--fork", "sleep", "0.3"],
    "pipe": ["sh", "-c", "sleep 0.1 | cat"],
    "closes-a-pipe": ["bash", "-c", "exec 5> >(cat >/dev/null); echo x >&5"],
}
FAILED = {
    "crashes": (["sh", "-c", "nohup cat /missing.py > /dev/null 2>&1 &"], 1),
    "fails-later": (["sh", "-c", "bash -c 'sleep 0.3; exit 4' &"], 4),
    "not-found": (["sh", "-c", "tfmux-missing --x &"], 127),
    "no-directory": (["sh", "-c", "cd /missing && exec cat train.py &"], None),
    "own-session": (["setsid", "--fork", "sh", "-c", "exit 3"], 3),
    "forks": (python("import os; os.fork() or 1/0"), 1),
    "is-killed": (["bash", "-c", "env sh -c 'kill -9 $$' & disown"], -9),
}
"""Programs that start within milliseconds on a busy machine, as an interpreter does not."""
FAILS = ["sh", "-c", "sleep 1000 & exit 3"]


def left(client: Client, task: str) -> Any:
    return client.get(wire.EXITED, task=task)["left"]


def failure(client: Client, name: str, argv: list[str]) -> Any:
    """What is reported of the process that the first one has left. One that gets no processor for
    longer than the agent waits has not failed at once, and one that fails before the first has
    ended may be that one's to wait for: then the task is begun again."""
    deadline = time.monotonic() + PATIENCE
    for number in count():
        client.start(f"{name}:{number}", argv)
        end = client.get(wire.EXITED, task=f"{name}:{number}")
        found = end["left"]
        if found is not None:
            assert found["unlisted"] == 0 and len(found["processes"]) == 1, (name, end)
            (each,) = found["processes"]
            if each.keys() & {"exit_code", "signal"}:
                return each
        assert time.monotonic() < deadline, (name, found)
    raise AssertionError


def test_every_way_into_the_background_is_seen(client: Client) -> None:
    """The end with status 0 lists the living processes of the task, whatever they did to get away;
    one that waits for its children, or whose daemon ends a moment later, has left nothing, nor is
    anything said of a failure, which speaks for itself."""
    tasks = {f"{name}:0": argv for name, argv in (BACKGROUND | FOREGROUND).items()}
    if shutil.which("tmux"):
        tasks["tmux:0"] = [
            "tmux",
            "-L",
            client.run_id,
            "-f",
            "/dev/null",
            "new",
            "-d",
            "sleep 1000",
        ]
    for task, argv in {**tasks, "fails:0": FAILS}.items():
        client.start(task, argv)
    for task in tasks:
        found, name = left(client, task), task.partition(":")[0]
        if name in FOREGROUND:
            assert found is None, (task, found)
            continue
        assert found, task
        assert any("sleep 1000" in each["command"] for each in found["processes"]), (task, found)
        assert found["unlisted"] == 0 and found["seconds"] < 60
    assert left(client, "fails:0") is None
    assert client.kill()["survivors"] == []


@pytest.mark.parametrize("name", FAILED)
def test_what_fails_in_the_background_at_once_is_seen(client: Client, name: str) -> None:
    """The status of what nobody waits for comes to the agent. Each has an agent of its own: of a
    process that lived between two looks it is known only then whose it was."""
    argv, status = FAILED[name]
    each = failure(client, name, argv)
    if status == -9:
        assert each["signal"] == "KILL" and "sh" in each["command"], each
    else:
        assert each["exit_code"] == status or status is None, each
        assert each["exit_code"] != 0
    assert each["forked"] is (name in ("not-found", "no-directory", "forks")), each
    assert client.kill()["survivors"] == []


def test_a_daemon_without_a_mark_is_its_tasks_where_no_other_can_have_started_it(
    client: Client,
) -> None:
    """An empty environment and a session of its own leave neither tag nor descent."""
    client.start("w:0", ["env", "-i", "setsid", "--fork", "sleep", "1000"])
    found = left(client, "w:0")
    assert [each["command"] for each in found["processes"]] == ["sleep 1000"]


@pytest.mark.parametrize("grace", [0.0, 5.0])
def test_what_a_kill_ends_was_not_left(client: Client, grace: float) -> None:
    """A task that catches TERM and ends with 0 while its children are still being ended."""
    script = 'trap "exit 0" TERM; (trap "" TERM; sleep 1000) & echo up; while :; do sleep 0.1; done'
    client.start("w:0", ["bash", "-c", script])
    client.follow("w:0")
    client.log_until(b"up")
    assert client.kill(["w:0"], grace=min(grace, 1.0))["survivors"] == []
    assert left(client, "w:0") is None


def test_many_left_processes_are_counted_and_a_few_are_listed(client: Client) -> None:
    """The frame stays small; those that work most come first."""
    client.start("w:0", ["sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done"])
    found = left(client, "w:0")
    assert len(found["processes"]) == wire.MOST_LEFT and found["unlisted"] == 8 - wire.MOST_LEFT
