"""`tfmux plan`: the steps of a launch in their order, printed without a launch."""

from __future__ import annotations

import argparse
import json
import shlex
import sys

from launcher.ids import new_run_id
from launcher.plan.plan import make_plan, plan_json
from tui.commands.hosts_from import read_cluster
from tui.exits import Exit


def plan(arguments: argparse.Namespace) -> int:
    """Prints the plan of a cluster file; starts nothing."""
    cluster, _ = read_cluster(arguments)
    answer = plan_json(make_plan(cluster, new_run_id(cluster.name)))
    if arguments.json:
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
            sys.stdout.write(f"    in:      {task['cwd']}\n")
            for key, value in task["env"].items():
                sys.stdout.write(f"    {key}={shlex.quote(value)}\n")
    return Exit.SUCCESS
