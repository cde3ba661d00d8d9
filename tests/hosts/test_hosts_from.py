"""Runs on nodes that somebody else got: the shell of a Slurm job, a list of hosts."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import command
from tests.support import fault_tasks as tasks
from tests.support.bed import PACE
from tests.support.cluster_texts import cluster_text
from tests.support.command import Up, python_task
from tests.support.paths import REPOSITORY
from tests.support.patience import wait_until
from tests.support.requirements import require
from tests.support.scenario import confirmed, ready, receipt
from tests.testbed import disk, proc, slurm
from tests.testbed.namespaces import Testbed
from tests.testbed.slurm import SlurmBed

ALL = ("ps:0", "worker:0")


IN_SLURM = f'[slurm]\nnodes = 2\ntime = "1"\npython = "{sys.executable}"'


def file(folder: Path, python: str, hosts: str = "", run: str = "") -> Path:
    """A ps and a worker on two hosts that the file does not name."""
    text = cluster_text(
        {"ps": "node0", "worker": "node1"},
        "given",
        hosts,
        command=[python, *tasks.command()[1:]],
        env={"LEDGER": "/tmp/ledger", "PACE": PACE, "MODES": "stubborn daemon"},
        workdir="",
        grace=1,
        more=run,
    )
    return command.write(folder, text)


@pytest.fixture
def shell(slurm_bed: SlurmBed, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmBed]:
    """A bed, and the environment of a shell of `salloc` with three of its nodes."""
    slurm_bed.run("salloc", "-N", "3", "--no-shell", "--time=10", "--gpus-per-node=2")
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "sl[1-3]")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "4")
    yield slurm_bed
    slurm_bed.run("scancel", "1")
    slurm_bed.wait_empty()


def job_stays(bed: SlurmBed) -> None:
    """Nothing of the run is left, and the job is there without a step of it."""
    wait_until(lambda: bed.leftovers() == [], "no process of the run is left")
    assert bed.jobs() == ["1 RUNNING"]
    steps = ("squeue", "-s", "-h", "-j", "1", "-o", "%j")
    wait_until(lambda: "tfmux" not in bed.run(*steps), "no step of the run is left")


def test_in_the_shell_of_a_slurm_job(shell: SlurmBed, tmp_path: Path) -> None:
    """Given the shell of a Slurm job, when a run is launched with `--hosts-from`, then it uses the
    job's nodes, agents and Slurm confirm its end, and the job stays."""
    path = file(tmp_path, sys.executable)
    words = ["--hosts-from", "slurm"]
    looked_at(path, *words)
    with Up("up", str(path), "--json", *words) as up:
        ready(up, *ALL)
        assert shell.jobs() == ["1 RUNNING"]
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert len(receipt(up)) == 2 and confirmed(up)
    assert {host["engine"] for host in receipt(up).values()} == {"Slurm agrees"}
    assert "Slurm 1 is yours and stays" in up.said
    assert "using the nodes of Slurm 1" not in up.said
    job_stays(shell)


def looked_at(path: Path, *words: str) -> None:
    """Plan and check know the nodes, and would submit nothing."""
    planned = command.run("plan", str(path), "--json", *words)
    assert '"node1:auto"' in planned.stdout, planned.stderr
    checked = command.run("check", str(path), *words)
    assert checked.returncode == 0 and "Slurm" in checked.stdout, checked.stdout
    assert "sbatch" not in checked.stdout + planned.stdout


@pytest.mark.prove
def test_the_lease_holds_in_the_shell_of_a_slurm_job(shell: SlurmBed, tmp_path: Path) -> None:
    """Given a run whose `[slurm]` takes the shell's job, when its launcher is killed, then the next
    one finds the same processes; when that one is killed, too, then the hosts end them, and the job
    stays."""
    path = file(tmp_path, sys.executable, IN_SLURM, "lease = 45.0")
    looked_at(path)
    with Up("up", str(path), "--json") as up:
        ready(up, *ALL)
        assert "using the nodes of Slurm 1" in up.said
        run_id = up.run_id
        pids = {p.pid for p in tagged(shell)}
        up.kill_launcher()
    with Up("attach", run_id, "--json") as again:
        lives_on(again, shell, pids)
        again.kill_launcher()
    job_stays(shell)


def lives_on(again: Up, bed: SlurmBed, pids: set[int]) -> None:
    """Waits until the agents have answered another launcher: the tasks are the same processes."""
    again.wait_for(lambda e: {"node0", "node1"} <= up_hosts(again), "the agents answer")
    assert len(pids & {p.pid for p in tagged(bed)}) >= len(ALL)
    assert {e["attempt"] for e in again.of("task")} == {1}


@pytest.mark.prove
def test_a_kill_from_elsewhere_by_a_file_with_the_job(shell: SlurmBed, tmp_path: Path) -> None:
    """Given a file with the job's number but no record of the run, when `tfmux kill --file` is
    called, then the run's steps are found by their name and ended, and the job stays."""
    entry = IN_SLURM.replace('time = "1"', 'job = "1"')
    path = file(tmp_path, sys.executable, entry)
    with Up("up", str(path), "--json") as up:
        ready(up, *ALL)
        up.kill_launcher()
    elsewhere = command.other_machine(tmp_path / "elsewhere")
    done = command.run("kill", up.run_id, "--file", str(path), prefix=elsewhere)
    assert done.returncode == 0 and "is yours and stays" in done.stdout, done.stdout + done.stderr
    job_stays(shell)


def up_hosts(up: Up) -> set[str]:
    """The hosts whose agents have answered this launcher."""
    return {e["host"] for e in up.of("host") if e["state"] == "up"}


@pytest.mark.prove
def test_an_agent_dies_in_the_shell_of_a_slurm_job(shell: SlurmBed, tmp_path: Path) -> None:
    """Given a run in the shell of a Slurm job, when an agent and its watchdog are killed, then
    their step ends with all that is in it, Slurm's word confirms the node, and the job stays."""
    path = file(tmp_path, sys.executable, IN_SLURM)
    with Up("up", str(path), "--json") as up:
        ready(up, *ALL)
        ours = [p for p in shell.leftovers("sl2") if "TFMUX_AGENT" in p.environ]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for process in ours:
                if "TFMUX_TASK" not in process.environ and "python" in process.exe:
                    proc.signal_process(process, number)
        assert up.wait() == 1, up.transcript()
    host = receipt(up)["node1"]
    assert host["by_engine"] and host["engine"] == "Slurm agrees" and confirmed(up), up.transcript()
    job_stays(shell)


@pytest.mark.prove
def test_the_job_of_the_shell_is_cancelled(shell: SlurmBed, tmp_path: Path) -> None:
    """Given a run in the shell of a Slurm job, when the job is cancelled, then the run ends with
    exit 1 and the reason CANCELLED, and every node confirms that nothing is left."""
    path = file(tmp_path, sys.executable, IN_SLURM, 'on_failure = "keep"')
    with Up("up", str(path), "--json") as up:
        ready(up, *ALL)
        shell.run("scancel", "1")
        assert up.wait() == 1, up.transcript()
    assert "Slurm 1 has ended: CANCELLED" in up.said, up.transcript()
    assert confirmed(up), up.transcript()
    shell.wait_empty()


@pytest.mark.prove
def test_jobs_that_cannot_be_used(shell: SlurmBed, tmp_path: Path) -> None:
    """Given a job that has ended, one with too few nodes, or a Python that is not there, when a run
    is launched, then exit 3 with that reason, and the shell's job stays."""
    entry = f'[slurm]\nnodes = 2\njob = "1"\npython = "{sys.executable}"'
    for table, said in (
        (entry.replace('"1"', '"77"'), "job 77 is GONE"),
        (entry.replace("2", "4"), "job 1 has 3 nodes, [slurm] asks for 4"),
    ):
        path = file(tmp_path, sys.executable, table)
        done = command.run("up", str(path), "--headless")
        assert done.returncode == 3 and said in done.stderr, done.stderr
        checked = command.run("check", str(path))
        assert checked.returncode == 3 and said in checked.stdout, checked.stdout
    path = file(tmp_path, sys.executable, entry.replace(sys.executable, "/opt/no-such/python"))
    done = command.run("up", str(path), "--headless")
    assert done.returncode == 3 and "to a Python 3.8 or newer" in done.stderr
    job_stays(shell)


def _sruns(run_id: str) -> list[Path]:
    """The running `srun` of a run."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            words = place.read_bytes().split(b"\0")
            if words[0] == b"srun" and f"--job-name=tfmux-{run_id}".encode() in words:
                found.append(place)
    return found


@pytest.mark.prove
def test_a_job_that_starts_no_steps(shell: SlurmBed, tmp_path: Path) -> None:
    """Given a job that is suspended, when a run is launched in its shell, then exit 3 says that no
    agent is left in it, and no `srun` of the run waits any longer."""
    shell.run("scontrol", "suspend", "1")
    try:
        with Up("up", str(file(tmp_path, sys.executable, IN_SLURM)), "--json") as up:
            assert up.wait() == 3, up.transcript()
        assert "no agent is left in it" in up.said, up.transcript()
        wait_until(lambda: not _sruns(up.run_id), "nobody waits for a step any more")
    finally:
        shell.run("scontrol", "resume", "1")
    job_stays(shell)


@pytest.mark.prove
def test_a_job_that_is_there_through_a_login_node(tmp_path: Path) -> None:
    """Given a job behind a login node, when a run is launched in it, then its tasks have their
    node's GPUs; when its launcher is killed, then the next one finds the same processes and ends
    them, and the job stays."""
    require(slurm.missing())
    with SlurmBed(nodes=2, login=True) as bed:
        login = bed.give_access(Path.home())
        bed.run("salloc", "-N", "2", "--no-shell", "--time=10", "--gpus-per-node=2")
        entry = f'[slurm]\nnodes = 2\njob = "1"\nlogin = "{login}"\ngpus = 2\n'
        entry += f'python = "{sys.executable}"'
        path = file(tmp_path, sys.executable, entry, "lease = 600.0")
        with Up("up", str(path), "--json") as up:
            ready(up, *ALL)
            assert {p.environ.get("CUDA_VISIBLE_DEVICES") for p in tagged(bed)} >= {"0,1"}
            pids = {p.pid for p in tagged(bed)}
            up.kill_launcher()
        with Up("attach", up.run_id, "--json") as again:
            lives_on(again, bed, pids)
            again.press_ctrl_c()
            assert again.wait() == 130, again.transcript()
        assert confirmed(again), again.transcript()
        job_stays(bed)
        bed.run("scancel", "1")
        bed.wait_empty()


SHARES = """
import json, os
keep = ("SLURM_", "CUDA_VISIBLE_DEVICES")
found = {name: value for name, value in os.environ.items() if name.startswith(keep)}
print(json.dumps({"node": os.uname().nodename, **found}))
"""
OF_A_STEP = ("PROCID", "NTASKS", "STEP", "CPU_BIND", "LAUNCH", "SRUN", "DISTRIBUTION", "UMASK")


@pytest.mark.prove
@pytest.mark.parametrize("by", ["shell", "name"])
def test_a_job_with_several_tasks_a_node(by: str, slurm_bed: SlurmBed, tmp_path: Path) -> None:
    """Given a job of two tasks a node with two cores and a GPU each, when a run is launched in it,
    then its tasks have all cores and GPUs of the job on their nodes, and no variable of a step."""
    header = ["-N2", "--ntasks-per-node=2", "--cpus-per-task=2", "--gpus-per-task=1", "--time=10"]
    table = f'[slurm]\nnodes = 2\npython = "{sys.executable}"\n'
    table += 'job = "1"\n' if by == "name" else 'time = "10"\n'
    text = cluster_text(
        {"worker": "node0 node0 node1 node1"},
        "t",
        table,
        command=python_task(SHARES),
        framework="none",
        success="all",
        workdir="",
    )
    words = ["up", str(command.write(tmp_path, text)), "--json"]
    if by == "shell":
        done = command.run(*words, prefix=("salloc", *header))
    else:
        slurm_bed.run("salloc", "--no-shell", *header)
        done = command.run(*words)
        slurm_bed.run("scancel", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    said = [json.loads(e["text"]) for e in events if e["event"] == "log"]
    assert sorted(one.pop("node") for one in said) == ["sl1", "sl1", "sl2", "sl2"]
    for one in said:
        assert one["CUDA_VISIBLE_DEVICES"] in ("0", "1")  # two tasks share the node's GPUs
        assert (one["SLURM_CPUS_ON_NODE"], one["SLURM_GPUS_ON_NODE"]) == ("4", "2")
        assert one["SLURM_JOB_ID"] == "1" and one.get("SLURM_NNODES", "2") == "2"
        names = [name for name in one if name.startswith(tuple(f"SLURM_{n}" for n in OF_A_STEP))]
        assert names == []
    assert sorted(one["CUDA_VISIBLE_DEVICES"] for one in said) == ["0", "0", "1", "1"]
    slurm_bed.wait_empty()


def tagged(bed: SlurmBed) -> list[proc.Process]:
    """The tasks of a run, with what they have started."""
    return [p for p in bed.leftovers() if "TFMUX_TASK" in p.environ]


def test_a_list_of_hosts(
    testbed: Testbed, tmp_path: Path, tfmux_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a list of hosts with a line for each slot, as PBS leaves it, when a run is launched on
    it, then its hosts are known and a kill works without the list; another launch is exit 2."""
    testbed.give_access(tfmux_home)
    listed = tmp_path / "nodes"
    listed.write_text("tf1\ntf1\ntf2\ntf2\n")
    monkeypatch.setenv("PBS_NODEFILE", str(listed))
    path = file(tmp_path, disk.PYTHON)
    with Up("up", str(path), "--json", "--hosts-from", "hostfile") as up:
        ready(up, *ALL)
        run_id = up.run_id
        listed.unlink()
        done = command.run("kill", run_id)
        assert done.returncode == 0, done.stdout + done.stderr
        assert up.wait() == 130, up.transcript()
    assert set(receipt(up)) == {"node0", "node1"} and confirmed(up)
    hosts = (testbed["tf1"], testbed["tf2"])
    wait_until(lambda: not any(host.leftovers() for host in hosts), "interpreters have ended")
    failed = command.run("up", str(path), "--headless", "--hosts-from", "hostfile")
    assert failed.returncode == 2 and "No such file" in failed.stderr


SAVES = """
import signal, sys, time
def save(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda number, _: print("checkpoint", number, flush=True))
print("at work", flush=True)
while True:
    time.sleep(1000)
"""


def wait_for_lines(out: Path, line: str) -> None:
    """Waits until both tasks have said it."""
    wait_until(lambda: out.exists() and out.read_text().count(line) == 2, f"they say {line}")


@pytest.mark.prove
@pytest.mark.parametrize("by_exec", [True, False])
def test_in_a_batch_script(by_exec: bool, slurm_bed: SlurmBed) -> None:
    """Given a batch script whose last line is `exec tfmux up`, when it gets a signal before the
    limit, then it passes it on to the tasks, once; when its job is cancelled, then they have saved,
    and the run was terminated and has its receipt. In another place the program says what to
    write."""
    conf = slurm_bed.folder / "slurm.conf"  # a node's /tmp has nothing of ours but this folder
    conf.write_text(conf.read_text().replace("KillWait=5", "KillWait=60"))
    slurm_bed.run("scontrol", "reconfigure")
    text = cluster_text(
        {"worker": "node0 node1"},
        "t",
        IN_SLURM,
        command=python_task(SAVES),
        framework="none",
        success="all",
        workdir="",
        grace=1,
    )
    home, out = slurm_bed.folder / "home", slurm_bed.folder / "batch.out"
    home.mkdir()
    file = command.write(slurm_bed.folder, text)
    up = f"{sys.executable} -m tui.main up {file} --headless"
    lines = ["#!/bin/bash", f"export HOME={home}", "unset ${!XDG_*}", f"cd {REPOSITORY}"]
    lines.append(f"exec {up}" if by_exec else f"{up}\necho done")
    script = command.write(slurm_bed.folder, "\n".join(lines) + "\n", "batch.sh")
    slurm_bed.run("sbatch", "-N2", "--time=10", f"--output={out}", str(script))
    wait_for_lines(out, "at work")
    assert ("write `exec tfmux up …`" in out.read_text()) is not by_exec
    for number in (signal.SIGUSR1, signal.SIGUSR2) if by_exec else ():
        slurm_bed.run("scancel", "--batch", f"--signal={int(number)}", "1")
        wait_for_lines(out, f"checkpoint {int(number)}")
    slurm_bed.run("scancel", "1")
    slurm_bed.wait_empty()
    said = out.read_text()
    assert "success" not in said
    if by_exec:
        assert said.count("checkpoint") == 4, said
        assert said.count("saved") == 2 and "no process is left" in said, said
        # Or the agents, which get TERM as well, are heard first.
        assert "terminated after" in said or "failed after" in said, said
