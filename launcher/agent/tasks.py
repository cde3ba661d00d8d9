"""Process of a task: what it executes, and how it ended.

A task gets its own session, `/dev/null` as input, one pipe (or a terminal) for its output, and
KILL from the kernel when its reaper ends. Its umask is that of the login.
"""

from __future__ import annotations

import ctypes
import fcntl
import marshal
import os
import pty
import signal
import termios
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Mapping, NamedTuple, Sequence, TypeVar

from .drain import Log
from .messages import PortOwner, TaskFacts
from .task_id import TaskId

if TYPE_CHECKING:
    from .reaper import Reaper

F = TypeVar("F", bound=TaskFacts)

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_PIPE_BYTES = 256 * 1024
_DROPPED = ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY")
"""With these bash takes itself for a login over SSH and `bash -c` sources ~/.bashrc."""

DEFAULT_SIGNALS = (
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGPIPE,
    signal.SIGTERM,
    signal.SIGCHLD,
    signal.SIGUSR1,
    signal.SIGUSR2,
)
"""Signals whose handling by an agent or a reaper must not reach a task."""

_libc = ctypes.CDLL(None, use_errno=True)


def set_parent_death_signal(number: int) -> None:
    """Asks the kernel for `number` when the parent thread ends."""
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def become_subreaper() -> None:
    """Orphaned descendants become our children instead of init's."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class AttemptProcess:
    """Process of an attempt of a task while it lives, and how it ended afterwards."""

    def __init__(
        self, task: str, attempt: int, log: Log, port: int | None, gated: bool = False
    ) -> None:
        self.announced = False
        """The launcher has been told that it has been started, or why not."""
        self.cancelled = False
        """A kill has come before it was started: it must not be started any more."""
        self.forking = False
        """Its reaper is being forked, or has been."""
        self.reaper: Reaper | None = None
        self.task = task
        self.attempt = attempt
        self.log = log
        self.port = port
        self.gated = gated
        """It waits at its gate, or will."""
        self.began_at = log.size
        self.asked_at = time.monotonic()
        self.port_owner: PortOwner | None = None
        """Who listened on its port before it was started."""
        self.pid = 0
        self.start = 0
        self.error = ""
        self.status: int | None = None
        self.signal: str | None = None
        self.ended = False
        self.listening = False
        self.eof = False
        self.end_sent = False
        """The launcher has been told of the end."""
        self.ended_at = 0.0

    def refuse(self, error: str) -> None:
        """Records that it has not been started, and why."""
        self.ended = self.eof = self.end_sent = self.announced = True
        self.error = error

    def end(self, wait_status: int) -> None:
        """Records how the process ended."""
        self.ended = True
        self.ended_at = time.monotonic()
        if os.WIFSIGNALED(wait_status):
            self.signal = signal_name(os.WTERMSIG(wait_status))
        else:
            self.status = os.WEXITSTATUS(wait_status)

    def facts(self, kind: type[F], port_owner: PortOwner | None = None) -> F:
        """Facts of it for the launcher, as a message of some kind."""
        return kind(
            task=TaskId.parse(self.task),
            attempt=self.attempt,
            pid=self.pid,
            error=self.error,
            ended=self.ended,
            status=self.status,
            signal=self.signal,
            listening=self.listening,
            size=self.log.size,
            began_at=self.began_at,
            eof=self.eof,
            lost=self.log.lost,
            cut=self.log.cut,
            port_owner=port_owner,
            gated=self.gated,
        )


def signal_name(number: int) -> str:
    """`TERM` for 15; the number itself where it has no name."""
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)


def open_output(terminal: bool) -> tuple[int, int]:
    """Our end and the task's end of its output: a terminal or a large pipe."""
    if terminal:
        ours, theirs = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, b"\x32\0\xc8\0\0\0\0\0")  # 50 rows, 200 columns
        return ours, theirs
    ours, theirs = os.pipe()
    with suppress(OSError):  # the user's pipe quota is used up: the default size is only slower
        fcntl.fcntl(ours, 1031, _PIPE_BYTES)  # F_SETPIPE_SZ
    return ours, theirs


class Program(NamedTuple):
    """Program of a task: words, variables, directory, and how it starts."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    terminal: bool
    umask: int
    gated: bool = False

    def to_bytes(self) -> bytes:
        """For `execute` in another process of the same interpreter."""
        return marshal.dumps([list(self.argv), dict(self.env), *self[2:]])

    def execute(self, output: int, fault: int, parent: int, gate: int) -> None:
        """Becomes the program, in a process that has just been forked by `parent`. Never returns;
        why it failed goes to `fault`, which a successful exec closes. Its input is the `gate`,
        where it is `gated`."""
        what = self.argv[0] if self.argv else ""
        try:
            set_parent_death_signal(signal.SIGKILL)
            if os.getppid() != parent:  # it died before the line above
                os._exit(127)
            os.setsid()
            if self.terminal:
                fcntl.ioctl(output, termios.TIOCSCTTY, 0)
            for number in DEFAULT_SIGNALS:
                signal.signal(number, signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            os.umask(self.umask)
            null = gate if self.gated else os.open("/dev/null", os.O_RDONLY)
            os.dup2(output if self.terminal else null, 0)
            os.dup2(output, 1)
            os.dup2(output, 2)
            what = self.cwd
            os.chdir(self.cwd)
            what = self.argv[0]
            env = {key: value for key, value in self.env.items() if key not in _DROPPED}
            os.execvpe(self.argv[0], list(self.argv), env)
        except OSError as error:
            os.write(fault, f"{error.errno}:{what}".encode())
        except (ValueError, IndexError, TypeError) as error:  # a zero byte in an argument
            os.write(fault, f"0:{what}: {error}".encode())
        finally:
            os._exit(127)


def execute(sent: int, output: int, fault: int, parent: int, gate: int) -> None:
    """Becomes the program that comes through `sent`; else as `Program.execute`."""
    try:
        data = b"".join(iter(lambda: os.read(sent, 1 << 16), b""))
        program = Program(*marshal.loads(data))
    except (OSError, EOFError, ValueError, TypeError):
        os.write(fault, b"0:the agent has not sent the program")
        os._exit(127)
    program.execute(output, fault, parent, gate)


def start_error(report: str) -> OSError:
    """Reason for which a program could not be started, from the output of `execute`."""
    number, _, what = report.partition(":")
    if number == "0":
        return OSError(what)
    return OSError(int(number), os.strerror(int(number)), what or None)
