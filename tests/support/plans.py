"""Plans of cluster files."""

from __future__ import annotations

from pathlib import Path

from launcher.cluster.read import loads
from launcher.ids import TaskId
from launcher.plan.facts import HostFacts, Resume
from launcher.plan.planner import make_plan
from launcher.plan.run_plan import Plan, TaskPlan

BASE = Path("/srv/project")


def plan_of(
    text: str, facts: dict[str, HostFacts] | None = None, resume: Resume | None = None
) -> Plan:
    return make_plan(loads(text, "mnist.toml", BASE), "mnist-1", facts or {}, resume)


def task(plan: Plan, name: str) -> TaskPlan:
    return plan.task(TaskId.parse(name))
