"""A cluster as a Kubeflow TFJob: its replica types are TensorFlow's job names.

The operator sets `TF_CONFIG`, makes a service for every replica and restarts pods. All replicas
of a type have one command there, so a shell in it looks up which one it is.
"""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..cluster.spec import Cluster, OnFailure, Success
from ..errors import TfmuxError
from ..ids import TaskId
from ..plan.plan import Plan, Role, TaskPlan, make_plan
from .stand_in import HOME, RUN, Shell, plan_of
from .yaml import dump

PORT = 2222
_TYPES = {"ps": "PS", "worker": "Worker", "chief": "Chief", "evaluator": "Evaluator"}
_INDEX = "import json, os; print(json.loads(os.environ['TF_CONFIG'])['task']['index'])"
_HEAD = """\
# The cluster {name!r} for the Kubeflow training operator: kubectl create -f THIS_FILE
# The image must hold the program: build one from it with your workdir in {workdir}.
"""


def manifest(cluster: Cluster) -> str:
    """The TFJob as YAML.

    Raises:
        TfmuxError: a job in the cluster spec is of no type that a TFJob knows.
    """
    unknown = [job for job in cluster.jobs if cluster.jobs[job].in_cluster and job not in _TYPES]
    if unknown:
        raise TfmuxError(
            f"a TFJob has the types {', '.join(_TYPES)} and no other: {', '.join(unknown)} has no "
            "place in it"
        )
    left = [job for job in cluster.jobs if job not in _TYPES]
    note = f"# Left out, for a TFJob has no helpers: {', '.join(left)}\n" if left else ""
    return _HEAD.format(name=cluster.name, workdir=_WORKDIR) + note + dump(model(cluster))


_WORKDIR = "/workdir"


def model(cluster: Cluster) -> dict[str, Any]:
    """What the TFJob says, before it is YAML."""
    name = re.sub(r"[^a-z0-9-]+", "-", cluster.name.lower()).strip("-")[:40] or "cluster"

    def service(task: TaskId, _: str) -> str:
        return f"{name}-{task.job.lower()}-{task.index}"

    plan = plan_of(cluster, service, workdir=_WORKDIR, trainer=_WORKDIR, port=PORT)
    run = cluster.run
    policy = "OnFailure" if run.on_failure is OnFailure.RESTART else "Never"
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": {"name": name},
        "spec": {
            "runPolicy": {"cleanPodPolicy": "Running", "backoffLimit": run.max_restarts},
            "successPolicy": "AllWorkers" if run.success is Success.ALL else "",
            "tfReplicaSpecs": {
                kind: {
                    "replicas": len(cluster.jobs[job].tasks),
                    "restartPolicy": policy,
                    "template": {"spec": {"containers": [_container(cluster, plan, job)]}},
                }
                for job, kind in _TYPES.items()
                if job in cluster.jobs
            },
        },
    }


def _container(cluster: Cluster, plan: Plan, job: str) -> dict[str, Any]:
    tasks = [task for task in plan.tasks if task.id.job == job]
    split = make_plan(cluster, RUN)  # of the file's own hosts, which several replicas share
    gpus = max(_gpus(split.task(task.id)) for task in tasks)
    tag = f"{_tensorflow()}-gpu" if gpus else _tensorflow()
    container: dict[str, Any] = {
        "name": "tensorflow",
        "image": f"tensorflow/tensorflow:{tag}",
        "workingDir": _WORKDIR,
        "command": ["/bin/sh", "-c", _script(plan, tasks)],
        "ports": [{"name": "tfjob-port", "containerPort": PORT}],
    }
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return container


def _script(plan: Plan, tasks: list[TaskPlan]) -> str:
    shell = Shell({HOME: "HOME", RUN: "RUN_ID"})
    lines = [f"RUN_ID={shell.word(plan.name)}"]
    prepare = [t for t in plan.tasks if t.role is Role.PREPARE and t.host == tasks[0].host]
    lines += [line for task in prepare for line in ("set -e", *task.argv[3:])]
    drop = ("TF_CONFIG", "CUDA_VISIBLE_DEVICES")  # the operator's, Kubernetes' business
    commands = [shell.command(task, drop) for task in tasks]
    if len(set(commands)) == 1:
        return "\n".join([*lines, f"exec {commands[0]}"]) + "\n"
    lines.append(f'case "$({tasks[0].argv[0]} -c {shell.word(_INDEX)})" in')
    lines += [
        f"{task.id.index}) exec {line} ;;" for task, line in zip(tasks, commands, strict=True)
    ]
    return "\n".join([*lines, "esac"]) + "\n"


def _gpus(task: TaskPlan) -> int:
    shown = task.env.get("CUDA_VISIBLE_DEVICES", "")
    return len([index for index in shown.split(",") if index.isdecimal()])


def _tensorflow() -> str:
    try:
        return version("tensorflow")
    except PackageNotFoundError:
        return "2.21.0"
