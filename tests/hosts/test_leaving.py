"""A run is left, detached from, taken up again, or loses its launcher: leases, and what hosts do
without this machine."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from launcher.client.run_client import RunClient
from launcher.cluster.read import load
from launcher.paths import runs_home
from launcher.run.leaving import waits
from launcher.run.snapshot import HostView
from launcher.run.states import TaskState
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.command import Up
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario, confirmed, last_states, notes, ready
from tests.support.streams import records
from tests.testbed import faults, proc
from tui.outcome import report

LEASE, LONGER = 8.0, 7200.0
RULES = f"lease = {LEASE}\ngrace = 1\ndetached_lease = {LONGER}"
BOTH = {"ps": ["tf1"], "worker": ["tf3", "here"]}
FAR = {"ps": ["tf1"], "worker": ["tf3"]}
PS = "task", "ps:0"


@contextmanager
def launched(file: Path) -> Iterator[RunClient]:
    """A client of a run that has begun; the run is killed at the end, by whoever follows it."""
    client = RunClient.launch(load(file, for_launch=True), file.read_text())
    try:
        wait_until(lambda: all_are(client, TaskState.READY), "all tasks are ready")
        yield client
    finally:
        client.close()
        killer = RunClient.kill(client.folder, force=True)
        killer.wait(PATIENCE)
        killer.close()


def all_are(client: RunClient, state: TaskState) -> bool:
    tasks = client.snapshot().tasks
    return bool(tasks) and all(task.state is state for task in tasks)


def pids(client: RunClient) -> dict[str, int | None]:
    return {str(task.id): task.pid for task in client.snapshot().tasks}


def host(client: RunClient, name: str) -> HostView:
    return next(one for one in client.snapshot().hosts if one.name == name)


def leases(client: RunClient) -> set[float | None]:
    """What hosts of the testbed have confirmed."""
    return {one.lease for one in client.snapshot().hosts if not one.local}


def listed(run_id: str) -> dict[str, Any]:
    """The run in `tfmux ps --json`."""
    rows = json.loads(command.run("ps", "--json").stdout)
    (found,) = [row for row in rows if row["run"] == run_id]
    return dict(found)


def said_of(run_id: str) -> str:
    """What `tfmux ps` says of the run beside its line."""
    lines = command.run("ps").stderr.splitlines()
    return "\n".join(line for line in lines if run_id in line)


def test_a_lid_that_is_closed(fresh_scenario: FaultScenario) -> None:
    """Given two runs of the same hosts and this machine, one left and one not, whose launcher
    processes stand still, the first one of them first, and whose connections are cut meanwhile,
    when the tasks of the other have been ended by their leases, then the first one has the same
    processes as before; when both wake, the first goes on, and the other says what has happened."""
    scenario = fresh_scenario
    with launched(scenario.file(BOTH, run=RULES)) as left:
        with scenario.up(scenario.file(BOTH, run=RULES)) as shown:
            ready(shown, "ps:0", "worker:0", "worker:1")
            before = pids(left)
            left.detach()
            assert leases(left) == {LONGER}
            told = report(left.snapshot(), left.folder.path, detached=True)
            assert "without this machine tf1 and tf3 wait 2 h, then they end their tasks" in told
            assert "worker:1 on this machine ends with it" in told
            assert "without this machine tf1 and tf3 wait 2 h" in said_of(left.run_id)
            assert "worker:1 on this machine ends with it" in said_of(left.run_id)
            assert listed(left.run_id)["background"] and not listed(shown.run_id)["background"]
            folders = [left.folder, RunFolder(runs_home() / shown.run_id)]
            stopped = [*(folder.launcher_pid() or 0 for folder in folders), shown.process.pid]
            assert all(stopped)
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            for name in ("tf1", "tf3"):
                assert faults.kill_sessions(scenario.testbed[name])
            try:
                wait_until(
                    lambda: not scenario.first(shown.run_id), "the leases of the other have ended"
                )
                assert len(scenario.first(left.run_id)) == len(before)
            finally:
                for pid in stopped:
                    os.kill(pid, signal.SIGCONT)
            assert shown.wait() == 1, shown.transcript()
            said = notes(shown)
            assert any("stood still for" in note for note in said), said
            assert any("once you have detached" in note for note in said), said
            assert any("no launcher for" in note for note in said), said
        back = RunClient.attach(left.folder)
        try:
            wait_until(lambda: leases(back) == {LEASE}, "all hosts have the old lease again")
            assert pids(back) == before and all_are(back, TaskState.READY)
            assert any("stood still for" in note for note in back.snapshot().notes)
            for _ in range(3):  # and again and again: the last word holds
                back.detach()
                assert leases(back) == {LONGER}
                back = RunClient.attach(left.folder)
            wait_until(lambda: leases(back) == {LEASE}, "the last word is the old lease")
        finally:
            back.close()
    scenario.wait_dead(left.run_id)


def test_a_launcher_that_dies_after_the_run_was_left(fresh_scenario: FaultScenario) -> None:
    """Given a run that was left, whose launcher process is killed, and one that was not, killed
    after it, when the hosts of the latter have acted, then the former goes on without a launcher,
    as `ps` says, and who attaches finds its processes."""
    scenario = fresh_scenario
    with launched(scenario.file(FAR, run=RULES)) as left:
        before = pids(left)
        left.detach()
        assert leases(left) == {LONGER}
        kill_launcher(left.folder)
        with scenario.up(scenario.file(FAR, run=RULES)) as shown:
            ready(shown, "ps:0", "worker:0")
            shown.kill_launcher()
            wait_until(lambda: not scenario.first(shown.run_id), "its leases have ended")
            assert len(scenario.first(left.run_id)) == len(before)
        row = listed(left.run_id)
        assert row["launcher"] is None and row["background"]
        assert {one["lease"] for one in row["hosts"]} == {LONGER}
        assert "without this machine tf1 and tf3 wait 2 h" in said_of(left.run_id)
        back = RunClient.attach(left.folder)
        wait_until(lambda: leases(back) == {LEASE}, "all hosts have the old lease again")
        wait_until(lambda: all_are(back, TaskState.READY), "all tasks are known again")
        assert pids(back) == before
        back.close()
    scenario.wait_dead(left.run_id)


@pytest.mark.prove
def test_an_agent_that_dies_after_the_run_was_left(fresh_scenario: FaultScenario) -> None:
    """Given a run that was left, when the agent of a host is killed and its task starts again below
    another one, then that has the longer lease, too: without a launcher the task outlives those of
    a run that was not left."""
    scenario = fresh_scenario
    rules = f'{RULES}\non_failure = "restart"'
    with launched(scenario.file(FAR, run=rules)) as left:
        left.detach()
        assert leases(left) == {LONGER}
        _, agent = scenario.agents("tf1")
        proc.signal_process(agent, signal.SIGKILL)

        def restarted() -> bool:
            said = [r for r in records(left.folder) if (r["event"], r.get("task")) == PS]
            return (said[-1]["attempt"], said[-1]["state"]) == (2, "ready")

        wait_until(restarted, "its task has started again")
        kill_launcher(left.folder)
        with scenario.up(scenario.file(FAR, run=RULES)) as shown:
            ready(shown, "ps:0", "worker:0")
            shown.kill_launcher()
            wait_until(lambda: not scenario.first(shown.run_id), "its leases have ended")
            assert len(scenario.first(left.run_id)) == len(FAR)
    scenario.wait_dead(left.run_id)


def test_a_cable_that_is_cut_when_the_run_is_left(fresh_scenario: FaultScenario) -> None:
    """Given a host that cannot be reached, when the run is left, then this host is named; it has
    the longer lease as soon as it is back."""
    scenario = fresh_scenario
    rules = f"lease = 600\ngrace = 1\ndetached_lease = {LONGER}"
    with launched(scenario.file({"worker": ["tf1", "tf3"]}, run=rules)) as left:
        scenario.testbed["tf3"].pull()
        left.detach()
        assert host(left, "tf1").lease == LONGER and host(left, "tf3").lease is None
        told = waits(left.snapshot())
        assert told[0] == "without this machine tf1 waits 2 h, then it ends its tasks"
        assert "tf3" in told[1] and "may end its tasks after 10 min" in told[1], told
        scenario.testbed["tf3"].heal()

        def confirmed() -> bool:
            return {one["lease"] for one in listed(left.run_id)["hosts"]} == {LONGER}

        wait_until(confirmed, "the host that is back has it, too")
    scenario.wait_dead(left.run_id)


def kill_launcher(folder: RunFolder) -> None:
    pid = folder.launcher_pid()
    assert pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: folder.launcher_pid() is None, "the launcher process has gone")


PLACES = {"ps": ["tf1"], "worker": ["tf3", "here"]}
ALL = ("ps:0", "worker:0", "worker:1")

DETACHING = """
import sys, time
from pathlib import Path
from launcher.cluster.read import load
from launcher.client.run_client import RunClient
from launcher.run.states import RunPhase

file = Path(sys.argv[1])
session = RunClient.launch(load(file, for_launch=True), file.read_text())
while session.snapshot().state is not RunPhase.RUNNING:
    time.sleep(0.05)
session.detach()
print(session.run_id, session.detached)
"""


def stored_state(run_id: str) -> str:
    """What the events say of the run last."""
    states = [
        record.get("outcome", record["state"])
        for record in records(RunFolder(runs_home() / run_id))
        if record["event"] == "run"
    ]
    return str(states[-1])


def test_a_detached_run_goes_on_with_all_its_rules(scenario: FaultScenario) -> None:
    """Given a run that its client has detached from, when workers fail, then another launcher
    restarts them and ends the run as a success once they are done, and no log is stored twice."""
    file = scenario.file(
        PLACES,
        run='lease = 600\ngrace = 1\non_failure = "restart"',
        modes={"worker": "fails"},
        env={"SECONDS": "go on", "LEAST": "60000", "PACE": "0.004", "FAILURES": "1"},
    )
    assert json.loads(command.run("ps", "--json").stdout) == []  # the first command takes longer
    done = subprocess.run(
        [sys.executable, "-c", DETACHING, str(file)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    run_id, detached = done.stdout.split()
    assert detached == "True"
    (listed,) = json.loads(command.run("ps", "--json").stdout)
    assert listed["run"] == run_id and listed["launcher"]
    scenario.tell(run_id, "go on")
    wait_until(lambda: stored_state(run_id) in ("success", "failed", "killed"), "the end")
    assert stored_state(run_id) == "success"
    wait_until(lambda: proc.read(listed["launcher"]) is None, "the launcher has gone")
    attempts = {
        r["task"]: r["attempt"]
        for r in records(RunFolder(runs_home() / run_id))
        if r["event"] == "task"
    }
    assert attempts == {"ps:0": 1, "worker:0": 2, "worker:1": 2}
    size = scenario.check_logs(run_id)
    folder = runs_home() / run_id
    others = [p for p in folder.iterdir() if p.suffix not in (".log", ".idx", ".jsonl")]
    kept = [*others, folder / "launcher.log"]
    assert sum(p.stat().st_size for p in kept if p.exists()) < size / 10
    scenario.wait_dead(run_id)


def test_another_machine_takes_over_and_the_first_launcher_says_so(
    scenario: FaultScenario, tmp_path: Path
) -> None:
    """Given a launcher that is stopped, when another machine takes its run over and the first one
    goes on, then that one leaves with 5 and kills nothing; and when the run is killed on the first
    machine, then the other one hears that it was taken over for that, and leaves with 130."""
    places = {"ps": ["tf1"], "worker": ["tf3"]}
    file = scenario.file(places, run="lease = 600\ngrace = 1")
    with scenario.up(file) as first:
        ready(first, "ps:0", "worker:0")
        run_id = first.run_id
        first.signal_launcher(signal.SIGSTOP)
        words = ("-m", "tui.main", "attach", run_id, "--file", str(file), "--headless")
        second = subprocess.Popen(
            [*command.other_machine(tmp_path), sys.executable, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=REPOSITORY,
        )
        try:
            assert second.stdout is not None
            said = ""
            while not {"tf1 up", "tf3 up"} <= set(re.findall("tf[13] up", said)):
                line = second.stdout.readline()
                assert line, said
                said += line
            first.signal_launcher(signal.SIGCONT)
            assert first.wait() == 5, first.transcript()
            assert any("to supervise the run" in note for note in notes(first))
            assert len(scenario.left(run_id)) > 0
            code, told = scenario.kill(run_id)
            assert code == 0 and "2 hosts confirmed" in told, told
            said += second.communicate(timeout=PATIENCE)[0]
            assert second.returncode == 130, said
            assert "to end the run" in said and "2 hosts confirmed" not in said
        finally:
            if second.poll() is None:
                second.terminate()
            second.communicate()
        scenario.wait_dead(run_id)


def test_another_machine_kills_the_run_and_the_first_launcher_says_so(
    scenario: FaultScenario, tmp_path: Path
) -> None:
    """Given a run over two hosts, when another machine kills it, then that one has the receipt, and
    the command that launched it leaves with 130 and says nothing of what is left there."""
    file = scenario.file({"ps": ["tf1"], "worker": ["tf3"]}, run="lease = 600\ngrace = 1")
    with scenario.up(file) as first:
        ready(first, "ps:0", "worker:0")
        run_id = first.run_id
        words = ("kill", run_id, "--file", str(file))
        killed = command.run(*words, prefix=command.other_machine(tmp_path))
        assert killed.returncode == 0 and "2 hosts confirmed" in killed.stdout, killed
        assert first.wait() == 130, first.transcript()
        assert any("to end the run" in note for note in notes(first))
        assert "2 hosts confirmed" not in first.said and "continues" not in first.said
        scenario.wait_dead(run_id)


@pytest.mark.prove
def test_a_launcher_that_slept_less_than_the_lease_goes_on(scenario: FaultScenario) -> None:
    """Given a launcher that is stopped for less than the lease, when it wakes, then no host was
    lost; and when `tfmux kill RUN` is called in another shell, then it ends the run, with exit 130
    and whole logs. A second kill is exit 0, too."""
    file = scenario.file(PLACES, run="lease = 600\ngrace = 1", modes={"worker": "stubborn"})
    with scenario.up(file) as up:
        ready(up, *ALL)
        up.signal_launcher(signal.SIGSTOP)
        grows(scenario.ledger_folder("tf3"), f"{up.run_id}.worker-0.1", 2_000)
        up.signal_launcher(signal.SIGCONT)
        wait_until(lambda: any(e["task"] == "worker:0" for e in up.of("log")), "its lines come")
        code, said = scenario.kill(up.run_id)
        assert code == 0 and "no process is left" in said, said
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        assert not any("lost" in n or "taken this run over" in n for n in notes(up)), notes(up)
        scenario.check_logs(up.run_id)
        scenario.wait_dead(up.run_id)
    assert scenario.kill(up.run_id)[0] == 0


def grows(folder: Path, name: str, by: int) -> None:
    """Waits until a task has written so much more."""
    path = folder / name
    start = int.from_bytes(path.read_bytes()[:8], "big")
    wait_until(
        lambda: int.from_bytes(path.read_bytes()[:8], "big") > start + by, f"{name} writes on"
    )


@pytest.mark.prove
def test_a_launcher_that_slept_beyond_the_lease_hears_what_happened(
    scenario: FaultScenario,
) -> None:
    """Given a launcher that is stopped beyond the lease, when it goes on, then it hears and says
    that every host has ended its tasks, and the run fails with a receipt confirmed by all."""
    file = scenario.file(PLACES, run="lease = 8\ngrace = 1", modes={"worker": "stubborn orphan"})
    with scenario.up(file) as up:
        ready(up, *ALL)
        up.signal_launcher(signal.SIGSTOP)
        wait_until(
            lambda: not any("TFMUX_TASK" in p.environ for p in scenario.left(up.run_id)),
            "all hosts have acted",
        )
        up.signal_launcher(signal.SIGCONT)
        assert up.wait() == 1, up.transcript()
        assert any("no launcher for" in note for note in notes(up))
        assert confirmed(up)
        scenario.check_logs(up.run_id)
        scenario.wait_dead(up.run_id)


DIES_LEASE, GRACE = 8.0, 1.0
DIES_RULES = f"lease = {DIES_LEASE}\ngrace = {GRACE}"


def strike(up: Up) -> str:
    """SIGKILL; returns the run's id."""
    run_id = up.run_id
    up.kill_launcher()
    return run_id


def test_in_every_phase_all_are_dead_by_lease_and_grace(scenario: FaultScenario) -> None:
    """Given three runs on the same hosts, when their launchers are killed while staging, starting
    and killing (`test_contract` has one of a running one), then all hosts end their tasks by
    themselves, and nobody else's processes."""
    big = scenario.folder / "big"
    big.mkdir()
    (big / "blob").write_bytes(os.urandom(20 << 20))
    never = '[start.ready]\nps = { log = "never" }'
    files = {
        "staging": scenario.file(PLACES, run=f'{DIES_RULES}\nworkdir = "big"', extra=never),
        "starting": scenario.file(PLACES, run=DIES_RULES, extra=never),
        "killing": scenario.file(
            PLACES,
            run=f"lease = {DIES_LEASE}\ngrace = 4",
            modes={"ps": "stubborn daemon", "worker": "orphan"},
        ),
    }
    ups = {phase: scenario.up(file) for phase, file in files.items()}
    struck = {}
    try:
        ups["staging"].state("ps:0", "staging")
        struck["staging"] = strike(ups["staging"])
        ups["starting"].log("ps:0", "here is")
        struck["starting"] = strike(ups["starting"])
        ready(ups["killing"], "ps:0", "worker:0", "worker:1")
        ups["killing"].press_ctrl_c()
        ups["killing"].wait_for(lambda e: e.get("state") == "killing", "killing")
        struck["killing"] = strike(ups["killing"])
        assert scenario.left(), "something was there to be ended"
        for run_id in struck.values():
            wait_until(lambda run=run_id: not scenario.here(run), "here all are dead")  # type: ignore[misc]
        scenario.wait_dead()
    finally:
        for up in ups.values():
            up.__exit__(None, None, None)
    assert "ready" not in last_states(ups["staging"]).values()
    listed = command.run("ps", "--json")
    assert listed.returncode == 0 and listed.stdout.strip() == "[]", listed


def test_under_keep_a_run_without_launcher_lives_and_is_taken_up(
    scenario: FaultScenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given `keep` and a launcher that is killed, when lease and grace are over, then the tasks
    live and `tfmux ps` calls them unsupervised; and who has nothing but the file and the run's name
    takes them over with whole logs, and ends them."""
    places = {"ps": ["tf1"], "worker": ["tf3"]}
    file = scenario.file(places, run=f'{DIES_RULES}\non_disconnect = "keep"', env={"PACE": "0.02"})
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        run_id = strike(up)
    end = time.monotonic() + DIES_LEASE + 2 * GRACE
    wait_until(lambda: time.monotonic() > end, "lease and grace are over")
    assert scenario.of("tf1", "ps:0") and scenario.of("tf3", "worker:0")
    listed = command.run("ps")
    row = next(line for line in listed.stdout.splitlines() if line.startswith(run_id))
    assert row.split()[2:5] == ["unsupervised", "2/2", "2/2"], listed
    assert f"tfmux: {run_id}: no launcher supervises it; tfmux attach resumes it" in listed.stderr
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(elsewhere))
    prefix = command.other_machine(elsewhere)
    with Up("attach", run_id, "--file", str(file), "--json", prefix=prefix) as again:
        again.wait_for(lambda e: e.get("state") == "running" and e["event"] == "run", "running")
        ready(again, "ps:0", "worker:0")
        attempts = {e["task"]: e["attempt"] for e in again.of("task")}
        assert set(attempts.values()) == {1}
        again.press_ctrl_c()
        assert again.wait() == 130, again.transcript()
        assert confirmed(again)
    assert scenario.check_logs(run_id) > 10_000
    scenario.wait_dead(run_id)
    assert command.run("ps", "--json").stdout.strip() == "[]"


@pytest.mark.prove
def test_tasks_on_other_hosts_outlive_a_launcher_that_is_followed(scenario: FaultScenario) -> None:
    """Given a run that `tfmux up` follows, when its launcher is killed, then the follower starts
    another one within the lease, and the tasks are the same processes and ready again."""
    file = scenario.file({"ps": ["tf1"], "worker": ["tf3"]}, run="grace = 1")
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        run_id = up.run_id

        def pids() -> list[list[int]]:
            places = [("tf1", "ps:0"), ("tf3", "worker:0")]
            return [[p.pid for p in scenario.of(host, task)] for host, task in places]

        before = pids()
        up.signal_launcher(signal.SIGKILL)
        up.wait_for(lambda e: "starting another" in str(e.get("note")), "another launcher")
        up.wait_for(lambda e: "previous launcher process" in str(e.get("note")), "its word")
        wait_until(lambda: set(last_states(up).values()) == {"ready"}, "all are ready again")
        assert pids() == before and all(before)
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert scenario.check_logs(run_id) > 0
    scenario.wait_dead(run_id)
