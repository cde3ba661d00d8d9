"""The cable is pulled, clocks are set, a host is lost: only silence, and what follows from it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.client.run_client import RunClient
from launcher.cluster.read import load
from launcher.hosts.auth_prompt import AuthPrompt, PromptKind
from launcher.process import hang
from launcher.run.cause import Kind
from launcher.run.states import Hang, HostState, RunPhase
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task, write
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import (
    FaultScenario,
    confirmed,
    last_states,
    lost,
    notes,
    ready,
    receipt,
)
from tests.support.streams import records
from tests.testbed import faults
from tests.testbed.faults import Clock
from tests.testbed.launcher_thread import LauncherThread
from tests.testbed.namespaces import Testbed

PLACES = {"ps": ["tf1"], "worker": ["tf1", "tf3", "tf4"]}
CUT = {"ps": ["tf1"], "worker": ["tf1", "tf3"]}


@pytest.mark.prove
def test_after_a_cut_of_all_cables_nobody_is_asked_again(fresh_scenario: FaultScenario) -> None:
    """Given two hosts with a locked key and two with passwords, given once, when all cables are cut
    and healed, then all hosts are back and nobody is asked again: at night nobody would answer."""
    scenario = fresh_scenario
    locked = scenario.testbed.directory / "id_ed25519"
    argv = ["ssh-keygen", "-q", "-p", "-P", "", "-N", "passphrase", "-f", str(locked)]
    subprocess.run(argv, check=True, capture_output=True)
    for name in ("tf3", "tf4"):
        faults.ask_for_password(scenario.testbed[name], f"password of {name}")
    asked: list[AuthPrompt] = []

    async def person(prompt: AuthPrompt) -> str | None:
        asked.append(prompt)
        if prompt.kind is PromptKind.PASSPHRASE:
            return "passphrase"
        return f"password of {prompt.host}"

    hosts = ["tf1", "tf2", "tf3", "tf4"]
    file = scenario.file({"worker": hosts}, run="lease = 600\ngrace = 1")

    def all_are(*states: HostState) -> bool:
        return {host.state for host in client.snapshot().hosts} == {*states}

    client = RunClient.launch(load(file), file.read_text(), ask=person)
    client.await_state(PATIENCE)
    try:
        wait_until(lambda: all_are(HostState.UP), "all hosts are up")
        wait_until(lambda: all(task.pid for task in client.snapshot().tasks), "all tasks run")
        assert sorted(prompt.kind for prompt in asked) == [
            PromptKind.PASSPHRASE, PromptKind.PASSWORD, PromptKind.PASSWORD
        ]  # fmt: skip
        for name in hosts:
            scenario.testbed[name].pull()
        wait_until(lambda: all_are(HostState.LOST), "all hosts are lost")
        for name in hosts:
            scenario.testbed[name].heal()
        wait_until(lambda: all_are(HostState.UP), "all hosts are back")
        assert len(asked) == 3
        assert {task.attempt for task in client.snapshot().tasks} == {1}
    finally:
        client.kill_all()
        client.wait(PATIENCE)
        client.close()


def test_a_cut_longer_than_the_lease_ends_the_host_by_itself(scenario: FaultScenario) -> None:
    """Given a host that is cut off, when its lease is over, then it ends its tasks by itself, and
    exit 4 names it and `tfmux kill`, which finishes the run once the cable is back."""
    file = scenario.file(
        CUT,
        run="lease = 8\ngrace = 1",
        modes={"worker": "orphan child"},
    )
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0", "worker:1")
        scenario.testbed["tf3"].pull()
        mine = {p.pid for p in scenario.bystanders["tf3"]}
        wait_until(
            lambda: all(p.pid in mine for p in scenario.testbed["tf3"].leftovers()),
            "the cut host has ended everything by itself",
        )
        assert up.process.poll() is None, "the launcher still waits for it"
        assert up.wait() == 4, up.transcript()
        away = receipt(up)["tf3"]
        assert not away["confirmed"]
        assert away["unreachable_until"] is None, "a time that has passed"
        assert receipt(up)["tf1"]["confirmed"]
        assert "tf3: unreachable" in up.said
        assert f"tfmux kill {up.run_id}" in up.said
        run_id = up.run_id
        scenario.testbed["tf3"].heal()
        code, said = scenario.kill(run_id)
        assert code == 0 and "no process is left" in said, said
    scenario.wait_dead()
    host = scenario.testbed["tf3"]
    wait_until(lambda: not host.run(["ls", ".local/state/tfmux"]).stdout, "the run's folder goes")


def test_a_cut_that_heals_after_the_lease_says_what_happened(scenario: FaultScenario) -> None:
    """Given a cut host that has ended its tasks by its lease, when the cable is back before the
    launcher gives up, then a note says what happened, and the run fails, confirmed by all hosts."""
    file = scenario.file(CUT, run="lease = 8\ngrace = 60")  # so long the launcher waits, too
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0", "worker:1")
        scenario.testbed["tf3"].pull()
        mine = {p.pid for p in scenario.bystanders["tf3"]}
        wait_until(
            lambda: all(p.pid in mine for p in scenario.testbed["tf3"].leftovers()), "all ended"
        )
        scenario.testbed["tf3"].heal()
        assert up.wait() == 1, up.transcript()
        assert any("tf3 is back (meanwhile: no launcher for" in note for note in notes(up))
        assert confirmed(up)
        assert last_states(up)["worker:1"] in ("failed", "stopped"), "ended from outside"
        scenario.check_logs(up.run_id)
    scenario.wait_dead()


def test_a_cut_while_staging_and_starting_goes_on_afterwards(scenario: FaultScenario) -> None:
    """Given hosts that are cut off while files are staged or before a task's start has arrived,
    when the cables are back, then files and starts arrive, and each task has started once."""
    work = scenario.folder / "work"
    work.mkdir()
    (work / "blob").write_bytes(bytes(range(256)) * 80_000)
    file = scenario.file(
        PLACES,
        run='lease = 600\ngrace = 1\nworkdir = "work"',
        env={"SECONDS": "all are back", "LATE": "ps:0"},
    )
    with scenario.up(file) as up:
        up.state("worker:1", "staging")
        scenario.testbed["tf3"].pull()
        lost(up, "tf3")
        scenario.testbed["tf3"].heal()
        up.log("ps:0", "here is")
        scenario.testbed["tf4"].pull()  # the start of worker:2 goes into the void
        scenario.tell(up.run_id, "listen")
        ready(up, "worker:0")
        lost(up, "tf4")
        scenario.testbed["tf4"].heal()
        ready(up, "worker:1", "worker:2")
        scenario.tell(up.run_id, "all are back")
        assert up.wait() == 0, up.transcript()
        folder = RunFolder.find(up.run_id)
        starts = [
            (r["task"], r["attempt"])
            for r in records(folder)
            if r["event"] == "task" and r["state"] == "starting" and "pid" not in r
        ]
        assert sorted(set(starts)) == [(t, 1) for t in sorted({task for task, _ in starts})]
        scenario.check_logs(up.run_id)
    scenario.wait_dead()


def test_a_rank_that_is_cut_off_when_rank_0_was_done_is_no_success(scenario: FaultScenario) -> None:
    """Given a chief that has ended with 0 while a worker is at work on a host that is cut off, when
    it has been lost for `finish_timeout`, then the run has failed and does not wait for the lease;
    the receipt is what SSH can say of the host, and the loss is named as on Slurm."""
    file = scenario.file(
        {"worker": ["tf1", "tf3"]},
        run='lease = 600\ngrace = 1\nfinish_timeout = 3\nsuccess = "chief"',
        env={"FIRST": "worker:0", "FIRST_SECONDS": "go on", "SECONDS": "never"},
    )
    with scenario.up(file) as up:
        ready(up, "worker:0", "worker:1")
        scenario.tell(up.run_id, "go on")
        up.state("worker:0", "exited")
        scenario.testbed["tf3"].pull()
        try:
            assert up.wait() == 4, up.transcript()
        finally:
            scenario.testbed["tf3"].heal()
        run = up.of("run")[-1]
        assert (run["outcome"], run["first_failure"]["task"]) == ("failed", "worker:1")
        assert run["first_failure"]["how"] == "lost"
        assert scenario.kill(up.run_id)[0] == 0
        scenario.wait_dead(up.run_id)


DAY = 86_400
CLOCKS_PLACES = {"ps": ["tf1"], "worker": ["tf3", "here"]}
ALL = ("ps:0", "worker:0", "worker:1")


def launched(scenario: FaultScenario, folder: Path, file: Path) -> tuple[Up, Clock, Clock]:
    """A run all of whose programs here and on tf3 go by clocks that can be set: these two."""
    here, there = Clock.build(folder), faults.shift_clock(scenario.testbed["tf3"], 0)
    return scenario.up(file, env={"LD_PRELOAD": str(here.library)}), here, there


def clocks_lost(up: Up) -> Callable[[dict[str, Any]], bool]:
    return lambda event: event["event"] == "host" and event["state"] == "lost"


@pytest.mark.skipif(not faults.can_shift_clock(), reason="no C compiler to shift a clock with")
@pytest.mark.prove
def test_clocks_that_are_set_change_nothing_of_a_run(
    fresh_scenario: FaultScenario, tmp_path: Path
) -> None:
    """Given a run with a lease of twenty seconds, when the clocks of its launcher and a host are
    set forwards and backwards by a day, then no host is lost, and the run is a success."""
    file = fresh_scenario.file(
        CLOCKS_PLACES,
        run="lease = 20\ngrace = 1",
        env={"SECONDS": "clocks are right", "PACE": "0.1"},
    )
    up, here, there = launched(fresh_scenario, tmp_path, file)
    with up:
        ready(up, *ALL)
        for mine, theirs in ((DAY, 0), (DAY, -DAY), (-DAY, DAY), (0, 0)):
            here.set(mine)
            there.set(theirs)
            time.sleep(1.5)
        fresh_scenario.tell(up.run_id, "clocks are right")
        assert up.wait() == 0, up.transcript()
        assert confirmed(up)
        assert not [event for event in up.events if clocks_lost(up)(event)]
        assert set(last_states(up).values()) <= {"exited", "stopped"}
        spread = {round(event["time"] / DAY) for event in up.events}
        assert len(spread) > 1, "the launcher's clock was set"
        fresh_scenario.check_logs(up.run_id, pace=0.1)
    fresh_scenario.wait_dead(up.run_id)


@pytest.mark.skipif(not faults.can_shift_clock(), reason="no C compiler to shift a clock with")
@pytest.mark.prove
@pytest.mark.parametrize("jump", [-DAY, soak(DAY)])
def test_a_lease_that_runs_goes_on_as_it_was(
    fresh_scenario: FaultScenario, tmp_path: Path, jump: int
) -> None:
    """Given a host that is cut off, when its clock is set, then it waits for its lease and no
    longer: the task lives when the cable is back in time, and ends when nobody comes back."""
    file = fresh_scenario.file({"worker": ["tf3"]}, run="lease = 40\ngrace = 1")
    up, _, there = launched(fresh_scenario, tmp_path, file)
    with up:
        ready(up, "worker:0")
        fresh_scenario.testbed["tf3"].pull()
        up.wait_for(clocks_lost(up), "lost")
        there.set(jump)
        time.sleep(2)
        assert fresh_scenario.of("tf3", "worker:0"), "its lease has not ended"
        fresh_scenario.testbed["tf3"].heal()
        up.state("worker:0", "ready", after=up.state("worker:0", "lost"))
        up.kill_launcher()
        there.set(-jump)
    fresh_scenario.wait_dead(up.run_id)


@pytest.mark.skipif(not faults.can_shift_clock(), reason="no C compiler to shift a clock with")
@pytest.mark.prove
@pytest.mark.parametrize("jump", [-DAY, soak(DAY)])
def test_a_kill_ends_in_its_time(fresh_scenario: FaultScenario, tmp_path: Path, jump: int) -> None:
    """Given two hosts that are cut off, when the launcher's clock is set during a kill, then the
    kill ends with the one that comes back and without the other."""
    places = {"ps": ["tf1"], "worker": ["tf3", "tf4", "here"]}
    file = fresh_scenario.file(places, run="lease = 600\ngrace = 6", modes={"worker": "stubborn"})
    up, here, _ = launched(fresh_scenario, tmp_path, file)
    with up:
        ready(up, *ALL, "worker:2")
        for name in ("tf3", "tf4"):
            fresh_scenario.testbed[name].pull()
        for task in ("worker:0", "worker:1"):
            up.state(task, "lost")
        up.press_ctrl_c()
        up.wait_for(lambda event: event.get("state") == "killing", "killing")
        here.set(jump)
        fresh_scenario.testbed["tf3"].heal()
        assert up.wait() == 4, up.transcript()
        sure = {name for name, host in receipt(up).items() if host["confirmed"]}
        assert sure == {"tf1", "tf3", "localhost"}
    here.set(0)
    fresh_scenario.testbed["tf4"].heal()
    assert fresh_scenario.kill(up.run_id)[0] == 0
    fresh_scenario.wait_dead(up.run_id)


# A session in which a worker waits as well as computes: its name says nothing.
_FRAMEWORK = """
import time

def run_session(seconds):
    time.sleep(seconds)
"""
_PROGRAM = """
import sys, time
sys.path.insert(0, "site-packages")
from framework import run_session

print("begins", flush=True)
while sys.argv[1] == sys.argv[2]:
    run_session(0.5)
    print("goes on", flush=True)
while sys.argv[1] == "worker:0":
    run_session(0.3)
    print("CreateSession still waiting for response from worker: /job:ps/task:0", flush=True)
run_session(1000)
"""
LOSSES_PLACES = {"ps": "tf1", "chief": "tf2", "worker": "tf3 tf4"}
HOSTS = {"ps:0": "tf1", "chief:0": "tf2", "worker:1": "tf4"}


@contextmanager
def losses_launched(
    testbed: Testbed, folder: Path, speaker: str, monkeypatch: pytest.MonkeyPatch, on_failure: str
) -> Iterator[RunClient]:
    """A ps, a chief and two workers: one writes, one says that it waits, the others are silent; a
    run is looked at as if half a minute were seconds."""
    monkeypatch.setattr(hang, "_SUSPECT_TICKS", range(3, 1000))
    monkeypatch.setattr(hang, "_QUIET_LOOK", 1.0)
    site = folder / "job/site-packages"
    site.mkdir(parents=True)
    (site / "framework.py").write_text(_FRAMEWORK)
    text = cluster_text(
        LOSSES_PLACES,
        "silent",
        testbed.hosts_toml(),
        command=[*python_task(_PROGRAM), "{job}:{index}", speaker],
        start={"order": [[*LOSSES_PLACES]], "ready": dict.fromkeys(LOSSES_PLACES, "started")},
        grace=1,
        on_failure=on_failure,
    )
    file = write(folder / "job", text)
    client = RunClient.launch(
        load(file, for_launch=True), file.read_text(), process=LauncherThread()
    )
    client.await_state()
    try:
        wait_until(
            lambda: all(task.last_output for task in client.snapshot().tasks), "all have begun"
        )
        yield client
    finally:
        for host in testbed:
            host.heal()
        client.kill_all()
        assert client.wait(PATIENCE)


@variants(
    ("task", "on_failure"),
    [("ps:0", "stop"), ("chief:0", "restart-all"), ("worker:1", "keep")],
    test=1,
)
def test_a_lost_host_is_the_cause_until_the_run_goes_on(
    testbed: Testbed,
    tmp_path: Path,
    tfmux_home: Path,
    monkeypatch: pytest.MonkeyPatch,
    task: str,
    on_failure: str,
) -> None:
    """Given a run without figures, when the host of the only task that writes is cut off, then the
    record names the task's host for sure, whatever a failure would mean, and the run goes on; when
    the host is back and the task writes again, then nothing hangs any more."""
    testbed.give_access(tfmux_home)
    with losses_launched(testbed, tmp_path, task, monkeypatch, on_failure) as client:
        testbed[HOSTS[task]].pull()
        wait_until(lambda: client.snapshot().verdict, "a verdict")
        snapshot = client.snapshot()
        verdict, found = snapshot.verdict, snapshot.hang
        assert verdict is not None and found is not None
        assert [str(one) for one in verdict.tasks] == [task]
        assert verdict.kind is Kind.HOST_LOST and verdict.sure, verdict
        assert verdict.text.startswith(f"{HOSTS[task]}: the host was lost ({task})")
        assert found.reason is Hang.SILENT and snapshot.state is RunPhase.RUNNING
        testbed[HOSTS[task]].heal()
        wait_until(lambda: client.snapshot().verdict is None, "the run goes on")


HOUR = 3600
TRAINS = """
import os, time
for step in range(1, 4):
    print(f"step {step} loss {1 / step}", flush=True)
    time.sleep(0.2)
open("result.txt", "w").write(os.environ["TFMUX_TASK"])
"""


@pytest.mark.skipif(not faults.can_shift_clock(), reason="no C compiler to shift a clock with")
@pytest.mark.prove
def test_hosts_whose_clocks_are_two_hours_apart(
    fresh_scenario: FaultScenario, tmp_path: Path
) -> None:
    """Given a host an hour ahead and one an hour behind, when they train and results are fetched,
    then all times are the launcher's and in order, no host is lost or taken for one that has
    booted, and `check` names both clocks."""
    for name, shift in (("tf1", HOUR), ("tf3", -HOUR)):
        faults.shift_clock(fresh_scenario.testbed[name], shift)
    workdir = tmp_path / "work"
    workdir.mkdir()
    run = f'grace = 1\nsuccess = "all"\nframework = "none"\nworkdir = {json.dumps(str(workdir))}'
    places, words = {"worker": ["tf1", "tf3", "tf4"]}, python_task(TRAINS)
    file = fresh_scenario.file(places, run=f'{run}\ncollect = ["result.txt"]', words=words)
    checked = json.loads(command.run("check", str(file), "--json").stdout)
    off = {f["host"]: f["brief"] for f in checked["findings"] if f["code"] == "clock-off"}
    assert {host: round(int(text.split()[0]), -2) for host, text in off.items()} == {
        "tf1": HOUR,
        "tf3": -HOUR,
    }
    began = time.time()
    with fresh_scenario.up(file) as up:
        assert up.wait() == 0, up.transcript()
        assert confirmed(up)
    times = [event["time"] for event in up.events]
    assert began <= min(times) and max(times) <= time.time()
    states = [event["time"] for event in up.of("task")]
    assert states == sorted(states)
    assert not [event for event in up.events if clocks_lost(up)(event)]
    spans = [e["ended"] - e["started"] for e in (*up.of("task"), *up.of("run")) if e.get("ended")]
    assert spans and min(spans) >= 0 and max(spans) < HOUR / 2
    fresh_scenario.wait_dead(up.run_id)
