"""Plan of a run: each task's exact command and environment, and the stages of the start.

What `__all__` lists is loaded when it is asked for: a run's record needs only its facts.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .facts import HostFacts, Resume
    from .plan_record import plan_json, plan_schema
    from .planner import make_plan
    from .run_plan import HostPlan, Plan, SshTarget, TaskPlan

__all__ = [
    "HostFacts",
    "HostPlan",
    "Plan",
    "Resume",
    "SshTarget",
    "TaskPlan",
    "make_plan",
    "plan_json",
    "plan_schema",
]
_MODULES = {
    **dict.fromkeys(("HostFacts", "Resume"), "facts"),
    **dict.fromkeys(("plan_json", "plan_schema"), "plan_record"),
    **dict.fromkeys(("HostPlan", "Plan", "SshTarget", "TaskPlan"), "run_plan"),
    "make_plan": "planner",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", __name__), name)
