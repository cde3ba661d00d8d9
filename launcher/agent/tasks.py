"""Starting a task and knowing how it ended.

A task gets its own session, `/dev/null` as input, one pipe (or a terminal) for its output, and
KILL from the kernel when the thread that forked it ends: tasks are therefore started in the
agent's main thread and nowhere else.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pty
import signal
import sys
import termios
import time
from typing import Any, Mapping, NamedTuple, Sequence

from .drain import Log

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
_PIPE_BYTES = 256 * 1024
_DROPPED = ("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY")
"""With these bash takes itself for a login over SSH and `bash -c` sources ~/.bashrc."""

_libc = ctypes.CDLL(None, use_errno=True)


def set_parent_death_signal(number: int) -> None:
    """Asks the kernel for `number` when the parent thread ends."""
    _libc.prctl(PR_SET_PDEATHSIG, number, 0, 0, 0)


def become_subreaper() -> None:
    """Orphaned descendants become our children instead of init's."""
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Spawned(NamedTuple):
    """A started process and our end of its output."""

    pid: int
    output: int


class Attempt:
    """One attempt of a task: its process while it lives, its end afterwards."""

    def __init__(self, task: str, attempt: int, log: Log, port: int | None) -> None:
        self.task = task
        self.attempt = attempt
        self.log = log
        self.port = port
        self.began_at = log.size
        self.pid = 0
        self.start = 0
        self.error = ""
        self.status: int | None = None
        self.signal: str | None = None
        self.ended = False
        self.listening = False
        self.eof = False
        self.told = False
        """The launcher has been told of the end."""
        self.ended_at = 0.0

    def end(self, wait_status: int) -> None:
        """Records how the process ended."""
        self.ended = True
        self.ended_at = time.monotonic()
        if os.WIFSIGNALED(wait_status):
            self.signal = signal_name(os.WTERMSIG(wait_status))
        else:
            self.status = os.WEXITSTATUS(wait_status)

    def facts(self) -> dict[str, Any]:
        """What the launcher is told of it."""
        return {
            "task": self.task,
            "attempt": self.attempt,
            "pid": self.pid,
            "error": self.error,
            "ended": self.ended,
            "status": self.status,
            "signal": self.signal,
            "listening": self.listening,
            "size": self.log.size,
            "began_at": self.began_at,
            "eof": self.eof,
            "lost": self.log.lost,
            "cut": self.log.cut,
        }


def signal_name(number: int) -> str:
    """`TERM` for 15; the number itself where it has no name."""
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)


def spawn(argv: Sequence[str], env: Mapping[str, str], cwd: str, terminal: bool = False) -> Spawned:
    """Forks and executes.

    Raises:
        OSError: the program or the folder is not there or may not be used. What failed is
            known to us because the child writes it to a pipe that a successful exec closes.
    """
    ours, theirs = pty.openpty() if terminal else os.pipe()
    if terminal:
        fcntl.ioctl(ours, termios.TIOCSWINSZ, b"\x32\0\xc8\0\0\0\0\0")  # 50 rows, 200 columns
    else:
        try:
            fcntl.fcntl(ours, 1031, _PIPE_BYTES)  # F_SETPIPE_SZ
        except OSError:
            pass  # the user's pipe quota is used up: the default size is only slower
    report, fault = os.pipe()
    parent = os.getpid()
    clean = {key: value for key, value in env.items() if key not in _DROPPED}
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(argv, clean, cwd, theirs, fault, parent, terminal)
    os.close(theirs)
    os.close(fault)
    said = _read_all(report)
    if said:
        os.close(ours)
        os.waitpid(pid, 0)
        number, _, what = said.decode(errors="replace").partition(":")
        raise OSError(int(number), os.strerror(int(number)), what)
    return Spawned(pid, ours)


def _child(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: str,
    output: int,
    fault: int,
    parent: int,
    terminal: bool,
) -> None:
    """Never returns."""
    what = argv[0] if argv else ""
    try:
        set_parent_death_signal(signal.SIGKILL)
        if os.getppid() != parent:  # the agent died before the line above
            os._exit(127)
        os.setsid()
        if terminal:
            fcntl.ioctl(output, termios.TIOCSCTTY, 0)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.umask(0o022)
        null = os.open("/dev/null", os.O_RDONLY)
        os.dup2(output if terminal else null, 0)
        os.dup2(output, 1)
        os.dup2(output, 2)
        what = cwd
        os.chdir(cwd)
        what = argv[0]
        os.execvpe(argv[0], list(argv), dict(env))
    except OSError as error:
        os.write(fault, f"{error.errno}:{what}".encode())
    finally:
        os._exit(127)


def _read_all(fd: int) -> bytes:
    parts: list[bytes] = []
    while True:
        part = os.read(fd, 4096)
        if not part:
            os.close(fd)
            return b"".join(parts)
        parts.append(part)
