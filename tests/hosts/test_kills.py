"""Kill-all at bad moments, and tasks that do everything not to die."""

from __future__ import annotations

import signal
import subprocess
import sys

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import budget
from tests.support.command import Up
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario, confirmed, last_states, lost, ready, receipt
from tests.testbed import faults


def launched(scenario: FaultScenario, modes: str, run: str = "grace = 1", **env: str) -> Up:
    return scenario.up(scenario.file(run=f"lease = 600\n{run}", modes={"worker": modes}, env=env))


ALL = ("ps:0", "worker:0", "worker:1", "worker:2")


def living(scenario: FaultScenario, up: Up) -> set[str]:
    """The tasks of a run that have processes."""
    tags = [p.environ.get("TFMUX_TASK", "") for p in scenario.left(up.run_id)]
    return {tag.split("/")[1] for tag in tags if tag}


def test_a_grace_is_for_those_who_need_it(scenario: FaultScenario) -> None:
    """Given a grace of ten minutes, and tasks that have stopped themselves, have closed their
    output, or ignore TERM, when Ctrl-C is pressed, then all but the last are gone at once; and when
    it is pressed again, they are, too."""
    places = {"ps": ["tf1"], "worker": ["tf3", "here"], "mute": ["tf4", "here"], "deaf": ["tf1"]}
    modes = {"worker": "stops child", "mute": "mute", "deaf": "stubborn orphan"}
    file = scenario.file(places, modes=modes, run="lease = 600\ngrace = 600")
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0", "worker:1", "mute:0", "mute:1", "deaf:0")
        wait_until(
            lambda: any(p.state == "T" for p in scenario.of("tf3", "worker:0")), "it has stopped"
        )
        up.press_ctrl_c()
        wait_until(lambda: living(scenario, up) == {"deaf:0"}, "only who ignores TERM is left")
        for _ in range(budget(1, 2)):
            up.press_ctrl_c_again()
        assert up.wait() == 130, up.transcript()
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


def test_kill_while_hosts_are_away_and_during_their_return(scenario: FaultScenario) -> None:
    """Given a host that is away and one whose link still looks alive after its cable was pulled,
    when Ctrl-C is pressed, then all others are killed at once; and when both are back during the
    kill, they are killed and confirm."""
    with launched(scenario, "stubborn orphan", run="grace = 8") as up:
        ready(up, *ALL)
        scenario.testbed["tf3"].pull()
        lost(up, "tf3")
        scenario.testbed["tf4"].pull()
        up.press_ctrl_c()
        wait_until(lambda: living(scenario, up) == {"worker:0", "worker:1"}, "the others are dead")
        lost(up, "tf4")
        assert up.process.poll() is None and not up.of("receipt")
        for name in ("tf3", "tf4"):
            scenario.testbed[name].heal()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        assert all(receipt(up)[name]["signalled"] >= 1 for name in ("tf3", "tf4"))
        scenario.wait_dead(up.run_id)


def test_kill_under_a_flood_of_all_tasks(scenario: FaultScenario) -> None:
    """Given tasks that write as fast as they can, when Ctrl-C is pressed, then the kill does not
    queue behind their output: exit 130, nothing is left, and every log is whole here."""
    file = scenario.file(
        {"worker": ["tf3", "tf4", "here"]},
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
    assert b"no process is left" in said
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
    wait_until(lambda: not scenario.left(up.run_id), "nothing is left")
