"""Programs that catch TERM, save, and leave with 0: whoever ended them, it is no success."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

from launcher.agent import wire
from tests.support import command
from tests.support.agent_client import Client, unattended_run, watchdog_and_agent
from tests.support.budgets import variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task
from tests.support.patience import wait_until
from tests.testbed import proc

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
