"""/proc: which processes there are, what they say of themselves, and signals to exactly one."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Callable, Iterable, NamedTuple, Tuple

from .descriptors import EXHAUSTED
from .threads import start_thread

TAG = b"TFMUX_TASK="
AGENT_TAG = b"TFMUX_AGENT="
_PAGE = os.sysconf("SC_PAGE_SIZE")
_READ_SECONDS = 0.03
_ASLEEP_LOOKS = 3


class Process(NamedTuple):
    """One line of the process table. `start` is in clock ticks since boot: with the pid it
    names a process for good, since pids are used again."""

    pid: int
    ppid: int
    pgid: int
    sid: int
    state: str
    start: int
    ticks: int
    rss: int
    threads: int

    @property
    def dead(self) -> bool:
        """It only waits to be reaped. A process whose first thread has ended looks like that,
        too, while its other threads work on."""
        return self.state in "ZX" and self.threads <= 1


Key = Tuple[int, int]


def read_process(pid: int) -> Process | None:
    """The process, or None when it is gone (or a zombie's entry cannot be read).

    Raises:
        OSError: no descriptor is left, here or on the whole machine.
    """
    try:  # without a file object, which takes as long as the system calls: a kill reads them all
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None
    try:
        raw = os.read(fd, 4096)
    except OSError:
        return None
    finally:
        os.close(fd)
    fields = raw[raw.rindex(b")") + 2 :].split(None, 22)  # the name in brackets may hold anything
    return Process(
        pid=pid,
        ppid=int(fields[1]),
        pgid=int(fields[2]),
        sid=int(fields[3]),
        state=fields[0].decode(),
        start=int(fields[19]),
        ticks=int(fields[11]) + int(fields[12]),
        rss=int(fields[21]) * _PAGE,
        threads=int(fields[17]),
    )


def table() -> dict[int, Process]:
    """All living processes of this host, by pid.

    Raises:
        OSError: as of `read_process`.
    """
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = read_process(int(name))
            if process is not None and not process.dead:
                found[process.pid] = process
    return found


def variable(pid: int, name: bytes) -> bytes | None:
    """The value of an environment variable of another process, None when it has none or may
    not be read. `name` ends with `=`."""
    return variables(pid, (name,))[0]


def variables(pid: int, names: Iterable[bytes]) -> list[bytes | None]:
    """The values of several environment variables of another process.

    Raises:
        OSError: no descriptor is left, here or on the whole machine.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = b"\0" + file.read()
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        environ = b""
    return [_variable(environ, name) for name in names]


def _variable(environ: bytes, name: bytes) -> bytes | None:
    at = environ.find(b"\0" + name) + 1
    if at == 0:
        return None
    end = environ.find(b"\0", at)
    return environ[at + len(name) : end if end >= 0 else None]


def printable(words: bytes) -> str:
    """At most 400 characters of something that another process has said of itself."""
    text = words.decode(errors="replace")[:400]
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def command_line(pid: int) -> str:
    """A process's arguments joined by blanks, or its name in brackets; at most 400 characters,
    all printable: it is shown to people at terminals, and may be anybody's process."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return ""
    return printable(words) if words else short_name(pid)


def short_name(pid: int) -> str:
    """A process's name in brackets: unlike its arguments it can always be read."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return f"[{printable(file.read().strip())}]"
    except OSError:
        return ""


def command_lines(processes: list[Process]) -> list[str]:
    """The command lines of processes that may be stuck in the kernel, where reading one may
    hang: what cannot be read in time is given by its short name."""
    found = {process.pid: short_name(process.pid) for process in processes}

    def read() -> None:
        for process in processes:
            found[process.pid] = command_line(process.pid) or found[process.pid]

    if processes:
        with suppress(OSError):  # no thread can be started
            bounded(read)
    return [found[process.pid] for process in processes]


def bounded(work: Callable[[], None]) -> bool:
    """Works in a thread; False when that is left behind, because it sleeps in the kernel and no
    signal could wake it. A machine that is merely busy is waited for.

    Raises:
        OSError: no thread can be started.
    """
    thread = start_thread(work, "proc")
    asleep = 0
    while asleep < _ASLEEP_LOOKS:
        thread.join(_READ_SECONDS)
        if not thread.is_alive():
            return True
        asleep = asleep + 1 if _sleeps_in_kernel(thread.native_id or 0) else 0
    return False


def _sleeps_in_kernel(thread: int) -> bool:
    try:
        with open(f"/proc/self/task/{thread}/stat", "rb") as file:
            raw = file.read()
    except OSError:
        return False
    return raw[raw.rindex(b")") + 2 :][:1] == b"D"


def send(process: Process, signals: Iterable[int]) -> bool:
    """Signals exactly this process; False when it is gone before any signal reaches it. One that
    ends by the first is not there for the next.

    Between a look and a kill a pid may be handed to somebody else's process: a pidfd is taken
    first and the start time compared after. Python 3.8 and kernels before 5.3 have none, and keep
    a gap of microseconds.

    Raises:
        OSError: no descriptor is left to read the start time with.
    """
    fd = -1
    reached = False
    try:
        with suppress(AttributeError, OSError):
            fd = os.pidfd_open(process.pid)
        now = read_process(process.pid)
        if now is None or now.start != process.start:
            return False
        for number in signals:
            if fd >= 0:
                signal.pidfd_send_signal(fd, number)
            else:
                os.kill(process.pid, number)
            reached = True
    except (ProcessLookupError, PermissionError):
        return reached
    finally:
        if fd >= 0:
            os.close(fd)
    return reached
