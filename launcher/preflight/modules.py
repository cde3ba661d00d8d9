"""Check of the modules that Python programs of a host's tasks import when they start."""

from __future__ import annotations

import ast
import asyncio
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ..cluster.file_model import ClusterModel
from ..errors import AgentError
from ..files.imports import ImportedModule, ProgramImports, imports_of
from ..files.listing import Copied
from ..frozen import frozen
from ..plan.run_plan import HostPlan, Plan, TaskPlan
from ..plan.shell import shell_prefix, split_python
from . import evaluation
from .commands import may_come, probe_cwd, public_env
from .findings import Finding
from .probes import SLOW, ModulesAnswer, ProbeSession, PythonsAnswer

_MOST_ASKED = 8
"""Interpreters, with their variables and shells, that are asked on one host."""
_OURS = ("trainer", "tfmux", "launcher")
_HERE = sys.version_info[:2]


@frozen
class _Interpreter:
    """What decides where a program finds its modules."""

    python: str
    options: tuple[str, ...]
    shell: tuple[str, ...]
    search: tuple[str | None, ...]
    cwd: str


@frozen
class MissingModules:
    """Modules that programs import and an interpreter of the host does not have."""

    task: TaskPlan
    modules: tuple[ImportedModule, ...]
    unless: str
    """What may yet bring them; empty: nothing."""


class ModuleCheck:
    """Asks each interpreter of a host once for the modules that its tasks' programs import."""

    def __init__(
        self, cluster: ClusterModel, plan: Plan, host: HostPlan, session: ProbeSession
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._host = host
        self._session = session
        self._imports: dict[tuple[object, ...], ProgramImports | None] = {}

    async def imports(self, task: TaskPlan, copied: Copied) -> ProgramImports | None:
        """What a task's program imports; None where its source is not here."""
        key = (task.argv, task.cwd, task.directory, task.setup, task.env.get("PYTHONPATH"))
        if key not in self._imports:
            plan, host = self._plan, self._host
            self._imports[key] = await asyncio.to_thread(imports_of, plan, host, task, copied)
        return self._imports[key]

    async def requires(self, tasks: tuple[TaskPlan, ...], copied: Copied, module: str) -> bool:
        """Whether a task's program ends without a module, and nothing else may bring it."""
        for task in tasks:
            found = await self.imports(task, copied)
            if found is None or self._unless(task, found):
                continue
            if any(each.name == module and each.certain for each in found.modules):
                return True
        return False

    async def run(
        self,
        tasks: tuple[TaskPlan, ...],
        copied: Copied,
        known: Callable[[], list[str]],
        besides: frozenset[str],
        report: Callable[[Finding], None],
    ) -> None:
        """Reports modules that an interpreter does not have; `besides` are looked for elsewhere,
        `known` are interpreters of past runs.

        Raises:
            AgentError: the host did not answer.
        """
        asked: dict[_Interpreter, list[tuple[TaskPlan, ProgramImports]]] = {}
        for task in tasks:
            found = await self.imports(task, copied)
            if found is not None:
                asked.setdefault(self._interpreter(task), []).append((task, found))
        for interpreter, programs in list(asked.items())[:_MOST_ASKED]:
            names = {m.name for _, found in programs for m in found.modules} - besides
            answer = await self._ask(interpreter, programs[0][0], sorted(names.difference(_OURS)))
            if answer.failed:
                continue  # the check of the interpreter or of the commands says it
            for task, imports in programs:
                for finding in self._syntax(task, imports, interpreter.python, answer):
                    report(finding)
            for missing in self._missing(programs, answer):
                offer = await self._offer(interpreter, missing, known)
                name, python = self._host.name, interpreter.python
                report(evaluation.modules(name, python, answer, missing, offer))

    async def _ask(
        self, interpreter: _Interpreter, task: TaskPlan, names: list[str]
    ) -> ModulesAnswer:
        return await self._session.ask(
            ModulesAnswer,
            SLOW,
            python=interpreter.python,
            options=interpreter.options,
            modules=names,
            env=public_env(self._cluster, self._host, task),
            shell=interpreter.shell,
            cwd=interpreter.cwd,
        )

    def _interpreter(self, task: TaskPlan) -> _Interpreter:
        words = split_python(task.argv)
        env = public_env(self._cluster, self._host, task)
        return _Interpreter(
            task.argv[0],
            tuple(word for word in words[0] if word != "-i") if words is not None else (),
            shell_prefix(task.setup, task.shell),
            (env.get("PATH"), env.get("PYTHONPATH"), env.get("PYTHONHOME")),
            probe_cwd(self._plan, self._host, task),
        )

    def _unless(self, task: TaskPlan, imports: ProgramImports) -> str:
        """What may yet bring a module; empty: nothing."""
        if unless := may_come(self._plan, self._host, task):
            return unless
        if task.setup:
            return "setup brings it"
        if "PYTHONPATH" in public_env(self._cluster, self._host, task):
            return "it is in PYTHONPATH then"
        return "the program adds its directory to sys.path" if imports.changes_path else ""

    def _missing(
        self, programs: list[tuple[TaskPlan, ProgramImports]], answer: ModulesAnswer
    ) -> list[MissingModules]:
        """Groups missing modules: first those without which a program ends, then those that may
        come, then those that it can do without."""
        kinds: dict[tuple[bool, str], dict[str, tuple[TaskPlan, ImportedModule]]] = {}
        for task, imports in programs:
            unless = self._unless(task, imports)
            for each in imports.modules:
                if each.name in answer.missing:
                    kind = kinds.setdefault((not each.certain, unless), {})
                    kind.setdefault(each.name, (task, each))
        told: set[str] = set()
        out = []
        for (_, unless), found in sorted(kinds.items(), key=lambda pair: pair[0]):
            new = {name: pair for name, pair in found.items() if name not in told}
            told.update(new)
            if new:
                task = next(iter(new.values()))[0]
                modules = tuple(module for _, module in new.values())
                out.append(MissingModules(task, modules, unless))
        return out

    async def _offer(
        self, interpreter: _Interpreter, missing: MissingModules, known: Callable[[], list[str]]
    ) -> str:
        """An interpreter of the host that has all of them; empty where there is none, or another
        one than the host's `python` runs the program."""
        if interpreter.python != self._host.python or not missing.modules[0].certain:
            return ""
        modules = [module.name for module in missing.modules]
        used = await asyncio.to_thread(known)
        with suppress(AgentError):
            answer = await self._session.ask(PythonsAnswer, SLOW, modules=modules, known=used)
            return answer.found[0][0] if answer.found else ""
        return ""

    def _syntax(
        self, task: TaskPlan, imports: ProgramImports, python: str, answer: ModulesAnswer
    ) -> list[Finding]:
        """Files that the host's Python does not read: for another version, or with a mistake."""
        version = answer.numbers
        unless = "prepare changes it" if self._host.prepare else ""
        about = (self._host.name, task.id)
        found = []
        for each in imports.unreadable:
            place = f"{each.file}, line {each.line}"
            here = version is None or version > _HERE
            sure = each.certain and not here
            said = f"Python {answer.version}" if not here else f"Python {_HERE[0]}.{_HERE[1]} here"
            found.append(evaluation.syntax(*about, place, each.why, said, sure=sure, unless=unless))
        if version is not None and version < _HERE:
            for source in imports.sources:
                if why := _too_new(source, version):
                    place, said = Path(source).name, f"{python} is Python {answer.version}"
                    found.append(
                        evaluation.syntax(*about, place, why, said, sure=True, unless=unless)
                    )
        return found


def _too_new(source: str, version: tuple[int, int]) -> str:
    """What in a file an older Python does not know; empty where that reads it."""
    try:
        ast.parse(Path(source).read_bytes(), feature_version=version)
    except SyntaxError as error:
        return error.msg
    except (OSError, ValueError, RecursionError, MemoryError):
        return ""
    return ""
