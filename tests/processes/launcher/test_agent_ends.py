"""The ends of agents and watchdogs: by themselves, by a kill, stopped, in a run that ends; no start
behind a receipt, and nobody is left alone."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from launcher.agent.processes import prefer_for_oom_killer
from tests.support import command
from tests.support.agent_client import Client, family, sleepers, state_folder, watchdog_and_agent
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text, one_task
from tests.support.command import Up, write
from tests.support.debugger import WALL, held_by_a_debugger
from tests.support.patience import wait_until
from tests.support.scenario import confirmed, gone, lost, notes, ready
from tests.testbed import proc
from tests.testbed.proc import Process

# --- the agent's and the watchdog's own death ---------------------------------------------------


STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execve("/bin/sh", ["sh", "-c", "trap '' TERM; sleep 1000; :", sys.argv[1]], {})
    os._exit(0)
os.wait()
print("up", flush=True)
time.sleep(1000)
"""


def stubborn(client: Client) -> str:
    """Starts a task that ignores TERM and has a daemon that does so, too; returns the daemon's
    mark."""
    mark = f"mark-{client.run_id}"
    client.python("w:0", STUBBORN, mark)
    client.follow("w:0")
    client.log_until(b"up")
    wait_until(lambda: sleepers(mark), "the daemon runs")
    return mark


def test_a_killed_agent_takes_everything_with_it(client: Client) -> None:
    """SIGKILL of the agent: its watchdog ends tasks and daemons and goes; the next agent tells
    that the last one died, and of what."""
    mark = stubborn(client)
    watchdog, agent = watchdog_and_agent(client.run_id)
    proc.signal_process(agent, signal.SIGKILL)
    client.everything()
    assert proc.wait_gone(watchdog)
    assert sleepers(mark) == []
    wait_until(lambda: family(client.run_id) == [], "the bridge has gone, too")
    with Client(client.run_id) as again:
        welcome = again.hello()
        assert welcome["previous_end"] == "the agent died: SIGKILL killed it"
        assert welcome["tasks"] == []
        assert again.kill()["signalled"] == 0
        again.leave()


def test_a_frozen_agent_is_ended_by_its_watchdog(client: Client) -> None:
    """SIGSTOP of the agent: nothing of the run lives after the watchdog has noticed."""
    mark = stubborn(client)
    watchdog, agent = watchdog_and_agent(client.run_id)
    proc.signal_process(agent, signal.SIGSTOP)
    assert proc.wait_gone(watchdog)
    assert sleepers(mark) == []
    wait_until(lambda: family(client.run_id) == [], "bridges have gone, too")


def test_a_stopped_watchdog_goes_with_its_agent(client: Client) -> None:
    """SIGSTOP of the watchdog: the agent ends it with the rest when the run is over."""
    client.python("w:0", "import time; time.sleep(1000)")
    watchdog, _ = watchdog_and_agent(client.run_id)
    proc.signal_process(watchdog, signal.SIGSTOP)
    client.kill()
    client.leave()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")


def test_a_stopped_watchdog_goes_on_for_the_next_agent(client: Client) -> None:
    """Given a watchdog that was stopped and an agent that was killed, when the next launcher comes,
    then the watchdog ends what was left and says so, and the next agent has no doubt."""
    mark = stubborn(client)
    watchdog, agent = watchdog_and_agent(client.run_id)
    proc.signal_process(watchdog, signal.SIGSTOP)
    proc.signal_process(agent, signal.SIGKILL)
    client.everything()
    assert sleepers(mark), "the daemon was meant to live on"
    with Client(client.run_id) as again:
        again.hello()
        assert sleepers(mark) == []
        assert again.kill()["confirmed"]
        again.leave()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")


def test_an_agent_without_a_watchdog_ends_the_run(client: Client) -> None:
    """SIGKILL of the watchdog: the agent cannot be trusted to live on unwatched, so it ends
    tasks and daemons with the grace, says so, and goes."""
    mark = stubborn(client)
    watchdog, _ = watchdog_and_agent(client.run_id)
    proc.signal_process(watchdog, signal.SIGKILL)
    assert "told to stop" in client.get(wire.NOTE)["text"]
    receipt = client.get(wire.RECEIPT)
    assert receipt["survivors"] == [] and receipt["signalled"] >= 2
    client.everything()
    assert sleepers(mark) == []
    wait_until(lambda: family(client.run_id) == [], "agent and bridge have gone, too")


def test_what_outlives_agent_and_watchdog_is_ended_by_the_next_agent(client: Client) -> None:
    """Both killed at once: a process with the run's tag that was not their child lives on. The
    next agent ends it, and says that there may be more."""
    mark = f"mark-{client.run_id}"
    script = f"setsid setsid sh -c 'sleep 1000; :' {mark} >/dev/null 2>&1 </dev/null & sleep 1000"
    client.start("w:0", ["sh", "-c", script])
    wait_until(lambda: sleepers(mark), "the daemon runs")
    watchdog, agent = watchdog_and_agent(client.run_id)
    for process in (watchdog, agent):
        proc.signal_process(process, signal.SIGSTOP)
    for process in (watchdog, agent):
        proc.signal_process(process, signal.SIGKILL)
    client.everything()
    assert sleepers(mark), "the daemon was meant to live on"
    with Client(client.run_id) as again:
        assert again.hello()["previous_end"] == "the agent died"
        receipt = again.kill()
        assert receipt["signalled"] >= 1 and receipt["survivors"] == []
        assert not receipt["confirmed"] and "earlier agent" in receipt["doubt"]
        assert sleepers(mark) == []
        again.leave()


def test_a_watchdog_that_has_not_ended_is_a_doubt_until_its_word_comes(client: Client) -> None:
    """Given a watchdog that a debugger holds and an agent that was killed, then the next agent
    begins without that one's word and says so; when the watchdog goes on and ends with the kernel's
    word, then a kill that waits for it is confirmed."""
    mark = stubborn(client)
    watchdog, agent = watchdog_and_agent(client.run_id)
    with held_by_a_debugger(watchdog):
        proc.signal_process(agent, signal.SIGKILL)
        client.everything()
        again = Client(client.run_id, lease=600.0)
        assert again.hello()["previous_end"] == "the agent died"
        receipt = again.kill()
        assert sleepers(mark), "the daemon was meant to live on: it carries no mark"
        assert receipt["survivors"] == [] and not receipt["confirmed"]
        assert receipt["doubt"].startswith("the watchdog of an earlier agent here has not ended")
        again.send(wire.KILL, {"id": 77, "tasks": None, "grace": 1000.0})
        again.send(wire.BEAT)
        again.get(wire.PONG)
        assert [f for f in again.frames if f.type == wire.RECEIPT] == []
    receipt = again.get(wire.RECEIPT)
    assert receipt["ids"] == [77] and receipt["confirmed"] and not receipt["doubt"]
    assert sleepers(mark) == []
    again.leave()
    assert not state_folder(client.run_id).exists()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")


def end_group(mark: str) -> None:
    """Ends a daemon and its child, of which nothing else knows any more."""
    for process in sleepers(mark):
        os.killpg(os.getpgid(process.pid), signal.SIGKILL)


def test_a_watchdog_that_ends_without_its_word_leaves_a_doubt(
    client: Client, request: pytest.FixtureRequest
) -> None:
    """Given the next agent, which waits for the word of a watchdog that is held, when that is
    killed, then the kill waits no more; the agent's own watchdog has the place of the other."""
    mark = stubborn(client)
    request.addfinalizer(lambda: end_group(mark))  # it is what the doubt is about
    watchdog, agent = watchdog_and_agent(client.run_id)
    with held_by_a_debugger(watchdog):
        proc.signal_process(agent, signal.SIGKILL)
        client.everything()
        again = Client(client.run_id, lease=600.0)
        request.addfinalizer(again.close)
        again.hello()
        again.send(wire.KILL, {"id": 77, "tasks": None, "grace": 1000.0})
        proc.signal_process(watchdog, signal.SIGKILL)
        receipt = again.get(wire.RECEIPT)
    assert not receipt["confirmed"] and receipt["survivors"] == []
    assert receipt["doubt"].startswith("an earlier agent here and its watchdog")
    again.start("w:0", ["sleep", "1000"])
    watchdog, agent = watchdog_and_agent(client.run_id)
    proc.signal_process(watchdog, signal.SIGSTOP)
    proc.signal_process(agent, signal.SIGKILL)
    again.everything()
    with Client(client.run_id) as last:  # has waited for it
        assert proc.wait_gone(watchdog)
        last.hello()
        assert last.kill()["doubt"].startswith("an earlier agent here ended without")
        last.leave()


# --- the lease --------------------------------------------------------------------------------


def test_a_host_acts_by_itself_when_its_lease_ends() -> None:
    """No beat for the lease: TERM, the grace, KILL, and the agent goes, with nobody's help;
    who comes later is told why."""
    with Client() as client:
        client.hello()
        mark = stubborn(client)
        with Client(client.run_id, lease=1.0, grace=0.3) as next_launcher:
            next_launcher.hello()
    wait_until(lambda: family(client.run_id) == [], "nothing is left")
    assert sleepers(mark) == []
    with Client(client.run_id) as again:
        welcome = again.hello()
        assert welcome["previous_end"].startswith("no launcher for ")
        assert [(t["task"], t["signal"]) for t in welcome["tasks"]] == [("w:0", "KILL")]
        again.follow("w:0")
        assert again.log_until(b"up\n") == b"up\n"
        again.leave()


def test_beats_keep_a_run_alive_beyond_the_lease() -> None:
    """As long as beats come nothing happens, however short the lease."""
    with Client(lease=4.0) as client:
        client.hello()
        started = client.start("w:0", ["sleep", "1000"])
        end = time.monotonic() + 6.0
        while time.monotonic() < end:
            client.send(wire.BEAT)
            client.get(wire.PONG)
            time.sleep(0.05)
        process = proc.read(started["pid"])
        assert process is not None and process.alive
        client.kill()
        client.leave()


def test_under_keep_tasks_outlive_the_lease() -> None:
    """`keep`: the lease ends and the tasks go on; who attaches finds them, and their log."""
    rules: dict[str, Any] = {"lease": 0.5, "on_disconnect": "keep"}
    with Client(**rules) as client:
        client.hello()
        started = client.start("w:0", ["sh", "-c", "echo one; sleep 2; echo two; sleep 1000"])
    with Client(client.run_id, **rules) as again:
        end = time.monotonic() + 1.5
        wait_until(lambda: time.monotonic() > end, "three leases are over")
        welcome = again.hello()
        assert [(t["task"], t["pid"], t["ended"]) for t in welcome["tasks"]] == [
            ("w:0", started["pid"], False)
        ]
        again.follow("w:0")
        assert again.log_until(b"two\n") == b"one\ntwo\n"
        again.kill()
        again.leave()


def test_under_keep_what_ended_tasks_have_left_is_kept_too() -> None:
    """The agent stays with a daemon whose task has ended: whoever kills it later has the kernel's
    word that nothing is left."""
    rules: dict[str, Any] = {"lease": 0.5, "on_disconnect": "keep"}
    with Client(**rules) as client:
        pid = client.hello()["pid"]
        client.start("w:0", ["sh", "-c", "env -i setsid sleep 1000 & sleep 0.3"])
        client.get(wire.EXITED)
    time.sleep(1.5)  # three leases
    with Client(client.run_id, **rules) as again:
        assert again.hello()["pid"] == pid
        assert again.kill()["confirmed"]
        again.leave()


def test_on_the_launching_machine_the_end_of_the_channel_is_the_launchers_death() -> None:
    """A local agent does not wait for its lease."""
    with Client(lease=600.0, grace=0.2, local=True) as client:
        client.hello()
        mark = stubborn(client)
    wait_until(lambda: family(client.run_id) == [], "nothing is left")
    assert sleepers(mark) == []


def test_an_agent_that_never_started_anything_does_not_wait_for_its_lease() -> None:
    """A launcher that died or gave up before the first start leaves no agent for ten minutes."""
    with Client(lease=600.0) as client:
        client.hello()
    wait_until(lambda: family(client.run_id) == [], "the agent has gone")


def test_an_agent_that_has_killed_everything_does_not_wait_for_its_lease() -> None:
    """A launcher that dies between the receipt and its leave leaves no agent, under `keep` neither;
    the next one finds the log, and has no doubt."""
    rules: dict[str, Any] = {"lease": 600.0, "on_disconnect": "keep"}
    with Client(**rules) as client:
        client.hello()
        client.start("w:0", ["sh", "-c", "echo one; sleep 1000"])
        client.follow("w:0")
        client.log_until(b"one\n")
        assert client.kill()["confirmed"]
    wait_until(lambda: family(client.run_id) == [], "the agent has gone")
    with Client(client.run_id, **rules) as again:
        welcome = again.hello()
        assert [(t["task"], t["signal"]) for t in welcome["tasks"]] == [("w:0", "KILL")]
        assert again.kill()["confirmed"]
        again.follow("w:0")
        assert again.log_until(b"one\n") == b"one\n"
        again.leave()


def test_staged_files_wait_for_the_launcher_as_tasks_do() -> None:
    """A cut between the files and the first start is longer than an idle agent waits."""
    with Client() as client:
        pid = client.hello()["pid"]
        (state_folder(client.run_id) / "stage" / "work").mkdir(parents=True)
        end = time.monotonic() + 6
        wait_until(lambda: time.monotonic() > end, "no beat for six seconds")
    time.sleep(0.3)  # an idle agent would go at once when its channel ends
    with Client(client.run_id) as again:
        assert again.hello()["pid"] == pid
        work = str(state_folder(client.run_id) / "stage" / "work")
        assert again.start("w:0", ["sleep", "1000"], cwd=work)["error"] == ""
        again.kill()
        again.leave()


@pytest.mark.prove
def test_the_next_agent_begins_when_the_one_before_has_cleaned_up() -> None:
    """A launcher that comes while an agent removes its folder gets a new agent and a new folder."""
    with Client() as client:
        first = client.hello()["pid"]
        junk = state_folder(client.run_id) / "junk"
        junk.mkdir()
        for number in range(30_000):  # takes the agent some tenths of a second
            (junk / str(number)).touch()
        client.send(wire.LEAVE, {"remove": True})
        client.get(wire.GONE)
        with Client(client.run_id) as again:
            assert again.hello()["pid"] != first
            assert not junk.exists()
            logs = str(state_folder(client.run_id) / "logs")
            assert again.start("w:0", ["sleep", "1000"], cwd=logs)["error"] == ""
            again.kill()
            again.leave()
    wait_until(lambda: family(client.run_id) == [], "both have gone")


def test_an_agent_that_has_taken_over_sleeps_where_nothing_happens() -> None:
    """What an earlier agent's tasks were keeps it no busier than none."""
    with Client() as client:
        client.hello()
        client.start("w:0", ["true"])
        client.get(wire.EXITED)
        client.send(wire.LEAVE, {"remove": False})
        wait_until(lambda: family(client.run_id) == [], "the agent has gone")
    with Client(client.run_id) as again:
        assert [task["task"] for task in again.hello()["tasks"]] == ["w:0"]
        _, agent = watchdog_and_agent(client.run_id)
        before, worked = turns(agent.pid), ticks(agent.pid)
        time.sleep(2)
        assert turns(agent.pid) - before < 100
        assert ticks(agent.pid) - worked < 20  # one that never sleeps takes no turn, either
        again.leave()


def turns(pid: int) -> int:
    """How often the first thread of a process has gone to sleep."""
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def ticks(pid: int) -> int:
    """The processor time of a process so far, in hundredths of a second."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(words[11]) + int(words[12])


FORKS = 30
SECONDS = 0.4
"""Duration of a fork: all of them take longer than an agent may be silent."""


def slow_interpreter(folder: Path) -> str:
    """An interpreter on which each fork of an agent takes long, as on a busy machine."""
    script = folder / "slow-python"
    script.write_text(
        "#!/bin/sh\n"
        f'exec {sys.executable} "$1" "$2" "import os, sys, time\n'
        "real = os.fork\n"
        "def fork():\n"
        f"    time.sleep({SECONDS} if 'launcher.agent.loop' in sys.modules else 0)\n"
        "    return real()\n"
        'os.fork = fork\n$3"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_forks_that_take_long_are_no_silence(tmp_path: Path) -> None:
    """Given starts that come at once and whose forks take longer than an agent may be silent, then
    the agent goes on beating: its watchdog lets it live, and all tasks start."""
    assert FORKS * SECONDS > wire.FROZEN_SECONDS
    with Client(python=slow_interpreter(tmp_path)) as client:
        agent = client.hello()["pid"]
        starts = [client.start_body(f"w:{number}", ["sleep", "1000"]) for number in range(FORKS)]
        client.write(b"".join(wire.encode(wire.START, body) for body in starts))
        for number in range(FORKS):
            assert client.get(wire.STARTED, task=f"w:{number}")["pid"]
        with Client(client.run_id) as again:
            assert again.hello()["pid"] == agent
            assert again.kill(final=True)["confirmed"]
            again.leave()


def killed(agent: Process) -> None:
    proc.signal_process(agent, signal.SIGKILL)


def stopped(agent: Process) -> None:
    proc.signal_process(agent, signal.SIGSTOP)


FROZEN = "it did not answer its watchdog for 8 s: a signal had stopped it"


@pytest.mark.parametrize(
    ("end", "why"),
    [(killed, "SIGKILL killed it"), (stopped, FROZEN)],
)
def test_why_an_agent_died_is_on_the_disk(end: Callable[[Process], None], why: str) -> None:
    """The watchdog writes it down, in the agent's log and for the next agent, which tells it."""
    with Client() as client:
        client.hello()
        client.start("w:0", ["sleep", "1000"])
        watchdog, agent = watchdog_and_agent(client.run_id)
        end(agent)
        client.everything()
        assert proc.wait_gone(watchdog)
    folder = state_folder(client.run_id)
    began = (folder / "began").read_text()
    assert (folder / "ended").read_text() == began, "nothing is left"
    assert (folder / "died").read_text() == f"{began}\n{why}"
    assert f"the agent died ({why})" in (folder / "agent.log").read_text()
    with Client(client.run_id) as again:
        assert again.hello()["previous_end"] == f"the agent died: {why}"
        assert again.kill(final=True)["confirmed"]
        again.leave()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")


def adjustment(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def test_a_task_is_ended_for_memory_before_its_agent() -> None:
    """By a hundred more than agent and watchdog have, which have what the login gave."""
    with Client() as client:
        agent = client.hello()["pid"]
        task = client.start("w:0", ["sleep", "1000"])["pid"]
        watchdog, _ = watchdog_and_agent(client.run_id)
        login = adjustment(os.getpid())
        assert adjustment(agent) == adjustment(watchdog.pid) == login
        assert adjustment(task) == min(1000, login + 100)
        client.kill(final=True)
        client.leave()


@pytest.mark.parametrize(
    ("before", "after"), [("0", "100"), ("-500", "-400"), ("950", "1000"), ("1000", "1000")]
)
def test_the_adjustment_stays_within_what_the_kernel_takes(
    tmp_path: Path, before: str, after: str
) -> None:
    """A task of an agent that is at the end of the scale already is there, too."""
    file = tmp_path / "oom_score_adj"
    file.write_text(f"{before}\n")
    prefer_for_oom_killer(str(file))
    assert file.read_text().split()[0] == after
    prefer_for_oom_killer(str(tmp_path / "missing"))


DEAF = ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"]


def refused(client: Client, task: str, attempt: int = 1) -> dict[str, object]:
    """A start of a deaf task, and what the agent answers."""
    said = client.start(task, DEAF, attempt=attempt)
    assert said["refused"] and said["pid"] == 0 and "has been ended" in said["error"]
    return said


def tasks_of(run_id: str) -> list[str]:
    return [p.tag or "" for p in family(run_id) if "TFMUX_TASK" in p.environ]


def test_no_start_behind_a_final_kill(tmp_path: Path) -> None:
    """A kill that ends the run has a receipt that stays true: whoever asks, on which channel ever,
    starts nothing behind it, and is told so. The next kill finds nothing."""
    with Client() as client:
        client.hello()
        client.start("w:0", DEAF)
        ended = client.kill(final=True)
        assert ended["confirmed"] and ended["signalled"]
        refused(client, "w:1")
        refused(client, "w:0", attempt=2)
        again = client.start("w:0", DEAF)  # what had its process is told as it was
        assert again["pid"] and not again["refused"]
        with Client(client.run_id) as other:
            held = other.hello()["tasks"]
            assert [one["refused"] for one in held if one["task"] == "w:1"] == [True]
            refused(other, "w:2")
            receipt = other.kill()
            assert receipt["confirmed"] and receipt["signalled"] == ended["signalled"]
            assert tasks_of(client.run_id) == []
            other.leave()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")


def test_starts_in_one_write_with_a_final_kill() -> None:
    """Starts before it, behind it, and beside a kill that was under way without being final: each
    has an answer, and nothing lives when the receipt is there."""
    with Client() as client:
        client.hello()
        client.start("w:0", DEAF)
        kill = {"id": 7, "tasks": None, "grace": 0.3}
        bodies = {task: client.start_body(task, DEAF) for task in ("w:1", "w:2", "w:3")}
        client.write(
            wire.encode(wire.START, bodies["w:1"])
            + wire.encode(wire.KILL, kill)
            + wire.encode(wire.START, bodies["w:2"])
            + wire.encode(wire.KILL, {**kill, "id": 8, "final": True})
            + wire.encode(wire.START, bodies["w:3"])
        )
        said = {task: client.get(wire.STARTED, task=task) for task in bodies}
        assert [said[task]["refused"] for task in bodies] == [False, False, True]
        assert all(one["error"] for one in said.values())
        assert client.get(wire.RECEIPT)["confirmed"]
        assert tasks_of(client.run_id) == []
        client.leave()


def test_a_kill_that_is_not_final_is_followed_by_the_next_attempt() -> None:
    """The restart of all tasks ends everything, and goes on."""
    with Client() as client:
        client.hello()
        client.start("w:0", DEAF)
        assert client.kill()["confirmed"]
        assert client.start("w:0", DEAF, attempt=2)["pid"]
        assert client.kill(final=True)["confirmed"]
        client.leave()


def test_a_gate_does_not_open_behind_a_final_kill() -> None:
    """A task that waits at its gate is killed there; its program never begins."""
    with Client() as client:
        client.hello()
        client.start("w:0", ["sh", "-c", "read line; echo began; sleep 100"], gated=True)
        client.follow("w:0")
        release = wire.encode(wire.RELEASE, {"task": "w:0", "attempt": 1})
        kill = {"id": 3, "tasks": None, "grace": 0.2, "final": True}
        client.write(wire.encode(wire.KILL, kill) + release)
        assert client.get(wire.RECEIPT)["confirmed"]
        assert b"began" not in client.logs[0]
        client.leave()


@pytest.mark.parametrize("killed_before", [False, True])
def test_an_agent_that_is_told_to_leave_leaves_nobody_alone(killed_before: bool) -> None:
    """Given a task that nobody has killed, or that was started behind the receipt of a kill which
    was not final, when the launcher leaves, then the agent ends it before it goes."""
    with Client() as client:
        client.hello()
        if killed_before:
            assert client.kill()["confirmed"]
        pid = client.start("w:0", DEAF)["pid"]
        client.leave()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")
    left = proc.read(pid)
    assert left is None or not left.alive
    assert not state_folder(client.run_id).exists(), "its end is proven"


def test_an_agent_that_leaves_in_a_kill_keeps_its_grace() -> None:
    """Leaving shortens no grace of a kill that is under way."""
    script = "trap 'sleep 0.3; echo saved >{0}; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    with Client() as client:
        home = client.hello()["home"]
        file = Path(home, f"saved-{client.run_id}")
        client.start("w:0", ["sh", "-c", script.format(file)])
        client.follow("w:0")
        client.log_until(b"up")
        kill = {"id": 3, "tasks": None, "grace": 60.0, "final": True}
        client.write(wire.encode(wire.KILL, kill) + wire.encode(wire.LEAVE, {"remove": True}))
        client.everything()
    wait_until(lambda: family(client.run_id) == [], "nobody is left")
    assert file.read_text() == "saved\n"
    file.unlink()


def test_a_stopped_agent_reads_a_final_kill_behind_starts() -> None:
    """Given an agent that was stopped, with starts and then a final kill in its input, when it goes
    on, then nothing of them lives behind its receipt."""
    with Client() as client:
        agent = client.hello()["pid"]
        process = proc.read(agent)
        assert process is not None
        proc.signal_process(process, signal.SIGSTOP)
        starts = [wire.encode(wire.START, client.start_body(f"w:{n}", DEAF)) for n in range(20)]
        kill = {"id": 3, "tasks": None, "grace": 0.1, "final": True}
        client.write(b"".join(starts) + wire.encode(wire.KILL, kill) + starts[0])
        proc.signal_process(process, signal.SIGCONT)
        assert client.get(wire.RECEIPT)["confirmed"]
        assert tasks_of(client.run_id) == []
        client.leave()


def test_an_agent_that_is_told_to_stop_says_so_of_what_it_does_not_start() -> None:
    """A start that comes while it ends everything is answered: by whom, and why."""
    with Client() as client:
        agent = proc.read(client.hello()["pid"])
        assert agent is not None
        client.start("w:0", DEAF)
        proc.signal_process(agent, signal.SIGTERM)
        client.get(wire.NOTE)
        said = client.start("w:1", DEAF)
        told = said["error"], said["refused"], said["stopped_by"], said["stopped_why"]
        assert told[0] and told[1:] == (False, "agent", "the agent was told to stop")


SAVES = """
import os, signal, time
def save(*_):
    open({saved!r}, 'w').close()
    os._exit(0)
signal.signal(signal.SIGTERM, save)
print('trains', flush=True)
while True:
    time.sleep(1)
"""


def cluster(folder: Path) -> Path:
    """A task that saves at TERM."""
    text = one_task(
        SAVES.format(saved=str(folder / "saved")), ready={"log": "trains"}, settings="lease = 600.0"
    )
    return write(folder, text.replace("grace = 2.0", "grace = 60.0"))


def both(watchdog: Process, agent: Process) -> None:
    for process in (watchdog, agent):
        proc.signal_process(process, signal.SIGSTOP)


def agent_alone(watchdog: Process, agent: Process) -> None:
    proc.signal_process(agent, signal.SIGSTOP)


def watchdog_killed(watchdog: Process, agent: Process) -> None:
    proc.signal_process(agent, signal.SIGSTOP)
    proc.signal_process(watchdog, signal.SIGKILL)


def both_and_bridges(watchdog: Process, agent: Process) -> None:
    """What `pkill -STOP python` does to a host."""
    both(watchdog, agent)
    for process in proc.scan(having="TFMUX_AGENT"):
        if process.environ.get("TFMUX_AGENT") == agent.environ["TFMUX_AGENT"]:
            proc.signal_process(process, signal.SIGSTOP)


@variants("stop", [both, agent_alone, watchdog_killed, both_and_bridges], test=1)
def test_a_kill_wakes_what_was_stopped(
    tmp_path: Path, stop: Callable[[Process, Process], None]
) -> None:
    """Given an agent that was stopped, with its watchdog, alone, or after that was killed, when the
    run is ended, then the agent goes on: tasks have their grace, and the host confirms."""
    with Up("up", str(cluster(tmp_path)), "--json") as up:
        ready(up, "worker:0")
        stop(*watchdog_and_agent(up.run_id))
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
    assert (tmp_path / "saved").exists()
    wait_until(lambda: gone(up.run_id), "nothing is left")


def test_a_kill_after_the_silence_was_noticed_wakes_them(tmp_path: Path) -> None:
    """Given both stopped and a host that is lost for that, when the run is ended, then a bridge
    that was on its way before does not hold the kill up."""
    with Up("up", str(cluster(tmp_path)), "--json") as up:
        ready(up, "worker:0")
        both(*watchdog_and_agent(up.run_id))
        lost(up, "localhost")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
    assert (tmp_path / "saved").exists()
    wait_until(lambda: gone(up.run_id), "nothing is left")


def test_an_agent_that_a_debugger_holds_is_ended_at_once(tmp_path: Path) -> None:
    """Given an agent that does not go on, and a watchdog that was stopped, when the run is ended,
    then the watchdog ends everything, and the next agent confirms it."""
    with Up("up", str(cluster(tmp_path)), "--json") as up:
        ready(up, "worker:0")
        watchdog, agent = watchdog_and_agent(up.run_id)
        proc.signal_process(watchdog, signal.SIGSTOP)
        with held_by_a_debugger(agent):
            threading.Thread(target=os.waitpid, args=(agent.pid, WALL), daemon=True).start()
            up.press_ctrl_c()
            assert up.wait() == 130, up.transcript()
            assert confirmed(up)
            # Nobody waits for log bytes of the agent that is not there any more.
            assert not any("were not received" in note for note in notes(up)), notes(up)
    wait_until(lambda: gone(up.run_id), "nothing is left")


def test_a_later_kill_wakes_what_was_stopped(tmp_path: Path) -> None:
    """Given both stopped and a launcher that has died, when `tfmux kill` is called, then it is
    confirmed."""
    with Up("up", str(cluster(tmp_path)), "--json") as up:
        ready(up, "worker:0")
        both(*watchdog_and_agent(up.run_id))
        up.kill_launcher()
        done = command.run("kill", up.run_id)
        assert done.returncode == 0, done.stdout
        assert "no process is left, 1 host confirmed" in done.stdout
    wait_until(lambda: gone(up.run_id), "nothing is left")


STARTS_DEAF = ["sh", "-c", "trap '' TERM; (while :; do sleep 1; done) & echo trains; wait"]
"""Deaf to TERM, with a child that the end of its agent alone does not end."""
FAILS = ["sh", "-c", "trap '' TERM; (while :; do sleep 1; done) & echo trains; sleep 1; exit 3"]
WARM = [
    "{python}",
    "-c",
    "import signal, time; signal.signal(15, 1); print('trains'); time.sleep(9)",
]


def stages(folder: Path, more: str = "", b: int = 4, **settings: Any) -> Path:
    """One task that is ready after a while by the launcher's clock, and then deaf ones."""
    start = {"order": [["a"], ["b"]], "ready": {"a": {"after": 2.0}, "b": {"log": "trains"}}}
    start |= settings.pop("start", {})
    words: dict[str, Any] = {
        "command": STARTS_DEAF,
        "framework": "none",
        "workdir": "",
        "grace": 1.0,
    }
    jobs: dict[str, Any] = {"a": {"tasks": 1, **settings.pop("a", {})}, "b": b}
    text = cluster_text(jobs, "stages", "", more, start=start, **{**words, **settings})
    return write(folder, text)


def signal_agent(up: Up, number: signal.Signals) -> None:
    proc.signal_process(watchdog_and_agent(up.run_id)[1], number)


@contextmanager
def proven(up: Up) -> Iterator[None]:
    """When the block has ended the run, nothing of it lives behind a receipt that confirms that."""
    with up:
        yield
        left = [p for p in proc.scan(having="TFMUX_TASK") if up.run_id in (p.tag or "")]
        left = [p for p in left if p.alive]
        for process in left:
            proc.signal_process(process, signal.SIGKILL)
        assert not (left and confirmed(up)), up.transcript()
        assert confirmed(up), up.transcript()
    wait_until(lambda: gone(up.run_id), "nothing is left")


def stop_before_the_stage(up: Up) -> None:
    up.log("a:0", "trains")
    signal_agent(up, signal.SIGSTOP)


def kill_before_the_stage(up: Up) -> None:
    up.log("a:0", "trains")
    signal_agent(up, signal.SIGKILL)


def kill_in_the_stage(up: Up) -> None:
    """As soon as one of the stage's tasks has a process, and the others are on their way."""
    up.wait_for(lambda e: str(e.get("task", "")).startswith("b:") and "pid" in e, "a process")
    signal_agent(up, signal.SIGKILL)


def stop_and_press(up: Up) -> None:
    """A person ends the run while starts wait in the input of an agent that stands still."""
    stop_before_the_stage(up)
    up.state("b:0", "starting")
    up.press_ctrl_c()


def press_and_kill(up: Up) -> None:
    """The agent dies while the kill is on its way to it."""
    up.wait_for(lambda e: str(e.get("task", "")).startswith("b:") and "pid" in e, "a process")
    up.press_ctrl_c()
    signal_agent(up, signal.SIGKILL)


def launcher_and_agent(up: Up) -> None:
    """The launcher that takes the run up finds another agent, and then the run ends."""
    stop_before_the_stage(up)
    up.state("b:0", "starting")
    up.signal_launcher(signal.SIGKILL)


def in_a_pause(up: Up) -> None:
    """A task waits for its next attempt."""
    up.state("a:0", "backoff")
    signal_agent(up, signal.SIGSTOP)


def in_a_restart(up: Up) -> None:
    """All tasks are being ended for the next attempt."""
    up.wait_for(lambda e: e["event"] == "run" and e["state"] == "restarting", "the restart")
    signal_agent(up, signal.SIGKILL)


def in_the_restart_stopped(up: Up) -> None:
    up.wait_for(lambda e: e["event"] == "run" and e["state"] == "restarting", "the restart")
    signal_agent(up, signal.SIGSTOP)
    up.press_ctrl_c()


def at_the_connection(up: Up) -> None:
    """Before anything was started."""
    wait_until(lambda: proc.scan(having=f"TFMUX_AGENT={up.run_id}"), "an agent")
    up.state("a:0", "starting")
    signal_agent(up, signal.SIGKILL)


KEEP: dict[str, Any] = {"on_failure": "keep"}
FAILING: dict[str, Any] = {"a": {"command": FAILS}, "start": {"ready": {"a": "started"}}}
ALL: dict[str, Any] = {**FAILING, "on_failure": "restart-all", "max_restarts": 2}
AGAIN: dict[str, Any] = {**FAILING, "on_failure": "restart", "max_restarts": 2}
GATED: dict[str, Any] = {"command": WARM, "start": {"warm": ["json"]}}


@pytest.mark.parametrize(
    ("act", "settings"),
    [
        (stop_before_the_stage, {}),
        (kill_before_the_stage, {}),
        (stop_before_the_stage, KEEP),
        (kill_in_the_stage, {"b": 40}),
        (stop_and_press, {}),
        (press_and_kill, {"b": 20}),
        (launcher_and_agent, {}),
        (in_a_pause, AGAIN),
        (in_a_restart, ALL),
        (in_the_restart_stopped, ALL),
        (stop_before_the_stage, GATED),
        (kill_before_the_stage, GATED),
        (at_the_connection, {"b": 20}),
    ],
)
def test_nothing_lives_behind_a_receipt(
    tmp_path: Path, act: Callable[[Up], None], settings: dict[str, Any]
) -> None:
    """Whenever an agent dies or stands still while starts have no answer: when the run has ended,
    nothing of it lives behind its receipt."""
    up = Up("up", str(stages(tmp_path, **settings)), "--json")
    with proven(up):
        act(up)
        if settings.get("on_failure") in ("keep", "restart", "restart-all"):
            up.wait_for(lambda e: e["event"] == "host" and e["state"] == "up", "host")
            up.press_ctrl_c()
        up.wait()


def test_an_agent_that_is_told_to_stop_among_starts_says_so(tmp_path: Path) -> None:
    """Given an agent that gets TERM while starts wait in its input, then no task that it did not
    start any more has failed: each was ended from outside, and so says the first failure."""
    up = Up("up", str(stages(tmp_path, b=12)), "--json")
    with proven(up):
        stop_before_the_stage(up)
        up.state("b:11", "starting")
        signal_agent(up, signal.SIGTERM)
        signal_agent(up, signal.SIGCONT)
        assert up.wait() == 1, up.transcript()
    assert "ended from outside: the agent was told to stop" in up.said
    assert "failed (" not in up.said and "is being ended" not in up.said, up.said
