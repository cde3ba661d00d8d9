"""Agents and watchdogs that somebody has stopped: a kill wakes them, and is proven."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from tests.support import command
from tests.support.agent_client import watchdog_and_agent
from tests.support.budgets import variants
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.debugger import WALL, held_by_a_debugger
from tests.support.patience import wait_until
from tests.support.scenario import confirmed, gone, lost, notes, ready
from tests.testbed import proc
from tests.testbed.proc import Process

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
