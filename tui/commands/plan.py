"""`tfmux plan`: the steps of a launch in their order, printed without a launch; `tfmux schema`: the
JSON Schema of the cluster file, for text editors."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from launcher.cluster.reference import schema_text
from launcher.ids import new_run_id
from launcher.plan import make_plan, plan_json
from launcher.printable import pictured
from launcher.slurm.script import request_of
from tui import streams
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
    """Prints the plan of a cluster file; starts nothing. A terminal gets pictures of what it would
    act on: the file may come from elsewhere.

    ``--json``: one object, as `SCHEMA` says.
    """
    cluster, _ = read_cluster(arguments)
    planned = make_plan(cluster, new_run_id(cluster.name))
    answer, request = plan_json(planned), request_of(cluster, planned)
    if arguments.json:
        if request is not None:
            answer["slurm"] = request.json()
        streams.write_json(answer)
        return Exit.SUCCESS
    screen = sys.stdout.isatty()
    lines = _lines(answer)
    if request is not None:
        lines = chain(lines, ["", *request_text(request, whole=not screen).splitlines()])
    streams.write((pictured(line) if screen else line) + "\n" for line in lines)
    return Exit.SUCCESS


def schema(arguments: argparse.Namespace) -> int:
    """Prints the schema that new cluster files name in their `#:schema` line."""
    sys.stdout.write(schema_text())
    return Exit.SUCCESS


def _lines(answer: dict[str, Any]) -> Iterable[str]:
    """The plan as text. An argument or a value may have several lines."""
    tasks = {task["task"]: task for task in answer["tasks"]}
    for number, stage in enumerate(answer["stages"], 1):
        yield f"stage {number}: {', '.join(stage)}"
        for name in stage:
            task = tasks[name]
            yield f"  {name} on {task['host']} ({task['address']})"
            yield f"    ready:   {json.dumps(task['ready'])}"
            yield from f"    command: {shlex.join(task['argv'])}".split("\n")
            if task["warm"]:
                yield f"    warm:    {', '.join(task['warm'])}"
            yield f"    in:      {task['cwd']}"
            for key, value in task["env"].items():
                yield from f"    {key}={shlex.quote(value)}".split("\n")
