"""Agents and their watchdogs are killed, frozen or short of threads: told, and nothing outlives the
next contact."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from tests.support import command
from tests.support.agent_client import Client
from tests.support.budgets import soak
from tests.support.command import Up, python_task, write
from tests.support.patience import PATIENCE, wait_until
from tests.support.requirements import require
from tests.support.scenario import FaultScenario, confirmed, notes, ready, receipt
from tests.testbed import proc
from tests.testbed.proc import Process

PLACES = {"ps": ["tf1"], "worker": ["tf3"]}
DEATHS = {
    "tf1": "the agent died: SIGKILL killed it",
    "tf2": "the agent died: it did not answer its watchdog for 8 s: a signal had stopped it",
    "tf3": "told to stop",
    "tf4": "the host has rebooted",
}
HIDDEN = ("sh", "-c", "sleep 3002; :")


def hidden(scenario: FaultScenario) -> list[Process]:
    """The daemons without a tag on tf3, not what they fork."""
    found = [p for p in scenario.testbed["tf3"].leftovers() if p.argv == HIDDEN]
    return proc.without_forks(found)


def left(scenario: FaultScenario) -> list[Process]:
    """What still carries the worker's tag on tf3."""
    return scenario.of("tf3", "worker:0")


def end_hidden(scenario: FaultScenario) -> None:
    """Ends the daemon without a tag, which lives: nothing of ours knows it."""
    assert hidden(scenario), "the daemon was meant to live on"
    for process in scenario.testbed["tf3"].leftovers():
        if process.argv in (HIDDEN, ("sleep", "3002")):
            proc.signal_process(process, signal.SIGKILL)


def test_agents_that_die_are_told_and_take_everything_with_them(scenario: FaultScenario) -> None:
    """Given hosts on which the agent is killed, is stopped, loses its watchdog, or loses its power,
    when the run ends, then each host is told with its reason, daemons have gone, too, and every
    host confirms it."""
    places = {"ps": ["here"], "worker": ["tf1", "tf2", "tf3", "tf4"]}
    file = scenario.file(
        places,
        modes={"worker": "stubborn daemon orphan child"},
        run='lease = 600\ngrace = 1\non_failure = "keep"\nsuccess = "all"',
    )
    with scenario.up(file) as up:
        workers = [f"worker:{number}" for number in range(4)]
        ready(up, "ps:0", *workers)
        wait_until(lambda: hidden(scenario), "the daemon runs")
        (_, killed), (_, frozen), (watchdog, _) = (
            scenario.agents(name) for name in ("tf1", "tf2", "tf3")
        )
        proc.signal_process(frozen, signal.SIGSTOP)
        host = scenario.testbed["tf4"]
        host.crash()
        scenario.bystanders.pop("tf4")
        proc.signal_process(killed, signal.SIGKILL)
        up.state("worker:0", "failed")
        proc.signal_process(watchdog, signal.SIGKILL)
        for task in ("worker:1", "worker:3"):
            up.state(task, "lost")
        host.boot()
        assert up.wait() == 1, up.transcript()
    for name, why in DEATHS.items():
        assert any(note.startswith(name) and why in note for note in notes(up)), notes(up)
    for place, where in (("worker:0 on tf1", "tf1"), ("worker:1 on tf2", "tf2")):
        assert f"{place}: failed ({DEATHS[where]})" in up.said
    assert "worker:3 on tf4: failed (the host has rebooted)" in up.said
    # Nobody waits for log bytes of agents that are not there any more.
    assert not any("did not come" in note for note in notes(up)), notes(up)
    assert "first failure: worker:0 on tf1: ended unseen, the agent died: SIGKILL" in up.said
    assert confirmed(up)
    scenario.wait_dead()


def test_a_kill_beside_a_frozen_agent_is_confirmed(scenario: FaultScenario) -> None:
    """Given an agent that is stopped, when a person ends the run in that moment, then the launcher
    waits for the agent's watchdog and for the next agent's receipt."""
    file = scenario.file(PLACES, run="lease = 600\ngrace = 0", modes={"worker": "daemon child"})
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        _, agent = scenario.agents("tf3")
        proc.signal_process(agent, signal.SIGSTOP)
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        assert not any("did not come" in note for note in notes(up)), notes(up)
    scenario.wait_dead()


def test_a_kill_wakes_an_agent_and_a_watchdog_that_were_stopped(scenario: FaultScenario) -> None:
    """Given both stopped on a host, when a person ends the run, then the agent goes on: its task
    has the grace, and the host confirms it."""
    file = scenario.file(PLACES, run="lease = 600\ngrace = 60", modes={"worker": "daemon child"})
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        for process in scenario.agents("tf3"):
            proc.signal_process(process, signal.SIGSTOP)
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        assert notes(up) == []
    scenario.wait_dead()


@pytest.mark.prove
def test_both_killed_leave_what_the_next_contact_ends(scenario: FaultScenario) -> None:
    """Given an agent, its watchdog and the launcher that are killed, when `tfmux kill` is called,
    then it ends what has the run's tag, but confirms nothing: a daemon without a tag lives on."""
    # An agent that has a doubt stays for the lease.
    file = scenario.file(
        PLACES, run="lease = 8\ngrace = 1", modes={"worker": "daemon orphan child"}
    )
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        run_id = up.run_id
        wait_until(lambda: hidden(scenario), "the daemon runs")
        both = scenario.agents("tf3")
        for process in both:
            proc.signal_process(process, signal.SIGSTOP)
        up.kill_launcher()
        for process in both:
            proc.signal_process(process, signal.SIGKILL)
    wait_until(
        lambda: (
            not any("-c" in p.argv[1:3] and p.argv[0].endswith("python") for p in left(scenario))
        ),
        "the task itself went with the agent",
    )
    assert hidden(scenario), "the daemon was meant to live on"
    listed = command.run("ps").stderr
    assert f"tfmux: {run_id}: tf3 has worker:0 without an agent: tfmux kill ends" in listed
    for _ in range(2):  # and for ever: no later agent can know better
        code, said = scenario.kill(run_id)
        assert code == 4 and "tf3: not confirmed" in said, said
    end_hidden(scenario)
    scenario.wait_dead()


CHAIN = r"""
import os, sys, time
pause, home, killer = float(sys.argv[1]), sys.argv[2], sys.argv[3]
if os.fork() == 0:  # a chain of forks without a tag, which stops at a file or after a minute
    os.setsid()
    code = (
        "import os, sys, time\n"
        "while not os.path.exists(sys.argv[2]) and time.time() < float(sys.argv[3]):\n"
        "    if os.fork(): os._exit(0)\n"
        "    time.sleep(float(sys.argv[1]))\n"
    )
    until = str(time.time() + 60)
    os.execve(sys.executable, ["chain", "-c", code, str(pause), home + "/stop", until], {})
print("ready", flush=True)
while not os.path.exists(home + "/go"):
    time.sleep(0.005)
if os.fork() == 0:  # a daemon with an emptied environment that nobody has looked at yet
    os.setsid()
    os.execve("/bin/sh", ["sh", "-c", "sleep 60; :", home], {})
time.sleep(pause)
if killer == "administrator" or os.fork():
    open(home + "/made", "w").close()
    time.sleep(1000)  # this one goes with its parent, and so would not live to kill them all
os.setsid()
processes = {}
for name in os.listdir("/proc"):
    if name.isdigit():
        try:
            with open(f"/proc/{name}/stat") as file:
                processes[int(name)] = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            continue  # it has just ended
above, pid = [], os.getpid()
while (pid := processes.get(pid, 0)) > 1:
    try:
        with open(f"/proc/{pid}/environ") as file:
            if "TFMUX_AGENT" in file.read():
                above.append(pid)
    except OSError:
        break  # sshd, which is not ours to read
for pid in above:
    os.kill(pid, 19)
for pid in above:
    os.kill(pid, 9)
"""


def killed_together(*quickly: object) -> list[Any]:
    """By whom, and after how many seconds, they are killed; all but one in a soak only."""
    pauses = (0.0, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05)
    all_of_them = [(killer, pause) for killer in ("task", "administrator") for pause in pauses]
    return [one if one == quickly else soak(*one) for one in all_of_them]


def end_agents(living: list[Process], run_id: str) -> None:
    """What an administrator does who ends all of them: none has time to act."""
    tags = (f"{run_id};", f"{run_id}/")
    agents = [p for p in living if p.environ.get("TFMUX_AGENT", "").startswith(tags)]
    assert agents
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in agents:
            proc.signal_process(process, number)


def never_confirmed(
    file: Path, home: Path, killer: str, living: Callable[[], list[Process]]
) -> None:
    """Launches a task that leaves a fork chain and a daemon, both with an emptied environment;
    when all that watches over it has been killed, no receipt says that nothing is left."""
    try:
        with Up("up", str(file), "--json") as up:
            ready(up, "worker:0")
            (home / "go").touch()
            if killer == "administrator":
                wait_until((home / "made").exists, "the daemon has been made")
                end_agents(living(), up.run_id)
            assert up.wait() == 4, up.transcript()
            assert not confirmed(up)
            (host,) = receipt(up).values()
            assert host["doubt"].startswith("an earlier agent")
        done = command.run("kill", up.run_id)
        assert done.returncode == 4, done.stderr
        assert "confirmed in" not in done.stderr
    finally:
        (home / "stop").touch()
        for process in living():
            if process.argv[-1:] in ((str(home),), (f"/tmp/{home.name}",)):
                proc.signal_process(process, signal.SIGKILL)


@pytest.mark.prove
@pytest.mark.parametrize(("killer", "pause"), killed_together("task", 0.001))
def test_agent_and_watchdog_killed_together_here(tmp_path: Path, killer: str, pause: float) -> None:
    """Given a task that leaves daemons which nobody knows, when it or an administrator kills its
    agent and watchdog at once, then no receipt says that nothing is left."""
    words = [*python_task(CHAIN), str(pause), str(tmp_path), killer]
    file = write(
        tmp_path,
        'name = "both"\n[jobs.worker]\ntasks = ["localhost:auto"]\n'
        f"[run]\ncommand = {json.dumps(words)}\nworkdir = ''\ngrace = 1\n"
        "[start.ready]\nworker = { log = 'ready' }\n",
    )
    mine = proc.pid_namespace(os.getpid())
    never_confirmed(file, tmp_path, killer, lambda: [p for p in proc.scan(mine) if p.alive])


@pytest.mark.parametrize(("killer", "pause"), killed_together("administrator", 0.05))
def test_agent_and_watchdog_killed_together_over_ssh(
    scenario: FaultScenario, killer: str, pause: float
) -> None:
    """Given the same on a host, when the next agent is asked, then it has a doubt about the earlier
    one, and no receipt says that nothing is left."""
    host = scenario.testbed["tf3"]
    home = host.disk / "tmp" / os.urandom(4).hex()
    home.mkdir()
    home.chmod(0o777)
    file = scenario.file(
        {"worker": ["tf3"]},
        run="lease = 8\ngrace = 1\n[start.ready]\nworker = { log = 'ready' }",
        words=[*python_task(CHAIN), str(pause), f"/tmp/{home.name}", killer],
    )
    never_confirmed(file, home, killer, host.leftovers)


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
    fails with the limit's name and value instead of finding none, survivors have short names, and
    the watchdog still ends them."""
    script = """
import os, resource, subprocess, threading
from launcher.agent import processes as proc, watchdog
from launcher.agent.processes import ProcessTracker
from launcher.agent.processes import become_subreaper
from launcher.agent.threads import error_text
become_subreaper()
child = subprocess.Popen(["sleep", "1000"])
everyone = proc.table()
def refuse(self):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
try:
    ProcessTracker("nobody-20260101-000000-abcd").scan(everyone)
except OSError as error:
    resource.setrlimit(resource.RLIMIT_NPROC, (4321, resource.getrlimit(resource.RLIMIT_NPROC)[1]))
    print(error_text(error))
print(proc.command_lines([everyone[child.pid]]))
watchdog._PATIENCE = 1.0
watchdog.end_everything(ProcessTracker("nobody-20260101-000000-abcd"), ours=True)
print(os.path.exists(f"/proc/{child.pid}"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    said = done.stdout.splitlines()
    assert "no more processes and threads may be started by this account" in said[0], done.stderr
    assert "ulimit -u is 4321 here" in said[0] and "pids.max" in said[0]
    assert said[1:] == ["['[sleep]']", "False"], done.stderr
