"""Cluster files that several modules of tests need."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from launcher.cluster import ClusterModel, loads
from launcher.errors import ClusterFileError, Problem
from tests.support.command import python_task

KEPT = """
name = "kept"
[jobs.worker]
tasks = ["localhost:auto"]
[run]
command = ["sleep", "1000"]
workdir = ""
grace = 1
on_disconnect = "keep"
[start.ready]
worker = "started"
"""
"""One task that sleeps, and goes on without a launcher for ever."""
SLEEPERS = """name = "{name}"
[jobs.ps]
tasks = ["localhost:auto"]
[jobs.worker]
tasks = ["localhost:auto", "localhost:auto"]
[run]
command = ["sleep", "{{port}}"]
workdir = ""
"""
"""Three tasks here that sleep, of a cluster with a name; to be formatted."""
UNLISTED_HOSTS = """
name = "c"
[jobs.worker]
tasks = ["node0:2222", "node1:2222"]
[run]
command = ["true"]
"""
"""Two tasks on hosts that a list is to name."""
SALLOC = {"SLURM_JOB_ID": "8123", "SLURM_JOB_NODELIST": "n[1-3]"}
"""Variables of the shell of a job with three nodes."""
_ON_SLURM = """
[slurm]
nodes = 2
{time}
{slurm}
[jobs.worker]
tasks = ["node0:auto", "{second}:auto"]
[run]
command = ["true"]
"""


def on_slurm(slurm: str = "", second: str = "node1", time: str = 'time = "10"') -> str:
    """Two tasks on nodes of Slurm, with further lines of `[slurm]`."""
    return _ON_SLURM.format(slurm=slurm, second=second, time=time)


def cluster_on_slurm(slurm: str = "", second: str = "node1", more: str = "") -> ClusterModel:
    """The same, read, with more below it."""
    return loads(on_slurm(slurm, second) + more, "c.toml", Path("/srv"))


def one_task(script: str, *, ready: str = "started", settings: str = "", tasks: str = "") -> str:
    """A cluster of one worker on this machine that runs a script."""
    return f"""
name = "one"
[jobs.worker]
tasks = [{tasks or '"localhost:auto"'}]
[run]
command = {json.dumps(list(python_task(script)))}
workdir = ""
grace = 2.0
{settings}
[start.ready]
worker = "{ready}"
"""


GOOD = """\
name = "mnist-async"

[hosts.tf1]
ssh = "root@10.77.0.1:22"
address = "tf1"

[hosts.tf2]
ssh = "root@10.77.0.2"

[jobs.ps]
tasks = ["tf1:2222"]

[jobs.worker]
tasks = ["tf2:2222", "tf2:auto"]

[run]
command = ["{python}", "-m", "trainer", "async", "--job_name={job}"]
success = "chief"

[start]
order = [["ps"], ["worker:0"], ["worker"]]
"""


def problems(text: str, *, for_launch: bool = False, base: Path = Path("/")) -> list[Problem]:
    """Everything that is wrong in a text."""
    with pytest.raises(ClusterFileError) as caught:
        loads(text, "cluster.toml", base, for_launch=for_launch)
    return list(caught.value.problems)


def changed(old: str, new: str) -> str:
    """The good file with one thing replaced."""
    assert old in GOOD
    return GOOD.replace(old, new, 1)


EXAMPLE = r"""
name = "mnist-async"

[hosts.tf1]
ssh = "root@10.77.0.1:22"
identity = "~/.ssh/id_ed25519"
address = "tf1"
python = "/opt/tf/bin/python"
gpus = 2

[hosts.tf2]
ssh = "root@10.77.0.2"

[jobs.ps]
tasks = ["tf1:2222"]
env = { OMP_NUM_THREADS = "1" }

[jobs.worker]
tasks = ["tf2:2222", "tf2:auto"]

[jobs.tensorboard]
tasks = ["tf2:6006"]
in_cluster = false
command = ["{python}", "-m", "tensorboard.main", "--logdir", "{logdir}",
           "--port", "{port}", "--host", "127.0.0.1"]
forward = true

[run]
command = ["{python}", "-m", "trainer", "async", "--job_name={job}", "--task_index={index}",
           "--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}", "--logdir={logdir}"]
workdir = "."
logdir = "~/tfmux-logs/{name}/{run_id}"
exclude = ["*.ckpt", "data/raw"]
env = { TF_CPP_MIN_LOG_LEVEL = "0" }
success = "chief"
on_failure = "stop"
max_restarts = 3
on_disconnect = "stop"
on_hangup = "kill"
lease = 600
grace = 10
finish_timeout = 60

[start]
order = [["ps"], ["worker:0"], ["worker"], ["tensorboard"]]
timeout = 120
[start.ready]
ps = "listening"
tensorboard = "started"

[metrics]
pattern = 'iter (?P<step>\d+) cost (?P<loss>[-+.\deE]+)'
total = 20000
"""


MORE = r"""
name = "more"
[hosts.localhost]
python = "/usr/bin/python3"
gpus = 1
env = { A = "1" }
address = "desk"
[jobs.a]
tasks = ["localhost:auto"]
command = ["a"]
env = { B = "2", C = 3 }
gpus = 1
ready = { log = "ready" }
in_cluster = true
forward = true
max_restarts = 1
data = ["d"]
collect = ["{logdir}"]
prepare = ["true"]
setup = "conda activate tf"
env_from = ["TOKEN"]
pty = true
log_limit = 1000
[run]
data = ["d"]
collect = ["{logdir}"]
prepare = ["true"]
setup = "conda activate tf"
env_from = ["TOKEN"]
pty = true
log_limit = 1000
on_hangup = "detach"
[start]
[start.ready]
a = { after = 5.0 }
"""


TRAINING = """
name = "mission"
{hosts}
[jobs.ps]
tasks = ["tf1:2222"]
[jobs.worker]
tasks = ["tf2:2222", "tf3:2222", "tf4:2222"]
[run]
command = ["{{python}}", "-m", "trainer", "async", "--job_name={{job}}", "--task_index={{index}}",
           "--ps_hosts={{ps_hosts}}", "--worker_hosts={{worker_hosts}}", "--logdir={{logdir}}",
           "--data=/opt/data", "--steps=400"]
workdir = ""
[metrics]
total = 400
"""


STAGED = """
name = "staged"
[hosts.far]
ssh = "10.0.0.1"
[jobs.worker]
tasks = ["far:2222"]
[run]
command = ["true"]
workdir = "."
"""
