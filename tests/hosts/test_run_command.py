"""`tfmux run` and the file of the README: a command on hosts that somebody lists or has got."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from launcher.cluster.read import load
from launcher.store.runs import RunFolder
from tests.support import command
from tests.support import fault_tasks as tasks
from tests.support.bed import PACE
from tests.support.budgets import soak, variants
from tests.support.cluster_texts import TRAINING, cluster_text
from tests.support.command import Up, python_task, run, write
from tests.support.manual import Page
from tests.support.paths import REPOSITORY
from tests.support.patience import wait_until
from tests.support.requirements import require
from tests.support.scenario import confirmed, ready, receipt
from tests.support.streams import records
from tests.testbed import disk, proc, slurm
from tests.testbed.namespaces import Testbed
from tests.testbed.slurm import SlurmBed

RANKS = 'echo "{rank} of {world_size}, $RANK $LOCAL_RANK, $MASTER_ADDR"'


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The working directory of the commands."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def run_command_run(here: Path, *words: str) -> Up:
    return Up("run", *words, cwd=here)


def test_four_tasks_on_this_machine(here: Path) -> None:
    """Given no cluster file, when `tfmux run -n 4` runs a command, then four tasks get their ranks
    and the master's address, and the exit is 0; if the command fails, it is 1."""
    with run_command_run(
        here, "-n", "4", "--framework", "torch", "--json", "--", "sh", "-c", RANKS
    ) as up:
        assert up.wait() == 0, up.transcript()
        for rank in range(4):
            assert up.log(f"worker:{rank}", f"{rank} of 4, {rank} {rank}, localhost")
    assert up.run_id.startswith("sh-") and confirmed(up)
    with run_command_run(here, "-np", "2", "--json", "sh", "-c", "exit 3") as up:
        assert up.wait() == 1, up.transcript()


ONCE = "echo $RANK at $TFMUX_ATTEMPT; sleep 0.5; test $RANK$TFMUX_ATTEMPT != 11"


@variants(("most", "code"), [("2", 0), ("0", 1)], test=1)
def test_ranks_start_again_together(here: Path, most: str, code: int) -> None:
    """Given a rank that fails once, when `--max-restarts` is 2, then all ranks start again together
    and the run is a success; when it is 0, then the run fails after one attempt."""
    words = ["-n", "3", "--framework", "torch", "--max-restarts", most, "--json", "--"]
    with run_command_run(here, *words, "sh", "-c", ONCE) as up:
        assert up.wait() == code, up.transcript()
        if most == "0":
            assert {e["attempt"] for e in up.of("run")} == {1}
            return
        for rank in range(3):
            assert up.log(f"worker:{rank}", f"{rank} at 2")
        assert up.of("end")[-1]["attempt_text"] == "attempt 2 of 3: worker:1 exit 1 on localhost"
    assert confirmed(up)


def test_variables_of_mpirun(here: Path) -> None:
    """Given `-x NAME` and `-x NAME=VALUE`, when a command is run, then its tasks have the value of
    this shell and the one that is given, braces included."""
    words = ["-x", "HOME", "-x", "RATE={0.1}", "--json", "--", "sh", "-c", 'echo "$HOME $RATE"']
    with run_command_run(here, *words) as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", f"{os.environ['HOME']} {{0.1}}")


def test_the_file_is_kept_and_launched_again(here: Path) -> None:
    """Given `tfmux run --save FILE`, when the run has ended, then FILE holds the run and `tfmux up`
    launches it again; a second `--save` to FILE is exit 2 and changes nothing."""
    (here / "train.sh").write_text("echo trained {rank}\n".replace("{rank}", "$1"))
    words = ["--save", "made/two.toml", "-n", "2", "--", "sh", "train.sh", "{rank}"]
    with run_command_run(here, "--json", *words) as up:
        assert up.wait() == 0, up.transcript()
    path = here / "made" / "two.toml"
    assert path.read_text().startswith("#:schema ../")
    assert len(load(path).jobs["worker"].tasks) == 2
    with Up("up", str(path), "--json") as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:1", "trained 1")
    before = path.read_text()
    with run_command_run(here, *words) as up:
        assert up.wait() == 2
    assert "exists: name another file" in up.said and path.read_text() == before


def test_hosts_as_ssh_knows_them(testbed: Testbed, here: Path, tfmux_home: Path) -> None:
    """Given aliases of `ssh_config` with slots, in `-H` or in a hostfile, when a script is run on
    them, then it is copied there, and the ranks meet at the address that the alias stands for."""
    testbed.give_access(tfmux_home)
    (here / "who.sh").write_text('echo "rank $RANK, local $LOCAL_RANK, at $MASTER_ADDR"\n')
    (here / "hosts").write_text("# ours\ntf1 slots=1\ntf2 slots=4  # fast\n")
    address = testbed["tf1"].address
    for words in (["-H", "tf1,tf2:2"], ["--hostfile", "hosts", "-n", "3"]):
        words += ["--framework", "torch", "--json", "--", "sh", "who.sh"]
        with run_command_run(here, *words) as up:
            assert up.wait() == 0, up.transcript()
            assert up.log("worker:0", f"rank 0, local 0, at {address}")
            assert up.log("worker:2", f"rank 2, local 1, at {address}")
        assert confirmed(up)
    for host in (testbed["tf1"], testbed["tf2"]):
        wait_until(lambda host=host: host.leftovers() == [], "nothing is left")  # type: ignore[misc]


@pytest.mark.prove
def test_ps_and_workers(testbed: Testbed, here: Path, tfmux_home: Path) -> None:
    """Given hosts for `--ps` and `--workers`, when a serving command is run on them, then ps and
    workers are ready, and Ctrl-C ends the run with exit 130 and a confirmed receipt."""
    testbed.give_access(tfmux_home)
    script = "import os, socket, sys, time; print(os.environ['TF_CONFIG'], flush=True)\n"
    script += "s = socket.create_server(('', int(sys.argv[1])))\ntime.sleep(1000)"
    (here / "serve.py").write_text(script)
    words = ["--ps", "tf1", "--workers", "tf2,tf3", "--name", "mission", "--json", "--"]
    with run_command_run(here, *words, disk.PYTHON, "serve.py", "{port}") as up:
        for task in ("ps:0", "worker:0", "worker:1"):
            up.state(task, "ready")
        up.press_ctrl_c()
        assert up.wait() == 130, up.transcript()
    assert up.run_id.startswith("mission-") and confirmed(up)


def test_a_host_that_ssh_does_not_know(here: Path) -> None:
    """Given a host name that does not resolve, when `tfmux run` is called with it, then exit 3 says
    so and that nothing was started."""
    with run_command_run(here, "-H", "no-such-host.invalid", "--headless", "--", "true") as up:
        assert up.wait() == 3, up.said
    assert "no-such-host.invalid" in up.said and "does not resolve" in up.said
    assert "nothing was started" in up.said


@pytest.mark.prove
def test_aliases_of_this_machines_ports_are_not_called_so(here: Path, tfmux_home: Path) -> None:
    """Given aliases with `HostName 127.0.0.1`, as tunnels have them, when ranks are to meet there,
    then exit 2 says why they would not; a command that knows no ranks is only warned of."""
    ssh = tfmux_home / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "config").write_text(
        "Host n*\n  HostName 127.0.0.1\nHost n1\n  Port 1\nHost *\n  Port 2"
    )
    done = command.run("run", "-H", "n1,n2", "--framework", "torch", "--", "true")
    assert done.returncode == 2
    said = "127.0.0.1 means another machine on n2: set the name that the other hosts use for n1"
    assert said in done.stderr
    done = command.run("run", "-H", "n1,n2", "--headless", "--", "true")
    assert done.returncode == 3 and said in done.stderr


@pytest.mark.prove
def test_more_hosts_than_open_files(here: Path, tfmux_home: Path) -> None:
    """Given sixty hosts and a limit of 80 open files, when `tfmux run` is called, then exit 3
    says what the hosts' servers answer, and nothing about the limit."""
    ssh = tfmux_home / ".ssh"
    ssh.mkdir(mode=0o700)
    (ssh / "config").write_text("Host n*\n  HostName 127.0.0.1\n  Port 1\n")
    (here / "hosts").write_text("".join(f"n{number}\n" for number in range(60)))
    words = ["--hostfile", str(here / "hosts"), "--workdir", "", "--headless", "--", "true"]
    limited = ("sh", "-c", 'ulimit -Sn 80; exec "$@"', "sh")
    done = command.run("run", *words, prefix=limited)
    assert done.returncode == 3, done.stderr
    assert "connection refused by 127.0.0.1:1" in done.stderr
    assert "Traceback" not in done.stderr and "Too many" not in done.stderr


@pytest.mark.prove
def test_this_machine_beside_others(testbed: Testbed, here: Path, tfmux_home: Path) -> None:
    """Given `localhost` before or after another host in `-H`, when rank 1 connects to rank 0, then
    they meet at the first host's address; what `localhost` stands for is told unless given."""
    testbed.give_access(tfmux_home)
    script = (
        "import os, socket\nplace = os.environ['MASTER_ADDR'], int(os.environ['MASTER_PORT'])\n"
    )
    script += "if os.environ['RANK'] == '0':\n    s = socket.create_server(('', place[1]))\n"
    script += "    s.accept()\nelse:\n    while True:\n        try:\n"
    script += "            socket.create_connection(place)\n            break\n"
    script += (
        "        except ConnectionRefusedError:\n            pass\nprint('met at', place[0])\n"
    )
    (here / "meet.py").write_text(script)
    end = ["--framework", "torch", "--json", "--", "{python}", "meet.py"]
    for words, address in (
        (["-H", "localhost,tf2"], testbed.address),
        (["--address", "launcher", "-H", "tf2,localhost"], testbed["tf2"].address),
    ):
        with run_command_run(here, *words, *end) as up:
            assert up.wait() == 0, up.transcript()
            for task in ("worker:0", "worker:1"):
                assert up.log(task, f"met at {address}")
        assert confirmed(up)
        assert ("localhost is" in up.said) is ("--address" not in words)


@pytest.mark.prove
def test_braces_of_the_working_directory(tmp_path: Path) -> None:
    """Given a working directory with braces in its name, when a run there is saved and launched,
    then its task finds the directory's files: the braces are no placeholder."""
    folder = tmp_path / "exp{1}"
    folder.mkdir()
    (folder / "here").write_text("yes\n")
    for workdir in ([], ["--workdir", "."]):
        saved = tmp_path / f"f{len(workdir)}.toml"
        with run_command_run(
            folder, "--save", str(saved), *workdir, "--json", "--", "cat", "here"
        ) as up:
            assert up.wait() == 0, up.transcript()
            assert up.log("worker:0", "yes")
        assert load(saved).run.workdir == str(tmp_path / "exp{{1}}")


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
        (entry.replace('"1"', '"77"'), "job 77: Slurm no longer knows the job"),
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


PROGRAMS = REPOSITORY / "docs" / "examples" / "tf1"


def test_the_file_of_the_readme_trains(testbed: Testbed, tmp_path: Path, tfmux_home: Path) -> None:
    """Given the README's file in the folder that it names, and hosts `tf1` and `tf2` that `ssh`
    reaches, when it is checked, then nothing is said of TensorFlow 1; when it is launched, then it
    trains to the end. Only the Python that has TensorFlow there is added."""
    (file,) = (b for b in Page(REPOSITORY / "README.md").blocks if b.language == "toml")
    testbed.give_access(tfmux_home)
    assert f"`{PROGRAMS.relative_to(REPOSITORY)}`" in (REPOSITORY / "README.md").read_text()
    folder = tmp_path / "mnist"
    shutil.copytree(PROGRAMS, folder)
    text = file.body
    for name in ("tf1", "tf2"):
        here = f'[hosts.{name}]\nssh = "{name}"'
        assert here in text
        text = text.replace(here, f'{here}\npython = "{testbed[name].python}"')
    cluster = folder / "cluster.toml"
    cluster.write_text(text)
    checked = run("check", str(cluster))
    assert checked.returncode == 0 and "tensorflow-1" not in checked.stdout, checked.stdout
    with Up("up", str(cluster), "--json", cwd=folder) as up:
        assert up.wait() == 0, up.transcript()
        assert up.log("worker:0", "validation cross entropy")


@pytest.mark.parametrize("workers", [1, soak(3)])
def test_a_real_training_on_hosts(
    testbed: Testbed, tmp_path: Path, mnist: Path, workers: int
) -> None:
    """Given real MNIST and hosts that have only Python and TensorFlow, when a cluster file trains
    there, then the trainer is staged, the chief reports its accuracy, the ps is stopped, and every
    host is clean."""
    names = ["tf1", "tf2", "tf3", "tf4"][: 1 + workers]
    text = TRAINING.format(hosts=testbed.hosts_toml())
    places = json.dumps([f"{name}:2222" for name in names[1:]])
    text = text.replace("--steps=400", "--steps=150")
    file = write(tmp_path, text.replace('["tf2:2222", "tf3:2222", "tf4:2222"]', places))
    with Up("up", str(file), "--json") as up:
        assert up.wait() == 0, up.transcript()
        done = up.log("worker:0", "test accuracy")
    assert float(done["text"].split("test accuracy ")[1].split()[0]) > 0.8
    states = {e["task"]: e["state"] for e in up.of("task")}
    assert states == {"ps:0": "stopped", **{f"worker:{n}": "exited" for n in range(workers)}}
    receipt = up.of("receipt")[0]
    assert receipt["clean"]
    assert {host["host"] for host in receipt["hosts"]} == {*names}
    logdir = f"tfmux-logs/mission/{up.run_id}"
    for name in names:  # on the ps's host, too, which writes nothing there
        written = testbed[name].run(["ls", logdir]).stdout.decode().split()
        assert ("checkpoint" in written) is (name == "tf2"), written
    for host in testbed:
        wait_until(lambda host=host: not host.leftovers(), "nothing is left")  # type: ignore[misc]
    stored = RunFolder.find(up.run_id)
    kinds = {record["event"] for record in records(stored)}
    assert {"run", "host", "task", "metric", "receipt"} <= kinds
    assert b"test accuracy" in (stored.path / "worker-0.log").read_bytes()
