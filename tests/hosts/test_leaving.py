"""A run that is left: its hosts wait longer without this machine, as they confirm, and not longer
without that."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from launcher.cluster.read import load
from launcher.paths import runs_home
from launcher.run.leaving import waits
from launcher.run.snapshot import HostView
from launcher.run.states import TaskState
from launcher.session.client import RunClient
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario, notes, ready
from tui.outcome import report

LEASE, LONGER = 8.0, 7200.0
RULES = f"lease = {LEASE}\ngrace = 1\ndetached_lease = {LONGER}"
BOTH = {"ps": ["tf1"], "worker": ["tf3", "here"]}
FAR = {"ps": ["tf1"], "worker": ["tf3"]}


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
    processes stand still, the first one of them first, when the tasks of the other have been ended
    by their leases, then the first one has the same processes as before; when both wake, the first
    goes on, and the other says what has happened."""
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
