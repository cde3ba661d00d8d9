"""Jobs that Slurm does not give or takes back: one error, what to do, and nothing left."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from launcher.cluster.read import load
from launcher.hosts.frames import Rules
from launcher.slurm.job import SlurmJob
from launcher.slurm.login import LocalCommands
from tests.support import command
from tests.support.budgets import soak
from tests.support.command import Up
from tests.support.patience import PATIENCE, wait_until
from tests.support.requirements import require
from tests.support.scenario import confirmed, last_states, ready, receipt
from tests.support.slurm_scenario import ALL, Scenario, folders, forget
from tests.testbed import TestbedError, proc, slurm
from tests.testbed.slurm import SlurmBed

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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


@pytest.mark.prove
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


def refused(file: Path, *said: str | re.Pattern[str]) -> None:
    """A launch ends with 3 and these words or patterns, and nothing is in doubt."""
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 3, up.transcript()
    for words in said:
        pattern = re.compile(re.escape(words)) if isinstance(words, str) else words
        assert pattern.search(up.said), up.transcript()
    assert "nothing was started" in up.said
    assert "could not be released" not in up.said and "no answer" not in up.said
    assert up.of("receipt") == [] or receipt(up) == {} or confirmed(up), up.transcript()


def blocked(file: Path, *said: str) -> None:
    """The check says the same."""
    done = command.run("check", str(file))
    assert done.returncode == 3, done.stdout + done.stderr
    words = " ".join(done.stdout.split())
    assert all(one in words for one in said), done.stdout


@pytest.mark.prove
def test_no_sbatch(scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given a machine without Slurm's commands, when a run is launched or checked, then exit 3, and
    it says that there is no `sbatch` and that `login` can name a host with one."""
    said = ("sbatch: No such file or directory", 'login = "user@host"')
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(tmp_path))
        refused(scenario.file(), *said)
        blocked(scenario.file(), *said)
    scenario.check_empty()


@pytest.mark.prove
def test_login_hosts_that_let_nobody_in(tmp_path: Path) -> None:
    """Given a login host that is absent, has no sshd, does not know the user or gives the user no
    shell, when a run is launched or checked, then exit 3 with that reason, and no job is there."""
    require(slurm.missing())
    with SlurmBed(nodes=1, login=True) as bed:
        scenario = Scenario(bed, tmp_path)
        address = bed.give_access(Path.home()).partition("@")[2].partition(":")[0]
        nowhere = address.rpartition(".")[0] + ".199"
        for login, said in {
            f"root@{nowhere}:22": ("login", nowhere),
            f"root@{address}:23": ("login", "refused"),
            f"no-such-user@{address}:22": ("login", "permission denied"),
            f"daemon@{address}:22": ("not available",),
        }.items():
            file = scenario.file(nodes=2, slurm=f'login = "{login}"')
            refused(file, *said)
            blocked(file, *said)
        assert bed.jobs() == []


@pytest.mark.prove
def test_munge_is_down(scenario: Scenario) -> None:
    """Given a Slurm whose munge is down, so that nobody can prove who they are, when a run is
    launched or checked, then exit 3, and munge is named."""
    with scenario.bed.without_munge():
        refused(scenario.file(), "munge")
        blocked(scenario.file(), "munge")
    scenario.check_empty()


REFUSED = {
    'partition = "nowhere"': ("invalid partition", "sinfo -s lists them"),
    'partition = "closed"': ("Invalid user id", "this user may not submit that"),
    "gpus = 99": ("not available", "correct nodes, gpus or options"),
    'options = ["--no-such-option"]': ("unrecognized option", "correct options"),
}


@pytest.mark.prove
def test_what_sbatch_refuses_is_said_with_what_to_change(scenario: Scenario) -> None:
    """Given an absent or closed partition, more GPUs than a node has, or an unknown option, when a
    run is launched or checked, then exit 3 with sbatch's reason and with what to change."""
    for line, said in REFUSED.items():
        file = scenario.file(slurm=line)
        refused(file, *said)
        blocked(file, *said)
    scenario.check_empty()


@pytest.mark.prove
def test_limits_that_slurm_enforces_are_refused_by_sbatch(scenario: Scenario) -> None:
    """Given a Slurm that enforces the limits of partitions, when a run that is too long for its
    partition is launched or checked, then exit 3 with sbatch's words and with what to change."""
    conf = scenario.bed.folder / "slurm.conf"
    conf.write_text(f"EnforcePartLimits=ALL\n{conf.read_text()}")
    scenario.bed.run("scontrol", "reconfigure")
    file = scenario.file(slurm='partition = "short"')
    said = ("Slurm: sbatch: error: ", "Requested time limit is invalid", "write a shorter time")
    refused(file, *said)
    blocked(file, *said[1:])
    scenario.check_empty()


@pytest.mark.prove
def test_what_a_partition_never_gives_is_said_in_the_queue(scenario: Scenario) -> None:
    """Given a partition for shorter times, for fewer nodes or for other accounts, when sbatch has
    taken the job, then a note says what to change, and Ctrl-C cancels the job in the queue."""
    for partition, said in {
        "short": "write a shorter time",
        "few": "fewer nodes",
        "members": "write an account that the partition allows",
    }.items():
        with scenario.up(slurm=f'partition = "{partition}"') as up:
            up.wait_for(lambda e, said=said: said in e.get("note", ""), said)  # type: ignore[misc]
            up.press_ctrl_c()
            assert up.wait() == 130, up.transcript()
        assert "cancelled in the queue: nothing had started" in up.said
    scenario.check_empty()


def without_python(file: Path, python: str) -> Path:
    """The file with another interpreter on the nodes."""
    lines = file.read_text().splitlines()
    lines = [f'python = "{python}"' if line.startswith("python = ") else line for line in lines]
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.mark.prove
def test_no_python_on_any_node(scenario: Scenario) -> None:
    """Given an interpreter that no node has, so that the job ends at once, when a run is launched,
    then exit 3 says to write where a Python is, and no job is left."""
    file = without_python(scenario.file(), "/opt/no-such/python")
    refused(file, "to a Python 3.8 or newer")
    scenario.check_empty()


@pytest.mark.prove
def test_no_python_on_one_node(scenario: Scenario) -> None:
    """Given an interpreter that one of its nodes lacks, when a run is launched, then exit 3 names
    that node and what to write, and the agents of the others end."""
    for name in scenario.bed.names[:2]:
        scenario.bed.run_on(name, "ln", "-s", shutil.which("python3") or "", "/tmp/python")
    file = without_python(scenario.file(), "/tmp/python")
    refused(file, "node2 (sl3)", "via: srun -Q", "to a Python 3.8 or newer")
    scenario.check_empty()


@pytest.mark.prove
def test_homes_that_are_one_disk(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given nodes that keep their state on one shared disk, when a run starts, then each has a
    folder of its own there; a kill is confirmed by all and leaves no folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(scenario.bed.folder / "state-of-tests"))
    monkeypatch.setenv("HOME", str(scenario.bed.folder))  # the directory of tasks, on each node
    with scenario.up() as up:
        ready(up, *ALL)
        assert len(folders(scenario, up.run_id, "sl1")) == 3
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert len(receipt(up)) == 3 and confirmed(up)
    scenario.check_logs(up.run_id)
    assert not folders(scenario, up.run_id, "sl1")
    scenario.check_empty()


READ_ONLY = ("mount", "-o", "remount,ro", "/tmp")
FULL = ("mount", "-t", "tmpfs", "-o", "nr_inodes=2", "none", "/var/lib")
"""There is room for the user's folder, but not for the run's in it."""
NOT_WRITABLE, NO_SPACE = "/tmp: Read-only file system", "No space left on device"


@pytest.mark.prove
@pytest.mark.parametrize(
    ("names", "fault", "said"),
    [
        (["sl3"], FULL, NO_SPACE),
        soak(["sl3"], READ_ONLY, NOT_WRITABLE),
        soak(["sl1", "sl2", "sl3", "sl4"], FULL, NO_SPACE),
        (["sl1", "sl2", "sl3", "sl4"], READ_ONLY, NOT_WRITABLE),
    ],
    ids=["one-full", "one-read-only", "all-full", "all-read-only"],
)
def test_agents_that_cannot_make_their_folder(
    scenario: Scenario,
    monkeypatch: pytest.MonkeyPatch,
    names: Sequence[str],
    fault: Sequence[str],
    said: str,
) -> None:
    """Given a read-only or full disk on one node or on all, when a run is launched, then exit 3
    names a node and the reason. Where all agents have ended before anybody looked, it only says
    that they could not make their folder."""
    monkeypatch.setenv("XDG_STATE_HOME", "/var/lib")
    for name in scenario.bed.names:
        scenario.bed.run_on(name, "mount", "-t", "tmpfs", "none", "/var/lib")
    for name in names:
        scenario.bed.run_on(name, *fault)
    if len(names) == 1:
        refused(scenario.file(modes=""), "node2 (sl3)", said)
    else:
        named = rf"node2 \(sl3\): .*{re.escape(said)}"
        refused(scenario.file(modes=""), re.compile(f"cannot make its folder on a node|{named}"))
    scenario.check_empty()


@pytest.mark.prove
def test_nodes_that_do_not_know_each_other(scenario: Scenario) -> None:
    """Given a node that cannot resolve another node's name, when a run is launched, then exit 3
    names both: TensorFlow's tasks would wait for each other."""
    forget(scenario, "sl2", lambda name: name == "sl3")
    refused(scenario.file(), "sl2 cannot resolve sl3, the name of node2", "/etc/hosts")
    scenario.check_empty()


# --- a kill while sbatch is under way -------------------------------------------------------------

WRAPPER = """#!/bin/sh
touch {folder}/asked
(until [ -e {folder}/go ]; do sleep 0.05; done
 {sbatch} "$@"; status=$?; touch {folder}/done; exit $status)
status=$?
exit $status
"""


def wrap_sbatch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts an sbatch that waits for a file `go` before the real one, as sites have wrappers."""
    real = shutil.which("sbatch")
    places = folder / "wrappers"
    places.mkdir()
    wrapper = places / "sbatch"
    wrapper.write_text(WRAPPER.format(folder=places, sbatch=real))
    wrapper.chmod(0o755)
    path = f"{places}:{Path(real or '').parent}:/usr/bin:/bin"
    monkeypatch.setenv("PATH", path)
    return places


@pytest.mark.prove
def test_a_kill_while_sbatch_submits_leaves_no_job(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an `sbatch` that is under way, when Ctrl-C is pressed, then the kill waits for its
    answer and cancels the job in the queue."""
    marks = wrap_sbatch(tmp_path, monkeypatch)
    with scenario.up() as up:
        wait_until((marks / "asked").exists, "sbatch is under way")
        up.press_ctrl_c()
        up.wait_for(lambda e: e.get("state") == "killing", "killing")
        (marks / "go").touch()
        assert up.wait() == 130, up.transcript()
    wait_until((marks / "done").exists, "sbatch has ended")
    assert "Slurm 1 was cancelled in the queue: nothing had started" in up.said
    scenario.check_empty()


@pytest.mark.prove
def test_a_second_kill_does_not_wait_for_sbatch(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an `sbatch` that is under way, when Ctrl-C is pressed twice, then `sbatch` is ended,
    and stderr has the `scancel` for a job that may still come."""
    marks = wrap_sbatch(tmp_path, monkeypatch)
    with scenario.up() as up:
        wait_until((marks / "asked").exists, "sbatch is under way")
        up.press_ctrl_c()
        up.wait_for(lambda e: e["event"] == "run" and e["state"] == "killing", "the first press")
        up.press_ctrl_c_again()
        assert up.wait() == 130, up.transcript()
    assert f"scancel --me --name=tfmux-{up.run_id}" in up.said
    assert not (marks / "done").exists()
    scenario.check_empty()
