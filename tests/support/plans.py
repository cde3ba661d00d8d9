"""Plans of cluster files."""

from __future__ import annotations

from pathlib import Path

from launcher.cluster import loads
from launcher.ids import TaskId
from launcher.plan import HostFacts, Plan, Resume, TaskPlan, make_plan

BASE = Path("/srv/project")


def plan_of(
    text: str, facts: dict[str, HostFacts] | None = None, resume: Resume | None = None
) -> Plan:
    return make_plan(loads(text, "mnist.toml", BASE), "mnist-1", facts or {}, resume)


def task(plan: Plan, name: str) -> TaskPlan:
    return plan.task(TaskId.parse(name))
