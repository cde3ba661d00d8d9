"""`tfmux plan`: the steps of a launch in their order, printed without a launch."""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from launcher.engines.slurm_script import request_of
from launcher.ids import new_run_id
from launcher.plan.model import plan_json
from launcher.plan.plan import make_plan
from tui.commands.hosts_from import read_cluster
from tui.exits import Exit
from tui.format import request_text


def plan(arguments: argparse.Namespace) -> int:
    """Prints the plan of a cluster file; starts nothing.

    ``--json``: see `plan_json`; with `[slurm]` also ``"slurm": {"login", "argv", "script"}``, the
    command that asks for the nodes, where it runs (empty: here), and the script that it reads.
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
