"""Checks of one host: all made at once, each with a deadline of its own."""

from __future__ import annotations

import asyncio
import itertools
import posixpath
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import Any

from ..cluster.choices import Framework
from ..cluster.file_model import ClusterModel
from ..cluster.ranks import ranks_with_gpus
from ..cluster.roles import Role
from ..errors import AgentError, HostError, TfmuxError
from ..files.listing import Copied
from ..files.needed import copied_path, is_python, paths_here
from ..files.trees import CopiedFiles
from ..frozen import frozen
from ..hosts.bootstrap import arrive
from ..hosts.frames import DirectoryAnswer, GpusAnswer, PortsAnswer
from ..hosts.transport import channel_problem
from ..hosts.ways import open_via
from ..ids import TaskId
from ..plan import mpi
from ..plan.environment import PROXIES, VISIBLE, GpuRequest, given_gpus, split_gpus
from ..plan.run_plan import HostPlan, Plan, TaskPlan
from ..plan.shell import shell_prefix
from ..store.runs import RunFolder
from . import evaluation, reachability
from .commands import CommandCheck, may_come, probe_cwd, public_env
from .findings import Check, Finding, Severity, passed, warning
from .known_pythons import used_pythons
from .modules import ModuleCheck
from .probes import (
    QUICK,
    SLOW,
    AccountAnswer,
    ClockAnswer,
    ConnectAnswer,
    DiskSpaceAnswer,
    LeftoversAnswer,
    LimitsAnswer,
    ListenAnswer,
    LogdirAnswer,
    MpiAnswer,
    PathAnswer,
    ProbeSession,
    PythonAnswer,
    PythonsAnswer,
    ResolveAnswer,
)

MOST_ASKED = 20
"""Different commands of one host whose programs are looked at for an MPI library."""
_END_SECONDS = 3.0
"""Longest wait for the end of a host's command (`via`) whose input has ended."""
OnFinding = Callable[[Finding], None]


@frozen
class TaskPorts:
    """Ports of a host's tasks, to which the other hosts may try to connect."""

    ports: Mapping[TaskId, int] = field(default_factory=dict)
    """The ports of all tasks, including those picked for `auto`."""
    tokens: Mapping[TaskId, str] = field(default_factory=dict)
    """Text that our listener sends on the port; empty where another process listens on it."""


@frozen
class LogFolder:
    """A task's log directory on its host: `base` is the part of the path that exists, `above` the
    number of parts that do not."""

    path: str
    base: str
    above: int


class HostCheck:
    """All checks of one host.

    `listening` is set when the other hosts may connect, to None when they cannot; `folder` and
    `tensorflow` are compared with those of other hosts.
    """

    def __init__(
        self,
        cluster: ClusterModel,
        plan: Plan,
        host: HostPlan,
        session: ProbeSession,
        report: OnFinding,
        mark: str,
        files: CopiedFiles,
        shared_marks: tuple[str, ...],
    ) -> None:
        """`mark` is the name of a file in log directories, `shared_marks` are paths of one that is
        in the workdir here."""
        self.name = host.name
        self.session = session
        self.listening: asyncio.Future[TaskPorts | None] = (
            asyncio.get_running_loop().create_future()
        )
        self.folder: LogFolder | None = None
        self.tensorflow = ""
        self._interpreter: PythonAnswer | None = None
        self._interpreted = asyncio.Event()
        """The interpreter was asked for, or will not be."""
        self._cluster = cluster
        self._plan = plan
        self._host = host
        everything = plan.on_host(host.name)
        self._tasks = tuple(task for task in everything if task.role is not Role.PREPARE)
        self._report = report
        self._mark = mark
        self._files = files
        self._shared_marks = shared_marks
        self._modules = ModuleCheck(cluster, plan, host, session)
        self._uses_logdir = any(task.makes_logdir for task in plan.tasks)
        self._unusable: set[str] = set()
        """Directories in which no task can start."""

    async def run(self, *, keep_mark: bool) -> None:
        """Makes all checks; `keep_mark` leaves the mark in the log directory for other hosts."""
        listing = asyncio.create_task(self._list_files())
        try:
            if self._host.via:
                finding = await _check_via(self._host, self._plan.run_id)
                self._report(finding)
                if finding.severity is Severity.ERROR:
                    await listing
                    return
            try:
                await self.session.begin()
            except HostError as error:
                self._report(evaluation.failure(error))
                await listing  # it needs no host
                return
            took = self.session.start_seconds
            sentence = f"tfmux's program started within {took:.1f} s, and can make its folders"
            self._report(passed(Check.AGENT, self.name, f"{took:.1f} s", sentence))
            logdir = Severity.ERROR if self._uses_logdir else Severity.WARN
            await self._asked(Check.AGENT, Severity.WARN, self._limits)  # before others are asked
            await self._asked(Check.FILES, Severity.ERROR, self._directories)
            await asyncio.gather(
                self._asked(Check.FILES, Severity.WARN, self._shared),
                self._asked(Check.PORTS, Severity.ERROR, self._ports),
                self._asked(Check.SHELL, Severity.WARN, self._account),
                self._asked(Check.ADDRESS, Severity.WARN, self._own_address),
                self._asked(Check.PYTHON, Severity.ERROR, lambda: self._interpret(listing)),
                self._asked(Check.COMMAND, Severity.ERROR, lambda: self._commands(listing)),
                self._asked(Check.PYTHON, Severity.WARN, lambda: self._import_check(listing)),
                self._asked(Check.COMMAND, Severity.WARN, self._mpi),
                self._asked(Check.GPUS, Severity.WARN, self._gpus),
                self._asked(Check.DISK, Severity.ERROR, self._room),
                self._asked(Check.CLOCK, Severity.WARN, self._clock),
                self._asked(Check.LEFTOVERS, Severity.WARN, self._leftovers),
                self._asked(Check.LOGDIR, logdir, lambda: self._logdirs(keep_mark)),
                self._asked(Check.FILES, Severity.WARN, self._arguments),
            )
            await listing
        finally:
            listing.cancel()
            if not self.listening.done():
                self.listening.set_result(None)

    async def connect(self, address: str, port: int, token: str, seconds: float) -> ConnectAnswer:
        """Makes the host connect to an address of the cluster spec.

        Raises:
            AgentError: the host did not answer.
        """
        patience = 3 * seconds + QUICK
        return await self.session.ask(
            ConnectAnswer, patience, host=address, port=port, token=token, seconds=seconds
        )

    async def sees(self, chief: LogFolder, mark: str) -> bool:
        """Whether the mark in the chief's log directory is in this host's as well.

        Raises:
            AgentError: the host did not answer.
        """
        path = self._task_paths()[0]
        for _ in range(chief.above):
            path = posixpath.dirname(path)
        answer = await self.session.ask(PathAnswer, QUICK, path=posixpath.join(path, mark))
        return answer.exists

    async def _asked(
        self, check: Check, severity: Severity, question: Callable[[], Awaitable[None]]
    ) -> None:
        try:
            await question()
        except AgentError as error:
            self._report(evaluation.unanswered(check, severity, error))

    async def _ports(self) -> None:
        fixed = {task.id: task.port for task in self._tasks if task.port is not None}
        free = [task.id for task in self._tasks if task.port is None]
        check = list(fixed.values())
        answer = await self.session.ask(PortsAnswer, QUICK, check=check)
        held = {each.port for each in answer.owners}
        ours = [port for port in check if port not in held]
        token = f"{self._mark}:{self.name}"[:200]
        listening = await self.session.ask(
            ListenAnswer, QUICK, ports=ours, pick=len(free), token=token
        )
        if len(listening.picked) != len(free):
            raise AgentError(self.name, "it has picked another number of ports")
        every = fixed | dict(zip(free, listening.picked, strict=True))
        failed = listening.failed
        tokens = {
            task: "" if port in held else token
            for task, port in every.items()
            if str(port) not in failed
        }
        self.listening.set_result(TaskPorts(every, tokens))
        for task in self._tasks:
            if task.forward and tokens.get(task.id) and (port := every[task.id]):
                await self._try_channel(task.id, port)
        forbidden = listening.forbidden
        self._report_all(evaluation.ports(self.name, fixed, answer.owners, failed, forbidden))

    async def _try_channel(self, task: TaskId, port: int) -> None:
        """Whether a port that will be forwarded is reached: our own listener is there."""
        try:
            await self.session.try_channel(port)
        except PermissionError as error:
            why = channel_problem(self.name, port, error)
            self._report(evaluation.not_forwarded(self.name, task, why))
        except OSError:  # such as a connection that has ended, which others say
            return

    async def _account(self) -> None:
        answer = await self.session.ask(AccountAnswer, QUICK)
        if self._host.via:
            self._report(_shell_of_via(self.name, self.session.noise))
        else:
            self._report_all(evaluation.shell(self.name, answer, self.session.noise))
        hosts = [self._cluster.address(host.name) for host in self._plan.hosts]
        self._report(evaluation.proxies(self.name, answer.proxies | self._own_proxies(), hosts))

    async def _own_address(self) -> None:
        """What the host takes its own name for, where others connect to its tasks by that."""
        sources = reachability.sources(self._plan)
        if self.name not in sources or len(sources) == 1:
            return
        name = self._cluster.address(self.name)
        seconds = reachability.REACH_SECONDS
        answer = await self.session.ask(ResolveAnswer, seconds + QUICK, host=name, seconds=seconds)
        self._report_all(evaluation.own_address(self.name, name, answer.addresses))

    async def _interpret(self, listing: asyncio.Task[Copied | None]) -> None:
        try:
            await self._python(listing)
        finally:
            self._interpreted.set()

    async def _python(self, listing: asyncio.Task[Copied | None]) -> None:
        task = self._pythonic()
        python = task.argv[0] if task is not None else self._host.python
        if task is not None and "/" in python and not task.directory:
            place, copied = copied_path(task, python), await listing
            if place is not None and (copied is None or copied.find(place.path) is None):
                if self._plan.copies(self._host):
                    return  # the check of commands says why it does not come
        answer = await self.session.ask(
            PythonAnswer,
            SLOW,
            python=python,
            env=public_env(self._cluster, self._host, task),
            shell=() if task is None else shell_prefix(task.setup, task.shell),
            cwd="/" if task is None else probe_cwd(self._plan, self._host, task),
        )
        unless = "" if task is None else may_come(self._plan, self._host, task)
        needed = any(_runs_trainer(task.argv) for task in self._tasks)
        used = needed or self._cluster.run.framework is Framework.TENSORFLOW
        if used and not needed and not answer.there and (copied := await listing) is not None:
            needed = await self._modules.requires(self._startable(), copied, "tensorflow")
        offer = ""
        if python == self._host.python and (answer.failed or (used and not answer.there)):
            offer = await self._other_python("tensorflow" if used else "json")
        checked = evaluation.interpreter(self.name, python, answer, unless=unless, offer=offer)
        self._report(checked)
        if answer.failed:
            return
        self.tensorflow = answer.tensorflow
        self._interpreter = answer
        if needed:
            self._report_all(evaluation.trainer_python(self.name, python, answer))
        found = evaluation.tensorflow(
            self.name, python, answer, needed=needed, used=used, offer=offer
        )
        self._report(found)

    async def _other_python(self, module: str) -> str:
        """An interpreter there that has a module: one that past runs have used, or of a usual
        place; empty where none is found in time."""
        known = await asyncio.to_thread(self._used_pythons)
        try:
            answer = await self.session.ask(PythonsAnswer, SLOW, modules=[module], known=known)
        except AgentError:
            return ""
        return answer.found[0][0] if answer.found else ""

    def _used_pythons(self) -> list[str]:
        return used_pythons(self._cluster, self.name)

    async def _import_check(self, listing: asyncio.Task[Copied | None]) -> None:
        """Looks for the modules that programs import; TensorFlow has a check of its own."""
        copied = await listing
        if copied is None:
            return
        tensorflow = self._cluster.run.framework is Framework.TENSORFLOW
        besides = frozenset({"tensorflow"} if tensorflow else ())
        tasks = self._startable()
        await self._modules.run(tasks, copied, self._used_pythons, besides, self._report)

    async def _commands(self, listing: asyncio.Task[Copied | None]) -> None:
        copied = await listing
        if copied is not None:  # else nothing of it would come
            check = CommandCheck(self._cluster, self._plan, self._host, self.session, copied)
            await check.run(self._startable(), self._report)

    def _startable(self) -> tuple[TaskPlan, ...]:
        """The tasks whose directory is there, as far as is known."""
        tasks = self._tasks
        return tuple(t for t in tasks if not t.directory or t.cwd not in self._unusable)

    async def _list_files(self) -> Copied | None:
        """Reports what is copied to the host; None: a launch would be refused."""
        if not self._plan.copies(self._host):
            return Copied(())
        try:
            async for finding in evaluation.copies(self._files, self._plan, self._host, self.name):
                self._report(finding)
            return await self._files.of(self._host)
        except TfmuxError as error:
            self._report(evaluation.refused(self.name, str(error)))
            return None

    async def _directories(self) -> None:
        """Looks for the directories that the host must have already."""
        if not (self._plan.copies(self._host) or all(task.directory for task in self._tasks)):
            sentence = f"nothing is copied to {self.name}"
            self._report(passed(Check.FILES, self.name, "none", sentence))
        places: dict[str, list[TaskId]] = {}
        for task in self._tasks:
            if task.directory:
                places.setdefault(task.cwd, []).append(task.id)
        for place, tasks in places.items():
            answer = await self.session.ask(DirectoryAnswer, QUICK, path=place)
            if answer.why:
                self._unusable.add(place)
                self._report(evaluation.directory(self.name, tasks, answer.why))
            else:
                self._report(passed(Check.FILES, self.name, "in place", f"{place} is there"))

    async def _shared(self) -> None:
        """Looks whether the host has the very workdir that would be copied there."""
        for mark in self._shared_marks if self._plan.copies(self._host) else ():
            if (await self.session.ask(PathAnswer, QUICK, path=mark)).exists:
                self._report(evaluation.same_workdir(self.name, posixpath.dirname(mark)))
                return

    async def _mpi(self) -> None:
        """Programs of an MPI library, whose ranks `framework = "mpi-like"` does not make."""
        for task, problem, todo in mpi.repeated(self._plan):
            if task.host == self.name:
                self._report(evaluation.mpi_repeated(self.name, task.id, problem, todo))
        size = mpi.size_of(self._cluster)
        here = {task.id: library for task, library in await self._mpi_here()} if size else {}
        seen: set[tuple[str, ...]] = set()
        for task in self._tasks if size else ():
            if not task.in_cluster or not task.argv or task.argv in seen or len(seen) >= MOST_ASKED:
                continue
            seen.add(task.argv)
            library = (
                here.get(task.id, "")
                or (
                    await self.session.ask(
                        MpiAnswer,
                        SLOW,
                        program=task.argv[0],
                        env=public_env(self._cluster, self._host, task),
                        shell=shell_prefix(task.setup, task.shell),
                        cwd=probe_cwd(self._plan, self._host, task),
                    )
                ).library
            )
            if library:
                todo = mpi.advice(self._cluster, task.argv)
                sure = task.id in here or library != mpi.MPI4PY
                problem = mpi.problem(library, size)
                self._report(evaluation.mpi(self.name, task.id, problem, todo, sure=sure))

    async def _mpi_here(self) -> list[tuple[TaskPlan, str]]:
        return await asyncio.to_thread(lambda: list(mpi.found_here(self._plan, self._tasks)))

    async def _gpus(self) -> None:
        answer = await self.session.ask(GpusAnswer, SLOW)
        asked = [self._cluster.jobs[task.id.job].gpus for task in self._tasks]
        numbers = sum(wanted for wanted in asked if isinstance(wanted, int))
        promised = self._host.gpus if self._host.gpus is not None else numbers
        named = {*self._host.gpu_names}
        named.update(name for wanted in asked if isinstance(wanted, tuple) for name in wanted)
        self._report(evaluation.gpus(self.name, answer, promised))
        missing = {name for name in named if not any(gpu.is_named(name) for gpu in answer.gpus)}
        self._report_all(evaluation.missing_gpus(self.name, sorted(missing), len(answer.gpus)))
        had, names = self._gpus_of_tasks(answer)
        parts = [part for gpu in answer.gpus for part in gpu.parts]
        given = [part for part in parts if any(map(part.is_named, names))]
        training = sum(1 for task in self._tasks if task.role.trains)
        self._report_all(evaluation.given_gpus(self.name, given, training))
        await self._interpreted.wait()
        if given and self._interpreter is not None:
            self._report_all(evaluation.cuda(self.name, answer, self._interpreter))
        if answer.gpus or not answer.why:
            had = had if self._host.gpus is None else self._host.gpus
            wanting = ranks_with_gpus(self._cluster)[self.name]
            self._report_all(evaluation.ranks(self.name, wanting, had, self._cluster.run.framework))

    def _gpus_of_tasks(self, answer: GpusAnswer) -> tuple[int, set[str]]:
        """The number of GPUs that the host lets tasks see, and the names of those that the plan
        will give them."""
        had, shown = len(answer.gpus), tuple[str, ...]()
        if answer.visible is not None:
            shown = given_gpus({VISIBLE: answer.visible})
            had = min(had, len(shown))
        given = self._host.gpu_names or shown
        requests = [
            GpuRequest(task.id, self._cluster.jobs[task.id.job].gpus, task.role.trains)
            for task in self._tasks
            if VISIBLE not in task.env  # else the file says it itself
        ]
        shares = split_gpus(requests, had if self._host.gpus is None else self._host.gpus, given)
        names = {name for share in shares.values() for name in share.names(given)}
        return had, names.union(*(task.gpus for task in self._tasks))

    async def _room(self) -> None:
        answer = await self.session.ask(DiskSpaceAnswer, QUICK, paths=self._task_paths())
        self._report_all(evaluation.disks(self.name, answer, uses_logdir=self._uses_logdir))
        self._report(evaluation.memory(self.name, answer, len(self._tasks)))

    async def _limits(self) -> None:
        answer = await self.session.ask(LimitsAnswer, QUICK)
        self._report_all(evaluation.descriptors(self.name, answer, len(self._tasks)))
        self._report_all(evaluation.processes(self.name, answer, len(self._tasks)))

    async def _arguments(self) -> None:
        """Looks for what commands name by a whole path and this machine has."""
        if self._host.local:
            return
        for task, path in await asyncio.to_thread(lambda: list(paths_here(self._tasks))):
            if not (await self.session.ask(PathAnswer, QUICK, path=path)).exists:
                self._report(evaluation.argument_missing(self.name, task, path))

    async def _clock(self) -> None:
        before, began = time.time(), time.monotonic()
        answer = await self.session.ask(ClockAnswer, QUICK)
        round_trip = time.monotonic() - began
        offset = answer.time - (before + round_trip / 2)
        self._report(evaluation.clock(self.name, offset, round_trip))

    async def _leftovers(self) -> None:
        answer = await self.session.ask(LeftoversAnswer, QUICK)
        known = {folder.run_id for folder in RunFolder.all()}
        self._report_all(evaluation.leftovers(self.name, answer.found, known))

    async def _logdirs(self, keep_mark: bool) -> None:
        for number, path in enumerate(self._task_paths()):
            keep = keep_mark and number == 0
            mark = f"{self._mark}-{self.name}-{number}"
            if keep:
                mark = self._mark
            answer = await self.session.ask(LogdirAnswer, QUICK, path=path, mark=mark, keep=keep)
            if number == 0 and not answer.why:
                self.folder = LogFolder(answer.path, answer.base, answer.above)
            self._report_all(evaluation.logdir(self.name, answer, used=self._uses_logdir))

    def _task_paths(self) -> list[str]:
        """The log directories of the host's tasks, those of cluster jobs first."""
        ordered = sorted(self._tasks, key=lambda task: not task.in_cluster)
        return list(dict.fromkeys(task.logdir for task in ordered))[:8]

    def _pythonic(self) -> TaskPlan | None:
        """The first task that runs Python, tasks of cluster jobs before others."""
        for task in sorted(self._startable(), key=lambda task: not task.in_cluster):
            if is_python(task.argv):
                return task
        return None

    def _own_proxies(self) -> dict[str, str]:
        return {
            name: value
            for task in self._tasks
            for name, value in task.env.items()
            if name in PROXIES and value
        }

    def _report_all(self, findings: Any) -> None:
        for finding in findings:
            self._report(finding)


def _runs_trainer(argv: tuple[str, ...]) -> bool:
    """The task runs the bundled trainer, which needs TensorFlow."""
    script = next((word for word in argv[1:] if not word.startswith("-")), "")
    pairs = itertools.pairwise(argv)
    return script.endswith("/trainer") or any(pair == ("-m", "trainer") for pair in pairs)


async def _check_via(host: HostPlan, run_id: str) -> Finding:
    """Starts the command and the interpreter behind it, sends nothing, and ends its input."""
    nonce = secrets.token_hex(8)
    try:
        transport = await open_via(host, run_id, nonce)
        try:
            await arrive(transport, nonce, host.name)
            transport.close_input()
            ended = await transport.wait_ended(_END_SECONDS)
        finally:
            await transport.aclose()
    except HostError as error:
        return evaluation.failure(error)
    if ended:
        sentence = f"{host.destination} passes every byte on at once, and ends with its input"
        return passed(Check.LOGIN, host.name, "8-bit clean", sentence)
    sentence = (
        f"{host.destination} keeps running after its input and the process on the host have ended: "
        "processes that it has started elsewhere may stay"
    )
    todo = "let it pass on the end of its input, and end with the process that it runs (exec)"
    return warning(Check.LOGIN, "via-lingers", host.name, "lingers", sentence, todo)


def _shell_of_via(host: str, noise: bytes) -> Finding:
    """There is no login shell to look at; what the command prints first is ignored."""
    said = noise.decode(errors="replace").strip().splitlines()
    sentence = "no login shell: via runs tfmux's command"
    if said:
        sentence += f", and prints text before ('{said[0][:60]}'), which tfmux ignores"
    return passed(Check.SHELL, host, "not used", sentence)
