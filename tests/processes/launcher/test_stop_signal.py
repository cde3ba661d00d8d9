"""The signal that ends a task, and what its handler saves."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from launcher.client.run_client import RunClient
from launcher.ids import TaskId
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.agent_client import Client
from tests.support.budgets import budget, soak, variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.patience import PATIENCE, wait_until

UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
LONG = 600.0
"""A grace that no test waits for: all processes have ended by themselves when the receipt comes."""

SAVE = """\
i=0
while [ $i -lt 20 ]; do sleep 0.03; i=$((i + 1)); done
echo saved
touch saved
"""
"""A program that saves for the time of many looks, and has no handler."""

TRAIN = """\
import multiprocessing, os, signal, subprocess, sys, threading, time

def save(*_):
    print("saving")
    {save}
    sys.exit(0)

if __name__ == "__main__":
    {wait}
    print("up")
    while True:
        time.sleep(0.01)
"""
BY_HANDLER = "signal.signal(15, save)"
BY_ITSELF = """signal.pthread_sigmask(signal.SIG_BLOCK, [15])
    threading.Timer(0.1, print, ["up"]).start()
    signal.sigwait([15])
    save()"""
BY_THREAD = """signal.pthread_sigmask(signal.SIG_BLOCK, [15])
    def wait():
        signal.sigwait([15])
        try:
            save()
        finally:
            os._exit(0)
    threading.Thread(target=wait).start()"""

HANDLERS = {
    "program": "subprocess.run(['sh', 'save.sh'], check=True)",
    "shell": "assert os.system('sh save.sh') == 0",
    "pipe": "print(subprocess.check_output('sh save.sh | cat', shell=True, text=True))",
    "below": "subprocess.run(['sh', '-c', 'sh -c \"sh save.sh; :\"; :'], check=True)",
    "fork": "os.fork() or os.execlp('sh', 'sh', 'save.sh')",
    "daemon": "subprocess.Popen(['sh', 'save.sh'], start_new_session=True)",
    "no mark": "subprocess.Popen(['env', '-i', '/bin/sh', 'save.sh'], start_new_session=True)",
    "chain": "[os.fork() and os._exit(0) or time.sleep(0.03) for _ in range(10)]; print('saved')",
    "waits itself": "subprocess.run(['sh', 'save.sh'], check=True)",
    "waited for": "print('of a thread that waits for the signal'); os.system('sh save.sh')",
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


def written(folder: Path, handler: str = "program") -> Path:
    """The programs in a folder of their own."""
    (folder / "save.sh").write_text(SAVE)
    wait = {"waited for": BY_THREAD, "waits itself": BY_ITSELF}.get(handler, BY_HANDLER)
    (folder / "train.py").write_text(TRAIN.format(save=HANDLERS[handler], wait=wait))
    return folder


def start(client: Client, folder: Path, *argv: str, **said: Any) -> None:
    """Starts a task in a folder, and waits until its handler is there."""
    answer = client.start("w:0", argv, cwd=str(folder), env=UNBUFFERED, **said)
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


@variants("handler", HANDLERS, test=4)
def test_what_a_handler_starts_has_the_grace(client: Client, tmp_path: Path, handler: str) -> None:
    """Given a task whose handler starts programs to save, when it is killed, then these end by
    themselves, and the kill waits for them."""
    start(client, written(tmp_path, handler), sys.executable, "train.py")
    assert b"saved" in ended_by_itself(client)
    assert client.get(wire.EXITED, task="w:0")["status"] == 0


SCRIPTS = {
    "trap": "trap 'sh save.sh; exit 0' TERM; echo up; while :; do sleep 0.05; done",
    "no trap": "python train.py; echo not reached",
    "background": "python train.py & wait; echo not reached",
    "wrapper": "python train.py & trap 'exit 3' TERM; wait",
    "pipeline": "python train.py 2>&1 | tee log; echo not reached",
    "long pipeline": "python train.py | grep --line-buffered . | (while read line; do echo $line; "
    "done) | tee log; echo not reached",
    "two wrappers": "sh -c 'python train.py; :'; echo not reached",
}


@variants("shell", ["bash", "dash"], test=1)
@variants("stop", ["all", "first"], test=1)
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
    if "tee" in text:
        assert "saved" in (tmp_path / "log").read_text()


CAPTURES = {
    "lines": """subprocess.Popen(["python", "train.py"], stdout=subprocess.PIPE, text=True)
for line in process.stdout: print(line, end="", flush=True)""",
    "below": """subprocess.Popen("python train.py; :", shell=True, stderr=subprocess.STDOUT,
    stdout=subprocess.PIPE, text=True, start_new_session=True)
for line in process.stdout: print(line, end="", flush=True)""",
}
READERS = {
    **{
        name: f"""python -c '
import subprocess
process = {text}
process.wait()
subprocess.run(["echo", "not reached"])'"""
        for name, text in CAPTURES.items()
    },
    "loop": "while read line; do echo $line; done < <(python train.py); echo not reached",
    "programs": "while read line; do echo $(echo $line | cat); done < <(python train.py); "
    "echo not reached",
    "substitution": "x=$(python train.py | tee /dev/stderr); echo not reached",
    "FIFO": "mkfifo fifo; cat fifo & python train.py >fifo; echo not reached",
    "file": "touch log; tail -n +1 -f log & python train.py >log; echo not reached",
}
"""Programs without a handler that read what the training writes, not by `|` alone."""


@variants("stop", ["all", "first"], test=1)
@pytest.mark.parametrize("reader", READERS)
def test_a_program_that_reads_what_another_writes_lives_as_long(
    client: Client, tmp_path: Path, reader: str, stop: str
) -> None:
    """Given a program that reads what the training writes, when it is killed, then the training
    says what it wants and saves, and one that has started it does nothing new."""
    folder = written(tmp_path)
    text = READERS[reader].replace('"python"', repr(sys.executable).replace("'", '"'))
    (folder / "run.sh").write_text(text.replace("python ", f"{sys.executable} "))
    start(client, folder, "bash", "run.sh", stop=stop)
    log = ended_by_itself(client)
    assert (tmp_path / "saved").exists() and b"not reached" not in log


@variants("shell", ["bash", "dash"], test=1)
@variants("stop", ["all", "first"], test=1)
def test_a_loop_over_lines_starts_no_other_program(
    client: Client, tmp_path: Path, stop: str, shell: str
) -> None:
    """Given a loop that starts a program for each line that another program writes, when it is
    killed, then the program of the moment saves, and no other one is started."""
    loop = f"yes | while read line; do {sys.executable} train.py; done"
    start(client, written(tmp_path), shell, "-c", loop, stop=stop)
    log = ended_by_itself(client)
    assert b"saved" in log and log.count(b"up") == 1


UNREAD = {
    "not read": "yes | (echo up; exec sleep 1000)",
    "read in vain": "sleep 1000 | python3 -uc 'print(\"up\"); import time; time.sleep(1000)'",
    "ring": """python3 -uc '
import os, subprocess
(a, b), (c, d) = os.pipe(), os.pipe()
subprocess.Popen(["cat"], stdin=a, stdout=d)
subprocess.Popen(["cat"], stdin=c, stdout=b)
for fd in (a, b, c, d): os.close(fd)
print("up")
'""",
    "ring with a way in": "mkfifo ring; cat <ring >ring & (echo up; exec sleep 1000)",
}


@variants("script", UNREAD, test=1)
def test_readers_that_no_end_of_input_ends(client: Client, tmp_path: Path, script: str) -> None:
    """Given programs without handlers that read what others write, and do not end with it, when
    they are killed, then they get their signal, too."""
    start(client, tmp_path, "sh", "-c", UNREAD[script])
    ended_by_itself(client)


def test_a_script_that_writes_into_a_program_of_its_own(client: Client, tmp_path: Path) -> None:
    """Given a script whose whole output goes through `tee`, when it is killed, then all that its
    program says while it saves is in the file."""
    text = f"exec > >(tee log) 2>&1\n{sys.executable} train.py\necho not reached\n"
    (written(tmp_path) / "run.sh").write_text(text)
    start(client, tmp_path, "bash", "run.sh")
    log = ended_by_itself(client)
    assert b"saved" in log and (tmp_path / "log").read_bytes() == log


@variants("shell", ["bash", "dash"], test=1)
@variants("stop", ["all", "first"], test=1)
@pytest.mark.parametrize("script", ["no trap", "background", "pipeline", "two wrappers"])
def test_a_terminal_stays_while_its_programs_save(
    client: Client, tmp_path: Path, script: str, stop: str, shell: str
) -> None:
    """Given a shell script without a trap at a terminal, which the end of the script would take
    from its program, when it is killed, then the program saves, and what it says is in the log."""
    (written(tmp_path) / "run.sh").write_text(SCRIPTS[script].replace("python", sys.executable))
    start(client, tmp_path, shell, "run.sh", stop=stop, pty=True)
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
    print("up" if child is None else "on")
    time.sleep(0.02)
"""

FORKS = """\
import os, time
number = 0
while True:
    if os.fork() == 0:
        {child}
        time.sleep(1000)
    time.sleep(0.002)
    number += 1
    if number == 20:
        print("up")
"""
CHILDREN = {
    "child": "pass",
    "session": "os.setsid()",
    "program": "os.execlp('sleep', 'sleep', '1000')",
    "orphan": "os.fork() and os._exit(0)",
    "chain": "[os.fork() and os._exit(0) for _ in range(20) if time.sleep(0.002) is None]",
}


@variants("below", ["", "a script"], test=1)
@variants("child", CHILDREN, test=2)
def test_what_was_forked_before_the_signal_gets_it(
    client: Client, tmp_path: Path, child: str, below: str
) -> None:
    """Given tasks that fork as fast as kills look, without a handler, when they are killed, then
    all that they have forked ends by the signal, time and again."""
    (tmp_path / "forks.py").write_text(FORKS.format(child=CHILDREN[child]))
    for attempt in range(1, budget(3, 100) + 1):
        argv = [sys.executable, "forks.py"]
        argv = ["sh", "-c", f"{shlex.join(argv)}; :"] if below else argv
        client.start("w:0", argv, cwd=str(tmp_path), attempt=attempt, env=UNBUFFERED)
        client.follow("w:0")
        client.log_until(b"up\n" * attempt)
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
    client.log_until(30 * b"on\n")  # the time of many looks
    (tmp_path / "go").touch()
    assert client.get(wire.RECEIPT, ids=[7002])["signalled"] == 2
    receipt = client.get(wire.RECEIPT, ids=[7003])  # the neighbour was gone before
    assert receipt["confirmed"] and receipt["signalled"] == 1, receipt
    assert client.log_until(b"saved").count(b"saving") == 1
    client.get(wire.EXITED, task="w:0", status=0)


LOADERS = """\
import multiprocessing, os, queue, signal, sys, time

def load(batches):
    number = 0
    while True:
        batches.put((os.getpid(), number))
        number += 1

def main():
    context = multiprocessing.get_context(sys.argv[1])
    batches = context.Queue(4)
    loaders = [context.Process(target=load, args=(batches,), daemon=True) for _ in range(2)]
    for loader in loaders:
        loader.start()
    told = []
    signal.signal(getattr(signal, "SIG" + sys.argv[2]), lambda *_: told.append(1))
    while not told:
        batches.get()
        print("up")
    seen = {loader.pid: 0 for loader in loaders}
    while min(seen.values()) < 50:
        pid, number = batches.get(timeout=60)
        seen[pid] += 1
        time.sleep(0.01)
    assert all(loader.is_alive() for loader in loaders)
    print("saved after", len(seen), "loaders")

if __name__ == "__main__":
    main()
"""


@variants("name", ["TERM", "USR1", "INT"], test=1)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_helpers_outlive_the_first_process_that_needs_them(
    client: Client, tmp_path: Path, method: str, name: str
) -> None:
    """Given a training that takes more batches from the processes that load its data before it
    saves, when only its first process is signalled, then it saves, and all are gone."""
    (tmp_path / "train.py").write_text(LOADERS)
    argv = (sys.executable, "train.py", method, name)
    start(client, tmp_path, *argv, stop="first", stop_signal=name)
    assert b"saved after 2 loaders" in ended_by_itself(client)
    assert client.get(wire.EXITED, task="w:0")["status"] == 0


LEFT = """\
import os, signal, sys, time
if os.fork() == 0:
    def told(*_):
        print("child told")
        sys.exit(0)
    signal.signal(signal.SIGUSR2, told)
    print("up")
    while True:
        time.sleep(0.01)
def told(*_):
    print("first told")
    time.sleep(0.3)
    if os.fork() == 0:
        os.execlp("sh", "sh", "save.sh")
    print("first ends")
    os._exit(0)
signal.signal(signal.SIGUSR2, told)
while True:
    time.sleep(0.01)
"""


def test_what_the_first_process_leaves_is_told_when_that_has_ended(
    client: Client, tmp_path: Path
) -> None:
    """Given a task whose first process leaves one that it had started before the signal and one
    that saves, when it ends, then the former gets the signal, and the latter the grace."""
    (written(tmp_path) / "train.py").write_text(LEFT)
    start(client, tmp_path, sys.executable, "train.py", stop="first", stop_signal="USR2")
    words = ended_by_itself(client).split(b"\n")
    assert words.index(b"first ends") < words.index(b"child told")
    assert b"saved" in words


@variants("name", ["TERM", "INT", "HUP", "QUIT", "USR1", "USR2"], test=2)
def test_each_stop_signal_ends_a_program_without_a_handler(client: Client, name: str) -> None:
    """Whatever handlers the agent has for it, the task has none."""
    client.start("w:0", ["sleep", "1000"], stop_signal=name)
    assert client.kill(grace=LONG)["confirmed"]
    assert client.get(wire.EXITED, task="w:0")["signal"] == name


def test_an_agent_without_a_launcher_asks_as_it_was_told(tmp_path: Path) -> None:
    """Given a task with a stop signal of its own and helpers, when its lease ends, then the agent
    alone sends that signal to the first process, which takes more batches and saves."""
    (tmp_path / "train.py").write_text(LOADERS)
    with Client(lease=1.0, grace=LONG) as channel:
        channel.hello()
        argv = (sys.executable, "train.py", "fork", "USR1")
        start(channel, tmp_path, *argv, stop="first", stop_signal="USR1")
        channel.get(wire.NOTE)  # no beat of ours renews the lease
        assert b"saved after 2 loaders" in channel.log_until(b"loaders")
        channel.get(wire.EXITED, task="w:0", status=0)


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
