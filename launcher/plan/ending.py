"""End of a run by the rules of its file: the tasks that decide it, and programs that never end."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated

from pydantic import Field

from ..cluster.choices import Framework, Success
from ..cluster.roles import Role
from ..frozen import frozen
from ..ids import TaskId, named_tasks
from .foreground import without_prefixes


@frozen
class Ending:
    """What ends a run. Where a task fails, `on_failure` says more."""

    decide: Annotated[
        tuple[TaskId, ...],
        Field(description="the run ends when these have ended; all with 0: a success"),
    ]
    may_finish: Annotated[
        tuple[TaskId, ...],
        Field(description="these may finish then, until `finish_timeout`"),
    ] = ()
    stopped: Annotated[tuple[TaskId, ...], Field(description="these are stopped at the end")] = ()
    because: Annotated[
        str, Field(description="the setting by which all decide, where the file has no `success`")
    ] = ""

    @property
    def text(self) -> str:
        """`ends when chief:0 has ended; worker:0–2 may finish; ps:0 is stopped`."""
        parts = [f"ends when {named_tasks(self.decide)} {_have(self.decide)} ended"]
        if self.because:
            parts[0] += f", all with 0 (by {self.because})"
        if self.may_finish:
            parts.append(f"{named_tasks(self.may_finish)} may finish")
        if self.stopped:
            verb = "is" if len(self.stopped) == 1 else "are"
            parts.append(f"{named_tasks(self.stopped)} {verb} stopped")
        return "; ".join(parts)


def ending(
    tasks: Sequence[tuple[TaskId, Role]], success: Success | None, framework: Framework
) -> Ending:
    """What ends a run of these tasks: the chief's end or that of all that train; where nobody does,
    that of evaluators and helpers; where there is only ps, its end. Without `success` the framework
    says which."""
    ranked = ((Role.CHIEF, Role.WORKER), (Role.EVALUATOR, Role.HELPER), (Role.PS,))
    groups = ([task for task, role in tasks if role in roles] for roles in ranked)
    decide = next(filter(None, groups), [])
    chief = [task for task, role in tasks if role is Role.CHIEF]
    finish: list[TaskId] = []
    by_framework = framework.meets and success is None and bool(chief) and len(decide) > 1
    if (success or framework.success) is Success.CHIEF and chief:
        finish = [task for task in decide if task not in chief]
        decide = chief
    named = {*decide, *finish}
    left = (task for task, role in tasks if task not in named and role is not Role.PREPARE)
    because = f'framework = "{framework}"' if by_framework else ""
    return Ending(tuple(decide), tuple(finish), tuple(left), because)


def _have(tasks: Sequence[TaskId]) -> str:
    return "has" if len(tasks) == 1 else "have"


_SERVERS = (
    ("ray", ("start",)),
    ("dask", ("scheduler",)),
    ("dask", ("worker",)),
    ("dask", ("cuda", "worker")),
    ("dask-scheduler", ()),
    ("dask-worker", ()),
    ("dask-cuda-worker", ()),
    ("tensorboard", ()),
    ("tensorboard.main", ()),
    ("tensorflow_model_server", ()),
    ("tritonserver", ()),
    ("jupyter", ("lab",)),
    ("jupyter", ("notebook",)),
    ("jupyter", ("server",)),
    ("jupyter-lab", ()),
    ("jupyter-notebook", ()),
    ("mlflow", ("server",)),
    ("mlflow", ("ui",)),
    ("vllm", ("serve",)),
    ("http.server", ()),
    ("redis-server", ()),
    ("etcd", ()),
    ("spark-class", ("org.apache.spark.deploy.master.Master",)),
    ("spark-class", ("org.apache.spark.deploy.worker.Worker",)),
    ("sleep", ("infinity",)),
    ("tail", ("-f",)),
    ("tail", ("-F",)),
)
"""Programs, or modules of `python -m`, and their first arguments, that serve until somebody ends
them."""
_PYTHON = re.compile(r"python(?:3(?:\.\d+)?)?|\{python\}")
_PS = re.compile(r"--job[_-]name[= ]ps")


def server_name(argv: Sequence[str]) -> str:
    """The words by which a command is known as a server; empty if it is none that is known."""
    words = list(without_prefixes(argv))
    if not words:
        return ""
    if _PYTHON.fullmatch(posixpath.basename(words[0])):
        module = words.index("-m") if "-m" in words[:-1] else -1
        words = words[module + 1 :] if module > 0 else words[1:]
    program = posixpath.basename(words[0]) if words else ""
    for name, first in _SERVERS:
        if program == name and tuple(words[1 : 1 + len(first)]) == first:
            return " ".join((name, *first))
    found = _PS.search(" ".join(argv))
    return found[0] if found else ""


@frozen
class Endless:
    """Tasks for whose end a run would wait for ever: who they are, and what to write."""

    tasks: tuple[TaskId, ...]
    text: str
    todo: str


def endless(tasks: Iterable[tuple[TaskId, Role, Sequence[str]]], ends: Ending) -> Iterator[Endless]:
    """Finds tasks that decide the end of a run, and serve others until somebody ends them."""
    known = {task: (role, server_name(argv)) for task, role, argv in tasks}
    roles = {known[task][0] for task in ends.decide}
    if roles == {Role.PS}:
        text = f"the run never ends: it has only {named_tasks(ends.decide)}, which serves"
        yield Endless(ends.decide, text, "add a job that trains, such as [jobs.worker]")
        return
    serving: dict[tuple[str, str], list[TaskId]] = {}
    for task in ends.decide:
        role, name = known[task]
        if name and role is not Role.PS:
            serving.setdefault((task.job, name), []).append(task)
    all_serve = sum(map(len, serving.values())) == len(ends.decide)
    for (job, name), found in serving.items():
        text = f"the run ends only when {named_tasks(found)} {_have(found)} ended, and {name} is a "
        text += "server that never ends"
        todo = f"write in_cluster = false in [jobs.{job}], and name the job in order in [start]"
        if all_serve:
            todo = "add a job for the client, whose end ends the run, and write in_cluster = false "
            todo += f"in [jobs.{job}]"
        yield Endless(tuple(found), text, todo)
