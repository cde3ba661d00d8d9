"""Jobs that Slurm or somebody else takes back, agents that are gone, and other users."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

import pytest

from launcher.cluster.read import load
from launcher.hosts.frames import Rules
from launcher.slurm.job import SlurmJob
from launcher.slurm.login import LocalCommands
from tests.support import command
from tests.support.patience import PATIENCE, wait_until
from tests.support.requirements import require
from tests.support.scenario import confirmed, last_states, ready, receipt
from tests.support.slurm_scenario import ALL, Scenario
from tests.testbed import TestbedError, proc, slurm
from tests.testbed.slurm import SlurmBed

pytestmark = pytest.mark.prove


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


@pytest.fixture
def scenario(slurm_scenario: Scenario) -> Scenario:
    """A bed of four nodes; a run takes three, unless its test says another number."""
    return slurm_scenario


def kill_agent(scenario: Scenario, name: str) -> None:
    """The agent of a node and its watchdog die in the same moment, with their bridge."""
    agents = scenario.agents(name)
    assert len(agents) >= 2
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in agents:
            proc.signal_process(process, number)


# --- agents that are gone -------------------------------------------------------------------------


def test_slurm_ends_what_an_agent_has_left(scenario: Scenario) -> None:
    """Given a node whose agent and watchdog are killed, when Slurm ends their step with all that is
    in it, then the run fails without waiting for the lease, and Slurm's word confirms the node."""
    with scenario.up() as up:
        ready(up, *ALL)
        kill_agent(scenario, "sl3")
        assert up.wait() == 1, up.transcript()
    assert "its host's agent has died" in up.said and "node2: none left" in up.said, up.transcript()
    host = receipt(up)["node2"]
    assert host["by_engine"] and host["confirmed"] and host["engine"] == "Slurm agrees"
    assert confirmed(up)
    scenario.check_empty()


def test_without_cgroups_nobody_confirms_for_an_agent(tmp_path: Path) -> None:
    """Given a Slurm without cgroups and a node whose agent is killed, when Ctrl-C is pressed, then
    agents alone confirm their nodes, and exit 4: nobody confirms that node, where daemons outlive
    the job."""
    require(slurm.missing())
    with SlurmBed(track="linuxproc") as bed:
        scenario = Scenario(bed, tmp_path)
        with scenario.up() as up:
            ready(up, *ALL)
            kill_agent(scenario, "sl3")
            up.state("worker:1", "lost")
            up.press_ctrl_c()
            assert up.wait() == 4, up.transcript()
        assert "node2: unreachable; Slurm cannot confirm it" in up.said, up.transcript()
        found = receipt(up)
        assert [host["confirmed"] for host in found.values()] == [True, True, False]
        assert all("cannot confirm it" in host["engine"] for host in found.values())
        assert "does not track processes by proctrack/cgroup" in found["node2"]["engine"]
        assert "cannot confirm it" in up.said and f"tfmux kill {up.run_id}" in up.said
        left = bed.leftovers("sl3")
        assert left, "the case that the receipt warns of"
        assert bed.leftovers("sl1", "sl2") == []
        for process in left:
            proc.signal_process(process, signal.SIGKILL)
        bed.wait_empty()


# --- jobs that are taken back ---------------------------------------------------------------------


def test_a_run_is_not_put_back_into_the_queue(scenario: Scenario) -> None:
    """Given a job that Slurm refuses to requeue, when an administrator insists on it, then the run
    ends with exit 1 and that reason, and all its nodes confirm that nothing is left."""
    with scenario.up(modes="stubborn daemon", run='grace = 1.0\non_failure = "keep"') as up:
        ready(up, *ALL)
        with pytest.raises(TestbedError):
            scenario.bed.run("scontrol", "requeue", "1")
        scenario.bed.run("scontrol", "update", "jobid=1", "requeue=1")
        scenario.bed.run("scontrol", "requeue", "1")
        assert up.wait() == 1, up.transcript()
    assert "back into the queue" in up.said, up.transcript()
    assert len(receipt(up)) == 3 and confirmed(up), up.transcript()
    scenario.check_empty()


@pytest.mark.soak
def test_a_job_that_another_one_displaces(scenario: Scenario) -> None:
    """Given a running job, when an urgent one displaces it, then the run ends with exit 1 and the
    reason PREEMPTED, and all its nodes confirm that nothing is left."""
    with scenario.up(modes="stubborn daemon", run='grace = 1.0\non_failure = "keep"') as up:
        ready(up, *ALL)
        urgent = ("sbatch", "-p", "urgent", "-N4", "--exclusive", "-t10", "-o/dev/null")
        scenario.bed.run(*urgent, "--wrap", "sleep 1000")
        assert up.wait() == 1, up.transcript()
    assert "Slurm 1 has ended: PREEMPTED" in up.said, up.transcript()
    assert len(receipt(up)) == 3 and confirmed(up), up.transcript()
    scenario.bed.run("scancel", "2")
    scenario.bed.wait_empty()


@pytest.mark.soak
def test_a_job_that_is_suspended_and_goes_on(scenario: Scenario) -> None:
    """Given a job that is suspended until all its tasks are lost, when it is resumed, then all
    tasks are ready again, and a kill is confirmed by all its nodes."""
    with scenario.up() as up:
        ready(up, *ALL)
        scenario.bed.run("scontrol", "suspend", "1")
        for task in ALL:
            up.state(task, "lost")
        scenario.bed.run("scontrol", "resume", "1")
        wait_until(lambda: set(last_states(up).values()) == {"ready"}, "all are back")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    found = receipt(up)
    assert len(found) == 3 and confirmed(up), up.transcript()
    # On a busy machine a bridge may end once more, and the job with its logs before it is back.
    hosts = {event["task"]: event["host"] for event in up.of("task")}
    by_slurm = [task for task in ALL if found[hosts[task]]["by_engine"]]
    scenario.check_logs(up.run_id, but=by_slurm)
    scenario.check_empty()


def test_a_kill_while_the_job_is_suspended(scenario: Scenario) -> None:
    """Given a suspended job whose agents do not answer, when Ctrl-C is pressed, then Slurm ends the
    job, and every node is confirmed."""
    with scenario.up() as up:
        ready(up, *ALL)
        scenario.bed.run("scontrol", "suspend", "1")
        up.state("worker:1", "lost")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert confirmed(up), up.transcript()
    scenario.check_empty()


# --- other users ----------------------------------------------------------------------------------


def as_nobody(*argv: str) -> subprocess.CompletedProcess[str]:
    """Runs one of Slurm's commands as another user."""
    return subprocess.run(
        [*NOBODY, *argv], capture_output=True, text=True, timeout=PATIENCE, cwd="/"
    )


def hold(bed: SlurmBed, name: str) -> str:
    """A job of another user with a name of ours; returns its id."""
    words = (f"--job-name={name}", "-N1", "-t10", "-o/dev/null", "--parsable", "-D/")
    done = as_nobody("sbatch", *words, "--wrap", "sleep 1000")
    assert done.returncode == 0, done.stderr
    job = done.stdout.strip()
    wait_until(lambda: f"{job} RUNNING" in bed.jobs(), "the other user's job runs")
    return job


async def test_jobs_of_others_are_not_ours_whatever_their_names(scenario: Scenario) -> None:
    """Given another user's job that has the name of a run, when that run is looked up and killed,
    then the job is not taken for the run's, and goes on."""
    file = scenario.file(nodes=2)
    table = load(file).slurm
    assert table is not None
    run_id = "s-20260101-000000-abcd"
    rules = Rules(lease=60.0, grace=5.0, on_disconnect="stop")
    engine = SlurmJob(table, run_id, rules, LocalCommands())
    job = hold(scenario.bed, f"tfmux-{run_id}")
    assert await engine.find() == ""
    assert (await engine.poll(job)).nodes, "it can be seen, as every job can"
    done = command.run("kill", run_id, "--file", str(file))
    assert done.returncode != 0, done.stdout + done.stderr
    assert scenario.bed.jobs() == [f"{job} RUNNING"]
    scenario.bed.run("scancel", job)
    scenario.bed.wait_empty()


def test_a_run_is_ended_by_its_file_elsewhere_and_not_by_another_user(
    scenario: Scenario, tmp_path: Path
) -> None:
    """Given a run without a launcher; another user reaches neither its job nor its nodes, and takes
    its name for a job; when it is killed by somebody who has the cluster file and no record of it;
    then the job's name and owner lead to the nodes. The lease is long: agents that end their tasks
    before the kill comes are another case."""
    file = scenario.file(run="lease = 600.0\ngrace = 1.0")
    with scenario.up(file) as up:
        ready(up, *ALL)
        for argv in (
            ("scancel", "1"),
            ("scontrol", "suspend", "1"),
            ("srun", "--jobid=1", "--overlap", "-N1", "-n1", "-wsl1", "--mpi=none", "true"),
        ):
            assert as_nobody(*argv).returncode != 0, argv
        job = hold(scenario.bed, f"tfmux-{up.run_id}")
        up.kill_launcher()
    elsewhere = command.other_machine(tmp_path / "elsewhere")
    done = command.run("kill", up.run_id, "--file", str(file), prefix=elsewhere)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "no process is left, 3 hosts confirmed; Slurm agrees" in said, said
    assert "Slurm 1 is released" in said, said
    wait_until(lambda: scenario.bed.jobs() == [f"{job} RUNNING"], "only the other's is left")
    scenario.bed.run("scancel", job)
    scenario.bed.wait_empty()


# --- ranks that are lost when another one was done ----------------------------------------------


@pytest.mark.parametrize(
    ("rule", "how"),
    [
        ('framework = "torch"', "scancel"),
        pytest.param('framework = "torch"', "down", marks=pytest.mark.soak),
        ('success = "chief"', "cut"),
        pytest.param('success = "chief"', "scancel", marks=pytest.mark.soak),
    ],
)
def test_a_rank_that_is_lost_when_rank_0_was_done_is_no_success(
    scenario: Scenario, rule: str, how: str
) -> None:
    """Given rank 0 that has ended with 0 while the other works, when the job is cancelled, its node
    is taken, or nothing is heard of it, then the run has failed, and no node idles to its limit."""
    places = {"worker": ["node0", "node1"]}
    env = {"FIRST": "worker:0", "FIRST_SECONDS": "go on", "SECONDS": "never"}
    lease = 45 if how == "down" else 600  # the job goes on without the node, as hosts do over SSH
    run = f"grace = 1.0\nlease = {lease}\nfinish_timeout = 3\n{rule}"
    with scenario.up(scenario.file(places, modes="", run=run, env=env, nodes=2)) as up:
        ready(up, "worker:0", "worker:1")
        scenario.tell(up.run_id, "go on")
        up.state("worker:0", "exited")
        if how == "scancel":
            scenario.bed.run("scancel", "1")
        elif how == "down":
            scenario.bed.run("scontrol", "update", "nodename=sl2", "state=down", "reason=taken")
        else:
            scenario.bed.cut("sl2")
            up.state("worker:1", "lost")
        code = up.wait()
        if how == "cut":
            scenario.bed.heal("sl2")
    assert code in (1, 4) and up.of("run")[-1]["outcome"] == "failed", up.transcript()
    if how != "scancel":
        failure = up.of("run")[-1]["first_failure"]
        assert (failure["task"], failure["how"]) == ("worker:1", "lost")
    scenario.bed.wait_empty()
