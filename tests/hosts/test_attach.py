"""One launcher after the other: detach, take over, sleep and wake."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.paths import runs_home
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support.paths import REPOSITORY
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import FaultScenario, confirmed, notes, ready
from tests.support.streams import records
from tests.testbed import proc

PLACES = {"ps": ["tf1"], "worker": ["tf3", "here"]}
ALL = ("ps:0", "worker:0", "worker:1")

DETACHING = """
import sys, time
from pathlib import Path
from launcher.cluster.read import load
from launcher.session.client import RunClient
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
