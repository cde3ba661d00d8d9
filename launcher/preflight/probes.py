"""Questions to a host that a short program there answers, and the session that asks them."""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from ..agent.executables import PROGRAM_SECONDS
from ..errors import AgentError, HostError
from ..hosts.frames import Answer, Frame, Port, StartProblem
from ..hosts.programs import HostProgram, Tagged, read_answer
from ..hosts.transport import Transport
from ..hosts.ways import transport_factory
from ..plan.run_plan import HostPlan
from ..run.fields import Code, Count, Figure, Seconds, Text

if TYPE_CHECKING:  # what SSH needs takes as long to import as half of a launcher of local tasks
    from ..hosts.ssh import SshConnector

LEASE = 20.0
"""Seconds without a beat after which the program ends: this process has died."""
QUICK = 10.0
SLOW = PROGRAM_SECONDS + 5.0
"""For checks that start a program there."""

_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})")
Path = Annotated[str, Field(max_length=1 << 16)]

A = TypeVar("A", bound=Answer)


class ClockAnswer(Answer):
    """The time by the host's clock."""

    WHAT = "clock"
    time: Figure


class AccountAnswer(Answer):
    """The user, the login shell, and the proxies of the environment."""

    WHAT = "account"
    user: Text
    shell: Text
    proxies: dict[Text, Text]


class PythonAnswer(Answer):
    """An interpreter; `failed` says why nothing is known of it."""

    WHAT = "python"
    failed: Text = ""
    version: Text = ""
    executable: Text = ""
    tensorflow: Text = ""
    """Its version; empty where that is not known."""
    there: bool = False
    """TensorFlow is installed."""
    cuda: Text = ""
    """Version of CUDA that its packages bring; empty where none does, or it is not known."""
    cuda_of: Text = ""
    """The package that says so, with its version."""

    @model_validator(mode="after")
    def _is_one_or_failed(self) -> Self:
        if not (self.failed or self.version):
            raise ValueError("no version")
        return self


class PythonsAnswer(Answer):
    """Interpreters that have some modules, each with its version; none where none was found."""

    WHAT = "pythons"
    found: Annotated[tuple[tuple[Text, Text], ...], Field(max_length=16)]


class ModulesAnswer(Answer):
    """Modules that an interpreter does not have, and its version; `failed` says why nothing is
    known of it."""

    WHAT = "modules"
    failed: Text = ""
    version: Text = ""
    missing: Annotated[tuple[Text, ...], Field(max_length=1000)] = ()

    @property
    def numbers(self) -> tuple[int, int] | None:
        """The first two numbers of the version; None where it has none."""
        match = _VERSION.match(self.version)
        return (int(match[1]), int(match[2])) if match is not None else None


class CommandAnswer(Answer):
    """Why a task's command cannot run: a problem of its program, or in words."""

    WHAT = "command"
    why: Text = ""
    problem: StartProblem | None = None

    @property
    def reason(self) -> str:
        """The reason in a sentence; empty if it can run."""
        return self.why if self.problem is None else self.problem.text


class MpiAnswer(Answer):
    """The MPI library of a task's program; empty if none."""

    WHAT = "mpi"
    library: Code


class HeldFrame(Frame):
    """How many runs that have ended hold how many bytes on a host; `cut`: at least so many."""

    runs: Count = 0
    bytes: Count = 0
    cut: bool = False


class DiskSpaceAnswer(Answer):
    """For each place its use, path, free bytes and device; free and total memory; the size of the
    disk with the runs' folders, and what runs that have ended hold there."""

    WHAT = "disk_space"
    disks: Annotated[tuple[tuple[Text, Text, Count, Count], ...], Field(min_length=1)]
    memory: tuple[Count, Count]
    size: Count = 0
    held: HeldFrame = HeldFrame()


class LogdirAnswer(Answer):
    """A log directory, and the folder that exists so many levels `above` it; why it cannot be
    written; the newest checkpoint (`old`) and its age in seconds."""

    WHAT = "logdir"
    path: Path
    base: Path
    above: Annotated[int, Field(ge=0, le=4096)]
    why: Text = ""
    old: tuple[Text, Figure] | None = None


class LimitsAnswer(Answer):
    """The hard limit of open files of the login, and how many processes and threads it may still
    have; None where nothing limits them."""

    WHAT = "limits"
    files: Count
    processes: Count | None = None


class PathAnswer(Answer):
    """Whether a path exists."""

    WHAT = "path"
    exists: bool


class LeftoversAnswer(Answer):
    """For each process left over its run, task, pid and command line."""

    WHAT = "leftovers"
    found: tuple[tuple[Text, Text, Count, Text], ...]


class ListenAnswer(Answer):
    """Ports on which the program cannot listen, and why; those which only root may use; free ones
    that it has picked, and listens on."""

    WHAT = "listen"
    failed: dict[Annotated[str, Field(pattern=r"\A[0-9]{1,5}\z")], Text]
    forbidden: tuple[Port, ...]
    picked: tuple[Port, ...]


class ConnectAnswer(Answer):
    """How a connection went, to which address, and how long its name and itself took."""

    WHAT = "connect"
    outcome: Literal["ok", "refused", "filtered", "no-route", "failed", "stranger", "unresolved"]
    text: Text = ""
    address: Text = ""
    resolved: Seconds = 0.0
    connected: Seconds = 0.0


class ResolveAnswer(Answer):
    """The addresses of a name on a host; none where it does not resolve."""

    WHAT = "resolve"
    addresses: Annotated[tuple[Text, ...], Field(max_length=16)]


class ProbeSession:
    """Session of the program on one host while a preflight checks it."""

    def __init__(self, host: HostPlan, run_id: str, logins: SshConnector) -> None:
        self._host = host.name
        self._run_id = run_id
        self._open = transport_factory(host, logins)
        self._program: HostProgram | None = None
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[bytes]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ended: HostError | None = None
        self._logged_in = 0.0
        self.start_seconds = 0.0
        """From the login, in which a person may have been asked, to the program's first word."""

    @property
    def noise(self) -> bytes:
        """Output of the login shell before our command ran."""
        return b"" if self._program is None else self._program.noise

    async def begin(self) -> None:
        """Logs in and starts the program.

        Raises:
            HostError: says which step failed and why.
        """
        self._program = await HostProgram.start(self._run_id, self._host, self._log_in, LEASE)
        self.start_seconds = time.monotonic() - self._logged_in
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._beat())]

    async def ask(self, kind: type[A], timeout: float, **asked: Any) -> A:
        """The answer to a question with these fields.

        Raises:
            AgentError: none in `timeout` seconds, or the host could not find it out.
        """
        assert self._program is not None
        if self._ended is not None:
            raise self._ended
        ident = next(self._ids)
        self._waiting[ident] = asyncio.get_running_loop().create_future()
        try:
            self._program.send({"what": kind.WHAT, "id": ident, **asked})
            async with asyncio.timeout(timeout):
                return read_answer(self._host, kind, await self._waiting[ident])
        except TimeoutError as error:
            what = f"no answer about {kind.WHAT} in {timeout:.0f} s"
            raise AgentError(self._host, what) from error
        finally:
            del self._waiting[ident]

    async def try_channel(self, port: int) -> None:
        """Opens a channel to a port of the host once, as `Transport.try_channel` does."""
        assert self._program is not None
        await self._program.try_channel(port)

    async def aclose(self) -> None:
        """Ends the program, and waits until it has removed what it has made."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._program is not None:
            await self._program.end()

    async def _log_in(self, nonce: str) -> Transport:
        transport = await self._open(self._run_id, nonce)
        self._logged_in = time.monotonic()
        return transport

    async def _read(self) -> None:
        assert self._program is not None
        try:
            while True:
                raw = await self._program.receive_answer()
                waiting = self._waiting.get(read_answer(self._host, Tagged, raw).id)
                if waiting is not None and not waiting.done():
                    waiting.set_result(raw)
        except HostError as error:
            self._ended = error
            for waiting in self._waiting.values():
                if not waiting.done():
                    waiting.set_exception(error)

    async def _beat(self) -> None:
        assert self._program is not None
        with suppress(OSError):
            while True:
                await asyncio.sleep(LEASE / 4)
                self._program.send({"what": "beat"})
