"""Ways to the hosts of a plan: a pipe on this machine, SSH, or a command (`via`) to the others.

A command such as `podman exec -i tf1` must pass standard input and output on as they are. The
handshake looks at its output, and what we send is compressed with a checksum. What is wrong is said
with what to change.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..agent.processes import Process, send, table
from ..cluster.values import COMMAND
from ..errors import HostError, UnreachableError
from ..plan.run_plan import HostPlan, elsewhere_text
from ..printable import printable
from ..subprocesses import start_session
from . import bootstrap
from .auth_prompt import PromptHandler
from .bootstrap import first_difference, last_line
from .transport import STDERR_BYTES, Transport, TransportFactory

if TYPE_CHECKING:
    from .ssh import SshConnector

INPUT_SECONDS = bootstrap.START_SECONDS - 10.0
"""Time for the first answer to input; the error of the handshake knows nothing of the command."""
END_SECONDS = 1.0
_LOOK = 0.02
_MOST_NOISE = 1 << 20
_EOF_STATUS = 9
"""Status of our line when its input ends early (`bootstrap`)."""
_NOT_FOUND = (126, 127)
_LONGEST = 100
_BRIDGE_SECONDS = 2.0
"""An agent lets go of its bridge at once, unless it was stopped."""


def ssh_connector(ask: PromptHandler | None = None, **options: Any) -> SshConnector:
    """Opener of connections over SSH, with the options of `SshConnector`. Its library is imported
    here, for who needs it: that takes as long as half of the launcher."""
    from .ssh import SshConnector

    return SshConnector(ask, **options)


def transport_factory(host: HostPlan, logins: SshConnector | None) -> TransportFactory:
    """Opener of transports to a host's agent; `logins` is for hosts over SSH. Whatever goes wrong
    with one host is a `HostError` of it: the others do not end for it."""

    async def to_this_machine(run_id: str, nonce: str, beside: Transport | None) -> Transport:
        return await LocalTransport.open(bootstrap.argv(host.python, run_id, nonce))

    async def over_ssh(run_id: str, nonce: str, beside: Transport | None) -> Transport:
        command = bootstrap.announced(bootstrap.command(host.python, run_id, nonce), nonce)
        transport = await log_in(command, beside)
        transport.errors = bootstrap.ShellErrors(host.name)
        return transport

    async def through_login(run_id: str, nonce: str, beside: Transport | None) -> Transport:
        words = ["sh", "-c", f'{bootstrap.WITHOUT_JOB}; exec "$@"', "sh"]
        words += [*host.via, *bootstrap.argv(host.python, run_id, nonce)]
        return await log_in(f"exec {shlex.join(words)}", beside)

    async def log_in(command: str, beside: Transport | None) -> Transport:
        assert host.ssh is not None and logins is not None
        session = await beside.open_session(command) if beside is not None else None
        return session or await logins.open(host.name, host.ssh, command)

    async def through_command(run_id: str, nonce: str, beside: Transport | None) -> Transport:
        return await open_via(host, run_id, nonce)

    async def open_transport(run_id: str, nonce: str, beside: Transport | None = None) -> Transport:
        if host.elsewhere:
            raise UnreachableError(host.name, elsewhere_text(host.elsewhere))
        try:
            return await way(run_id, nonce, beside)
        except HostError:
            raise
        except Exception as error:
            what = printable(f"connecting failed: {type(error).__name__}: {error}")
            raise UnreachableError(host.name, what) from error

    way = to_this_machine if host.local else over_ssh
    if host.via:
        way = through_command if host.ssh is None else through_login
    return open_transport


async def open_via(host: HostPlan, run_id: str, nonce: str) -> ViaTransport:
    """Starts a host's command, and the bridge through it.

    Raises:
        HostError: the command cannot be started.
    """
    errors = CommandErrors(host)
    words = (host.python, run_id, nonce)
    if any(COMMAND in word for word in host.via):
        line = bootstrap.command(*words).removeprefix("exec ")
        argv = [word.replace(COMMAND, line) for word in host.via]
    else:
        argv = [*host.via, *bootstrap.argv(*words)]
    env = bootstrap.without_job(os.environ) if host.has_agent else None
    try:
        transport = await ViaTransport.open(argv, env)
    except OSError as error:
        raise errors.not_started(error) from error
    transport.errors = errors
    return transport


class LocalTransport(Transport):
    """A child process on this machine, in a session of its own so that Ctrl-C spares it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._pipes = process._transport  # type: ignore[attr-defined]
        """The public ways wait for the end of the output, which others may hold open for ever."""
        self._said = bytearray()
        self._listener = asyncio.create_task(self._listen())

    @classmethod
    async def open(cls, argv: list[str], env: Mapping[str, str] | None = None) -> Self:
        """Starts the bridge.

        Raises:
            OSError: there is no such program.
        """
        process = await start_session(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
            cwd=Path.home() if Path.home().is_dir() else "/",
            limit=1 << 20,
        )
        return cls(process)

    async def read(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(1 << 18)

    def write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)

    async def drain(self) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.drain()

    async def aclose(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if (output := self._pipes.get_pipe_transport(1)) is not None:
            output.close()  # an agent that was stopped holds it open
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_BRIDGE_SECONDS):
                    await self._process.wait()
            if self._process.returncode is None:
                self._process.kill()
                await self._process.wait()
        finally:  # also where whoever closes it is cancelled
            self._listener.cancel()
            self._pipes.close()

    @property
    def complaint(self) -> str:
        return self._said.decode(errors="replace").strip()

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(STDERR_BYTES):
            self._said = (self._said + data)[-STDERR_BYTES:]


class ViaTransport(LocalTransport):
    """A command on this machine at whose other end the bridge runs."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self.errors: CommandErrors
        self._asked = False
        """Something has been sent."""
        self._answered = False
        """Something has come that answers what we sent."""
        self._closed = False
        self._gone = False
        """Nothing is left of the command: its pid, and so its session's, may be somebody else's."""

    async def read(self) -> bytes:
        """The next bytes; b"" when the other side has closed.

        Raises:
            HostError: nothing answers what we have sent.
        """
        if self._answered or not self._asked:
            return await super().read()
        try:
            async with asyncio.timeout(INPUT_SECONDS):
                data = await super().read()
        except TimeoutError as error:
            raise self.errors.held_back(self.complaint) from error
        if not data and not self._closed:
            raise await self._no_input()
        self._answered = True
        return data

    def write(self, data: bytes) -> None:
        self._asked = True
        super().write(data)

    async def drain(self) -> None:
        with suppress(OSError):  # the reading side says that the command has ended
            await super().drain()

    async def forward(self, port: int, wanted: int = 0) -> int:
        raise OSError("ports are forwarded over SSH only; this host has via")

    async def aclose(self) -> None:
        """Closes its input, and ends the command and what it has started in its session, where
        that does not end it: TERM first, since `sudo` passes that on."""
        self._closed = True
        self.close_input()
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                if await self.wait_ended(END_SECONDS):
                    return
                self._signal(number)
            await self.wait_ended(END_SECONDS)
        finally:
            if not self._gone:
                self._signal(signal.SIGKILL)
            self._listener.cancel()
            self._pipes.close()

    async def wait_ended(self, seconds: float) -> bool:
        """Waits until the command and what it has started have ended."""
        for _ in range(int(seconds / _LOOK)):
            if self._process.returncode is not None and not self._gone:
                self._gone = not await asyncio.to_thread(self._has_members)
            if self._gone:
                return True
            await asyncio.sleep(_LOOK)
        return False

    def close_input(self) -> bool:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return True

    def _members(self) -> list[Process]:
        return [process for process in table().values() if process.sid == self._process.pid]

    def _has_members(self) -> bool:
        return bool(self._members()) if sys.platform == "linux" else self._signal_group(0)

    def _signal(self, number: signal.Signals) -> None:
        if sys.platform == "linux":
            for process in self._members():
                send(process, (number,))
        else:
            self._signal_group(number)

    def _signal_group(self, number: int) -> bool:
        """Signals the processes of the command's group, as there is no table of all processes;
        whether there are any."""
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # those of another user, such as behind sudo
            return True
        return True

    async def _no_input(self) -> HostError:
        return self.errors.no_input(await self.status(), self.complaint)

    async def status(self) -> int | None:
        await asyncio.wait([self._listener], timeout=END_SECONDS)
        await self.wait_ended(END_SECONDS)
        return self._process.returncode


class CommandErrors:
    """A host's command in errors."""

    def __init__(self, host: HostPlan) -> None:
        self._host = host.name
        self._via = host.via
        self._command = printable(shlex.join(host.via), _LONGEST)

    def _error(self, code: str, what: str, todo: str) -> UnreachableError:
        return UnreachableError(self._host, f"via: {self._command} {what}", code=code, todo=todo)

    def not_started(self, error: OSError) -> HostError:
        """The command is not there, or may not be run."""
        program = printable(self._via[0], 100)
        if isinstance(error, FileNotFoundError) and shutil.which(self._via[0]) is not None:
            what = f"cannot be started: the interpreter in the first line of {program} is missing"
            return self._error("via-failed", what, "correct that line")
        if isinstance(error, FileNotFoundError):
            what = f"cannot be started: there is no program {program} on this machine"
            return self._error("via-missing", what, "install it, or correct via")
        what = f"cannot be started: {program}: {error.strerror}"
        return self._error("via-failed", what, "correct via, or the file's permissions")

    def ended(self, status: int | None, seen: bytes, complaint: str) -> HostError:
        """The error of a program that ended before anything could be sent."""
        said = last_line(complaint or seen.decode(errors="replace"))
        what = f"{_status(status)} before the agent had started: {said or 'no output'}"
        if status in _NOT_FOUND:
            todo = 'set python = "…" of the host to a Python 3.8 or newer'
            what = f"via: {self._command} {what}"
            return HostError(self._host, what, code="python-missing", todo=todo)
        words = [word.replace(COMMAND, "true") for word in self._via]
        line = shlex.join(words if words != [*self._via] else [*words, "true"])
        todo = f"try it in a shell, without a terminal: {printable(line)} </dev/null | cat"
        if self._wants_terminal:
            todo = "tfmux has no terminal to give it: leave out -t"
        return self._error("via-ended", what, todo)

    def silent(self, seen: bytes, held: bool, complaint: str) -> HostError:
        """Nothing came in time; or it came when the input was closed."""
        if held:
            return self.buffered()
        said = last_line(complaint or seen.decode(errors="replace"))
        what = f"gave no answer in {bootstrap.START_SECONDS:.0f} s ({said or 'no output'})"
        todo = "it may wait for a password or a terminal: it must run without questions"
        return self._error("via-silent", what, todo)

    def noisy(self, count: int, seen: bytes) -> HostError | None:
        """A command that prints without end before the agent answers."""
        if count <= _MOST_NOISE:
            return None
        what = f"printed more than 1 MiB, and no answer ({last_line(_tail(seen))})"
        return self._error("via-noisy", what, "it must run the command that follows it")

    def buffered(self) -> HostError:
        """Output without a line break is held back."""
        what = "holds output back until a line or a buffer is full"
        todo = "switch its buffering off (such as srun -u, or stdbuf -o0 before a filter)"
        return self._error("via-buffered", what, todo)

    def held_back(self, complaint: str) -> HostError:
        """Our input is not answered."""
        if complaint:
            return self.no_input(None, complaint)
        what = f"gave no answer to its input in {INPUT_SECONDS:.0f} s: it holds input back"
        todo = "switch its buffering off, or take away the filter before it"
        return self._error("via-buffered", what, todo)

    def altered(self, wanted: bytes, found: bytes) -> HostError:
        """The bytes came back changed."""
        if found.startswith(b"\r"):
            what = "changes line ends: a terminal is in between"
            todo = "leave out -t (--tty); for ssh leave out -tt"
            return self._error("via-terminal", what, todo)
        what = f"changes its output: {first_difference(wanted, found)}"
        todo = "it must pass all bytes on as they are: leave out filters and character sets"
        return self._error("via-altered", what, todo)

    def no_input(self, status: int | None, complaint: str) -> HostError:
        """The output ended where an answer to our input was due."""
        if status == _EOF_STATUS or not complaint:
            what = "does not pass its input on: the interpreter started and found it at its end"
            todo = "add -i (podman, docker and kubectl exec need it); for ssh leave out -n"
            return self._error("via-input", what, todo)
        what = f"changes its input, or the interpreter failed: {last_line(complaint)}"
        todo = "leave out -t (--tty), filters and character sets"
        return self._error("via-altered", what, todo)

    @property
    def _wants_terminal(self) -> bool:
        short = (w for w in self._via if w.startswith("-") and not w.startswith("--"))
        return "--tty" in self._via or any(word in ("-t", "-it", "-ti", "-tt") for word in short)


def _status(status: int | None) -> str:
    if status is None:
        return "closed its output"
    return f"ended with status {status}" if status >= 0 else f"was killed by signal {-status}"


def _tail(seen: bytes) -> str:
    return seen[-1000:].decode(errors="replace")
