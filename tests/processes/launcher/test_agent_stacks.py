"""Stacks of tasks, and runs whose tasks hang, are stopped or say nothing."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from launcher.agent import stack_taker, wire
from launcher.client.run_client import RunClient
from launcher.hosts.frames import StacksAnswer
from launcher.paths import installed_scripts, runs_home
from launcher.process import hang
from launcher.process.run_shell import RunShell
from launcher.run.stack_groups import schema
from launcher.run.states import Hang, RunPhase
from tests.support.agent_client import Client, sleepers
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text, one_task
from tests.support.command import Up, run, write
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import ready
from tests.support.silent import silent_ranks, silent_ranks_below_launchers
from tests.testbed import proc
from tests.testbed.launcher_thread import LauncherThread

HOOK = {"PYTHONPATH": f"{installed_scripts()}/stacks"}
READY = "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
SAYS = "print('ready', flush=True)\n"


def begin(client: Client, task: str, script: str, **said: Any) -> int:
    """Starts a Python task that answers, and returns its pid when it has printed `ready`."""
    number = len(client.logs)
    env = {**HOOK, **said.pop("env", {})}
    started = client.python(task, f"{READY}{script}", "a mark", env=env, **said)
    client.follow(task, number)
    client.log_until(b"ready", number)
    pid: int = started["pid"]
    return pid


LATE = f"it did not answer within {wire.STACK_SECONDS:g} s"


def look(client: Client, *tasks: str, late: str = LATE) -> StacksAnswer:
    """The agent's answer, read as the launcher reads it; asked again while the machine is so busy
    that an interpreter has no time to answer."""
    deadline = time.monotonic() + PATIENCE
    while True:
        said = client.ask(wire.STACKS, {"tasks": list(tasks) or None})
        if "the previous request for stacks" not in str(said.get("error")):
            assert "error" not in said, said
            answer = StacksAnswer.model_validate_json(wire.encode(wire.REPLY, said)[5:])
            if late not in {one.note for one in answer.processes}:
                return answer
        assert time.monotonic() < deadline, said


def main_stack(answer: StacksAnswer, at: int = 0) -> list[str]:
    """The functions of a process's first thread, the innermost first."""
    return [function for function, _, _ in answer.stacks[answer.processes[at].threads[0][1]]]


def state(pid: int) -> str:
    found = proc.read(pid)
    return "" if found is None else found.state


def wait_asleep(pid: int) -> None:
    wait_until(lambda: state(pid) in ("S", "D"), "it sleeps")


STUCK = {
    "a sleep": ("def inner():\n    time.sleep(1000)", "sleeps in hrtimer_nanosleep"),
    "C code": (
        "import ctypes\ndef inner():\n    while True: ctypes.CDLL(None).sleep(1000)",
        "sleeps in hrtimer_nanosleep",
    ),
    "C code with the interpreter's lock": (
        "import ctypes\ndef inner():\n    while True: ctypes.PyDLL(None).sleep(1000)",
        "sleeps in hrtimer_nanosleep",
    ),
    "a socket": (
        "import socket\na, b = socket.socketpair()\ndef inner():\n    a.recv(1)",
        "sleeps in ",
    ),
    "a lock": (
        "import threading\nlock = threading.Lock()\nlock.acquire()\n"
        "def inner():\n    lock.acquire()",
        "sleeps in futex",
    ),
    "a child": (
        "import subprocess\nchild = subprocess.Popen(['sleep', '1000'])\n"
        "def inner():\n    child.wait()",
        "sleeps in do_wait",
    ),
}


@variants("where", STUCK, test=3)
def test_an_interpreter_says_where_it_stands(client: Client, where: str) -> None:
    """Whatever it is stuck in, its frames are known, and what the kernel says beside them."""
    script, kernel = STUCK[where]
    pid = begin(client, "w:0", f"{script}\n{SAYS}inner()\n")
    wait_until(lambda: kernel in look(client).processes[0].state, kernel)
    answer = look(client, "w:0")
    process = answer.processes[0]
    assert (process.task.job, process.pid, process.way) == ("w", pid, "python")
    assert [name for name in main_stack(answer) if name in ("inner", "<module>")] == [
        "inner",
        "<module>",
    ]
    assert process.threads[0][0] == "main" and process.command.endswith("a mark")


# A thread that waits for its child takes no signal before that has ended; the child takes none.
_VFORK = """
#include <signal.h>
#include <time.h>
#include <unistd.h>
int stay(void) {
    sigset_t all;
    struct timespec half = {0, 500000000};
    sigfillset(&all);
    if (vfork() == 0) {
        sigprocmask(SIG_BLOCK, &all, 0);
        nanosleep(&half, 0);
        _exit(0);
    }
    return 0;
}
"""


def test_a_thread_that_takes_its_time_is_waited_for(client: Client, tmp_path: Path) -> None:
    """Given a first thread that sleeps, and another one that takes a signal half a second late, as
    any thread may on a busy host, then the interpreter's own word is waited for."""
    source, library = tmp_path / "stay.c", tmp_path / "stay.so"
    source.write_text(_VFORK)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    script = f"import ctypes, threading\nlibrary = ctypes.CDLL({str(library)!r})\n"
    script += "def stay():\n    while True: library.stay()\n"
    script += f"threading.Thread(target=stay, daemon=True).start()\n{SAYS}time.sleep(1000)\n"
    begin(client, "w:0", script)
    for _ in range(3):
        process = look(client, "w:0").processes[0]
        assert process.way == "python", process


def test_threads_are_told_apart_and_the_main_thread_is_first(client: Client) -> None:
    """All threads are there, that of the program first, though another one took the signal: its
    wait goes on, where that of the main thread for a signal would end."""
    script = f"""
import ctypes, threading
def helper():
    threading.Event().wait()
def waits():
    ctypes.CDLL(None).pause()
    print("woken", flush=True)
for _ in range(3):
    threading.Thread(target=helper, daemon=True).start()
{SAYS}waits()
"""
    wait_asleep(begin(client, "w:0", script))
    for _ in range(3):
        answer = look(client)
        assert main_stack(answer) == ["waits", "<module>"]
        (process,) = answer.processes
        others = [answer.stacks[number] for _, number in process.threads[1:]]
        assert len(others) == 3 and all("helper" in {f for f, _, _ in one} for one in others)
        assert len({number for _, number in process.threads}) == 2  # equal ones are said once
    assert b"woken" not in client.logs[0]


HARDENED = {
    "stopped": (
        "os.kill(os.getpid(), signal.SIGSTOP)",
        "kill -CONT {pid} continues it; or restart the task",
    ),
    "ignores": (
        "signal.signal(signal.SIGRTMAX - 7, signal.SIG_IGN)\ntime.sleep(1000)",
        "the program no longer catches the signal",
    ),
    "default": (
        "signal.signal(signal.SIGRTMAX - 7, signal.SIG_DFL)\ntime.sleep(1000)",
        "the program no longer catches the signal",
    ),
    "blocks": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGRTMAX - 7])\ntime.sleep(1000)",
        "the program blocks the signal",
    ),
    "replaced": (
        "signal.signal(signal.SIGRTMAX - 7, lambda *_: None)\ntime.sleep(1000)",
        "the program handles the signal in its own way",
    ),
    "waits for signals": (
        "import ctypes\nctypes.CDLL(None).pause()\nprint('woken', flush=True)",
        "it waits for a signal, and would mistake this one for it",
    ),
}


@variants("how", HARDENED, test=3)
def test_a_program_with_other_plans_for_the_signal_loses_nothing(client: Client, how: str) -> None:
    """The program lives on as it was, and the kernel describes it."""
    script, note = HARDENED[how]
    pid = begin(client, "w:0", f"{SAYS}{script}\n")
    wait_until(lambda: state(pid) in ("S", "T"), "it has got there")
    for _ in range(2):
        (process,) = look(client).processes
        assert (process.way, process.note) == ("proc", note.format(pid=pid))
        assert process.state == ("is stopped" if how == "stopped" else process.state)
    assert b"woken" not in client.logs[0]
    assert state(pid) in ("S", "T")


def test_a_number_that_the_program_has_taken_is_left_alone(client: Client, tmp_path: Path) -> None:
    """The program has closed the descriptor, which is its own file now: nothing is written
    there."""
    file = tmp_path / "results"
    script = f"""
made = os.open({str(file)!r}, os.O_CREAT | os.O_RDWR)
for number in {stack_taker.NUMBERS}:
    os.dup2(made, number)
{SAYS}time.sleep(1000)
"""
    pid = begin(client, "w:0", script)
    (process,) = look(client).processes
    assert process.way == "proc" and file.read_bytes() == b"" and state(pid) == "S"


def test_children_answer_for_themselves_and_programs_of_others_live_on(client: Client) -> None:
    """Forked interpreters share a file and are asked in turn; a program that a task has started
    would die of the signal."""
    script = f"""
import subprocess
subprocess.Popen(["sleep", "4033.{os.getpid()}"])
def child_0(): time.sleep(1000)
def child_1(): time.sleep(1000)
def child_2(): time.sleep(1000)
def parent(): time.sleep(1000)
for work in (child_0, child_1, child_2):
    if os.fork() == 0:
        work()
{SAYS}parent()
"""
    pid = begin(client, "w:0", script)
    wait_until(lambda: len(look(client).processes) == 5, "all are there")
    wait_until(
        lambda: all(one.state.startswith("sleeps") for one in look(client).processes), "all sleep"
    )
    answer = look(client)
    assert main_stack(answer)[0] == "parent"
    assert {one.parent for one in answer.processes if one.pid != pid} == {pid}
    found = {main_stack(answer, at)[0]: one.way for at, one in enumerate(answer.processes)}
    assert found == {
        "parent": "python",
        "child_0": "python",
        "child_1": "python",
        "child_2": "python",
        "sleeps in hrtimer_nanosleep": "proc",
    }
    assert len(sleepers(f"4033.{os.getpid()}")) == 1


def test_the_ranks_that_a_task_has_started_are_told(client: Client) -> None:
    """Each by its environment, as torchrun and MPI set it; what has none, or none that is one, has
    no rank."""
    script = f"""
import subprocess
ranks = ({{"RANK": "6"}}, {{"OMPI_COMM_WORLD_RANK": "7"}}, {{"RANK": "6; rm"}}, {{}})
words = [sys.executable, "-c", "import time; time.sleep(1000)"]
for env in ranks:
    subprocess.Popen(words, env={{**os.environ, **env}})
{SAYS}time.sleep(1000)
"""
    begin(client, "w:0", script)
    wait_until(lambda: len(look(client).processes) == 5, "all are there")
    wait_until(
        lambda: (
            sorted(str(one.rank) for one in look(client).processes)
            == ["6", "7", "None", "None", "None"]
        ),
        "their ranks",
    )


def test_a_shell_script_is_described_by_the_kernel(client: Client, tmp_path: Path) -> None:
    """The shell waits for its child, and the child reads a pipe: both with their open files."""
    script = "mkfifo $0/p; read line < $0/p"
    client.start("w:0", ["sh", "-c", f"{script}; true", str(tmp_path)], env={})
    client.start("w:1", ["sh", "-c", "sleep 4034; true"])

    def settled() -> bool:
        states = [one.state for one in look(client, "w:1").processes]
        waiting = ["sleeps in do_wait"]
        return states[:1] == waiting and states[-1].startswith("sleeps in ")

    wait_until(settled, "the shell waits and its child sleeps")
    child = look(client, "w:1").processes[1]
    assert child.command == "sleep 4034" and child.way == "proc" and not child.note
    assert any(file.startswith("1 pipe:[") for file in child.files)


def test_a_process_that_the_kernel_holds_is_named_and_a_kill_is_not_behind_it(
    client: Client,
) -> None:
    """A parent in `vfork` gets no signal before its child has gone: the receipt of a kill comes
    first, and then what is known of it."""
    script = f"""
import ctypes
libc = ctypes.PyDLL(None)
{SAYS}
if libc.vfork() == 0:
    libc.sleep(1000)
    libc._exit(0)
"""
    pid = begin(client, "w:0", script)
    wait_until(lambda: state(pid) == "D", "the kernel holds it")
    answer = look(client, late="never")
    assert answer.processes[0].way == "proc"
    assert answer.processes[0].state.startswith("waits in the kernel (D)")
    assert answer.processes[0].note
    answer = look(client, late="never")
    assert answer.processes[0].note == "the signal of an earlier request is still pending"
    client.send(wire.STACKS, {"tasks": None, "id": 900})
    assert client.kill()["confirmed"]
    client.get(wire.REPLY, id=900)


def test_py_spy_is_asked_about_interpreters_that_do_not_answer(tmp_path: Path) -> None:
    """Where the host has it, and for those processes alone; what it prints is cut and printable."""
    program = tmp_path / "py-spy"
    program.write_text(
        "#!/bin/sh\n"
        'echo "Process $4: python train.py"\necho "Python v3.11.7 (/usr/bin/python3.11)"\necho\n'
        'echo "Thread 99 (idle): \\"pool\\""\necho "    wait (threading.py:320)"\n'
        'echo "Thread $4 (active): \\"MainThread\\""\n'
        "printf '    next\\033]52;c;x\\007 (data.py:12)\\n    step (a b/train.py:41)\\n'\n"
    )
    program.chmod(0o755)
    before = ["env", f"PATH={tmp_path}:{os.environ['PATH']}"]
    with Client(before=before) as client:
        client.hello()
        off = begin(client, "w:0", f"{SAYS}time.sleep(1000)", env={"TFMUX_STACKS": "0"})
        begin(client, "w:1", f"{SAYS}time.sleep(1000)")
        answer = look(client)
        by_task = {str(one.task): one for one in answer.processes}
        assert (by_task["w:0"].way, by_task["w:1"].way) == ("py-spy", "python")
        assert by_task["w:0"].pid == off
        at = list(by_task).index("w:0")
        first = answer.stacks[answer.processes[at].threads[0][1]]
        assert [line for _, _, line in first] == [12, 41]
        assert first[1][:2] == ("step", "a b/train.py") and first[0][0].isprintable()
        client.kill()
        client.leave()


def test_a_py_spy_that_hangs_is_left(tmp_path: Path) -> None:
    """The answer comes all the same, with the word of the kernel."""
    program = tmp_path / "py-spy"
    program.write_text(f"#!/bin/sh\nexec sleep 4035.{os.getpid()}\n")
    program.chmod(0o755)
    before = ["env", f"PATH={tmp_path}:{os.environ['PATH']}"]
    with Client(before=before) as client:
        client.hello()
        begin(client, "w:0", f"{SAYS}time.sleep(1000)", env={"TFMUX_STACKS": "0"})
        (process,) = look(client).processes
        assert (process.way, process.note) == ("proc", "py-spy did not answer in time")
        wait_until(lambda: not sleepers(f"4035.{os.getpid()}"), "it has been ended")
        client.kill()
        client.leave()


def test_hostile_names_are_harmless(client: Client) -> None:
    """Names of files, functions and commands are whatever a program wants."""
    source = "def f\u202e():\\n    time.sleep(1000)\\nprint('ready', flush=True)\\nf\u202e()"
    source = source.replace("\u202e", "_")
    script = (
        f"exec(compile({source!r}.replace('\\\\n', chr(10)), '\\x1b]52;c;eA==\\x07' * 99, 'exec'))"
    )
    begin(client, "w:0", script)
    wait_until(lambda: main_stack(look(client))[0] == "f_", "it sleeps")
    said = look(client).model_dump_json()
    assert "\\u001b" not in said and "\\u0007" not in said and len(said) < 10_000


def test_an_answer_has_bounds(client: Client) -> None:
    """Deep recursion and hundreds of processes give a cut answer that says how much is missing."""
    script = f"""
sys.setrecursionlimit(5000)
def deep(n):
    if n:
        deep(n - 1)
    else:
        time.sleep(1000)
for _ in range(300):
    if os.fork() == 0:
        deep(90)
{SAYS}deep(4000)
"""
    begin(client, "w:0", script)
    missing = 301 - wire.MOST_PROCESSES
    wait_until(lambda: look(client, late="never").unlisted == missing, "all are there")
    said = client.ask(wire.STACKS, {"tasks": None})
    assert len(wire.encode(wire.REPLY, said)) < 300_000
    assert max(map(len, said["stacks"])) <= wire.MOST_FRAMES


def test_interpreters_and_the_agent_speak_of_the_same_signal_and_numbers() -> None:
    """Neither can import the other."""
    text = (Path(installed_scripts()) / "stacks" / "sitecustomize.py").read_text()
    assert f"_NUMBERS = {stack_taker.NUMBERS}" in text
    assert "SIGRTMAX - 7" in text and signal.SIGRTMAX - 7 == stack_taker.SIGNAL
    assert "tfmux-stacks" in text and sys.platform == "linux"


PROGRAM = """
import os, sys, time
def never():
    time.sleep(1000)
def others():
    time.sleep(1000)
print("begins", flush=True)
if sys.argv[1] == sys.argv[2]:
    never()
if sys.argv[3:] == ["end"]:
    while not os.path.exists("go"):
        time.sleep(0.05)
    sys.exit(0)
for step in range(5) if sys.argv[3:] == ["steps"] else ():
    print("step", step, "loss", 1, flush=True)
    time.sleep(0.1)
print("ends", flush=True)
others()
"""


STEPS = """
import time
for step in range(10_000):
    print(f"step {step} loss 0.5", flush=True)
    time.sleep(0.2)
"""
"""A program that serves nobody."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hangs.py").write_text(PROGRAM)
    return tmp_path


def hangs_hang(up: Up) -> dict[str, str]:
    """Where the tasks stood, as the record of the run has it; the file has all stacks."""
    event = up.wait_for(lambda e: e["event"] == "run" and "hang" in e, "a look at the run")
    found: dict[str, str] = event["hang"]
    file = runs_home() / up.run_id / found["file"]
    wait_until(file.exists, "the file is written")
    made = json.loads(file.read_text())
    jsonschema.validate(made, schema())
    assert made["time"] == found["time"] and made["groups"]
    return found


def test_one_that_does_not_become_ready_in_time(folder: Path) -> None:
    """Looked at before it is called so, and told below the failure."""
    text = """
name = "late"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "hangs.py", "{index}", "1"]
ready = { log = "ends" }
[run]
grace = 1
[start]
timeout = 16
order = [["worker"]]
"""
    with Up("up", str(write(folder, text)), "--json") as up:
        found = hangs_hang(up)
        assert found["reason"] == "not-ready" and found["file"] == "stacks-not-ready.json"
        assert found["text"].startswith("worker:1 is in never hangs.py:4")
        assert found["text"].endswith("; 1 other waits in others hangs.py:6")
        assert up.wait() == 1
        notes = [event["note"] for event in up.of("note")]
        where = "worker:1 on localhost is in never hangs.py:4"
        assert any(note.startswith(f"worker:1 not ready yet: {where}") for note in notes)
        assert "  ◂ worker:1 is in never" in up.said
        assert up.said.splitlines()[-1] and f"cause: {where}" in up.said
        assert len([e for e in up.of("run") if "hang" in e and e["state"] == "starting"]) == 1


def test_one_that_makes_steps_and_never_listens(folder: Path) -> None:
    """Given a task that makes steps, and does not open the port that its file asks for, when it is
    not ready in time, then nobody says that it hangs: the failure says what it lacks, and which
    setting that is about."""
    (folder / "steps.py").write_text(STEPS)
    text = """
name = "steps"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "steps.py"]
ready = "listening"
[run]
grace = 1
[start]
timeout = 12
"""
    with Up("up", str(write(folder, text)), "--json") as up:
        assert up.wait() == 1
        assert not [event for event in up.of("run") if event.get("verdict")]
        assert "first failure: worker:0 on localhost: not ready after 12 s: it does not" in up.said
        assert "has made no step" not in up.said


def test_one_that_hangs_at_the_end(folder: Path) -> None:
    """Looked at before it is ended for its silence."""
    text = """
name = "end"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "hangs.py", "{index}", "1", "end"]
ready = "started"
[run]
grace = 1
finish_timeout = 4
"""
    with Up("up", str(write(folder, text)), "--json") as up:
        assert up.log("worker:1", "begins")
        (folder / "go").touch()
        found = hangs_hang(up)
        assert found["reason"] == "at-end"
        assert found["text"].startswith("worker:1 is in never hangs.py:4")
        assert up.wait() == 1
        assert "hangs at its end" in up.said and "all stacks: stacks-at-end.json" in up.said
        kept = run("stacks", up.run_id)
        assert kept.returncode == 2 and "stacks-at-end.json" in kept.stderr
        assert f"{up.run_id} has ended" in kept.stderr and "attach" not in kept.stderr


SERVES = """
import os, socketserver, sys, time
if sys.argv[1] == "1":
    server = socketserver.TCPServer(("localhost", 0), socketserver.BaseRequestHandler)
    print("serves", flush=True)
    server.serve_forever()
while not os.path.exists("go"):
    time.sleep(0.05)
"""


def test_one_that_serves_until_it_is_ended(tmp_path: Path) -> None:
    """Its work is to answer others: when the run has what it wants, nobody says that it hangs."""
    (tmp_path / "serves.py").write_text(SERVES)
    text = """
name = "serves"
[jobs.local]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "serves.py", "{index}"]
ready = "started"
[run]
grace = 1
finish_timeout = 8
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.log("local:1", "serves")
        (tmp_path / "go").touch()
        assert up.wait() == 0, up.transcript()
        assert not [event for event in up.of("run") if event.get("hang")]
        last = {task["task"]: task["state"] for task in up.of("task")}
        assert last == {"local:0": "exited", "local:1": "stopped"} and "hangs" not in up.said


WAITS = """
import sys, time
print("begins", flush=True)
while sys.argv[1] == "1":
    print("I0000 00:00:1.2 3 master.cc:278] CreateSession still waiting for response from worker: "
          "/job:worker/replica:0/task:0", flush=True)
    time.sleep(0.2)
"""


def test_one_that_waits_for_one_that_has_ended(tmp_path: Path) -> None:
    """What it repeats is no output; the failure names the task that is waited for."""
    (tmp_path / "waits.py").write_text(WAITS)
    text = """
name = "waits"
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
command = ["{python}", "waits.py", "{index}"]
ready = "started"
[run]
grace = 1
finish_timeout = 5
"""
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        assert up.wait() == 1
        reason = re.search(r"worker:1 .*: hangs at its end: (.*)", up.said)
        assert reason, up.said
        waited = r"for \d+ s it has only waited for worker:0, which had ended .* before"
        assert re.match(waited, reason[1]), up.said


def test_one_that_stalls(folder: Path) -> None:
    """Told to the hook, with the file; a run without a hook is looked at, too."""
    teller = "import pathlib, sys; pathlib.Path('told').write_text(sys.stdin.read())"
    text = f"""
name = "stalls"
[hooks]
on_stall = ["{sys.executable}", "-c", {json.dumps(teller)}]
[jobs.worker]
tasks = ["localhost:auto"]
command = ["{{python}}", "hangs.py", "{{index}}", "1", "steps"]
ready = "started"
[run]
grace = 1
"""
    with Up("up", str(write(folder, text)), "--json") as up:
        found = hangs_hang(up)
        assert found["reason"] == "stalled"
        assert re.match(r"worker:0 is in others hangs.py:6 for \d\d", found["text"]), found
        wait_until((folder / "told").exists, "the hook has run")
        wait_until(lambda: (folder / "told").read_text(), "and was told")
        told = json.loads((folder / "told").read_text())
        assert told["hang"] == found and told["folder"] == str(runs_home() / up.run_id)
        since = up.of("task")[-1]["stalled_since"]
        assert [one["stalled_since"] for one in told["stalled"]] == [since]
        listed = run("ps", "--json")
        (active,) = [one for one in json.loads(listed.stdout) if one["run"] == up.run_id]
        assert (active["stalled"], active["stalled_since"]) == (1, since)
        assert re.search(r"1 task has stalled, for \d\d s", run("ps").stderr)
        up.press_ctrl_c()
        assert up.wait() == 130


IN_EXIT = """
import atexit, os, sys, threading, time, traceback

def save():
    time.sleep(1000)

how, rank = sys.argv[1], int(os.environ["RANK"])
print("step 1 loss 0.5", flush=True)
if rank == 0:  # prints a traceback, and goes on
    try:
        raise KeyError("skipped sample")
    except KeyError:
        traceback.print_exc()
    time.sleep(1000)
if rank == 1:
    if how == "thread":
        threading.Thread(target=save).start()
    else:
        atexit.register(save)
    raise ValueError("bad sample in shard 17")
while True:  # goes on without the others
    print("works", flush=True)
    time.sleep(0.2)
"""


@variants("how", ["thread", "atexit"], test=1)
def test_one_that_has_raised_and_hangs_in_its_exit(tmp_path: Path, how: str) -> None:
    """Given a task that has printed its traceback and does not come to its end, a second one that
    prints a traceback and goes on, and a third one that works, then the first one is named at
    once, and the run ends for its exception when it has been silent for `finish_timeout`."""
    (tmp_path / "exit.py").write_text(IN_EXIT)
    text = cluster_text(
        {"worker": 3},
        command=["{python}", "exit.py", how],
        framework="torch",
        success="all",
        finish_timeout=12,
        grace=1,
        start={"order": [["worker"]], "ready": {"worker": "started"}},
    )
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        event = up.wait_for(lambda e: e["event"] == "run" and "verdict" in e, "a verdict")
        verdict = event["verdict"]
        assert (verdict["tasks"], verdict["kind"]) == (["worker:1"], "raised"), verdict
        assert event["state"] == "running" and verdict["sure"], event
        raised = "raised ValueError: bad sample in shard 17"
        assert verdict["text"] == (
            f"worker:1 on localhost {raised} (exit.py:20), and hangs in its exit"
        )
        assert up.wait() == 1, up.transcript()
        end = up.of("run")[-1]
        assert end["first_failure"]["task"] == "worker:1"
        assert f"{raised}, and hangs in its exit" in end["first_failure"]["how"]
        assert (end["verdict"]["tasks"], end["verdict"]["kind"]) == (["worker:1"], "raised")


@contextmanager
def launched(
    folder: Path,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
    ranks: Callable[..., str] = silent_ranks,
) -> Iterator[tuple[RunClient, RunShell]]:
    """The run, looked at as if minutes were seconds, from when all ranks are where they stay."""
    monkeypatch.setattr(hang, "_QUIET_TICKS", ())
    monkeypatch.setattr(hang, "_QUIET_LOOK", 1.0)
    from launcher.cluster.read import load

    file = write(folder, ranks(folder, how))
    thread = LauncherThread()
    client = RunClient.launch(load(file, for_launch=True), file.read_text(), process=thread)
    client.await_state()
    try:
        wait_until(
            lambda: all(task.last_output for task in client.snapshot().tasks), "all have begun"
        )
        monkeypatch.setattr(hang, "_QUIET_TICKS", range(3, 1000))
        yield client, thread.shell
    finally:
        client.kill_all()
        assert client.wait(PATIENCE)


def judges(shell: RunShell) -> bool:
    return any(work.get_name() == "hang" for work in list(shell._work))


def test_a_rank_that_does_nothing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given four silent ranks, when three wait in a framework for one that sleeps, then the run's
    record names that one for sure, in time; no task has stalled, and nothing is ended."""
    with launched(tmp_path, "sleeps", monkeypatch) as (client, _):
        wait_until(lambda: client.snapshot().verdict, "a verdict")
        snapshot = client.snapshot()
        verdict, found = snapshot.verdict, snapshot.hang
        assert verdict is not None and [str(one) for one in verdict.tasks] == ["worker:2"]
        assert verdict.sure and "is in next_batch" in verdict.text
        assert found is not None and found.reason is Hang.SILENT
        assert not snapshot.stalled and snapshot.state is RunPhase.RUNNING
        file = client.folder.path / found.file
        wait_until(file.exists, "all stacks are kept")


@pytest.mark.parametrize("how", ["sleeps", "stopped"])
def test_a_rank_below_a_launcher_of_ranks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Given two tasks that have started two ranks each, as torchrun does, when three ranks wait for
    the third, then that rank is named, and its task, for sure."""
    below = silent_ranks_below_launchers
    with launched(tmp_path, how, monkeypatch, below) as (client, _):
        wait_until(lambda: client.snapshot().verdict, "a verdict")
        verdict = client.snapshot().verdict
        assert verdict is not None and [str(one) for one in verdict.tasks] == ["worker:1"]
        assert verdict.text.startswith("rank 2 of worker:1 on localhost is ") and verdict.sure
        assert "3 others wait in all_reduce" in verdict.text


@variants("how", ["all wait", "serves", "works"], test=1)
def test_a_quiet_run_that_is_well_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Given four silent ranks, when all wait in a framework as a long step has it, or for requests,
    or for one that works, then a look at them leaves no trace."""
    with launched(tmp_path, how, monkeypatch) as (client, shell):
        looks = 2 if how == "works" else 1
        wait_until(lambda: len(shell.parts.stacks.looks) >= looks, "it was looked at")
        wait_until(lambda: not judges(shell), "it was judged")
        snapshot = client.snapshot()
        assert (snapshot.verdict, snapshot.hang, snapshot.stalled) == (None, None, ())


TRAINS = "import time; print('trains', flush=True); time.sleep(1000)"


def test_a_stopped_task_is_named_until_it_goes_on(tmp_path: Path) -> None:
    """Given a task that trains, when somebody stops its process, then its record says `stopped` and
    since when; when it goes on, neither."""
    text = one_task(TRAINS, ready={"log": "trains"})
    with Up("up", str(write(tmp_path, text)), "--json") as up:
        ready(up, "worker:0")
        pid = next(event["pid"] for event in up.of("task") if event.get("pid"))
        os.kill(pid, signal.SIGSTOP)
        found = up.wait_for(lambda event: event.get("halted") == "stopped", "it is stopped")
        assert found["task"] == "worker:0" and found["halted_since"] is not None
        os.kill(pid, signal.SIGCONT)
        up.wait_for(
            lambda event: (
                event.get("event") == "task"
                and not event.get("halted")
                and event["time"] > found["time"]
            ),
            "it goes on",
        )
        up.press_ctrl_c()
        assert up.wait() == 130


SERVERS = """
import socketserver
with socketserver.TCPServer(("localhost", 0), socketserver.BaseRequestHandler) as server:
    print("serves", flush=True)
    server.serve_forever()
"""


def servers(folder: Path, how: str) -> str:
    """A run of two tasks that only answer others."""
    (folder / "serves.py").write_text(SERVERS)
    tasks = f'tasks = ["localhost:auto", "localhost:auto"]\nready = "{how}"\n'
    return f'[jobs.local]\n{tasks}[run]\ncommand = ["{{python}}", "serves.py"]\ngrace = 1\n'


def test_a_run_of_servers_alone_is_said_to_have_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As programs that end with `join()` are: once, and it is no hang."""
    with launched(tmp_path, "started", monkeypatch, servers) as (client, shell):
        wait_until(lambda: client.snapshot().notes, "a note")
        looks = len(shell.parts.stacks.looks)
        wait_until(
            lambda: len(shell.parts.stacks.looks) > min(looks, 3) or looks == 4, "another look"
        )
        wait_until(lambda: not judges(shell), "it was judged")
        snapshot = client.snapshot()
        assert list(snapshot.notes) == [
            "local:0–1 only serve others, and no task is left that asks: the run ends when "
            "somebody ends it"
        ]
        assert (snapshot.verdict, snapshot.hang) == (None, None)
