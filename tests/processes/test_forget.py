"""A run that no host will ever confirm: listed as long as it may live, and taken from the list."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import command
from tests.support.agent_client import family, watchdog_and_agent
from tests.support.cluster_texts import one_task
from tests.support.command import Up, write
from tests.support.patience import wait_until
from tests.support.scenario import ready
from tests.testbed import proc

TASK = "import time; print('trains', flush=True); time.sleep(1000)"


@pytest.fixture
def doubtful(tmp_path: Path) -> Iterator[str]:
    """A run whose launcher, agent and watchdog were killed, each before it could act."""
    file = write(tmp_path, one_task(TASK, ready={"log": "trains"}, settings="lease = 2.0"))
    with Up("up", str(file), "--json") as up:
        ready(up, "worker:0")
        watched = watchdog_and_agent(up.run_id)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in watched:
                proc.signal_process(process, number)
        up.kill_launcher()
        yield up.run_id
    wait_until(lambda: family(up.run_id) == [], "no agent is left")


@pytest.mark.prove
def test_a_run_is_listed_until_somebody_forgets_it(doubtful: str) -> None:
    """Given a run of which nobody can know whether something lives, when it is killed, then the
    receipt says until when, and what to do; it stays in the list, also without an agent, and
    `kill --all` is no success. `--forget` says what may live, and takes it from there."""
    done = command.run("kill", doubtful)
    assert done.returncode == 4
    assert "localhost: not confirmed until it boots: an earlier agent here and" in done.stdout
    kill, forget = f"tfmux kill {doubtful}", f"tfmux kill --forget {doubtful}"
    first = done.stdout.splitlines()[1]
    assert first.endswith(
        f"; after a boot of localhost: {kill}; to remove it from the list: {forget}"
    )
    wait_until(lambda: family(doubtful) == [], "its agent has gone by its lease")
    listed = command.run("ps", "-q")
    assert listed.stdout == f"{doubtful}\n"
    assert "localhost may have unknown processes until it reboots" in listed.stderr
    assert command.run("kill", "--all").returncode == 4
    done = command.run("kill", "--forget", doubtful)
    assert done.returncode == 4 and "not confirmed until it boots" in done.stdout
    assert done.stderr.endswith(
        f"{doubtful} is no longer listed; its processes may still run on localhost\n"
    )
    assert command.run("ps").stderr == "tfmux: no active runs\n"
    done = command.run("kill", "--all")
    assert (done.returncode, done.stderr) == (0, "tfmux: no active runs\n")
    assert command.run("kill", doubtful).returncode == 4, "it is no success for that"


def test_forgetting_is_for_one_run(tmp_path: Path) -> None:
    """And none that has ended well is touched."""
    done = command.run("kill", "--all", "--forget")
    assert done.returncode == 2 and "--forget is for one run" in done.stderr
    file = write(tmp_path, one_task("print('done')", ready={"log": "done"}))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        done = command.run("kill", "--forget", up.run_id)
        assert done.returncode == 0 and "has ended already, confirmed" in done.stderr
