"""Agents and their watchdogs: hundreds of forks are no silence, why one died is told, and tasks go
first where memory is short."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from launcher.agent import wire
from launcher.agent.processes import prefer_for_oom_killer
from tests.support.agent_client import Client, family, state_folder, watchdog_and_agent
from tests.support.patience import wait_until
from tests.testbed import proc
from tests.testbed.proc import Process

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
