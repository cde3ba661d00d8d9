"""`tfmux plan`: the steps of a launch in their order, printed without a launch."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from launcher.engines.slurm_script import request_of
from launcher.ids import new_run_id
from launcher.plan.model import plan_json
from launcher.plan.plan import make_plan
from tui.commands.hosts_from import read_cluster
from tui.exits import Exit
from tui.format import request_text


def _object(required: Mapping[str, Any], **optional: Any) -> dict[str, Any]:
    """The schema of an object with these properties and no others."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": {**required, **optional},
    }


_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_READY = {
    "anyOf": [
        {"enum": ["listening", "started", "auto", "finished"]},
        {"type": "object", "required": ["log"], "properties": {"log": _TEXT}},
        {"type": "object", "required": ["after"], "properties": {"after": {"type": "number"}}},
    ],
    "description": "when it counts as ready; `finished`: a prepare line, which must have ended",
}
_TASK = {
    "task": _TEXT | {"description": "job and index, such as worker:0"},
    "host": _TEXT,
    "address": _TEXT | {"description": "for other tasks; a port picked at launch reads `auto`"},
    "argv": _TEXTS,
    "env": {"type": "object", "additionalProperties": _TEXT},
    "ready": _READY,
    "cwd": _TEXT | {"description": "working directory on the host"},
    "warm": _TEXTS | {"description": "modules imported before its stage"},
}
_REQUEST = {"login": _TEXT, "argv": _TEXTS, "script": _TEXT}
_PLAN = {
    "name": _TEXT,
    "stages": {
        "type": "array",
        "items": _TEXTS,
        "description": "names of tasks; one stage begins when the one before is ready",
    },
    "tasks": {
        "type": "array",
        "items": _object(_TASK),
        "description": "in the order of their starts",
    },
}
SCHEMA = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "tfmux plan --json",
    **_object(
        _PLAN,
        slurm=_object(_REQUEST)
        | {
            "description": "with [slurm]: the command that asks for the nodes, the machine where "
            "it runs (empty: this one), and the script that it reads"
        },
    ),
}
"""Of what `--json` prints."""


def plan(arguments: argparse.Namespace) -> int:
    """Prints the plan of a cluster file; starts nothing.

    ``--json``: one object, as `SCHEMA` says.
    """
    cluster, _ = read_cluster(arguments)
    planned = make_plan(cluster, new_run_id(cluster.name))
    answer, request = plan_json(planned), request_of(cluster, planned)
    if arguments.json:
        if request is not None:
            answer["slurm"] = request.json()
        sys.stdout.write(json.dumps(answer, indent=2) + "\n")
        return Exit.SUCCESS
    tasks = {task["task"]: task for task in answer["tasks"]}
    for number, stage in enumerate(answer["stages"], 1):
        sys.stdout.write(f"stage {number}: {', '.join(stage)}\n")
        for name in stage:
            task = tasks[name]
            sys.stdout.write(f"  {name} on {task['host']} ({task['address']})\n")
            sys.stdout.write(f"    ready:   {json.dumps(task['ready'])}\n")
            sys.stdout.write(f"    command: {shlex.join(task['argv'])}\n")
            if task["warm"]:
                sys.stdout.write(f"    warm:    {', '.join(task['warm'])}\n")
            sys.stdout.write(f"    in:      {task['cwd']}\n")
            for key, value in task["env"].items():
                sys.stdout.write(f"    {key}={shlex.quote(value)}\n")
    if request is not None:
        sys.stdout.write("\n" + request_text(request, whole=not sys.stdout.isatty()))
    return Exit.SUCCESS
