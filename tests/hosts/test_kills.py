"""Kill-all at bad moments, and tasks that do everything not to die: nothing lives behind a receipt,
survivors are named, and neighbours are spared."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.budgets import budget, variants
from tests.support.command import Up, python_task
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario, confirmed, last_states, lost, ready, receipt
from tests.testbed import faults, proc


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


PLACES = {"ps": ["tf1"], "worker": ["tf3"]}


@pytest.mark.prove
def test_a_second_run_of_the_same_file_is_refused_by_name_and_hurts_nobody(
    scenario: FaultScenario,
) -> None:
    """Given a run, when its file is launched again, then exit 3 names the run and tasks that hold
    its ports; with other ports a second run goes on beside it, and a kill ends only its own."""
    file = scenario.file(PLACES, run="lease = 600\ngrace = 1", modes={"worker": "daemon orphan"})
    beside = command.write(
        scenario.folder,
        re.sub(r"(tf\d):(\d+)", lambda at: f"{at[1]}:{int(at[2]) + 50}", file.read_text()),
        "beside.toml",
    )
    with scenario.up(file) as first:
        ready(first, "ps:0", "worker:0")
        second = command.run("up", str(file), "--json")
        assert second.returncode == 3, second
        assert f"of ps:0 of the run {first.run_id}" in second.stderr
        assert f"of worker:0 of the run {first.run_id}" in second.stderr
        with scenario.up(beside) as third:
            ready(third, "ps:0", "worker:0")
            listed = json.loads(command.run("ps", "--json").stdout)
            assert {run["run"] for run in listed} == {first.run_id, third.run_id}
            third.press_ctrl_c()
            assert third.wait() == 130 and confirmed(third)
            scenario.check_logs(third.run_id)
        assert not any(e["state"] == "failed" for e in first.of("task"))
        assert len(scenario.of("tf3", "worker:0")) >= 2
        first.press_ctrl_c()
        assert first.wait() == 130 and confirmed(first)
        scenario.check_logs(first.run_id)
    scenario.wait_dead()


def test_kill_all_runs(scenario: FaultScenario) -> None:
    """Given two runs without a launcher, when `tfmux kill --all` is called, then both are ended and
    each has its receipt."""
    ups = []
    try:
        for _ in range(2):
            ups.append(scenario.up(scenario.file(PLACES, run='lease = 8\non_disconnect = "keep"')))
        for up in ups:
            ready(up, "ps:0", "worker:0")
            up.kill_launcher()
        done = command.run("kill", "--all")
        assert done.returncode == 0, done
        assert all(up.run_id in done.stdout for up in ups)
        assert done.stdout.count("no process is left") == 2
    finally:
        for up in ups:
            up.__exit__(None, None, None)
    scenario.wait_dead()


BECOMES_ROOT = """
import socket, subprocess, sys, time
words = ["/opt/asroot", "--reuid=0", "--regid=0", "--clear-groups", "sleep", "3005"]
subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
server = socket.create_server(("", int(sys.argv[1])))
time.sleep(3000)
"""


def test_a_survivor_is_named_and_stays_known(fresh_scenario: FaultScenario) -> None:
    """Given an ordinary user's task whose child has become root, when the run is killed, then exit
    4 and the receipt name that child, and so does `tfmux kill` until it is gone. Where root itself
    logs in, the same child is ended."""
    host = fresh_scenario.testbed["tf3"]
    for each in (fresh_scenario.testbed["tf1"], host):
        program = each.disk / "opt/asroot"
        shutil.copy("/usr/bin/setpriv", program)
        os.chown(program, 0, 0)
        program.chmod(0o4755)
    file = fresh_scenario.file(
        {"ps": ["tf1"], "worker": ["tf3"]},
        run="lease = 600\ngrace = 0.5",
        words=[*python_task(BECOMES_ROOT), "{port}"],
    )
    with fresh_scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        wait_until(lambda: [p for p in host.leftovers() if p.argv == ("sleep", "3005")], "root")
        (survivor,) = [p for p in host.leftovers() if p.argv == ("sleep", "3005")]
        assert survivor.uid == 0
        try:
            up.press_ctrl_c()
            assert up.wait() == 4, up.transcript()
            assert receipt(up)["tf1"]["confirmed"] and not receipt(up)["tf1"]["survivors"]
            (named,) = receipt(up)["tf3"]["survivors"]
            assert (named["pid"], named["command"]) == (survivor.inner, "sleep 3005")
            assert f"pid {survivor.inner} (S) sleep 3005" in up.said
            assert f"finish with: tfmux kill {up.run_id}" in up.said
            code, said = fresh_scenario.kill(up.run_id)
            assert code == 4 and "sleep 3005" in said, said
        finally:
            proc.signal_process(survivor, signal.SIGKILL)
        code, said = fresh_scenario.kill(up.run_id)
        assert code == 0 and "no process is left" in said, said
    fresh_scenario.wait_dead()


DEAF = ["sh", "-c", "trap '' TERM; (while :; do sleep 1; done) & echo trains; wait"]
START = """
grace = 1
lease = 600
framework = "none"
[start]
order = [["a"], ["b"]]
[start.ready]
a = { after = 3.0 }
b = { log = "trains" }
"""


def stop_before_the_stage(scenario: FaultScenario, up: Up) -> None:
    up.log("a:0", "trains")
    proc.signal_process(scenario.agents("tf3")[1], signal.SIGSTOP)


def kill_in_the_stage(scenario: FaultScenario, up: Up) -> None:
    up.wait_for(lambda e: str(e.get("task", "")).startswith("b:") and "pid" in e, "a process")
    proc.signal_process(scenario.agents("tf3")[1], signal.SIGKILL)


def cut_off_and_killed(scenario: FaultScenario, up: Up) -> None:
    """The stage is ordered from a host that is cut off; when it is back, its agent has died."""
    up.log("a:0", "trains")
    host = scenario.testbed["tf3"]
    host.pull()
    lost(up, "tf3")
    proc.signal_process(scenario.agents("tf3")[1], signal.SIGKILL)
    host.heal()


def cut_off_in_the_kill(scenario: FaultScenario, up: Up) -> None:
    """A person ends the run while a host that has not answered its starts is cut off."""
    up.log("a:0", "trains")
    host = scenario.testbed["tf3"]
    host.pull()
    up.state("b:0", "starting")
    up.press_ctrl_c()
    up.wait_for(lambda e: e["event"] == "run" and e["state"] == "killing", "the kill")
    host.heal()


@variants(
    ("act", "tasks"),
    [
        (stop_before_the_stage, 4),
        (kill_in_the_stage, 40),
        (cut_off_and_killed, 4),
        (cut_off_in_the_kill, 4),
    ],
    test=2,
)
def test_nothing_lives_behind_a_receipt(
    scenario: FaultScenario, act: Callable[[FaultScenario, Up], None], tasks: int
) -> None:
    """Given starts that a host has not answered, when its agent dies, or is cut off while the run
    is ended, then no process lives there behind the receipt that confirms it."""
    places = {"a": ["tf3"], "b": ["tf3"] * tasks}
    with scenario.up(scenario.file(places, run=START, words=DEAF)) as up:
        act(scenario, up)
        up.wait()
        left = [p for p in scenario.on("tf3") if "TFMUX_TASK" in p.environ]
        for process in left:
            proc.signal_process(process, signal.SIGKILL)
        assert receipt(up).keys() == {"tf3"}
        assert not left and confirmed(up), up.transcript()
    wait_until(lambda: not scenario.on("tf3"), "nothing is left")
