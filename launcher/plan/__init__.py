"""Plan of a run: each task's exact command and environment, and the stages of the start."""

from .plan import (
    HostFacts,
    HostPlan,
    Plan,
    Resume,
    Role,
    SshTarget,
    TaskPlan,
    make_plan,
    plan_json,
)

__all__ = [
    "HostFacts",
    "HostPlan",
    "Plan",
    "Resume",
    "Role",
    "SshTarget",
    "TaskPlan",
    "make_plan",
    "plan_json",
]
