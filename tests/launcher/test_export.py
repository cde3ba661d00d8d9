"""The same cluster for other engines."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from launcher.cluster.file import load, loads
from launcher.export import compose, slurm
from launcher.export.slurm import ShellQuoter
from tests.command import python_task, run, write
from tests.paths import REPOSITORY
from tests.ports import free_ports

MISSION = """\
# the mission
name = "mission"
[hosts.tf1]  # has the ps
ssh = "root@10.77.0.1"
jump = "gate"
gpus = 2
[hosts.tf2]
ssh = "me@tf2.lan:2200"
identity = "~/.ssh/key"
address = "tf2.lan"
gpus = 4
env = { A = "a $b 'c'" }
[hosts.unused]
ssh = "x"
[jobs.ps]
tasks = ["tf1:2222"]
[jobs.worker]
tasks = ["tf2:2222", "tf2:auto", "localhost:2222"]
data = ["../digits"]
[hosts.localhost]
address = "desk"
[run]
command = ["{python}", "train.py", "--ps={ps_hosts}", "--index={index}", "--log={logdir}"]
workdir = "code"
"""


def test_the_compose_file_is_valid() -> None:
    """By the official schema: one service a host that has tasks, SSH on a port of the loopback,
    as many GPUs as the cluster file says; nothing in it is taken for a variable."""
    cluster = loads(MISSION, "mission.toml", Path("/srv"))
    text = compose.compose(cluster)
    document = yaml.safe_load(text)
    schema = json.loads((REPOSITORY / "tests/schemas/compose-spec.json").read_text())
    jsonschema.Draft7Validator(schema).validate(document)
    assert set(document["services"]) == {"tf1", "tf2", "node"}
    ports = [service["ports"][0] for service in document["services"].values()]
    assert len(set(ports)) == 3 and all(port.startswith("127.0.0.1:") for port in ports)
    assert gpus(document, "tf1") == ["0", "1"]
    assert gpus(document, "tf2") == ["2", "3", "4", "5"]
    assert "deploy" not in document["services"]["node"]
    assert "$" not in text
    build = document["services"]["tf1"]["build"]["dockerfile_inline"]
    assert "openssh-server" in build and "tensorflow[and-cuda]==" in build


def test_the_compose_file_without_gpus() -> None:
    """For a machine that has none: nothing is reserved, and TensorFlow comes without CUDA."""
    cluster = loads(MISSION, "mission.toml", Path("/srv"))
    document = yaml.safe_load(compose.compose(cluster, gpus=False))
    assert not any("deploy" in service for service in document["services"].values())
    assert "and-cuda" not in str(document)


def test_the_cluster_file_for_the_containers(tmp_path: Path) -> None:
    """The original with the containers as hosts: readable, comments kept, paths still right,
    GPUs and environment as they were."""
    base = tmp_path / "project"
    (base / "code").mkdir(parents=True)
    out = tmp_path / "out"
    file = write(base, MISSION)
    text = compose.cluster_file(load(file), MISSION, out)
    out.mkdir()
    made = load(write(out, text))
    assert "# the mission" in text and "# has the ps" in text
    assert set(made.hosts) == {"tf1", "tf2", "node"}
    for name, host in made.hosts.items():
        assert host.ssh is not None and host.ssh.host == "127.0.0.1"
        assert made.address(name) == name and host.jump is None
    assert made.hosts["tf2"].gpus == 4 and made.hosts["tf2"].env == {"A": "a $b 'c'"}
    assert [str(place) for place in made.jobs["worker"].tasks] == [
        "tf2:2222",
        "tf2:auto",
        "node:2222",
    ]
    assert made.local_path(made.run.workdir) == base / "code"
    assert made.local_path(made.jobs["worker"].data[0]) == tmp_path / "digits"


def test_hosts_whose_containers_would_have_one_name(tmp_path: Path) -> None:
    """Each keeps its own settings, also where another host's container is called like it."""
    text = """
[jobs.worker]
tasks = ["localhost:1", "node:2", "gpu_1:3", "gpu-1:4"]
command = ["a"]
[hosts.localhost]
address = "desk"
gpus = 1
[hosts.node]
ssh = "x"
gpus = 2
[hosts.gpu_1]
ssh = "y"
gpus = 3
[hosts.gpu-1]
ssh = "z"
gpus = 4
"""
    cluster = load(write(tmp_path, text))
    made = load(write(tmp_path, compose.cluster_file(cluster, text, tmp_path), "made.toml"))
    services = compose.model(cluster)["services"]
    assert set(made.hosts) == set(services) and len(services) == 4
    for number, place in enumerate(made.jobs["worker"].tasks, 1):
        assert made.hosts[place.host].gpus == place.port == number


def test_hooks_beside_the_cluster_file_are_found_from_the_folder_of_the_export(
    tmp_path: Path,
) -> None:
    """A program on PATH, or of the home, is named as before; so is what the program is given."""
    text = """
[jobs.worker]
tasks = ["localhost:1"]
command = ["a"]
[hooks]
on_end = ["./report.py", "./x"]
on_success = ["logger", "./x"]
on_failure = ["~/report.py"]
on_stall = ["/bin/true"]
"""
    cluster = load(write(tmp_path, text))
    for folder, program in (("out", "../report.py"), ("", "./report.py")):
        moved = compose.cluster_file(cluster, text, tmp_path / folder)
        hooks = loads(moved, "c.toml", tmp_path).hooks
        assert hooks.on_end == (program, "./x")
        assert hooks.on_success == ("logger", "./x")
        assert (hooks.on_failure, hooks.on_stall) == (("~/report.py",), ("/bin/true",))


def test_a_cluster_of_this_machine_becomes_one_container(tmp_path: Path) -> None:
    """Without [hosts] everything is on one container, and the file that goes with it is valid."""
    text = '[jobs.worker]\ntasks = ["localhost:auto", "localhost:1"]\ncommand = ["a"]\n'
    cluster = load(write(tmp_path, text))
    assert list(compose.model(cluster)["services"]) == ["node"]
    made = load(write(tmp_path, compose.cluster_file(cluster, text, tmp_path), "made.toml"))
    assert [str(place) for place in made.jobs["worker"].tasks] == ["node:auto", "node:1"]


ON_SLURM = """
name = "s"
[slurm]  # the site
nodes = 3
time = "04:00:00"
partition = "gpu"
gpus = 2
login = "me@login:22"
python = "/shared/python"
options = ["--account=proj 42", "--constraint=a100"]
[jobs.ps]  # on the first
tasks = ["node0:auto"]
[jobs.worker]
tasks = ["node1:auto", "node2:auto"]
[run]
command = ["{python}", "train.py"]
workdir = ""
"""


def test_nodes_of_slurm_become_containers(tmp_path: Path) -> None:
    """With as many GPUs as a node has; the file for them asks Slurm for nothing."""
    cluster = load(write(tmp_path, ON_SLURM))
    document = compose.model(cluster)
    assert list(document["services"]) == ["node0", "node1", "node2"]
    assert gpus(document, "node1") == ["2", "3"]
    text = compose.cluster_file(cluster, ON_SLURM, tmp_path)
    made = load(write(tmp_path, text, "made.toml"))
    assert made.slurm is None and "# on the first" in text
    assert set(made.hosts) == {"node0", "node1", "node2"} and made.hosts["node2"].gpus == 2
    assert {host.python for host in made.hosts.values()} == {compose.PYTHON}


def test_containers_of_podman_are_nothing_that_slurm_has(tmp_path: Path) -> None:
    """It is an error that says what to write; a Compose file has containers for them."""
    text = ON_SLURM[: ON_SLURM.index("[slurm]")] + "[podman]\nnodes = 3\n"
    path = write(tmp_path, text + ON_SLURM[ON_SLURM.index("[jobs.ps]") :])
    done = run("export", str(path), "slurm")
    assert (done.returncode, done.stdout) == (2, "")
    assert "[podman] gives containers on one machine" in done.stderr and "[slurm]" in done.stderr
    made = compose.cluster_file(load(path), path.read_text(), tmp_path)
    assert set(load(write(tmp_path, made, "made.toml")).hosts) == {"node0", "node1", "node2"}


def test_each_task_has_a_variable_of_its_own_in_the_script(tmp_path: Path) -> None:
    """Also where the names of jobs differ in what no variable may have."""
    tasks = 'tasks = ["node0:auto"]\nin_cluster = false\n'
    jobs = "".join(f"[jobs.{name}]\n{tasks}" for name in ("w-x", "w_x", "w_dx"))
    jobs += '[jobs.worker]\ntasks = ["node0:auto"]\n'
    text = '[slurm]\nnodes = 1\ntime = "1"\n' + jobs + '[run]\ncommand = ["true"]\n'
    script = slurm.script(load(write(tmp_path, text)))
    started = re.findall(r"^(pid_\w+)=\$!", script, re.MULTILINE)
    assert len(started) == len(set(started)) == 4


def test_a_job_that_is_there_asks_for_no_time(tmp_path: Path) -> None:
    """The exported script asks for a job of its own."""
    asked = ON_SLURM[: ON_SLURM.index("time")] + 'job = "8123"\n'
    asked += ON_SLURM[ON_SLURM.index("gpus") :].replace("options", "#")
    script = slurm.script(load(write(tmp_path, asked)))
    assert "--time" not in script and "#SBATCH --nodes=3\n" in script


def test_the_slurm_script_has_what_the_file_asks_slurm_for(tmp_path: Path) -> None:
    """Time, partition, GPUs and options; sbatch reads quotes as a shell does."""
    text = slurm.script(load(write(tmp_path, ON_SLURM)))
    asked = [line for line in text.splitlines() if line.startswith("#SBATCH")]
    assert asked == [
        "#SBATCH --job-name=s",
        "#SBATCH --nodes=3",
        "#SBATCH --ntasks=3",
        "#SBATCH --time=04:00:00",
        "#SBATCH --partition=gpu",
        "#SBATCH '--account=proj 42'",
        "#SBATCH --constraint=a100",
        "#SBATCH --gpus-per-node=2",
    ]
    assert "sbatch THIS_FILE (on me@login:22)" in text and "/shared/python train.py" in text


def gpus(document: dict[str, Any], service: str) -> list[str]:
    """Which GPUs a service reserves: no two services the same."""
    deploy = document["services"][service]["deploy"]
    (device,) = deploy["resources"]["reservations"]["devices"]
    assert "count" not in device
    return list(device["device_ids"])


SRUN = """#!/bin/sh
printf '%s\\n' "$*" >> srun.log
while :; do
    case "$1" in
    --output=*) out=${1#--output=}; shift ;;
    --*) shift ;;
    *) break ;;
    esac
done
exec "$@" > "$out" 2>&1
"""
SCONTROL = "#!/bin/sh\nprintf 'localhost\\nlocalhost\\n'\n"
SERVER = """
import socket, sys, time
began = time.time()
time.sleep(0.5)
server = socket.create_server(("", int(sys.argv[1])))
print(began, time.time(), sys.argv[2], flush=True)
time.sleep(1000)
"""
CLIENT = """
import os, socket, sys, time
began = time.time()
socket.create_connection(("localhost", int(sys.argv[3])), 5)
server = socket.create_server(("", int(sys.argv[1])))
print(began, time.time(), sys.argv[2], os.environ["NOTE"], flush=True)
time.sleep(1.5)
sys.exit(int(sys.argv[4]))
"""


@pytest.mark.parametrize("status", [0, 3])
def test_the_slurm_script_runs_the_cluster(tmp_path: Path, status: int) -> None:
    """With stand-ins for Slurm's two commands the script runs for real: the worker starts when
    the ps listens, its end decides, and the ps is ended."""
    ports = free_ports(2)
    server = [*python_task(SERVER), "{port}", "{run_id}"]
    client = [*python_task(CLIENT), "{port}", "{run_id}", "{port.ps.0}", str(status)]
    text = f"""
name = "batch"
[hosts.a]
ssh = "a"
[hosts.b]
ssh = "b"
[jobs.ps]
tasks = ["a:{ports[0]}"]
command = {json.dumps(server)}
[jobs.worker]
tasks = ["b:{ports[1]}"]
command = {json.dumps(client)}
env = {{ NOTE = "it's $HOME \\"x\\"" }}
[start]
timeout = 30
"""
    done = run_script(tmp_path, text)
    assert done.returncode == (1 if status else 0), done.stderr
    ps = (tmp_path / "ps-0.log").read_text().split(maxsplit=2)
    worker = (tmp_path / "worker-0.log").read_text().split(maxsplit=3)
    assert ps[2].strip() == worker[2] == "batch-77"
    assert worker[3].strip() == 'it\'s $HOME "x"'
    assert float(worker[0]) > float(ps[1])
    assert not listens(ports[0])
    assert ("worker:0 failed" in done.stderr) == bool(status)


def run_script(folder: Path, text: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The script of a cluster file, run with stand-ins for Slurm's two commands."""
    (folder / "bin").mkdir()
    for name, program in (("srun", SRUN), ("scontrol", SCONTROL)):
        (folder / "bin" / name).write_text(program)
        (folder / "bin" / name).chmod(0o755)
    script = slurm.script(load(write(folder, text)))
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    env = {"PATH": path, "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_JOB_ID": "77", "HOME": "/h"}
    return subprocess.run(
        ["bash", "-c", script], env=env | variables, capture_output=True, text=True, timeout=60
    )


def test_the_slurm_script_keeps_to_the_file(tmp_path: Path) -> None:
    """Placeholders of the workdir are replaced, a pattern is read as tfmux reads it, each step
    gets the cores of a task, and no picked port is one that the file has."""
    (tmp_path / "batch-77").mkdir()
    writes = ["sh", "-c", "echo step 12; exec sleep 1000", "{port}"]
    text = f"""
name = "batch"
[jobs.ps]
tasks = ["a:20002"]
command = {json.dumps(writes)}
ready = {{ log = "^step \\\\d+$" }}
[jobs.worker]
tasks = ["a:auto", "b:auto"]
command = ["sh", "-c", "pwd; echo {{ports}}"]
ready = "started"
[hosts.a]
ssh = "a"
[hosts.b]
ssh = "b"
[run]
workdir = "{tmp_path}/{{run_id}}"
[start]
timeout = 20
"""
    text = text.replace("{ports}", "{port.ps.0} {port.worker.0} {port.worker.1}")
    done = run_script(tmp_path, text, SLURM_CPUS_PER_TASK="16")
    assert done.returncode == 0, done.stderr
    work = tmp_path / "batch-77"
    said = (work / "worker-0.log").read_text().splitlines()
    assert said == [str(work), "20002 20001 20003"]
    steps = (work / "srun.log").read_text().splitlines()
    assert len(steps) == 3 and all("--cpus-per-task=16 " in step for step in steps)


@pytest.mark.parametrize(("host", "number"), [("", 3), ("gpus = 4", 4)])
def test_the_slurm_script_asks_for_the_gpus_of_the_tasks(
    tmp_path: Path, host: str, number: int
) -> None:
    """Those of the jobs on one host together, or all that a host has for the cluster."""
    text = f"""
[jobs.ps]
tasks = ["a:1"]
[jobs.worker]
tasks = ["a:2", "b:1"]
gpus = 2
[jobs.evaluator]
tasks = ["a:3"]
gpus = 1
[hosts.a]
ssh = "a"
[hosts.b]
ssh = "b"
{host}
[run]
command = ["train"]
"""
    script = slurm.script(load(write(tmp_path, text)))
    assert f"#SBATCH --gpus-per-node={number}\n" in script


def test_words_for_a_shell_keep_every_character() -> None:
    """Whatever stands around a variable arrives as it is."""
    shell = ShellQuoter({"host-1-here": "HOST"})
    words = [
        "",
        "plain",
        "a b",
        "it's",
        '"$HOME"',
        "x{host-1-here}y",
        "host-1-here:1,host-1-here:2",
    ]
    script = f"for word in {shell.words(*words)}; do printf '%s\\n' \"$word\"; done"
    done = subprocess.run(
        ["sh", "-c", script], env={"HOST": "n 1"}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:-1] == [word.replace("host-1-here", "n 1") for word in words]


def test_the_command_prints_or_writes(tmp_path: Path) -> None:
    """stdout is the file and nothing else; --output writes all three and overwrites none; a
    wrong file is exit 2."""
    file = write(tmp_path, MISSION)
    (tmp_path / "code").mkdir()
    done = run("export", str(file), "compose")
    assert done.returncode == 0, done.stderr
    assert set(yaml.safe_load(done.stdout)["services"]) == {"tf1", "tf2", "node"}
    out = tmp_path / "out"
    assert run("export", str(file), "compose", "--output", str(out), "--no-gpus").returncode == 0
    assert (out / "cluster.toml").read_text().startswith("#:schema ../")
    assert sorted(path.name for path in out.iterdir()) == [
        "README.md",
        "cluster.toml",
        "compose.yaml",
    ]
    assert run("plan", str(out / "cluster.toml")).returncode == 0
    again = run("export", str(file), "compose", "--output", str(out))
    assert again.returncode == 2 and "compose.yaml" in again.stderr
    assert run("export", str(file), "slurm").returncode == 0
    retired = run("export", str(file), "tfjob")
    assert retired.returncode == 2 and "'compose', 'slurm'" in retired.stderr
    assert run("export", str(tmp_path / "none.toml"), "compose").returncode == 2


def listens(port: int) -> bool:
    """Whether somebody still listens there a second later."""
    from launcher.agent import ports

    deadline = time.monotonic() + 10
    while port in ports.listeners():
        if time.monotonic() > deadline:
            return True
        time.sleep(0.05)
    return False
