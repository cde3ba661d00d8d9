"""The ends of the agent and its watchdog, and the lease: a host without its launcher."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from launcher.agent import wire
from tests.support.agent_client import Client, family, sleepers, state_folder, watchdog_and_agent
from tests.support.debugger import held_by_a_debugger
from tests.support.patience import wait_until
from tests.testbed import proc

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
