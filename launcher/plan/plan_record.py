"""Plan of a run as programs read it."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from ..cluster.readiness import ready_value
from ..frozen import frozen
from .ending import Ending
from .run_plan import Plan, TaskPlan


@frozen
class TaskRecord:
    """What is known of a task before a launch."""

    task: Annotated[str, Field(description="job and index, such as worker:0")]
    host: str
    address: Annotated[
        str, Field(description="for other tasks; a port picked at launch reads `auto`")
    ]
    argv: tuple[str, ...]
    env: dict[str, str]
    ready: Annotated[
        str | dict[str, str | float],
        Field(
            description="when it counts as ready, as in a cluster file; `finished`: a prepare "
            "line, which must have ended"
        ),
    ]
    cwd: Annotated[str, Field(description="working directory on the host")]
    warm: Annotated[tuple[str, ...], Field(description="modules imported before its stage")]


@frozen
class PlanRecord:
    """Plan of a run, the same for every run of a file."""

    name: str
    stages: Annotated[
        tuple[tuple[str, ...], ...],
        Field(description="names of tasks; one stage begins when the one before is ready"),
    ]
    ends: Annotated[Ending, Field(description="what ends a run, if no task fails")]
    tasks: Annotated[tuple[TaskRecord, ...], Field(description="in the order of their starts")]


@cache
def _record_type() -> TypeAdapter[PlanRecord]:
    return TypeAdapter(PlanRecord)


def plan_json(plan: Plan) -> dict[str, Any]:
    """A plan as `tfmux plan --json` prints it; `prepare` lines are tasks that must have finished.
    `docs/schemas/plan.schema.json` describes all of it."""
    stages = tuple(tuple(str(task) for task in stage) for stage in plan.stages)
    record = PlanRecord(plan.name, stages, plan.ending, tuple(map(_task, plan.tasks)))
    made: dict[str, Any] = _record_type().dump_python(record, mode="json")
    return made


def plan_schema() -> dict[str, Any]:
    """The JSON Schema of `plan_json`."""
    return _record_type().json_schema(mode="serialization")


def _task(task: TaskPlan) -> TaskRecord:
    return TaskRecord(
        task=str(task.id),
        host=task.host,
        address=task.address,
        argv=tuple(task.argv),
        env=dict(task.env),
        ready=ready_value(task.ready),
        cwd=task.cwd,
        warm=tuple(task.warm.modules) if task.warm else (),
    )
