"""Signals that Slurm sends to a job and its steps: tasks get them, and nothing of ours ends."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from tests.support.command import Up, python_task
from tests.support.requirements import require
from tests.support.scenario import confirmed, notes, receipt
from tests.support.slurm_scenario import Scenario
from tests.testbed import slurm
from tests.testbed.slurm import SlurmBed

pytestmark = pytest.mark.prove


RECORDS = """
import os, signal, sys, time
counts = {number: 0 for number in range(1, 65)}
def record(number, _):
    counts[number] += 1
    os.write(1, f"got {number} {counts[number]}\\n".encode())
def save(*_):
    time.sleep(1)
    os.write(1, b"saved\\n")
    sys.exit(0)
for number in counts:
    try:
        signal.signal(number, record)
    except (OSError, ValueError):
        continue
signal.signal(signal.SIGCHLD, signal.SIG_DFL)
signal.signal(signal.SIGTERM, save)
print("at work", flush=True)
while True:
    time.sleep(1000)
"""
OURS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGCHLD}
TRIED: list[int] = sorted({*signal.valid_signals()} - OURS)
BY_SCRIPT: tuple[int, ...] = (
    signal.SIGUSR1,
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGXCPU,
    34,
)
WORKERS = ("worker:0", "worker:1")


@pytest.fixture
def scenario(slurm_scenario: Scenario) -> Scenario:
    """A bed of four nodes, of which runs take two."""
    return slurm_scenario


def launched(scenario: Scenario, **settings: Any) -> Up:
    """Two workers at work, each on a node."""
    places = {"worker": ["node0", "node1"]}
    run = 'framework = "none"\ngrace = 3.0\nsuccess = "all"'
    up = scenario.up(places=places, nodes=2, words=python_task(RECORDS), run=run, **settings)
    for task in WORKERS:
        up.log(task, "at work")
    return up


def got(up: Up, number: int, times: int) -> None:
    """Both tasks have got the signal so many times."""
    for task in WORKERS:
        up.log(task, f"got {int(number)} {times}")


def pids(scenario: Scenario) -> list[int]:
    """Watchdogs, agents and bridges of both nodes."""
    return [process.pid for node in ("sl1", "sl2") for process in scenario.agents(node)]


def test_tasks_get_each_signal_once_and_nothing_of_ours_ends(scenario: Scenario) -> None:
    """Given a run on two nodes, when every signal that a program can handle is sent to the job's
    steps, and some to its batch script alone, then both tasks get each once, watchdogs, agents
    and bridges live on, and the cancelled job is no success although its tasks save and leave
    with 0: all agents confirm it themselves."""
    with launched(scenario) as up:
        before = pids(scenario)
        assert len(before) == 6
        for number in TRIED:
            scenario.bed.run("scancel", f"--signal={int(number)}", "1")
            got(up, number, 1)
        for number in BY_SCRIPT:
            scenario.bed.run("scancel", "--batch", f"--signal={int(number)}", "1")
            got(up, number, 2)
        assert pids(scenario) == before
        scenario.bed.run("scancel", "1")
        assert up.wait() == 1, up.transcript()
        for task in WORKERS:
            up.log(task, "saved")
    counts = {e["text"] for e in up.of("log") if e["text"].startswith("got ")}
    wanted = {f"got {int(n)} 1" for n in TRIED} | {f"got {int(n)} 2" for n in BY_SCRIPT}
    # Slurm's and the agent's own at the end: a stopped task could not handle TERM.
    at_end = {f"got {int(signal.SIGCONT)} {times}" for times in (2, 3)}
    assert counts - at_end == wanted
    assert any("SIGUSR1, sent to the job step, was passed on to 1 task" in n for n in notes(up))
    assert "Slurm 1 has ended: CANCELLED" in up.said
    assert up.of("run")[-1]["cause"] == "outside"
    assert confirmed(up) and not any(host["by_engine"] for host in receipt(up).values())
    scenario.check_empty()


def test_where_slurm_signals_all_processes_tasks_get_a_signal_once(tmp_path: Any) -> None:
    """Given a cluster without cgroups, where Slurm signals each process of a step, when a signal is
    sent, then both tasks get it once, and watchdogs and agents live on."""
    require(slurm.missing())
    with SlurmBed(2, track="linuxproc") as bed:
        scenario = Scenario(bed, tmp_path)
        with launched(scenario) as up:
            before = pids(scenario)
            for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU, 34):
                bed.run("scancel", f"--signal={int(number)}", "1")
                got(up, number, 1)
            assert pids(scenario) == before
            up.press_ctrl_c()
            assert up.wait() == 130, up.transcript()
        said = [event["text"] for event in up.of("log")]
        assert not [text for text in said if text.startswith("got ") and text.endswith(" 2")]


@pytest.mark.soak
def test_a_checkpoint_before_the_limit(scenario: Scenario) -> None:
    """Given `--signal=USR1@50` and a job of two minutes, when the time comes, then both tasks get
    the signal, and go on until the limit ends the run with 1."""
    with launched(scenario, slurm='time = "2"\noptions = ["--signal=USR1@50"]') as up:
        for task in WORKERS:
            up.log(task, f"got {int(signal.SIGUSR1)} 1", timeout=200)
        assert up.wait(300) == 1, up.transcript()
    assert "Slurm 1 has ended: TIMEOUT" in up.said
