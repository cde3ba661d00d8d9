"""Check of the commands of a host's tasks: programs, modules of `python -m`, scripts."""

from __future__ import annotations

import asyncio
import posixpath
import re
from collections.abc import Callable

from ..agent.executables import HEAD_BYTES, SHELLS, first_line
from ..cluster.file_model import ClusterModel
from ..files.listing import Copied, Listed
from ..files.needed import (
    MOVES,
    CopiedPath,
    copied_path,
    is_python,
    left_out_module,
    script_of,
)
from ..frozen import frozen
from ..ids import TaskId
from ..plan.environment import EXTENDED, STACKS_FOLDER
from ..plan.run_plan import HostPlan, Plan, TaskPlan
from ..plan.shell import shell_prefix, split_python, with_exports
from ..start_problems import problem_text
from . import evaluation
from .findings import Finding
from .probes import QUICK, SLOW, CommandAnswer, PathAnswer, ProbeSession

_MOST_SHELLS = 20
"""Different commands of one host for which a program is started there."""
_OURS = ("/trainer", f"/{STACKS_FOLDER}")
"""Ends of paths that a launch makes, and in which nothing of the user's is."""
_RELATIVE = re.compile(r"(^|[\s;&|(='\"])(\.{1,2}/|(\.|source|cd|pushd)\s+[^-/~$\s])", re.MULTILINE)
"""A path in `setup` that depends on the working directory."""

Place = CopiedPath | str | None
"""File that a task needs: among those that are copied to the host; on the host; None: not known
yet."""


@frozen
class _Command:
    """What tasks that have it in common need."""

    program: Place
    script: Place
    module: str
    left_out: str
    """Why a module of the workdir is not the one that is needed: it is not copied."""
    shell: tuple[str, ...]
    search: tuple[str | None, ...]
    """Paths on which program and module are searched."""
    cwd: str


class CommandCheck:
    """Looks for all that the commands of a host's tasks need."""

    def __init__(
        self,
        cluster: ClusterModel,
        plan: Plan,
        host: HostPlan,
        session: ProbeSession,
        copied: Copied,
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._host = host
        self._session = session
        self._copied = copied

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
            why, asked = left_out_module(having[0], self._copied), False
            if not why:
                why, asked = await self._problem(command, having[0])
            if why:
                problems += 1
                unless = may_come(self._plan, self._host, having[0], asked=asked)
                report(evaluation.command(self._host.name, names, why, unless=unless))
            elif command.program is None or command.script is None:
                unknown += names
        if not problems:
            report(evaluation.commands(self._host.name, unknown))

    async def _problem(self, command: _Command, task: TaskPlan) -> tuple[str, bool]:
        """Reason for which a command cannot run, and whether the host has said it, to which
        nothing has been copied yet."""
        program, before = command.program, ""
        if isinstance(program, CopiedPath):
            before = f"{self._copied.local(program.path)}: "
            by_shell = bool(command.shell)
            why, interpreter = await asyncio.to_thread(self._copied_problem, program.path, by_shell)
            if why:
                return why, False
            program = interpreter or None
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
            why = answer.reason
            if why and before and program:
                return f"{before}its first line names {program}: {why}", bool(command.shell)
            if why and command.left_out:
                return f"{why}: {command.left_out}", False
            if why:
                return why, True
        return await self._script_problem(command.script, task), False

    def _copied_problem(self, path: str, by_shell: bool) -> tuple[str, str]:
        """Reason for which a program that is copied cannot be run, and its interpreter."""
        found = self._copied.find(path)
        if found is None:
            return self._missing(path), ""
        if found.kind == "d":
            return f"{self._copied.local(path)} is a directory", ""
        if not found.mode & 0o100:
            return f"{found.source} has no execute permission", ""
        problem, interpreter = first_line(_head(found), found.source, by_shell=by_shell)
        return "" if problem is None else problem_text(problem), interpreter

    def _missing(self, path: str) -> str:
        return self._copied.problem(path) or f"{self._copied.local(path)}: no such file"

    async def _script_problem(self, script: Place, task: TaskPlan) -> str:
        if isinstance(script, CopiedPath):
            found = await asyncio.to_thread(self._copied.find, script.path)
            if found is None:
                return await asyncio.to_thread(self._missing, script.path)
            name = posixpath.basename(task.argv[0])
            if found.kind == "f" and name in SHELLS and b"\r\n" in _head(found):
                return f"{found.source}: its lines end as in Windows: sed -i 's/\\r$//' FILE"
            return ""
        if script:
            answer = await self._session.ask(PathAnswer, QUICK, path=script)
            return "" if answer.exists else f"{script}: no such file"
        return ""

    def _command(self, task: TaskPlan) -> _Command:
        program: Place = task.argv[0]
        script: Place = ""
        module: str | None = ""
        left_out = ""
        words = split_python(task.argv) if is_python(task.argv) else None
        if words is not None and words[1][0] == "-m":
            module, left_out = self._needed_module(task, words[1][1])
        elif path := script_of(task.argv):
            script = self._place(task, path)
        if "/" in task.argv[0]:
            program = self._place(task, task.argv[0])
        env = public_env(self._cluster, self._host, task)
        search = tuple(env.get(name) for name in ("PATH", "PYTHONPATH"))
        shell = shell_prefix(task.setup, task.shell)
        if module is None:
            script, module = None, ""
        cwd = probe_cwd(self._plan, self._host, task)
        return _Command(program, script, module, left_out, shell, search, cwd)

    def _place(self, task: TaskPlan, path: str) -> Place:
        copied = _copied(self._plan, self._host, task)
        if copied and (place := copied_path(task, path)) is not None:
            return place
        if path.startswith(("/", "~/")):
            if self._plan.run_id in path:  # made by the launch
                return "" if path.endswith(_OURS) else None
            return path  # the plan's ~ is the home there
        if copied or MOVES.search(task.setup):
            return None
        return f"{task.cwd}/{posixpath.normpath(path)}"

    def _needed_module(self, task: TaskPlan, name: str) -> tuple[str | None, str]:
        """The module that a task's Python must have: none that is copied to the workdir or to a
        directory of its `PYTHONPATH`, and not the bundled trainer. None: not known yet. The other
        text says why one of the workdir is not copied."""
        name = name.partition(".")[0]
        path = public_env(self._cluster, self._host, task).get("PYTHONPATH", "")
        places: list[Place] = [self._place(task, each) for each in path.split(":") if each]
        if _copied(self._plan, self._host, task):
            places.append(copied_path(task, "."))
        files = [
            posixpath.normpath(f"{place.path}/{file}")
            for place in places
            if isinstance(place, CopiedPath)
            for file in (name, f"{name}.py")
        ]
        here = self._plan.workdir if self._host.local and not task.directory else None
        local = here is not None and any((here / file).exists() for file in (name, f"{name}.py"))
        if name == "trainer" or local or any(self._copied.find(file) for file in files):
            return "", ""
        left_out = next(filter(None, map(self._copied.problem, files)), "")
        return (None if None in places else name), left_out


def probe_cwd(plan: Plan, host: HostPlan, task: TaskPlan) -> str:
    """The directory in which a task starts; the root where the launch makes that directory."""
    return "/" if _copied(plan, host, task) else task.cwd


def may_come(plan: Plan, host: HostPlan, task: TaskPlan, *, asked: bool = True) -> str:
    """What of a launch may yet bring what a task's command or interpreter needs; empty: nothing.
    `asked`: the host has been asked, and not only the files that will be copied."""
    if host.prepare:
        return "prepare installs it"
    program = task.argv[0] if task.argv else ""
    relative = "/" in program and program[0] not in "/~"
    if asked and _copied(plan, host, task) and (relative or _RELATIVE.search(task.setup)):
        return "it is among the files that are copied"
    return ""


def _copied(plan: Plan, host: HostPlan, task: TaskPlan) -> bool:
    """Whether a task starts in a copy that the launch makes."""
    return plan.copies(host) and not task.directory


def _head(found: Listed) -> bytes:
    try:
        with open(found.source, "rb") as file:
            return file.read(HEAD_BYTES)
    except OSError:
        return b""


def public_env(cluster: ClusterModel, host: HostPlan, task: TaskPlan | None) -> dict[str, str]:
    """A task's variables, without those that the plan fills in differently on the host."""
    if task is None:
        return {}
    tables = (cluster.run.env, host.env, cluster.jobs[task.id.job].env)
    named = {name for table in tables for name in table}
    env = {k: v for k, v in task.env.items() if k not in EXTENDED or k in named}
    return with_exports(env, task.shell)
