"""Kills and ends from outside: by whom they are ordered, once or more than once; no grace is cut
short, and nothing is left."""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from launcher.client.run_client import RunClient
from launcher.cluster.read import load
from launcher.hosts.auth_prompt import AuthPrompt
from launcher.run.states import Outcome, RunPhase
from launcher.store.runs import RunFolder, socket_path
from tests.support import command
from tests.support.agent_client import Client, unattended_run, watchdog_and_agent
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import cluster_text, one_task
from tests.support.command import Up, python_task, write
from tests.support.paths import REPOSITORY, SUPPORT
from tests.support.patience import PATIENCE, wait_until
from tests.support.saving_task import await_lines, cluster, is_killed, only_run
from tests.support.snapshots import wait
from tests.support.terminal import Terminal
from tests.testbed import guard, proc
from tui.run_clients import RunClients

TFMUX = (sys.executable, "-m", "tui.main")
WINDOW = """
import sys
from launcher import decision
decision.SECONDS = float(sys.argv[1])
from tui.main import main
sys.exit(main(sys.argv[2:]))
"""
TOGETHER, APART = "1000", "0"
"""Seconds within which signals are one decision, for signals that come when something was seen."""
FORWARDS = """
import signal, subprocess, sys
child = subprocess.Popen(sys.argv[1:])
signal.signal(signal.SIGINT, lambda number, frame: child.send_signal(number))
sys.exit(child.wait())
"""
SENDS_TWICE = FORWARDS.replace(
    "child.send_signal(number)", "[child.send_signal(number) for _ in range(2)]"
)


@contextmanager
def started(folder: Path, words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Starts a command in a session of its own, and ends its whole group at the end."""
    with (folder / "said").open("ab") as said:
        process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            cwd=REPOSITORY,
            start_new_session=True,
        )
    with process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def await_training() -> RunFolder:
    """Waits for the one run, whose task has set up its trap."""
    wait_until(lambda: len(RunFolder.all()) == 1, "a run", PATIENCE)
    log = only_run().path / "worker-0.log"
    wait_until(lambda: log.exists() and log.stat().st_size, "its trap is there", PATIENCE)
    return only_run()


def outcome(run: RunFolder) -> tuple[str, int]:
    """How a run has ended, by its record."""
    records = map(json.loads, run.events.read_text().splitlines())
    ends = [one for one in records if one.get("event") == "run" and one.get("outcome")]
    return ends[-1]["outcome"], ends[-1]["exit_code"]


@pytest.mark.parametrize(
    ("first", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_what_comes_within_the_window_is_the_first_decision(
    tmp_path: Path, first: signal.Signals, code: int
) -> None:
    """Given a run that is being ended by a signal, when others come, of any kind, then its task
    still has its grace, and the end is the first one's."""
    words = [sys.executable, "-c", WINDOW, TOGETHER, "up", str(cluster(tmp_path)), "--headless"]
    with started(tmp_path, words) as up:
        run = await_training()
        up.send_signal(first)
        wait_until(lambda: is_killed(run), "the first order", PATIENCE)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            up.send_signal(number)
            await_lines(run, 3)
        (tmp_path / "go on").touch()
        assert up.wait(PATIENCE) == code
    assert (tmp_path / "saved").exists()


def test_a_closed_terminal_and_a_service_manager(tmp_path: Path) -> None:
    """Given `on_hangup = "detach"`, when HUP and TERM come at the end of a session, then the run
    goes on, as the first of them says."""
    file = cluster(tmp_path, settings='on_hangup = "detach"')
    with started(tmp_path, [sys.executable, "-c", WINDOW, TOGETHER, "up", str(file)]) as up:
        run = await_training()
        up.send_signal(signal.SIGHUP)
        up.send_signal(signal.SIGTERM)
        assert up.wait(PATIENCE) == 0
    await_lines(run, 3)
    assert not is_killed(run)
    (tmp_path / "go on").touch()
    done = subprocess.run([*TFMUX, "kill", run.run_id], capture_output=True, cwd=REPOSITORY)
    assert done.returncode == 0, done


def test_a_later_signal_is_another_decision(tmp_path: Path) -> None:
    """Given a run that is being ended by Ctrl-C, when it comes again later, then nothing is left of
    the grace."""
    words = [sys.executable, "-c", WINDOW, APART, "up", str(cluster(tmp_path)), "--headless"]
    with started(tmp_path, words) as up:
        run = await_training()
        up.send_signal(signal.SIGINT)
        wait_until(lambda: is_killed(run), "the first order", PATIENCE)
        up.send_signal(signal.SIGINT)
        assert up.wait(PATIENCE) == 130
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize(
    ("front", "number", "whole_group"),
    [
        (("timeout", "-s", "INT", "1000"), signal.SIGALRM, False),
        soak(("timeout", "-s", "INT", "1000"), signal.SIGINT, True),
        soak(("timeout", "1000"), signal.SIGALRM, False),
        ((sys.executable, "-c", FORWARDS), signal.SIGINT, True),
        soak((sys.executable, "-c", SENDS_TWICE), signal.SIGINT, False),
        (("sh", "-c", 'trap : INT; "$@"; exit $?', "sh"), signal.SIGINT, True),
    ],
    ids=["timeout", "timeout in a group", "timeout term", "forwards", "twice", "shell"],
)
def test_programs_that_pass_a_signal_on(
    tmp_path: Path, front: Sequence[str], number: signal.Signals, whole_group: bool
) -> None:
    """Real ones: `timeout` at its end signals its child and the group in which that is; `uv run`
    passes on what a terminal has sent to all of them."""
    with started(tmp_path, [*front, *TFMUX, "up", str(cluster(tmp_path)), "--headless"]) as up:
        run = await_training()
        (os.killpg if whole_group else os.kill)(up.pid, number)
        wait_until(lambda: is_killed(run), "an order", PATIENCE)
        await_lines(run, 5)
        (tmp_path / "go on").touch()
        up.wait(PATIENCE)
    assert (tmp_path / "saved").exists()
    assert outcome(run) == (
        ("terminated", 143) if front == ("timeout", "1000") else ("killed", 130)
    )


def test_two_commands_in_one_group(tmp_path: Path) -> None:
    """Given `tfmux up` and `tfmux attach` that one Ctrl-C reaches, then it is pressed once; the
    second one has seen the kill of the first."""
    file = str(cluster(tmp_path))
    with started(tmp_path, [*TFMUX, "up", file, "--headless"]) as up:
        run = await_training()
        words = [sys.executable, "-c", WINDOW, TOGETHER, "attach", run.run_id, "--json"]
        (tmp_path / "attached").mkdir()
        with started(tmp_path / "attached", words) as attached:
            said = tmp_path / "attached/said"
            wait_until(lambda: "trains" in said.read_text(), "it follows", PATIENCE)
            up.send_signal(signal.SIGINT)
            wait_until(lambda: '"killing"' in said.read_text(), "it sees the kill", PATIENCE)
            attached.send_signal(signal.SIGINT)
            await_lines(run, 5)
            (tmp_path / "go on").touch()
            assert attached.wait(PATIENCE) == up.wait(PATIENCE) == 130
    assert (tmp_path / "saved").exists()


def test_a_signal_to_all_processes_of_a_service(tmp_path: Path) -> None:
    """Given TERM to the launcher process, which has ended the run, when the command's own comes,
    then what follows the end is not given up."""
    wait = "import os, time; open('begun', 'w').close()\nwhile not os.path.exists('go on'): "
    hook = ["python3", "-c", f"{wait}time.sleep(0.05)\nopen('saved', 'w').close()"]
    text = one_task("import time; print('trains', flush=True); time.sleep(1000)")
    file = write(tmp_path, f"{text}[hooks]\non_end = {json.dumps(hook)}\n")
    words = [sys.executable, "-c", WINDOW, TOGETHER, "up", str(file), "--json"]
    with started(tmp_path, words) as up:
        pid = await_training().launcher_pid()
        assert pid
        os.kill(pid, signal.SIGTERM)
        wait_until((tmp_path / "begun").exists, "the hook runs", PATIENCE)
        said = tmp_path / "said"
        wait_until(lambda: '"ended"' in said.read_text(), "the end is seen", PATIENCE)
        up.send_signal(signal.SIGTERM)
        (tmp_path / "go on").touch()
        assert up.wait(PATIENCE) == 143, said.read_text()
    assert (tmp_path / "saved").exists() and "given up" not in said.read_text()


def test_a_screen_that_is_told_twice(
    tmp_path: Path, terminal: Callable[[int, int], Terminal]
) -> None:
    """Given a run on a screen, when SIGINT comes to its process and comes again, then its task has
    its grace, and the receipt is printed."""
    window = terminal(120, 40)
    window.start([sys.executable, "-c", WINDOW, TOGETHER, "up", str(cluster(tmp_path))])
    run = await_training()
    window.wait_for("trains")
    pid = _process("decision.SECONDS", str(tmp_path))
    os.kill(pid, signal.SIGINT)
    wait_until(lambda: is_killed(run), "an order", PATIENCE)
    for _ in range(2):
        os.kill(pid, signal.SIGINT)
        await_lines(run, 3)
    (tmp_path / "go on").touch()
    window.wait_for("killed after", "no process is left")
    assert (tmp_path / "saved").exists() and outcome(run) == ("killed", 130)


def _process(*parts: str) -> int:
    """The Python process whose command line has these parts."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_text(errors="replace")
            if words.startswith(sys.executable) and all(part in words for part in parts):
                found.append(int(name))
    (pid,) = found
    return pid


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


TEXT = cluster_text(
    {"worker": {"tasks": 1, "ready": "started"}}, "way", command=["sleep", "1000"], workdir=""
)
Call = tuple[str, str, str]
"""Module, function, and the kind of a frame that is encoded."""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Calls in the main thread of the launcher process of a run that is killed, from the kill's
    command on the control socket to the last message."""
    trace = tmp_path / "trace"
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT / "traces"))
    monkeypatch.setenv("TRACE_FILE", str(trace))
    monkeypatch.setenv("TRACE_ROOT", f"{REPOSITORY}/launcher/")
    client = RunClient.launch(load(write(tmp_path, TEXT)), TEXT)
    wait_until(lambda: client.snapshot().state is RunPhase.RUNNING, "it runs")
    client.kill_all()
    assert client.wait(PATIENCE) and client.snapshot().exit_code == 130
    wait_until(trace.exists, "the launcher process has ended")
    client.close()
    lines = trace.read_text().splitlines()
    return [(module, function, kind) for module, function, kind in (x.split("\t") for x in lines)]


def first(calls: Sequence[Call], function: str, kind: str = "") -> int:
    """Where a function is called first."""
    return next(at for at, call in enumerate(calls) if call[1:] == (function, kind))


def check(calls: Sequence[Call], modules: int, functions: int) -> None:
    """No more modules and functions than these are on a way."""
    ways = dict.fromkeys((module, function) for module, function, _ in calls)
    found = dict.fromkeys(module for module, _ in ways)
    listed = "\n".join(f"{module}  {function}" for module, function in ways)
    counts = f"{len(found)} modules, {len(ways)} functions; at most {modules} and {functions}"
    assert len(found) <= modules and len(ways) <= functions, f"{counts}:\n{listed}"


def test_the_way_of_a_kill_can_be_read(calls: list[Call]) -> None:
    """Given a run, when a client kills it, then few modules and functions are on the way from the
    command that the control socket hands over to the KILL frame, and to the last message out."""
    begin, frame = first(calls, "RunShell.command"), first(calls, "encode", str(wire.KILL))
    assert begin < frame
    check(calls[begin : frame + 1], 10, 23)
    check(calls[: first(calls, "LocalTransport.write") + 1], 12, 26)
    check(calls[: first(calls, "Outbox.finish") + 1], 27, 175)


LONG_LINES = """
import json, signal, sys
from pathlib import Path
from types import SimpleNamespace
from tui.headless import _Output

signal.signal(signal.SIGINT, lambda *_: None)
snapshot = SimpleNamespace(tasks=())
out = _Output(SimpleNamespace(folder=Path(), attached=False, snapshot=lambda: snapshot), True)
for number in range(8000):
    out._write(json.dumps({"number": number, "text": "1" * 30_000}))
    if number % 7 == 0:
        out._flush()
out._flush()
"""


def test_a_signal_costs_no_part_of_a_line() -> None:
    """Ctrl-C while a pipe has taken a part of a long line: Python's own buffer forgets the rest of
    it (seen in 3.11.7, once in some thousand lines)."""
    child = subprocess.Popen([sys.executable, "-c", LONG_LINES], stdout=subprocess.PIPE)
    assert child.stdout is not None
    done = threading.Event()

    def interrupt() -> None:
        while not done.wait(random.random() * 0.002):
            child.send_signal(signal.SIGINT)

    with child:
        first = child.stdout.readline()  # its handler is there
        interrupter = threading.Thread(target=interrupt)
        interrupter.start()
        try:
            for number, line in enumerate(itertools.chain([first], child.stdout)):
                assert json.loads(line)["number"] == number
        finally:
            done.set()
            interrupter.join()
            child.kill()
    assert number == 7999


INTERRUPTED = """
import os, signal, sys
from launcher.client.run_client import RunClient
signal.signal(signal.SIGINT, signal.default_int_handler)
launch = RunClient.launch
def interrupted(*args, **options):
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    return launch(*args, **options)
RunClient.launch = interrupted
from tui.main import main
sys.exit(main(sys.argv[2:]))
"""


@variants(
    ("name", "code", "outcome"),
    [("SIGINT", 130, "killed"), ("SIGTERM", 143, "terminated")],
    test=1,
)
def test_an_interrupted_launch_says_how_it_ended(
    tmp_path: Path, name: str, code: int, outcome: str
) -> None:
    """A signal that comes before there is a run ends it as soon as there is one, with what `up`
    says at every end; on a slow machine Ctrl-C right behind the command ended without that."""
    file = write(tmp_path, one_task("import time; time.sleep(1000)"))
    words = [sys.executable, "-c", INTERRUPTED, name, "up", str(file), "--headless"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == code, done.stderr
    assert f"■ {outcome} after 0:" in done.stderr and "\nlogs: " in done.stderr


LATE = """
import builtins, os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Late:
    def __del__(self, kill=os.kill, pid=os.getpid(), number=signal.SIGINT, write=os.write):
        write(2, b"late\\n")
        kill(pid, number)
builtins.late = Late()  # what is left of other modules may never be looked at
from tui.main import main
sys.exit(main(sys.argv[1:]))
"""


def test_an_interrupt_behind_the_end_changes_nothing(tmp_path: Path) -> None:
    """The interpreter is on its way out and handles no signal any more: the command, a success,
    died of Ctrl-C."""
    file = write(tmp_path, one_task("print('done')"))
    words = [sys.executable, "-c", LATE, "up", str(file), "--headless"]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert "worker:0 | done" in done.stdout and "Traceback" not in done.stderr
    assert done.stderr.endswith("\nlate\n")


@variants("whom", ["command", "launcher"], test=1)
def test_signals_that_are_for_tasks_end_nothing_of_ours(tmp_path: Path, whom: str) -> None:
    """Given a run here, when USR1 and USR2 come to `tfmux up` or to its launcher process, as those
    of a batch script do, then both go on: the run ends with its task."""
    here = tmp_path / "go"
    task = "import os, time\nprint('at work', flush=True)\n"
    task += f"while not os.path.exists({str(here)!r}): time.sleep(0.05)"
    with Up("up", str(write(tmp_path, one_task(task))), "--json") as up:
        up.log("worker:0", "at work")
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            if whom == "command":
                up.process.send_signal(number)
            else:
                up.signal_launcher(number)
        here.touch()
        assert up.wait() == 0, up.transcript()


@variants("closed", [">&-", "<&- >&- 2>&-", soak("<&-"), soak("2>&-")], test=1)
def test_a_run_needs_no_standard_streams(tmp_path: Path, closed: str) -> None:
    """Closed ones are as good as the null device: no traceback, and the exit code of the run. What
    is opened next does not get their numbers."""
    file = write(tmp_path, one_task("print('done')"))
    words = [sys.executable, "-m", "tui.main", "up", str(file), "--headless"]
    script = f'"$@" {closed}; echo "code $?"'
    done = subprocess.run(
        ["sh", "-c", script, "sh", *words], capture_output=True, text=True, cwd=REPOSITORY
    )
    assert "code 0" in done.stdout.splitlines(), done
    assert "Traceback" not in done.stderr
    assert ("worker:0 | done" in done.stdout) == (closed in ("<&-", "2>&-"))
    assert ("success" in done.stderr) == (closed in ("<&-", ">&-"))


SAVES = """
import signal, sys, time
def save(*_):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("at work", flush=True)
time.sleep(1000)
"""


def launched(folder: Path, **settings: Any) -> Up:
    """A run of two workers at work."""
    text = cluster_text(
        {"worker": {"tasks": 2, "ready": "started"}},
        "t",
        command=python_task(SAVES),
        workdir="",
        **settings,
    )
    up = Up("up", str(command.write(folder, text)), "--json")
    for task in ("worker:0", "worker:1"):
        up.log(task, "at work")
    return up


def last(up: Up, task: str) -> dict[str, Any]:
    return next(e for e in reversed(up.of("task")) if e["task"] == task)


@variants("whom", ["agent", "watchdog"], test=1)
def test_an_agent_that_is_told_to_stop(whom: str, tmp_path: Path) -> None:
    """Given tasks that save and leave with 0, when their agent or its watchdog gets TERM, then both
    have saved, the run has failed with 1, and it says who ended the tasks."""
    with launched(tmp_path, success="all") as up:
        watchdog, agent = watchdog_and_agent(up.run_id)
        proc.signal_process(agent if whom == "agent" else watchdog, signal.SIGTERM)
        assert up.wait() == 1, up.transcript()
        for task in ("worker:0", "worker:1"):
            up.log(task, "saved")
            assert last(up, task)["stopped_by"] == "agent"
            assert last(up, task)["state"] == "stopped"
    run = up.of("run")[-1]
    assert (run["outcome"], run["cause"]) == ("failed", "outside")
    assert "the agent was told to stop" in run["first_failure"]["how"]


def test_all_processes_of_a_host_are_told_to_stop(tmp_path: Path) -> None:
    """Given tasks that save and leave with 0, when they get TERM together with the agent, as at a
    shutdown, then the run has failed."""
    with launched(tmp_path, success="all") as up:
        agent = watchdog_and_agent(up.run_id)[1]
        tasks = [proc.read(last(up, f"worker:{number}")["pid"]) for number in (0, 1)]
        proc.signal_process(agent, signal.SIGTERM)
        for task in tasks:
            assert task is not None
            proc.signal_process(task, signal.SIGTERM)
        assert up.wait() == 1, up.transcript()


def test_the_launchers_death_is_learned_of_later(tmp_path: Path) -> None:
    """Given a launcher that is killed, so that the agent of this machine ends its tasks, when
    another one takes the run up, then it has failed."""
    with launched(tmp_path, success="all") as up:
        run_id, (watchdog, _) = up.run_id, watchdog_and_agent(up.run_id)
        up.kill_launcher()
    assert proc.wait_gone(watchdog)
    with Up("attach", run_id, "--json") as again:
        assert again.wait() == 1, again.transcript()
    run = again.of("run")[-1]
    assert (run["outcome"], run["cause"]) == ("failed", "outside")


def test_another_command_kills_the_run(tmp_path: Path) -> None:
    """Given tasks that save and leave with 0, when `tfmux kill` ends their run, then it was killed
    and not a success."""
    with launched(tmp_path, success="all") as up:
        assert command.run("kill", up.run_id).returncode == 0
        assert up.wait() == 130, up.transcript()
    assert {last(up, task)["stopped_by"] for task in ("worker:0", "worker:1")} == {"launcher"}
    assert up.of("run")[-1]["outcome"] == "killed"


# --- the agent's facts --------------------------------------------------------------------------


def test_who_ended_a_task_is_a_fact_of_its_agent() -> None:
    """A task that ends by itself, one that is killed by name, and one that is ended with all."""
    with Client() as client:
        client.hello()
        client.python("w:0", "")
        assert client.get(wire.EXITED, task="w:0")["stopped_by"] == ""
        for task in ("w:1", "w:2"):
            client.python(task, SAVES)
            client.follow(task, int(task[2:]))
            client.log_until(b"at work", int(task[2:]))
        client.kill(["w:1"], grace=60.0)
        ended = client.get(wire.EXITED, task="w:1")
        assert (ended["status"], ended["stopped_by"]) == (0, "launcher")
        agent = watchdog_and_agent(client.run_id)[1]
        proc.signal_process(agent, signal.SIGTERM)
        ended = client.get(wire.EXITED, task="w:2")
        assert (ended["status"], ended["stopped_by"]) == (0, "agent")
        assert ended["stopped_why"] == "the agent was told to stop"


def test_the_next_agent_knows_who_ended_the_tasks_of_the_last_one() -> None:
    """Given a task that its agent has ended, when the next launcher comes, then it is told so."""
    with unattended_run() as channel:
        watchdog, agent = watchdog_and_agent(channel.run_id)
        proc.signal_process(agent, signal.SIGTERM)
        wait_until(lambda: not watchdog_alive(watchdog.pid), "the agent and its watchdog have gone")
        with Client(channel.run_id) as again:
            (task,) = again.hello()["tasks"]
            assert (task["task"], task["signal"], task["stopped_by"]) == ("w:0", "TERM", "agent")


def watchdog_alive(pid: int) -> bool:
    found = proc.read(pid)
    return found is not None and found.alive
