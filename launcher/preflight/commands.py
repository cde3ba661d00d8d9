"""Check of the commands of a host's tasks: programs, modules of `python -m`, scripts."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from ..cluster.file_model import ClusterModel
from ..frozen import frozen
from ..ids import TaskId
from ..on_host.executables import program_problem
from ..plan.environment import EXTENDED, STACKS_FOLDER
from ..plan.planner import HostPlan, Plan, TaskPlan
from ..plan.shell import shell_prefix, split_python, with_exports
from . import evaluation
from .findings import Finding
from .probes import QUICK, SLOW, CommandAnswer, PathAnswer, ProbeSession

_MOST_SHELLS = 20
"""Different commands of one host for which a program is started there."""
_MOVES = re.compile(r"\b(cd|pushd)\b")
_OURS = ("/trainer", f"/{STACKS_FOLDER}")
"""Ends of paths that a launch makes, and in which nothing of the user's is."""
_RELATIVE = re.compile(r"(^|[\s;&|(='\"])(\.{1,2}/|(\.|source|cd|pushd)\s+[^-/~$\s])", re.MULTILINE)
"""A path in `setup` that depends on the working directory."""

Place = Path | str | None
"""File that a task needs: here, where it is copied to the host; there; None: not known yet."""


@frozen
class _Command:
    """What tasks that have it in common need."""

    program: Place
    script: Place
    module: str
    shell: tuple[str, ...]
    search: tuple[str | None, ...]
    """Paths on which program and module are searched."""
    cwd: str


class CommandCheck:
    """Looks for all that the commands of a host's tasks need."""

    def __init__(
        self, cluster: ClusterModel, plan: Plan, host: HostPlan, session: ProbeSession
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._host = host
        self._session = session

    async def run(self, tasks: tuple[TaskPlan, ...], report: Callable[[Finding], None]) -> None:
        """Looks for each once for all tasks that have it in common.

        Raises:
            AgentError: the host did not answer.
        """
        found: dict[_Command, list[TaskPlan]] = {}
        for task in tasks:
            if task.argv:
                found.setdefault(self._command(task), []).append(task)
        problems, shells = 0, 0
        unknown: list[TaskId] = []
        for command, having in found.items():
            names = [task.id for task in having]
            starts = bool(command.shell or command.module)
            shells += starts
            if starts and shells > _MOST_SHELLS:
                unknown += names
                continue
            if why := await self._problem(command, having[0]):
                problems += 1
                unless = may_come(self._plan, self._host, having[0])
                report(evaluation.command(self._host.name, names, why, unless=unless))
            elif command.program is None or command.script is None:
                unknown += names
        if not problems:
            report(evaluation.commands(self._host.name, unknown))

    async def _problem(self, command: _Command, task: TaskPlan) -> str:
        program = command.program
        if isinstance(program, Path) and (why := program_problem(str(program), None)):
            return why
        if isinstance(program, str) or command.shell:
            answer = await self._session.ask(
                CommandAnswer,
                SLOW,
                program=program if isinstance(program, str) else "/bin/sh",  # for its shells alone
                module=command.module if isinstance(program, str) else "",
                env=public_env(self._cluster, self._host, task),
                shell=command.shell,
                cwd=command.cwd,
            )
            if answer.why:
                return answer.why
        return await self._script_problem(command.script)

    async def _script_problem(self, script: Place) -> str:
        if isinstance(script, Path):
            return "" if script.exists() else f"{script}: no such file"
        if script:
            answer = await self._session.ask(PathAnswer, QUICK, path=script)
            return "" if answer.exists else f"{script}: no such file"
        return ""

    def _command(self, task: TaskPlan) -> _Command:
        program: Place = task.argv[0]
        script: Place = ""
        module: str | None = ""
        words = split_python(task.argv) if is_python(task) else None
        if words is not None and words[1][0] == "-m":
            module = self._needed_module(task, words[1][1])
        elif words is not None and words[1][0] != "-c":
            script = self._place(task, words[1][0])
        if "/" in task.argv[0]:
            program = self._place(task, task.argv[0])
        env = public_env(self._cluster, self._host, task)
        search = tuple(env.get(name) for name in ("PATH", "PYTHONPATH"))
        shell = shell_prefix(task.setup, task.shell)
        if module is None:
            script, module = None, ""
        cwd = probe_cwd(self._plan, self._host, task)
        return _Command(program, script, module, shell, search, cwd)

    def _place(self, task: TaskPlan, path: str) -> Place:
        copied = _copied(self._plan, self._host)
        if copied and path.startswith(f"{task.cwd}/"):
            return self._source(path[len(task.cwd) + 1 :])
        if path.startswith(("/", "~/")):
            if self._plan.run_id in path:  # made by the launch
                return "" if path.endswith(_OURS) else None
            return path  # the plan's ~ is the home there
        if _MOVES.search(task.setup):
            return None
        inside = posixpath.normpath(path)
        return self._source(inside) if copied else f"{task.cwd}/{inside}"

    def _source(self, inside: str) -> Path | None:
        """The file here that is copied to this path below the host's workdir."""
        workdir = self._plan.workdir
        for source in self._host.data:
            within = workdir is not None and source.is_relative_to(workdir)
            if not within and inside.partition("/")[0] == source.name:
                return source.parent / inside
        return None if workdir is None or inside.startswith("../") else workdir / inside

    def _needed_module(self, task: TaskPlan, name: str) -> str | None:
        """The module that a task's Python must have: no part of the workdir, nor of what is copied
        to a directory of its `PYTHONPATH`, and not the bundled trainer. None: not known yet."""
        name = name.partition(".")[0]
        path = public_env(self._cluster, self._host, task).get("PYTHONPATH", "")
        places = [self._place(task, each) for each in path.split(":") if each]
        here = [each for each in (self._plan.workdir, *places) if isinstance(each, Path)]
        files = [file for each in here for file in (each / name, each / f"{name}.py")]
        if name == "trainer" or any(file.exists() for file in files):
            return ""
        return None if None in places else name


def probe_cwd(plan: Plan, host: HostPlan, task: TaskPlan) -> str:
    """The directory in which a task starts; the root where the launch makes that directory."""
    return "/" if _copied(plan, host) else task.cwd


def may_come(plan: Plan, host: HostPlan, task: TaskPlan) -> str:
    """What of a launch may yet bring what a task's command or interpreter needs; empty: nothing."""
    if host.prepare:
        return "prepare brings it"
    program = task.argv[0] if task.argv else ""
    relative = "/" in program and program[0] not in "/~"
    if _copied(plan, host) and (relative or _RELATIVE.search(task.setup)):
        return "the files that are copied bring it"
    return ""


def _copied(plan: Plan, host: HostPlan) -> bool:
    return not host.local and bool(plan.workdir is not None or host.data)


def is_python(task: TaskPlan) -> bool:
    """Whether the task runs a Python program."""
    return bool(task.argv) and posixpath.basename(task.argv[0]).startswith("python")


def public_env(cluster: ClusterModel, host: HostPlan, task: TaskPlan | None) -> dict[str, str]:
    """A task's variables, without those that the plan fills in differently on the host."""
    if task is None:
        return {}
    tables = (cluster.run.env, host.env, cluster.jobs[task.id.job].env)
    named = {name for table in tables for name in table}
    env = {k: v for k, v in task.env.items() if k not in EXTENDED or k in named}
    return with_exports(env, task.shell)
