"""Plans of many tasks."""

from __future__ import annotations

import json

from tests.support.plans import plan_of, task


def test_five_hundred_tasks_are_planned() -> None:
    """A cluster of 500 tasks on 500 hosts is no matter of minutes."""
    hosts = "".join(f'[hosts.h{n}]\nssh = "h{n}"\n' for n in range(500))
    tasks = ", ".join(f'"h{n}:2222"' for n in range(500))
    text = f'{hosts}[jobs.worker]\ntasks = [{tasks}]\n[run]\ncommand = ["{{worker_hosts}}"]\n'
    plan = plan_of(text)
    assert len(plan.tasks) == len(plan.hosts) == 500
    assert plan.tasks[499].argv[0].endswith("h499:2222")


def test_the_cluster_is_held_once_for_all_tasks() -> None:
    """2,048 tasks know all addresses, in `TF_CONFIG` and in their commands, and their plan does
    not hold 2,048 copies of them."""
    hosts = "".join(f'[hosts.h{n}]\nssh = "h{n}"\n' for n in range(256))
    places = [f"h{n}:{2222 + k}" for n in range(256) for k in range(8)][:-1]
    command = '["{python}", "-m", "trainer", "async", "--workers={worker_hosts}", "{index}"]'
    text = f"{hosts}[jobs.worker]\ntasks = {json.dumps(places)}\n[jobs.ps]\ntasks = ['h1:1']\n"
    plan = plan_of(f"{text}[run]\ncommand = {command}\nenv = {{ ALL = '{{job}} {{cluster}}' }}\n")
    starts = [task for task in plan.tasks if task.warm]
    texts = [*(task.words for task in plan.tasks), *(t.variables.values() for t in plan.tasks)]
    parts = {id(p): len(p) for group in texts for text in group for p in text}
    assert len(starts) == 2047 and sum(parts.values()) < 3_000_000
    last = task(plan, "worker:2046")
    spec = json.dumps({"worker": places, "ps": ["h1:1"]})
    assert last.env["TF_CONFIG"] == (
        f'{{"cluster": {spec}, "task": {{"type": "worker", "index": 2046}}}}'
    )
    assert last.env["ALL"] == f"worker {spec}"
    assert last.argv[-2:] == (f"--workers={','.join(places)}", "2046")
    assert last.warm is not None and last.warm.argv(last.argv)[-2:] == last.argv[-2:]
