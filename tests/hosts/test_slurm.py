"""Runs on a real Slurm cluster: queue, nodes, kills, cuts, signals, and ends from outside."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import command
from tests.support.command import Up, python_task
from tests.support.patience import wait_until
from tests.support.requirements import require
from tests.support.scenario import confirmed, notes, ready, receipt
from tests.support.slurm_scenario import ALL, Scenario, folders, forget, waiting
from tests.support.training import STEPS, training
from tests.testbed import slurm
from tests.testbed.proc import Process
from tests.testbed.slurm import SlurmBed


@pytest.fixture
def scenario(slurm_scenario: Scenario) -> Scenario:
    """A bed of four nodes; a run takes three, unless its test says another number."""
    return slurm_scenario


def test_a_run_starts_in_order_and_gives_the_nodes_back(scenario: Scenario, tmp_path: Path) -> None:
    """Given a workdir and two GPUs a node, when a run on three nodes is done, then its tasks
    started in order with both and without a step's variables, and agents and Slurm confirm all."""
    (tmp_path / "work").mkdir()
    (tmp_path / "work/greeting.txt").write_text("hello from the workdir\n")
    script = (
        "import os, socket, sys, time\n"
        "server = socket.create_server(('', int(sys.argv[1])))\n"
        "print(open('greeting.txt').read(), os.uname().nodename, 'SLURM_JOB_ID' in os.environ,"
        " 'SLURM_PROCID' in os.environ, os.environ['SLURM_CPUS_PER_TASK'],"
        " os.environ.get('CUDA_VISIBLE_DEVICES'))\n"
        "time.sleep(1 if 'worker' in os.environ['TFMUX_TASK'] else 1000)\n"
    )
    with scenario.up(
        slurm='gpus = 2\noptions = ["--cpus-per-task=4"]',
        run='grace = 1.0\nworkdir = "work"\nsuccess = "all"',
        words=[*command.python_task(script), "{port}"],
    ) as up:
        assert up.wait() == 0, up.transcript()
    states = [e["state"] for e in up.of("run")]
    assert states[0] == "queued" and states[-1] == "ended"
    for task, node in zip(ALL, ("sl1", "sl2", "sl3"), strict=True):
        gpus = "-1" if task == "ps:0" else "0,1"
        up.log(task, "hello from the workdir")
        up.log(task, f"{node} True False 4 {gpus}")
    order = [e["task"] for e in up.of("task") if e["state"] == "starting" and "pid" not in e]
    assert order[0] == "ps:0" and set(order) == set(ALL)
    assert confirmed(up)
    assert {host["engine"] for host in receipt(up).values()} == {"Slurm agrees"}
    assert "Slurm 1 is released" in up.said
    scenario.check_empty()


@pytest.mark.prove
def test_a_run_keeps_to_its_file_and_says_what_it_found(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given variables that sbatch prefers to its script, a grace that Slurm cuts short, and a node
    that does not know this machine's name, when a run is launched, then the job is what the file
    says, and notes tell the rest."""
    defaults = {"PARTITION": "few", "TIMELIMIT": "1", "JOB_NAME": "mine", "OUTPUT": "/no-such/x"}
    defaults |= {"ERROR": "/no-such/x", "WAIT": "1", "REQUEUE": "1", "ARRAY_INX": "0-3"}
    for name, value in defaults.items():
        monkeypatch.setenv(f"SBATCH_{name}", value)
    names = ("localhost", "slctl", *scenario.bed.names)
    forget(scenario, "sl1", lambda name: name not in names)
    options = 'partition = "all"\noptions = ["--job=other"]'
    with scenario.up(slurm=options, modes="", run="grace = 9.0") as up:
        ready(up, *ALL)
        shown = scenario.bed.run("scontrol", "-o", "show", "job", "1")
        assert {
            *("Partition=all", "TimeLimit=00:10:00", f"JobName=tfmux-{up.run_id}"),
            *("StdOut=/dev/null", "StdErr=/dev/null", "Requeue=0"),
        } <= set(shown.split())
        assert len(folders(scenario, up.run_id, "sl1")) == 1
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    said = "\n".join(notes(up))
    assert "write a grace below 5" in said and "sl1 cannot resolve" in said
    assert len(receipt(up)) == 3 and confirmed(up)
    assert not any(folders(scenario, up.run_id, name) for name in scenario.bed.names)
    scenario.check_empty()


def test_a_job_that_somebody_cancels(scenario: Scenario) -> None:
    """Given a running job, when somebody cancels it, then the run ends with exit 1 and the reason
    CANCELLED, and all its nodes confirm that nothing is left."""
    with scenario.up(modes="stubborn daemon", run='grace = 1.0\non_failure = "keep"') as up:
        ready(up, *ALL)
        scenario.bed.run("scancel", "1")
        assert up.wait() == 1, up.transcript()
    assert any("Slurm 1 has ended" in note for note in notes(up)), up.transcript()
    assert "Slurm 1 has ended: CANCELLED" in up.said
    assert len(receipt(up)) == 3 and confirmed(up), up.transcript()
    scenario.check_empty()


SAVES = """
import signal, subprocess, sys, time
def save(*_):
    subprocess.run(["sh", "-c", "sleep 0.5; sleep 0.5; echo saved"], check=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
print("trains")
while True:
    time.sleep(0.02)
"""


@pytest.mark.prove
def test_what_handlers_start_at_a_cancel_has_its_grace(scenario: Scenario) -> None:
    """Given tasks whose handlers start a program that saves, when somebody cancels the job, then
    Slurm's signal reaches each once, by the agents, and the programs end by themselves."""
    words = command.python_task(SAVES)
    with scenario.up(
        run='grace = 4.0\n[start.ready]\nps = "started"\nworker = "started"', words=words
    ) as up:
        for task in ALL:
            up.log(task, "trains")
        scenario.bed.run("scancel", "1")
        for task in ALL:
            up.log(task, "saved")
        up.wait()
    assert not [e for e in up.of("log") if "Traceback" in e["text"]], up.transcript()
    assert len(receipt(up)) == 3 and confirmed(up), up.transcript()
    scenario.check_empty()


def test_a_job_waits_in_the_queue_and_is_cancelled_there(scenario: Scenario) -> None:
    """Given nodes that another job holds, when a run is launched, then it is queued with the
    reason; Ctrl-C cancels its job, says that nothing had started, and spares the other job."""
    scenario.bed.run("sbatch", "-N4", "--exclusive", "-t10", "-o/dev/null", "--wrap", "sleep 1000")
    wait_until(lambda: "1 RUNNING" in scenario.bed.jobs(), "the other job runs")
    with scenario.up() as up:
        told = waiting(up, "Resources")
        assert told["state"] == "queued"
        assert told["allocation"]["engine"] == "Slurm" and told["allocation"]["job"] == "2"
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert "Slurm 2 was cancelled in the queue: nothing had started" in up.said
    assert scenario.bed.jobs() == ["1 RUNNING"]
    scenario.bed.run("scancel", "1")
    scenario.bed.wait_empty()


@pytest.mark.prove
def test_a_run_whose_launcher_died_in_the_queue_is_killed(scenario: Scenario) -> None:
    """Given a queued run whose launcher was killed, then `tfmux ps` lists it as queued without a
    launcher, and `tfmux kill` cancels its job and no other, before it can start."""
    scenario.bed.run("sbatch", "-N4", "--exclusive", "-t10", "-o/dev/null", "--wrap", "sleep 1000")
    wait_until(lambda: "1 RUNNING" in scenario.bed.jobs(), "the other job runs")
    with scenario.up() as up:
        waiting(up, "Resources")
        run_id = up.run_id
        up.kill_launcher()
    listed = json.loads(command.run("ps", "--json").stdout)
    assert [(run["state"], run["launcher"]) for run in listed] == [("queued", None)]
    done = command.run("kill", run_id)
    assert done.returncode == 0, done.stdout + done.stderr
    assert scenario.bed.jobs() == ["1 RUNNING"]
    scenario.bed.run("scancel", "1")
    scenario.bed.wait_empty()


def test_a_request_that_can_never_be_met_says_what_to_change(scenario: Scenario) -> None:
    """Given a request for more nodes than there are, when a run is launched, then a note says to
    write a smaller `nodes`. sbatch accepts such a job, and it would wait for ever."""
    with scenario.up(nodes=9) as up:
        up.wait_for(
            lambda e: "write a smaller nodes" in e.get("note", ""), "what to change in the file"
        )
        up.press_ctrl_c()
        assert up.wait() == 130
    scenario.check_empty()


@pytest.mark.prove
def test_tasks_on_some_nodes_and_nodes_that_are_excluded(scenario: Scenario) -> None:
    """Given tasks for two of three nodes and a fourth that is excluded, when a run starts, then
    tasks are on nodes in Slurm's order, and a kill also frees the node without tasks."""
    places = {"ps": ["node0"], "worker": ["node2"]}
    file = scenario.file(places, nodes=3, slurm='options = ["--exclude=sl2"]')
    with scenario.up(file) as up:
        ready(up, "ps:0", "worker:0")
        tagged = {n for n in scenario.bed.names for p in scenario.bed.leftovers(n) if tag(p)}
        assert tagged == {"sl1", "sl4"}
        assert scenario.agents("sl3") and not scenario.agents("sl2")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert set(receipt(up)) == {"node0", "node2"} and confirmed(up)
    scenario.check_empty()


def tag(process: Process) -> bool:
    """Whether a process belongs to a task."""
    return "TFMUX_TASK" in process.environ


@pytest.mark.prove
def test_the_agents_word_stands_while_the_controller_is_down(scenario: Scenario) -> None:
    """Given a Slurm controller that is down, when Ctrl-C is pressed, then the agents confirm all
    nodes and stderr gives the `scancel` for the job, which ends once the controller is up."""
    with scenario.up() as up:
        ready(up, *ALL)
        scenario.bed.stop_controller()
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
        assert confirmed(up)
        assert [p for p in scenario.bed.leftovers() if "TFMUX_TASK" in p.environ] == []
        assert "could not be released" in up.said and "scancel 1" in up.said
    scenario.bed.start_controller()
    scenario.bed.wait_empty()


@pytest.mark.prove
def test_a_node_that_loses_its_power_is_not_called_clean(scenario: Scenario) -> None:
    """Given a node that has lost its power, when Ctrl-C is pressed, then exit 4, and the receipt
    confirms the three other nodes but not this one, of which neither agent nor Slurm can tell."""
    with scenario.up() as up:
        ready(up, *ALL)
        scenario.bed.crash("sl3")
        up.state("worker:1", "lost")
        up.press_ctrl_c()
        assert up.wait() == 4, up.transcript()
    found = receipt(up)
    assert [host["confirmed"] for host in found.values()] == [True, True, False]
    assert scenario.bed.leftovers() == []
    scenario.bed.boot("sl3")
    scenario.bed.wait_empty()


@pytest.mark.prove
def test_through_a_login_node(tmp_path: Path) -> None:
    """Given a login node that alone has Slurm's commands, when a run is launched and killed through
    it, then its three tasks were ready, and all three nodes confirm that nothing is left."""
    require(slurm.missing())
    with SlurmBed(login=True) as bed:
        scenario = Scenario(bed, tmp_path)
        login = bed.give_access(Path.home())
        with scenario.up(slurm=f'login = "{login}"', nodes=2) as up:
            ready(up, *ALL[:2])
            up.press_ctrl_c()
            assert up.wait() == 130, up.transcript()
        assert len(receipt(up)) == 2 and confirmed(up)
        scenario.check_empty()


def test_the_check_asks_slurm_and_starts_nothing(scenario: Scenario, tmp_path: Path) -> None:
    """Given a file with `[slurm]`, when `tfmux check` runs, then it shows the nodes' tasks, warns
    of a long grace, is exit 3 with the reason for an absent partition, and makes no job."""
    done = command.run("check", str(scenario.file(run="grace = 9.0")), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    codes = {finding["code"] for finding in json.loads(done.stdout)["findings"]}
    assert codes == {"ok", "slurm-killwait"}
    told = command.run("check", str(scenario.file()))
    assert "3 nodes of Slurm" in told.stdout and "node1  worker:0" in told.stdout, told.stdout
    refused = command.run("check", str(scenario.file(slurm='partition = "nowhere"')))
    assert refused.returncode == 3 and "invalid partition" in refused.stdout
    assert scenario.bed.jobs() == []


@pytest.mark.soak
def test_tensorflow_trains_on_nodes(scenario: Scenario) -> None:
    """Given nodes whose Python has TensorFlow, when the bundled trainer runs on three of them, then
    it reaches its last step, and all three nodes confirm that nothing is left."""
    table = f'[slurm]\nnodes = 3\ntime = "10"\npython = {json.dumps(sys.executable)}\n'
    logdir = f'logdir = "{scenario.bed.folder}/logs"'
    text = training(table, ("node0", "node1", "node2"), logdir)
    with scenario.up(command.write(scenario.folder, text)) as up:
        assert up.wait(300) == 0, up.transcript()
    assert max(e["step"] for e in up.of("metric") if "step" in e) >= STEPS
    assert len(receipt(up)) == 3 and confirmed(up)
    scenario.check_empty()


@pytest.mark.soak
def test_a_time_limit_that_is_reached(scenario: Scenario) -> None:
    """Given a job of one minute, when its time is over, then the run ends with exit 1 and the
    reason TIMEOUT, and all its nodes confirm that nothing is left: Slurm's TERM comes first."""
    with scenario.up(slurm='time = "1"', run='grace = 1.0\non_failure = "keep"') as up:
        ready(up, *ALL)
        assert up.wait(200) == 1, up.transcript()
    assert "Slurm 1 has ended: TIMEOUT" in up.said
    assert len(receipt(up)) == 3 and confirmed(up)
    scenario.check_empty()


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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
@pytest.mark.soak
def test_a_checkpoint_before_the_limit(scenario: Scenario) -> None:
    """Given `--signal=USR1@50` and a job of two minutes, when the time comes, then both tasks get
    the signal, and go on until the limit ends the run with 1."""
    with launched(scenario, slurm='time = "2"\noptions = ["--signal=USR1@50"]') as up:
        for task in WORKERS:
            up.log(task, f"got {int(signal.SIGUSR1)} 1", timeout=200)
        assert up.wait(300) == 1, up.transcript()
    assert "Slurm 1 has ended: TIMEOUT" in up.said
