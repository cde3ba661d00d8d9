"""Templates of cluster files, one for each common way to train.

They are made as text, not from the model, because they have comments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .addresses import LOCALHOST
from .model import node_name

_ASYNC = """[run]
# The bundled trainer: replace it by your own program. Placeholders in braces are filled in.
command = ["{python}", "{trainer}", "async", "--job_name={job}", "--task_index={index}",
           "--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}", "--logdir={logdir}",
           "--steps=2000"]
workdir = ""  # a directory to copy to every host before the start; "" copies nothing

[metrics]
total = 2000  # makes the step a progress bar
"""

_TF1 = """[run]
# Runs your program unchanged on today's TensorFlow.
command = ["{{python}}", "{{trainer}}", "tf1", "train.py", "--job_name={{job}}",
           "--task_index={{index}}", "--ps_hosts={{ps_hosts}}", "--worker_hosts={{worker_hosts}}"]
workdir = {folder}  # copied to every remote host before the start
"""

_SLURM = """[slurm]
nodes = 3                # the hosts node0, node1, node2
time = "01:00:00"        # when this is over Slurm takes the nodes away, whatever happens
# login = "me@login"     # a machine that has sbatch, if this one has not
# partition = "gpu"
# gpus = 1               # on each node
# options = ["--account=proj42", "--cpus-per-task=8"]
# python = "/shared/tf/bin/python"    # on the nodes: one that has TensorFlow

"""

_SCRIPT = """[run]
# {about}
command = ["{python}", "train.py"]
{framework}workdir = {folder}  # copied to every remote host before the start
success = "{success}"
"""

_ENVIRONMENT = """pty = true  # colours and progress bars, as on a terminal
shell = "login"  # what ~/.profile and conda or modules put there
setup = "export OMP_NUM_THREADS=2"  # shell lines: module load, conda activate
env = { TZ = "UTC" }
# env_from = ["WANDB_API_KEY"]  # secrets of this shell, which are written nowhere

[hooks]
on_end = ["logger", "-t", "tfmux", "a run has ended"]  # run here; its input is the event
"""

_WARM = """
[start]
warm = ["tensorflow"]  # every task imports it at once, and begins when its stage comes
"""

_FRAMEWORK = 'framework = "{}"{}\n'
_TF_CONFIG = "TF_CONFIG is set for every task."


@dataclass(frozen=True)
class Template:
    """One template; `remote` templates need hosts."""

    key: str
    title: str
    about: str
    remote: bool


ONE_MACHINE = Template(
    "one-machine", "One machine", "1 ps + 2 workers, runs as it is", remote=False
)
PS_WORKERS = Template(
    "ps-workers", "ps + workers on SSH hosts", "first host ps, the rest workers", True
)
TENSORFLOW_1 = Template(
    "tensorflow-1", "TensorFlow 1 program", "ps, workers, your script as it is", True
)
PS_STRATEGY = Template(
    "ps-strategy", "TF 2 parameter-server strategy", "chief, ps, workers, your script", True
)
ALL_REDUCE = Template("all-reduce", "All-reduce", "workers of equal rank, no ps", True)
KERAS_FIT = Template("keras-fit", "Keras fit + evaluator", "all-reduce, tests beside it", True)
ANY_SCRIPT = Template("any-script", "Any script, PyTorch", "ranks as torchrun gives them", True)
MPI_LIKE = Template("mpi-like", "Horovod, MPI variables", "ranks as mpirun gives them", True)
ENVIRONMENT = Template(
    "environment", "Script, environment, hooks", "login shell, setup, terminal", True
)
JAX = Template("jax", "JAX", "one process on every host", True)
SLURM = Template("slurm", "ps + workers on Slurm", "Slurm gives the nodes", remote=False)

TEMPLATES = (
    ONE_MACHINE,
    PS_WORKERS,
    TENSORFLOW_1,
    PS_STRATEGY,
    ALL_REDUCE,
    KERAS_FIT,
    ANY_SCRIPT,
    JAX,
    SLURM,
    MPI_LIKE,
    ENVIRONMENT,
)


def render(template: Template, name: str, hosts: Mapping[str, str], folder: Path) -> str:
    """Renders the text of a new cluster file.

    `hosts` maps names to SSH destinations; without any, the tasks run on this machine. `folder` is
    the directory of the user's script.
    """
    hosts = hosts if template.remote else {}
    names = list(hosts) or [LOCALHOST]
    port = "2222" if hosts else "auto"
    shared = "auto" if len(names) == 1 else port
    first, rest = names[0], names[1:] or names

    def tasks(*where: str, own: str = port) -> str:
        places = [f"{host}:{own}" for host in where]
        if len(places) != len(set(places)):
            places = [f"{host}:auto" for host in where]
        return f"tasks = {json.dumps(places)}\n"

    about, success, framework, more, python = "", "all", "", "", "{python}"
    match template.key:
        case "one-machine" | "ps-workers" | "tensorflow-1":
            workers = rest if len(names) > 1 else [first, first]
            jobs = f"[jobs.ps]\n{tasks(first, own=shared)}\n"
            jobs += f"[jobs.worker]\n{tasks(*workers, own=shared)}\n"
        case "slurm":  # ports of its own choice: other jobs may be on the nodes
            jobs = f"{_SLURM}[jobs.ps]\n{tasks(node_name(0))}\n"
            jobs += f"[jobs.worker]\n{tasks(node_name(1), node_name(2))}\n"
        case "ps-strategy":
            jobs = f"[jobs.ps]\n{tasks(first)}\n"
            jobs += f"[jobs.chief]  # the coordinator\n{tasks(first, own='auto')}\n"
            jobs += f"[jobs.worker]\n{tasks(*rest, own=shared)}\n"
            about = f"{_TF_CONFIG} ps and worker run a tf.distribute.Server, the chief coordinates."
            success, more = "chief", _WARM
        case "all-reduce":
            jobs = f"[jobs.worker]  # worker:0 is the chief\n{tasks(*names)}\n"
            about = f"{_TF_CONFIG} MultiWorkerMirroredStrategy reads it."
        case "keras-fit":
            jobs = f"[jobs.worker]  # worker:0 is the chief\n{tasks(*names)}\n"
            jobs += f"[jobs.evaluator]  # tests each checkpoint\n{tasks(names[-1], own='auto')}\n"
            about = f"{_TF_CONFIG} Its task's type is worker or evaluator."
        case "jax":
            jobs = f"[jobs.worker]\n{tasks(*names)}\n"
            about = "jax.distributed.initialize() needs no argument."
            framework = _FRAMEWORK.format("jax", "")
        case "mpi-like":
            jobs = f"[jobs.worker]\n{tasks(*names)}\n"
            about = "For programs that read mpirun's variables; an MPI library needs mpirun itself."
            framework = _FRAMEWORK.format("mpi-like", "  # sets OMPI_COMM_WORLD_RANK, PMI_RANK, …")
        case "environment":
            jobs = f"[jobs.worker]\n{tasks(*names)}\n"
            about = (
                "Any program, in the environment of a login on its host: the python3 of its PATH."
            )
            python = "python3"
            framework, more = _FRAMEWORK.format("none", ""), _ENVIRONMENT
        case _:
            jobs = f"[jobs.worker]\n{tasks(*names)}\n"
            about = "Or hand over {rank}, {world_size}, {local_rank}, … as arguments."
            comment = "  # sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, …"
            framework = _FRAMEWORK.format("torch", comment)
    run, folder_text = _ASYNC, json.dumps(str(folder), ensure_ascii=False)
    if template is TENSORFLOW_1:
        run = _TF1.format(folder=folder_text)
    if about:
        run = _SCRIPT.format(
            about=about, python=python, framework=framework, folder=folder_text, success=success
        )
        run += more
    return f"# {template.about}\n{_head(name, hosts)}{jobs}{run}"


def _head(name: str, hosts: Mapping[str, str]) -> str:
    text = f"name = {json.dumps(name)}\n\n"
    for host, destination in hosts.items():
        key = host if host.isascii() and host.replace("-", "").replace("_", "").isalnum() else ""
        text += f"[hosts.{key or json.dumps(host)}]\nssh = {json.dumps(destination)}\n\n"
    return text
