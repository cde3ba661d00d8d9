"""Tasks that start again, all together or at their gates: they fail, stay, or are lost with their
hosts."""

from __future__ import annotations

import importlib.util
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from launcher.store.runs import RunFolder
from tests.support import command, fault_tasks
from tests.support.budgets import soak, variants
from tests.support.command import Up, python_task
from tests.support.fault_tasks import tell
from tests.support.patience import PATIENCE, wait_until
from tests.support.scenario import (
    FaultScenario,
    confirmed,
    gone,
    last_states,
    launch,
    notes,
    ready,
    receipt,
)
from tests.support.slurm_scenario import ALL, Scenario
from tests.support.streams import records
from tests.testbed import proc

RULE = 'on_failure = "restart-all"\nsuccess = "all"\ngrace = 1\n'
PLACES = {"ps": ["tf1"], "worker": ["tf1", "tf3"]}


def runs(up: Up) -> list[tuple[str, int]]:
    """The states of the run with the attempt, in their order."""
    return [(event["state"], event["attempt"]) for event in up.of("run")]


def attempt_of(up: Up, number: int, state: str, task: str = "worker:1") -> dict[str, Any]:
    """Waits until a task of an attempt is in a state, and gives the event."""
    return up.wait_for(
        lambda e: (
            e["event"] == "task" and (e["task"], e["attempt"], e["state"]) == (task, number, state)
        ),
        f"attempt {number} of {task} {state}",
    )


# --- on this machine ----------------------------------------------------------------------------


STORM = """
import os, signal, subprocess, sys, time
run, task, attempt = os.environ["TFMUX_TASK"].rstrip(";").split("/")
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        variables = open(f"/proc/{pid}/environ", errors="replace").read().split("\\0")
    except OSError:
        continue
    for variable in variables:
        if variable.startswith(f"TFMUX_TASK={run}/") and not variable.endswith(f"/{attempt};"):
            print("beside", pid, variable, flush=True)
again = os.environ["TORCHELASTIC_RESTART_COUNT"], os.environ["TORCHELASTIC_MAX_RESTARTS"]
print("attempt", attempt, os.environ["TFMUX_ATTEMPT"], *again, "at", sys.argv[1], flush=True)
subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 3003; :"], start_new_session=True)
open(f"{attempt} {task}", "w").close()
while not all(os.path.exists(f"{attempt} worker:{rank}") for rank in range(3)):
    time.sleep(0.02)
sys.exit(7) if task == "worker:1" else time.sleep(3000)
"""


def test_a_storm_of_failures_ends_at_the_limit(tmp_path: Path) -> None:
    """Given a rank that always fails, orphans that ignore TERM, and two restarts, when the run
    ends, then each of three attempts had all ranks, a new port and no process of an earlier one
    beside it, and the last failure is the run's."""
    with launch(
        tmp_path,
        {"worker": 3},
        run=RULE + 'framework = "torch"\nmax_restarts = 2',
        words=["{python}", "-c", STORM.replace("{", "{{").replace("}", "}}"), "{port}"],
    ) as up:
        assert up.wait() == 1, up.transcript()
        assert "first failure: worker:1 on localhost: exit 7\n" in up.said
        assert "attempt 3 of 3: worker:1 exit 7 on localhost" in up.said
        assert ("restarting", 1) in runs(up) and ("restarting", 2) in runs(up)
        assert ("restarting", 3) not in runs(up) and runs(up)[-1] == ("ended", 3)
        for task in ("worker:0", "worker:1", "worker:2"):
            said = (RunFolder.find(up.run_id).path / f"{task.replace(':', '-')}.log").read_text()
            assert "beside" not in said, said
            lines = [line.split(" at ") for line in said.splitlines() if " at " in line]
            assert [line for line, _ in lines] == [f"attempt {n} {n} {n - 1} 2" for n in (1, 2, 3)]
            assert len({port for _, port in lines}) == len(lines)
        assert confirmed(up) and gone(up.run_id)


def test_ranks_that_ignore_term_are_killed_and_a_helper_stays(tmp_path: Path) -> None:
    """Given a helper and ranks that ignore TERM and leave orphans, when a rank fails, then all of
    the attempt is gone before the next one, and the helper stays the same process."""
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run=RULE + "[jobs.board]\ntasks = ['localhost:auto']\nin_cluster = false\n",
        modes={"ps": "stubborn", "worker": "stubborn fails orphan child"},
        env={
            "FIRST": "worker:1",
            "FIRST_SECONDS": "0.3",
            "AGAIN_SECONDS": "end",
            "FAILURES": "1",
        },
    ) as up:
        board = up.state("board:0", "ready")["pid"]
        before = up.events[: up.events.index(attempt_of(up, 2, "ready"))]
        tell(tmp_path / "ledger", up.run_id, "end")
        states = [e["state"] for e in before if e["event"] == "task" and e["task"] == "board:0"]
        assert states[-1] == "ready", states
        assert up.wait() == 0, up.transcript()
        assert any("signalled, gone after" in note for note in notes(up))
        assert {e["pid"] for e in up.of("task") if e["task"] == "board:0" and "pid" in e} == {board}
        ended = {e["task"]: e["attempt"] for e in up.of("task")}
        assert ended == {"ps:0": 2, "worker:0": 2, "worker:1": 2, "board:0": 1}
        assert confirmed(up) and gone(up.run_id)


def while_ending(up: Up) -> None:
    """The tasks have TERM, and ignore it."""
    up.wait_for(lambda e: e["event"] == "run" and e["state"] == "restarting", "a restart")


def at_the_next_start(up: Up) -> None:
    up.wait_for(lambda e: e["event"] == "run" and e["attempt"] == 2, "the next attempt")


def with_the_next_attempt(up: Up) -> None:
    attempt_of(up, 2, "starting", "worker:0")


@variants("moment", [while_ending, soak(at_the_next_start), with_the_next_attempt], test=1)
def test_a_kill_during_a_restart_ends_everything(
    tmp_path: Path, moment: Callable[[Up], None]
) -> None:
    """Given a restart of all tasks at one of its three moments, when the run is killed, then every
    process is gone and none is started any more."""
    slow = moment is while_ending
    with launch(
        tmp_path,
        {"ps": 1, "worker": 2},
        run=RULE.replace("grace = 1", "grace = 4" if slow else "grace = 0.5"),
        modes={"worker": "stubborn fails orphan"},
        env={"FIRST": "worker:1", "FIRST_SECONDS": "0.3", "FAILURES": "1"},
    ) as up:
        moment(up)
        (listed,) = json.loads(command.run("ps", "--json").stdout)
        said = re.fullmatch(
            r"attempt (\d) of 4: worker:1 exit 7 on localhost", listed["attempt_text"]
        )
        assert said and int(said[1]) >= 2
        done = command.run("kill", up.run_id, timeout=PATIENCE)
        assert done.returncode == 0, done.stdout + done.stderr
        assert up.wait() == 130, up.transcript()
        asked = next(at for at, e in enumerate(up.events) if e.get("kill_asked"))
        before, after = (
            max((e["attempt"] for e in events if e["event"] == "task"), default=0)
            for events in (up.events[:asked], up.events[asked:])
        )
        assert after <= before, "a kill starts no attempt"
        assert set(last_states(up).values()) <= {"killed", "pending", "exited"}
        assert confirmed(up) and gone(up.run_id)


# --- on hosts -----------------------------------------------------------------------------------

JAX = """
import os, signal, sys, time
import jax, numpy as np
from jax.experimental import multihost_utils

jax.distributed.initialize(initialization_timeout=300)
rank, size = jax.process_index(), jax.process_count()
attempt = int(os.environ["TFMUX_ATTEMPT"])
path = os.path.expanduser(f"~/{os.environ['TFMUX_RUN_ID']}.{rank}.npy")
saved = np.load(path) if os.path.exists(path) else np.zeros(2)
step, weight = multihost_utils.process_allgather(saved).reshape(size, 2)[0]
print("rank", rank, "of", size, "attempt", attempt, "from step", int(step), flush=True)
while step < 40:
    slope = float(weight - 3.0) * (rank + 1)
    slope = multihost_utils.process_allgather(np.array(slope)).mean()
    weight, step = weight - 0.1 * slope, step + 1
    np.save(path + ".new.npy", np.array([step, weight]))
    os.replace(path + ".new.npy", path)
    print("step", int(step), "loss", float((weight - 3.0) ** 2), flush=True)
    if rank == 1 and attempt == 1 and step == 10:
        if os.environ["HOW"] == "exit":
            sys.stdout.flush()
            os._exit(1)
        time.sleep(600)
    time.sleep(0.02)
print("weight", round(float(weight), 3), flush=True)
"""


def end_rank(scenario: FaultScenario, up: Up) -> None:
    (rank,) = (p for p in scenario.of("tf3", "worker:1") if "python" in p.exe)
    proc.signal_process(rank, signal.SIGKILL)


def fail_power(scenario: FaultScenario, up: Up) -> None:
    host = scenario.testbed["tf3"]
    host.crash()
    scenario.bystanders.pop("tf3", None)
    up.wait_for(lambda e: e["event"] == "host" and e["state"] == "lost", "the host is lost")
    host.boot()


@pytest.mark.prove
@pytest.mark.parametrize(
    ("how", "act", "why"),
    [
        soak("exit", None, "worker:1 exit 1 on tf3"),
        ("signal", end_rank, "worker:1 killed by SIGKILL on tf3"),
        soak("power", fail_power, " on tf3"),
    ],
)
def test_jax_goes_on_from_its_checkpoint(
    scenario: FaultScenario,
    how: str,
    act: Callable[[FaultScenario, Up], None] | None,
    why: str,
) -> None:
    """Given a JAX training on two hosts, when a rank exits, is killed or loses its host's power,
    then all start again from the checkpoint and end with the weights of the whole training."""
    if importlib.util.find_spec("jax") is None:
        pytest.skip("jax is not installed: pip install jax, or make .venv/ready")
    file = scenario.file(
        {"worker": ["tf1", "tf3"]},
        run=RULE + 'framework = "jax"\nlease = 600',
        env={"HOW": how, "JAX_PLATFORMS": "cpu"},
        words=python_task(JAX),
    )
    with scenario.up(file) as up:
        up.log("worker:1", "step 10 ")
        if act is not None:
            act(scenario, up)
        again = up.log("worker:1", "attempt 2 from step", timeout=500)["text"]
        assert int(again.rpartition(" ")[2]) >= 9
        assert up.wait(500) == 0, up.transcript()
        assert up.log("worker:0", "weight 2.995") and up.log("worker:1", "weight 2.995")
        cause = up.of("run")[-1]["restart_cause"]
        assert why in f"{cause['task']} {cause['how']} on {cause['host']}"
        assert confirmed(up)
    scenario.wait_dead()


@pytest.mark.prove
def test_the_next_launcher_goes_on_with_a_restart(scenario: FaultScenario) -> None:
    """Given ranks that ignore TERM while a restart ends them, when the launcher is killed and
    another one attaches, then that one ends them, starts all again, and the run is a success."""
    file = scenario.file(
        PLACES,
        run=RULE.replace("grace = 1", "grace = 12") + "lease = 600",
        modes={"worker": "stubborn fails orphan"},
        env={
            "FIRST": "worker:1",
            "FIRST_SECONDS": "0.5",
            "AGAIN_SECONDS": "2",
            "FAILURES": "1",
        },
    )
    with scenario.up(file) as up:
        while_ending(up)
        run_id = up.run_id
        up.kill_launcher()
    with Up("attach", run_id, "--json") as up:
        assert up.wait(PATIENCE) == 0, up.transcript()
        assert ("restarting", 1) in runs(up) and runs(up)[-1] == ("ended", 2)
        assert confirmed(up)
    assert scenario.check_logs(run_id) > 0
    attempts = {
        r["task"]: r["attempt"] for r in records(RunFolder.find(run_id)) if r["event"] == "task"
    }
    assert attempts == {"ps:0": 2, "worker:0": 2, "worker:1": 2}
    scenario.wait_dead(run_id)


def test_a_host_that_stays_away_ends_the_run_and_is_named(scenario: FaultScenario) -> None:
    """Given a host that is cut off, when a rank on another host fails, then no attempt starts
    beside the ranks that may live there, and the run ends and names that host."""
    file = scenario.file(
        PLACES,
        run=RULE.replace("grace = 1", "grace = 2") + "lease = 8",
        modes={"worker": "stubborn fails"},
        env={"FIRST": "worker:0", "FIRST_SECONDS": "fail"},
    )
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0", "worker:1")
        scenario.testbed["tf3"].pull()
        scenario.tell(up.run_id, "fail")
        while_ending(up)
        up.wait_for(lambda e: e["event"] == "run" and e["state"] == "killing", "the end")
        scenario.testbed["tf3"].heal()
        assert up.wait(PATIENCE) in (1, 4), up.transcript()
        assert "worker:0 on tf1: exit 7; not started again: tf3 is lost" in up.said
        assert {e["attempt"] for e in up.of("task")} <= {0, 1}
    scenario.wait_dead()


# --- on the nodes of a job ----------------------------------------------------------------------


@pytest.mark.prove
def test_a_job_keeps_its_nodes_over_a_restart(slurm_scenario: Scenario) -> None:
    """Given ranks on nodes that ignore TERM and leave daemons, when one fails, then all start again
    in the same job, and the nodes are given back at the end."""
    with slurm_scenario.up(
        modes="stubborn daemon child fails",
        run=RULE,
        env={
            "FIRST": "worker:1",
            "FIRST_SECONDS": "1",
            "AGAIN_SECONDS": "2",
            "FAILURES": "1",
        },
    ) as up:
        assert up.wait() == 0, up.transcript()
        ended = {e["task"]: (e["attempt"], e["state"]) for e in up.of("task")}
        assert {ended[task] for task in ALL if task != "ps:0"} == {(2, "exited")}
        assert ended["ps:0"] == (2, "exited") or ended["ps:0"] == (2, "stopped")
        assert {e["allocation"].get("job", "") for e in up.of("run")} == {"", "1"}
        assert up.of("run")[-1]["restart_cause"]["task"] == "worker:1"
        assert len(receipt(up)) == 3 and confirmed(up), up.transcript()
    slurm_scenario.check_empty()


WARM_PLACES = {"ps": ["tf1"], "worker": ["tf3", "tf4"]}
WARM = '[start]\nwarm = ["decimal"]\n'


def at_gate(scenario: FaultScenario, host: str, task: str) -> int:
    """The pid of a task that has imported and reads from its gate."""
    found: list[int] = []

    def waits() -> bool:
        found[:] = [p.pid for p in scenario.of(host, task) if any("warm.py" in w for w in p.argv)]
        return bool(found)

    wait_until(waits, f"{task} is started on {host}")
    return found[0]


@pytest.mark.prove
def test_a_host_that_was_cut_off_learns_of_its_stage(scenario: FaultScenario) -> None:
    """Given a warm worker whose host is cut off, when the workers' stage begins meanwhile and the
    cable is back, then the worker becomes ready in the process that has waited."""
    file = scenario.file(
        WARM_PLACES,
        run="lease = 600\ngrace = 1",
        extra=WARM,
        env={"SECONDS": "go on", "PACE": "0.1"},
    )
    with scenario.up(file) as up:
        up.wait_for(
            lambda e: (e.get("task"), e.get("state")) == ("worker:1", "warming") and "pid" in e,
            "worker:1 warming",
        )
        pid = at_gate(scenario, "tf4", "worker:1")
        scenario.testbed["tf4"].pull()
        ready(up, "ps:0", "worker:0")
        up.wait_for(lambda e: e["event"] == "host" and e["state"] == "lost", "tf4 lost")
        scenario.testbed["tf4"].heal()
        ready(up, "worker:1")
        assert [p.pid for p in scenario.of("tf4", "worker:1")] == [pid]
        scenario.tell(up.run_id, "go on")
        assert up.wait() == 0, up.transcript()
        assert confirmed(up)
        scenario.check_logs(up.run_id, pace=0.1)
    assert {e["attempt"] for e in up.of("task") if e["state"] == "ready"} == {1}
    scenario.wait_dead()


def test_without_a_launcher_a_gate_never_opens(scenario: FaultScenario) -> None:
    """Given warm workers that wait for a ps that never becomes ready, when the launcher is killed,
    then their hosts end them by the lease, and their program has never begun."""
    file = scenario.file(
        WARM_PLACES,
        run="lease = 8\ngrace = 1",
        extra=WARM + '[start.ready]\nps = { log = "never" }',
        words=fault_tasks.command(),
    )
    with scenario.up(file) as up:
        for host, task in (("tf3", "worker:0"), ("tf4", "worker:1")):
            at_gate(scenario, host, task)
            up.state(task, "warming")
        up.kill_launcher()
        scenario.wait_dead()
    assert last_states(up)["worker:1"] == "warming"
    for host in ("tf3", "tf4"):
        assert not list(scenario.ledger_folder(host).glob(f"{up.run_id}.worker*"))
