"""Kill-all at bad moments, and tasks that do everything not to die."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import soak
from tests.support.command import Up
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario, confirmed, last_states, ready, receipt
from tests.testbed import faults


def launched(scenario: FaultScenario, modes: str, run: str = "grace = 1", **env: str) -> Up:
    return scenario.up(scenario.file(run=f"lease = 600\n{run}", modes={"worker": modes}, env=env))


ALL = ("ps:0", "worker:0", "worker:1", "worker:2")


def test_stopped_and_mute_tasks_are_gone(scenario: FaultScenario) -> None:
    """Given tasks that have stopped themselves or closed their output, when Ctrl-C is pressed, then
    all are gone, and every host confirms it, long before a grace of ten minutes is over."""
    places = {"ps": ["tf1"], "worker": ["tf3", "here"], "mute": ["tf4", "here"]}
    file = scenario.file(
        places, modes={"worker": "stops child", "mute": "mute"}, run="lease = 600\ngrace = 600"
    )
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0", "worker:1", "mute:0", "mute:1")
        wait_until(
            lambda: any(p.state == "T" for p in scenario.of("tf3", "worker:0")), "it has stopped"
        )
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()  # well within the grace
        assert confirmed(up)
        scenario.check_logs(up.run_id)
        scenario.wait_dead(up.run_id)


def test_a_task_that_exits_while_its_children_live(scenario: FaultScenario) -> None:
    """Given a task that exits while a child holds its output and an orphan ignores TERM, then its
    exit is told at once, and at the end of the run all of them are gone and the log is whole."""
    places = {"ps": ["tf1"], "worker": ["tf3"]}
    file = scenario.file(
        places,
        modes={"worker": "holder child orphan"},
        run="lease = 600\ngrace = 1",
        env={"SECONDS": "1"},
    )
    with scenario.up(file) as up:
        up.state("worker:0", "exited")
        assert up.wait() == 0, up.transcript()
        assert confirmed(up) and receipt(up)["tf3"]["signalled"] >= 3
        scenario.check_logs(up.run_id)
    scenario.wait_dead()


@pytest.mark.parametrize("presses", [2, soak(3)])
def test_pressed_again_it_does_not_wait_for_the_grace(
    scenario: FaultScenario, presses: int
) -> None:
    """Given tasks that ignore TERM and a grace of ten minutes, when Ctrl-C is pressed twice or
    more, then all are killed at once, and every host confirms it."""
    with launched(scenario, "stubborn orphan", run="grace = 600") as up:
        ready(up, *ALL)
        up.press_ctrl_c()
        up.wait_for(lambda e: e.get("state") == "killing", "killing")
        for _ in range(presses - 1):
            up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        scenario.wait_dead(up.run_id)


def test_kill_while_starting_leaves_no_late_starter(scenario: FaultScenario) -> None:
    """Given a run whose first task starts, when Ctrl-C is pressed, then tasks that had not begun by
    then never do, and every host confirms that nothing is left."""
    with launched(scenario, "stubborn") as up:
        up.state("ps:0", "starting")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        killing = next(at for at, e in enumerate(up.events) if e.get("state") == "killing")
        before = [e for e in up.events[:killing] if e["event"] == "task"]
        began = {e["task"] for e in before if e["state"] == "starting"}
        assert {last_states(up)[task] for task in ALL if task not in began} <= {"pending"}
        scenario.wait_dead(up.run_id)


def test_kill_while_connecting_leaves_nothing(fresh_scenario: FaultScenario) -> None:
    """Given hosts whose login takes a second, when Ctrl-C is pressed before any has answered, then
    agents that come up afterwards end by themselves, long before the lease."""
    for host in fresh_scenario.testbed:
        faults.bashrc(host, "sleep 1")
    file = fresh_scenario.file({"ps": ["tf1"], "worker": ["tf3"]}, run="lease = 600")
    with fresh_scenario.up(file) as up:
        up.wait_for(lambda e: e["event"] == "host", "hosts")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    fresh_scenario.wait_dead(up.run_id)


def test_kill_while_a_host_is_away_and_during_its_return(scenario: FaultScenario) -> None:
    """Given a host that is lost, when Ctrl-C is pressed, then the other hosts' tasks die at once,
    and the kill waits for the lost one, which is killed, and confirms it, when it is back."""
    with launched(scenario, "stubborn orphan", run="grace = 6") as up:
        ready(up, *ALL)
        scenario.testbed["tf3"].pull()
        up.state("worker:0", "lost")
        up.press_ctrl_c()
        wait_until(
            lambda: not scenario.of("tf4", "worker:1") and not scenario.of("tf1", "ps:0"),
            "the others are dead",
        )
        assert up.process.poll() is None and scenario.of("tf3", "worker:0")
        scenario.testbed["tf3"].heal()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        scenario.wait_dead(up.run_id)


def test_kill_into_the_void(scenario: FaultScenario) -> None:
    """Given a host whose cable has just been pulled, when Ctrl-C is pressed while its link looks
    alive, then there is no receipt until the host is back, has been killed and confirms it."""
    with launched(scenario, "stubborn", run="grace = 6") as up:
        ready(up, *ALL)
        scenario.testbed["tf3"].pull()
        up.press_ctrl_c()
        up.wait_for(lambda e: e["event"] == "host" and e["state"] == "lost", "lost")
        assert not up.of("receipt")
        scenario.testbed["tf3"].heal()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up) and receipt(up)["tf3"]["signalled"] >= 1
        scenario.wait_dead(up.run_id)


def test_kill_under_a_flood_of_all_tasks(scenario: FaultScenario) -> None:
    """Given tasks that write as fast as they can, when Ctrl-C is pressed, then the kill does not
    queue behind their output: exit 130, nothing is left, and every log is whole here."""
    places = {"ps": ["tf1"], "worker": ["tf3", "tf4", "here"]}
    file = scenario.file(
        places,
        run="lease = 600\ngrace = 0.5",
        modes={"worker": "stubborn"},
        env={"PACE": "0", "BYTES": "20000000"},
    )
    argv = [sys.executable, "-m", "tui.main", "up", str(file), "--headless"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as up:
        wait_until(lambda: runs_home().is_dir() and RunFolder.all(), "a run")
        (folder,) = RunFolder.all()
        try:
            logs = [folder.path / f"worker-{n}.log" for n in range(3)]
            wait_until(
                lambda: all(log.exists() and log.stat().st_size > 2 << 20 for log in logs),
                "the flood has come",
            )
            up.send_signal(signal.SIGINT)
            _, said = up.communicate(timeout=PATIENCE)
        finally:
            up.kill()
    assert up.returncode == 130, said
    assert b"nothing is left on any host" in said
    assert scenario.check_logs(folder.run_id) > 6 << 20
    scenario.wait_dead(folder.run_id)


def test_a_task_that_dies_before_it_listens_is_named(scenario: FaultScenario) -> None:
    """Given a ps that prints a line and exits with 7 before it listens, when the run is launched,
    then exit 1, stderr has its host, status and last line, and no other task has begun."""
    script = "import sys; print('no such thing'); sys.exit(7)"
    with scenario.up(scenario.file(words=command.python_task(script))) as up:
        assert up.wait() == 1
    assert all(text in up.said for text in ("ps:0 on tf1", "exit 7", "no such thing")), up.said
    assert not any(e["task"] != "ps:0" and e["state"] == "starting" for e in up.of("task"))
    assert not scenario.left(up.run_id)
