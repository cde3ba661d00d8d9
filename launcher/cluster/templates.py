"""Templates of cluster files, one for each common way to train.

They are made as text, not from the model, because they have comments.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .addresses import LOCALHOST

_ASYNC = """[run]
# The bundled trainer: replace it by your own program. Placeholders in braces are filled in.
command = ["{python}", "{trainer}", "async", "--job_name={job}", "--task_index={index}",
           "--ps_hosts={ps_hosts}", "--worker_hosts={worker_hosts}", "--logdir={logdir}",
           "--steps=2000"]
workdir = ""  # a directory to copy to every host before the start; "" copies nothing

[metrics]
total = 2000  # makes the step a progress bar
"""

_SCRIPT = """[run]
# TF_CONFIG is set for every task. {about}
command = ["{{python}}", "train.py"]
workdir = {folder}  # copied to every remote host before the start
success = "{success}"
"""


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
PS_STRATEGY = Template(
    "ps-strategy", "TF 2 parameter-server strategy", "chief, ps, workers, your script", True
)
ALL_REDUCE = Template("all-reduce", "All-reduce", "workers of equal rank, no ps", True)
ANY_SCRIPT = Template("any-script", "Any script", "one command on every host", True)

TEMPLATES = (ONE_MACHINE, PS_WORKERS, PS_STRATEGY, ALL_REDUCE, ANY_SCRIPT)


def render(template: Template, name: str, hosts: Mapping[str, str], folder: Path) -> str:
    """Renders the text of a new cluster file.

    `hosts` maps names to SSH destinations; without any, the tasks run on this machine. `folder` is
    the directory of the user's script.
    """
    names = list(hosts) or [LOCALHOST]
    port = "2222" if hosts else "auto"
    first, rest = names[0], names[1:] or names

    def tasks(*where: str, own: str = port) -> str:
        places = [f"{host}:{own}" for host in where]
        if len(places) != len(set(places)):
            places = [f"{host}:auto" for host in where]
        return f"tasks = {json.dumps(places)}\n"

    folder_text = json.dumps(str(folder), ensure_ascii=False)
    match template:
        case Template(key="one-machine"):
            jobs = f"[jobs.ps]\n{tasks(LOCALHOST, own='auto')}\n"
            jobs += f"[jobs.worker]\n{tasks(LOCALHOST, LOCALHOST, own='auto')}\n"
            return f"# {template.about}\n{_head(name, {})}{jobs}{_ASYNC}"
        case Template(key="ps-workers"):
            workers = rest if len(names) > 1 else [first, first]
            shared = {} if len(names) > 1 else {"own": "auto"}
            jobs = f"[jobs.ps]\n{tasks(first, **shared)}\n"
            jobs += f"[jobs.worker]\n{tasks(*workers, **shared)}\n"
            return f"# {template.about}\n{_head(name, hosts)}{jobs}{_ASYNC}"
        case Template(key="ps-strategy"):
            jobs = f"[jobs.ps]\n{tasks(first)}\n"
            jobs += f"[jobs.chief]  # the coordinator\n{tasks(first, own='auto')}\n"
            jobs += f"[jobs.worker]\n{tasks(*rest, own=port if len(names) > 1 else 'auto')}\n"
            about = "ps and worker run a tf.distribute.Server, the chief coordinates."
            run = _SCRIPT.format(about=about, folder=folder_text, success="chief")
        case Template(key="all-reduce"):
            jobs = f"[jobs.worker]  # worker:0 is the chief\n{tasks(*names)}\n"
            about = "tf.distribute.MultiWorkerMirroredStrategy reads it."
            run = _SCRIPT.format(about=about, folder=folder_text, success="all")
        case _:
            jobs = f"[jobs.worker]\n{tasks(*names)}\n"
            about = "Or hand over {{job}}, {{index}}, {{hosts.worker}} as arguments."
            about = about.replace("{{", "{").replace("}}", "}")
            run = _SCRIPT.format(about=about, folder=folder_text, success="all")
    return f"# {template.about}\n{_head(name, hosts)}{jobs}{run}"


def _head(name: str, hosts: Mapping[str, str]) -> str:
    text = f"name = {json.dumps(name)}\n\n"
    for host, destination in hosts.items():
        key = host if host.isascii() and host.replace("-", "").replace("_", "").isalnum() else ""
        text += f"[hosts.{key or json.dumps(host)}]\nssh = {json.dumps(destination)}\n\n"
    return text
