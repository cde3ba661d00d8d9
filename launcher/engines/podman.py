"""Podman: nodes are containers on this machine.

A container's first process is the agent's watchdog, so it ends when nothing of the run is left in
it. Containers that have ended stay until they are released: podman is asked about them then. What
is left in a container is the kernel's business: with the first process of a PID namespace all
others are gone.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..agent.config import AgentConfig, Rules
from ..agent.proc import Process, read_process
from ..cluster.engine_table import node_name
from ..cluster.podman import HOST_NETWORK, Podman
from ..cluster.spec import ClusterModel
from ..hosts import bootstrap
from ..paths import cache_home, runs_home
from ..plan.model import Plan
from ..printable import printable
from ..run.events import EngineWord
from .commands import Commands, LocalCommands, Output
from .engine import EngineError, EngineFinding, JobState, MissingProgramError, Subject, Verdict
from .podman_limits import rootless_findings
from .podman_run import build_root, run_command, volume

if TYPE_CHECKING:
    from ..hosts.ssh import SshConnector

LABEL = "tfmux.run"
_SECONDS = 30.0
_LONG_SECONDS = 80.0
_AT_ONCE = 4
_REMOVE_TRIES = 4
_REMOVE_PACE = 1.0
_STOP_SECONDS = 5.0
"""Beside `grace`, for who stops a container with `podman stop`."""
_SENT = "/run/tfmux-agent"
_LINE = f'import sys;sys.stdin=open("{_SENT}");' + bootstrap.ENGINE_LINE
_SHOWN = (
    "{{.Name}}|{{.State.Status}}|{{.State.Pid}}|{{.State.ExitCode}}|"
    "{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}"
)
_ALIVE = frozenset({"running", "paused", "stopping"})
_NUMBER = re.compile(r"-?\d{1,9}")
_STATE = re.compile(r"[a-z]{1,20}")
_ADDRESS = re.compile(r"[0-9a-fA-F.:]{2,45}")
_PROBE = 'import sys;print("Python %d.%d.%d" % sys.version_info[:3])'
_VERSION = re.compile(r"Python (\d+)\.(\d+)\.\d+")
_OLDEST = (3, 8)
_OLDEST_PODMAN = 4
"""It has a writable layer over a root without an image."""


@dataclass(frozen=True)
class Container:
    """A container as podman knows it."""

    state: str
    pid: int
    """Of its first process on this machine; 0: there is none."""
    status: int
    address: str

    @property
    def alive(self) -> bool:
        """Whether the container has processes."""
        return self.state in _ALIVE


class PodmanEngine:
    """Podman on this machine, for one run; implements `engine.Engine`."""

    name = Podman.label
    owns_job = True

    def __init__(self, table: Podman, run_id: str, rules: Rules, commands: Commands) -> None:
        self._table = table
        self._run_id = run_id
        self._rules = rules
        self._commands = commands
        self._job = f"tfmux-{run_id}"
        self._names = tuple(f"{self._job}-{node}" for node in table.node_names)
        self._sent = runs_home() / run_id / "podman-agent"
        self._known: dict[str, Process | None] = {}
        """The first process of each container that podman has shown; None: it had ended."""

    # --- the engine's interface -----------------------------------------------------------

    async def connect(self) -> None:
        """Podman is on this machine."""

    async def request(self) -> str:
        """Starts the containers; returns the beginning of their names.

        Raises:
            EngineError: with podman's words. No container is left then.
        """
        await self._find_image()
        await asyncio.to_thread(self._make_root)
        try:
            await asyncio.to_thread(self._write_agent)
        except OSError as error:
            raise EngineError(f"{self._sent}: {error.strerror}") from error
        try:
            await self._start_all()
        except EngineError:
            with suppress(EngineError):  # it is asked again when the run ends
                await self.release(self._job)
            raise
        return self._job

    async def find(self) -> str:
        """The beginning of their names, when podman has one of this run's containers.

        Raises:
            EngineError: podman did not answer.
        """
        return self._job if await self._containers() else ""

    async def poll(self, job: str) -> JobState:
        """Asks for the state of the containers; one that has ended is a lost host, no more.

        Raises:
            EngineError: podman did not answer.
        """
        found = await self._containers()
        if not found:
            return JobState("GONE", "podman does not have its containers any more", over=True)
        if not any(container.alive for container in found.values()):
            return JobState("EXITED", "all its containers have ended", over=True)
        if self._table.network == HOST_NETWORK:
            addresses = tuple(map(self._table.pending_address, self._table.node_names))
        else:
            addresses = tuple(found[n].address if n in found else "" for n in self._names)
        return JobState("RUNNING", nodes=self._names, addresses=addresses)

    def reach(self, job: str, node: str) -> tuple[str, ...]:
        """A process in the container."""
        return ("podman", "exec", "--interactive", node)

    async def release(self, job: str) -> None:
        """Removes the containers with all that is in them.

        Raises:
            EngineError: podman did not answer, or refused.
        """
        for left in reversed(range(_REMOVE_TRIES)):
            if not (found := await self._containers()):
                break
            argv = ("rm", "--force", "--time=0", "--ignore", *found)
            output = await self._run(*argv, seconds=_LONG_SECONDS)
            if output.status == 0:
                break
            if not left:
                raise output.failure("podman rm")
            await asyncio.sleep(_REMOVE_PACE)  # one has ended while podman was stopping it
        await asyncio.to_thread(self._sent.unlink, missing_ok=True)

    def cancel_command(self, job: str) -> str:
        """By the label of the run."""
        return f"podman rm -f $(podman ps -aq --filter label={LABEL}={self._run_id})"

    async def words(self, job: str, nodes: Sequence[str]) -> dict[str, EngineWord]:
        """Podman's word counts of a container that it has shown to this process, and whose first
        process the kernel does not have any more: another user's podman knows none of them.

        Raises:
            EngineError: podman did not answer.
        """
        found = await self._containers()
        return {node: self._word(node, found.get(node)) for node in nodes}

    async def examine(self) -> AsyncIterator[EngineFinding]:
        """Whether podman, the image and a Python in it are there, and what rootless podman cannot
        do.

        Raises:
            EngineError: podman cannot be started, or refused.
        """
        version = (await self._info()).partition("|")[0]
        said = f"podman {printable(version, 40)}"
        major = re.match(r"\d{1,4}", version)
        if major is None or int(major[0]) < _OLDEST_PODMAN:
            sentence = f"{said} is too old: podman {_OLDEST_PODMAN} or newer is needed"
            yield EngineFinding(
                Verdict.BLOCKING, "podman-old", said, sentence, "install a newer one"
            )
            return
        yield EngineFinding(Verdict.PASSED, "", said, f"{said} answers")
        async for finding in self._try_container():
            yield finding
        fine = EngineFinding(
            Verdict.PASSED, "", "fine", "options and limits fit", about=Subject.LIMITS
        )
        for finding in await self.cautions() or (fine,):
            yield finding

    async def cautions(self) -> tuple[EngineFinding, ...]:
        """Findings on what podman cannot do without root.

        Raises:
            EngineError: podman did not answer.
        """
        _, rootless, cgroups = (await self._info()).split("|")
        return tuple(rootless_findings(self._table, cgroups)) if rootless == "true" else ()

    async def _info(self) -> str:
        """Its version, whether it runs without root, and the version of cgroups.

        Raises:
            EngineError: podman did not answer, or not as was asked for.
        """
        shown = "{{.Version.Version}}|{{.Host.Security.Rootless}}|{{.Host.CgroupsVersion}}"
        said = (await self._ask("info", "--format", shown)).strip()
        if said.count("|") != 2:
            raise EngineError(f"podman info printed {printable(said, 200)}")
        return said

    # --- containers -----------------------------------------------------------------------

    async def _find_image(self) -> None:
        image = self._table.image
        if image is None:
            return
        output = await self._run("image", "exists", image)
        if output.status == 1:
            raise EngineError(f"the image {image} is not on this machine", f"podman pull {image}")
        if output.status:
            raise output.failure("podman image")

    def _write_agent(self) -> None:
        """The agent, as the file that a container reads; there is no secret in it."""
        config = AgentConfig(self._run_id, node_name(0), self._rules, local=False, by_engine=True)
        self._sent.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sent.write_text(bootstrap.engine_payload(config) + "\n", encoding="ascii")
        self._sent.chmod(0o644)  # the image may have a user of its own

    async def _start_all(self) -> None:
        """Starts them a few at a time.

        Raises:
            EngineError: one could not be started, or has ended at once.
        """
        gate = asyncio.Semaphore(_AT_ONCE)
        common = (
            "--detach",
            f"--label={LABEL}={self._run_id}",
            f"--stop-timeout={math.ceil(self._rules.grace + _STOP_SECONDS)}",
            volume(self._sent, _SENT),
        )

        async def start(name: str, node: str) -> None:
            program = (f"TFMUX_AGENT={self._run_id};", self._python, "-IS", "-c", _LINE, node)
            argv = run_command(self._table, self._root, (f"--name={name}", *common), program)
            async with gate:
                await self._ask(*argv, seconds=_LONG_SECONDS)

        nodes = zip(self._names, self._table.node_names, strict=True)
        # All are waited for: a podman that is killed in the middle leaves half a container.
        done = await asyncio.gather(*(start(*node) for node in nodes), return_exceptions=True)
        for result in done:
            if result is not None:
                raise result
        for name, container in (await self._containers()).items():
            if not container.alive:
                said = (await self._run("logs", name)).complaint  # --tail loses parts of lines
                raise EngineError(f"{name} ended with {container.status}: {said or 'no output'}")

    async def _containers(self) -> dict[str, Container]:
        """This run's containers, by their names.

        Raises:
            EngineError: podman did not answer.
        """
        filtered = f"--filter=label={LABEL}={self._run_id}"
        listed = (await self._ask("ps", "--all", filtered, "--format={{.Names}}")).split()
        names = [name for name in listed if name in self._names]
        if not names:
            return {}
        output = await self._run("container", "inspect", f"--format={_SHOWN}", *names)
        if output.status and "no such container" not in output.stderr.lower():
            raise output.failure("podman inspect")
        found = {}
        for line in output.stdout.splitlines():
            name, container = _parse(line)
            if name in names:
                found[name] = container
                if name not in self._known or self._known[name] is None:
                    self._known[name] = read_process(container.pid) if container.pid else None
        return found

    def _word(self, name: str, container: Container | None) -> EngineWord:
        if name not in self._known:
            return EngineWord(False, "podman does not know the container")
        if container is not None and container.alive:
            return EngineWord(False, "podman has not seen the end there yet", final=False)
        first = self._known[name]
        now = read_process(first.pid) if first is not None else None
        if first is not None and now is not None and now.start == first.start and not now.dead:
            text = f"podman calls the container ended, but its process {first.pid} is alive"
            return EngineWord(False, text, final=False)
        return EngineWord(True, "podman agrees")

    # --- what check asks ------------------------------------------------------------------

    async def _try_container(self) -> AsyncIterator[EngineFinding]:
        """Runs Python in a container of the same description, which is removed at once.

        Raises:
            EngineError: podman or the interpreter refused.
        """
        await self._find_image()
        await asyncio.to_thread(self._make_root)
        program = (self._python, "-IS", "-c", _PROBE)
        argv = run_command(self._table, self._root, ("--rm",), program)
        said = (await self._ask(*argv, seconds=_LONG_SECONDS)).strip().rpartition("\n")[2]
        found = _VERSION.fullmatch(said)
        if found is None:
            raise EngineError(f"{self._python} printed no version: {printable(said, 200)}")
        where = self._table.image or "the containers"
        if (int(found[1]), int(found[2])) < _OLDEST:
            sentence = f"{self._python} in {where} is {said}, hosts need 3.8 or newer"
            todo = "write another python or image in [podman]"
            about = Subject.PYTHON
            yield EngineFinding(Verdict.BLOCKING, "podman-python", said, sentence, todo, about)
        else:
            yield EngineFinding(
                Verdict.PASSED, "", said, f"{said} in {where}", about=Subject.PYTHON
            )

    # --- podman ---------------------------------------------------------------------------

    @property
    def _python(self) -> str:
        return self._table.interpreter or "python3"

    @property
    def _root(self) -> Path:
        return cache_home() / "podman-root"

    def _make_root(self) -> None:
        if self._table.image is not None:
            return
        try:
            build_root(self._root)
        except OSError as error:
            raise EngineError(f"{self._root}: {error.strerror}") from error

    async def _run(self, *argv: str, seconds: float = _SECONDS) -> Output:
        try:
            return await self._commands.run(("podman", *argv), timeout=seconds)
        except MissingProgramError as error:
            raise MissingProgramError(error.what, "install podman") from error

    async def _ask(self, *argv: str, seconds: float = _SECONDS) -> str:
        output = await self._run(*argv, seconds=seconds)
        if output.status:
            raise output.failure(f"podman {argv[0]}")
        return output.stdout


def _parse(line: str) -> tuple[str, Container]:
    """A line of `podman container inspect`.

    Raises:
        EngineError: it is not as was asked for.
    """
    fields = line.split("|")
    numbers = all(map(_NUMBER.fullmatch, fields[2:4]))
    if len(fields) == 5 and _STATE.fullmatch(fields[1]) and numbers:
        addresses = [word for word in fields[4].split() if _ADDRESS.fullmatch(word)]
        address = addresses[0] if addresses else ""
        return fields[0], Container(fields[1], int(fields[2]), int(fields[3]), address)
    raise EngineError(f"podman inspect printed {printable(line, 200)}")


def podman_engine(cluster: ClusterModel, plan: Plan, logins: SshConnector | None) -> PodmanEngine:
    """Podman as a cluster file describes it, for the run of a plan."""
    table, settings = cluster.podman, plan.settings
    assert table is not None
    rules = Rules(settings.lease, settings.grace, str(settings.on_disconnect))
    secrets = {name for task in plan.tasks for name in task.env_from}
    return PodmanEngine(table, plan.run_id, rules, LocalCommands(secrets))
