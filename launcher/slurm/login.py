"""Slurm's commands, run on this machine or on a login host over SSH.

Their output is bounded, and each has a deadline: a controller that is down lets its commands hang.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from ..errors import TfmuxError
from ..frozen import frozen
from ..hosts.bootstrap import without_job
from ..plan.run_plan import SshTarget
from ..printable import printable
from ..subprocesses import end_session, start_session, wait_ended

if TYPE_CHECKING:
    from asyncssh import SSHClientConnection

    from ..hosts.ssh import SshConnector

MOST_BYTES = 1 << 20
"""Bytes of a command's output; no answer that is used is longer."""

_OF_ANSWERS = (
    *("SQUEUE_ACCOUNT", "SQUEUE_ALL", "SQUEUE_ARRAY", "SQUEUE_ARRAY_UNIQUE", "SQUEUE_FEDERATION"),
    *("SQUEUE_FORMAT", "SQUEUE_FORMAT2", "SQUEUE_LICENSES", "SQUEUE_LOCAL", "SQUEUE_NAMES"),
    *("SQUEUE_PARTITION", "SQUEUE_PRIORITY", "SQUEUE_QOS", "SQUEUE_SIB", "SQUEUE_SIBLING"),
    *("SQUEUE_SORT", "SQUEUE_STATES", "SQUEUE_USERS"),
    *("SCANCEL_ACCOUNT", "SCANCEL_BATCH", "SCANCEL_CRON", "SCANCEL_CTLD", "SCANCEL_FULL"),
    *("SCANCEL_HURRY", "SCANCEL_INTERACTIVE", "SCANCEL_NAME", "SCANCEL_PARTITION", "SCANCEL_QOS"),
    *("SCANCEL_SIBLING", "SCANCEL_STATE", "SCANCEL_USER", "SCANCEL_VERBOSE", "SCANCEL_WCKEY"),
    *("SINFO_ALL", "SINFO_FEDERATION", "SINFO_FORMAT", "SINFO_LOCAL", "SINFO_PARTITION"),
    *("SINFO_SORT", "SCONTROL_ALL", "SCONTROL_FEDERATION", "SCONTROL_FUTURE", "SCONTROL_LOCAL"),
    *("SCONTROL_SIB", "SCONTROL_SIBLING", "SLURM_BITSTR_LEN", "SLURM_TIME_FORMAT"),
)
"""Variables by which people choose what Slurm's commands show them and whom these act on: with
`SQUEUE_PARTITION` squeue does not know a job of another partition, and says so with status 0."""
_ZONE = ("TZ", "UTC0")
"""Times come from a machine that may be in another zone."""


class SlurmError(TfmuxError):
    """Slurm refused, or did not answer: `what` has its words, `todo` what to change."""

    def __init__(self, what: str, todo: str = "") -> None:
        self.what = what
        self.todo = todo
        super().__init__(f"{what}; {todo}" if todo else what)


class MissingProgramError(SlurmError):
    """Slurm's command is not there."""


class NoAnswerError(SlurmError):
    """No answer has come: what Slurm was told to do may be done all the same."""


@frozen
class Output:
    """Output of a command, and its exit status."""

    status: int
    stdout: str
    stderr: str

    @property
    def complaint(self) -> str:
        """The end of stderr, or of stdout if that is empty, in one line."""
        lines = (self.stderr.strip() or self.stdout.strip()).splitlines()
        return printable("; ".join(line.strip() for line in lines[-5:]), 1000)

    def failure(self, program: str) -> SlurmError:
        """Error of a program that has ended so."""
        return SlurmError(self.complaint or f"{program} ended with {self.status}")


class Commands(Protocol):
    """A place where Slurm's commands are."""

    async def connect(self) -> None:
        """Opens what they need.

        Raises:
            HostError: the login failed.
        """

    async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = 30.0) -> Output:
        """Runs a command.

        Raises:
            NoAnswerError: it has not ended in `timeout` seconds.
            SlurmError: it cannot be run there.
        """

    async def ask(self, argv: Sequence[str], timeout: float = 30.0) -> Output:
        """Runs a command whatever a person has chosen to be shown; its times are UTC.

        Raises:
            NoAnswerError: it has not ended in `timeout` seconds.
            SlurmError: it cannot be run there.
        """


class LocalCommands:
    """Commands of this machine, in the launcher's environment."""

    def __init__(self, withheld: Collection[str] = (), job: str = "") -> None:
        """`withheld` are variables that they do not get, such as secrets: Slurm may store their
        environment. Of a Slurm job's variables they get those of `job` alone."""
        self._withheld = frozenset(withheld)
        self._job = job

    async def connect(self) -> None:
        """Does nothing: no connection is needed."""

    async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = 30.0) -> Output:
        """Runs a command in a session of its own.

        Raises:
            NoAnswerError: it has not ended in time.
            SlurmError: it cannot be started.
        """
        return await self._run(argv, stdin, timeout, self._environ(os.environ))

    async def ask(self, argv: Sequence[str], timeout: float = 30.0) -> Output:
        """Runs a command without the variables that change its answer.

        Raises:
            NoAnswerError: it has not ended in time.
            SlurmError: it cannot be started.
        """
        environ = self._environ(os.environ)
        for name in _OF_ANSWERS:
            environ.pop(name, None)
        return await self._run(argv, "", timeout, {**environ, _ZONE[0]: _ZONE[1]})

    async def _run(
        self, argv: Sequence[str], stdin: str, timeout: float, environ: Mapping[str, str]
    ) -> Output:
        try:
            process = await start_session(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environ,
            )
        except FileNotFoundError as error:
            raise MissingProgramError(f"{argv[0]}: {error.strerror}") from error
        except OSError as error:
            raise SlurmError(f"{argv[0]}: {error.strerror}") from error
        assert process.stdin and process.stdout and process.stderr
        out, err = KeptOutput(), KeptOutput()
        reading = asyncio.gather(out.read(process.stdout), err.read(process.stderr))
        try:
            async with asyncio.timeout(timeout):
                with suppress(OSError):  # it has ended without reading
                    process.stdin.write(stdin.encode())
                    await process.stdin.drain()
                process.stdin.close()
                await wait_ended(process, reading)
        except TimeoutError:
            raise NoAnswerError(no_answer(argv, timeout)) from None
        finally:
            reading.cancel()
            await end_session(process)  # sites have wrappers: what they have started, too
        assert process.returncode is not None
        return Output(process.returncode, out.text, err.text)

    def _environ(self, environ: Mapping[str, str]) -> dict[str, str]:
        of_job = self._job and environ.get("SLURM_JOB_ID") == self._job
        return {
            name: value
            for name, value in (environ if of_job else without_job(environ)).items()
            if name not in self._withheld and not name.startswith("TFMUX_")
        }


class _ByteStream(Protocol):
    async def read(self, n: int = -1, /) -> bytes: ...


class KeptOutput:
    """Output of a command up to `MOST_BYTES`; the rest is read and dropped."""

    def __init__(self) -> None:
        self._kept = bytearray()

    async def read(self, stream: _ByteStream) -> None:
        """Reads a stream to its end."""
        while data := await stream.read(1 << 16):
            self._kept += data[: MOST_BYTES - len(self._kept)]

    @property
    def text(self) -> str:
        """What has come."""
        return self._kept.decode(errors="replace")


def no_answer(argv: Sequence[str], timeout: float) -> str:
    return f"{argv[0]} did not answer within {timeout:.0f} s"


class LoginCommands:
    """Commands of a login host. One connection serves all of them, until the
    connector closes it; one that ended is replaced."""

    def __init__(self, logins: SshConnector, target: SshTarget) -> None:
        self._logins = logins
        self._target = target
        self._connection: SSHClientConnection | None = None
        self._lock = asyncio.Lock()

    async def connect(self) -> None:
        """Logs in; a person may be asked for a password.

        Raises:
            HostError: the login failed.
        """
        await self._connect()

    async def run(self, argv: Sequence[str], stdin: str = "", timeout: float = 30.0) -> Output:
        """Runs a command in the login's environment.

        Raises:
            NoAnswerError: it has not ended in time, or the connection has.
            HostError: the login failed.
        """
        from ..hosts.ssh_library import asyncssh

        connection = await self._connect()
        out, err = KeptOutput(), KeptOutput()
        try:
            async with asyncio.timeout(timeout):
                process = await connection.create_process(shlex.join(argv), encoding=None)
                try:
                    with suppress(OSError):  # it has ended without reading
                        process.stdin.write(stdin.encode())
                        process.stdin.write_eof()
                    await asyncio.gather(out.read(process.stdout), err.read(process.stderr))
                    await process.wait_closed()
                finally:
                    if process.exit_status is None:
                        with suppress(OSError):  # the channel has ended
                            process.kill()
                    process.close()
        except TimeoutError:
            raise NoAnswerError(no_answer(argv, timeout)) from None
        except (asyncssh.Error, OSError) as error:
            connection.abort()
            what = f"the connection to {self._target.host} ended: {error}"
            raise NoAnswerError(printable(what)) from error
        return Output(
            255 if process.exit_status is None else process.exit_status, out.text, err.text
        )

    async def ask(self, argv: Sequence[str], timeout: float = 30.0) -> Output:
        """Runs a command without the login's variables that change its answer.

        Raises:
            NoAnswerError: it has not ended in time, or the connection has.
            HostError: the login failed.
        """
        unset = (word for name in _OF_ANSWERS for word in ("-u", name))
        return await self.run(("env", *unset, "=".join(_ZONE), *argv), timeout=timeout)

    async def _connect(self) -> SSHClientConnection:
        async with self._lock:
            if self._connection is None or self._connection.is_closed():
                self._connection = await self._logins.connect("login", self._target)
            return self._connection
