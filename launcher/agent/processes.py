"""Processes of this host: what `/proc` says of them, which are ours, and signals to exactly one.

To which task of the run a process belongs is known by its tag in the environment, by its session,
by descent, and by memory (`ProcessTracker`). Whether any child is left says the kernel: `waitpid`
answers ECHILD (`reap`). As a child-subreaper we become the parent of each next process of a chain
of forks at the moment at which its parent ends; a child that has not been reaped keeps its pid, so
it may be signalled without a second look (`Killer`).
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import stat
import time
from contextlib import suppress
from itertools import islice
from typing import Callable, Container, Iterable, NamedTuple, Optional, Sequence, Tuple

from .threads import start_thread

EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a call that would succeed at another time: they say nothing of the file."""
TAG = b"TFMUX_TASK="
AGENT_TAG = b"TFMUX_AGENT="
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_MASKS = (b"SigCgt:", b"SigIgn:", b"SigBlk:")
_PENDING = (b"SigPnd:", b"ShdPnd:")
_FLAGS, _EXITING = 6, 0x4
"""Which word of `stat` behind the name has the kernel's flags, and which of these a process has
from the beginning of its end on (`PF_EXITING`)."""
_OOM_MORE, _OOM_MOST = 100, 1000
"""What a task has more of `oom_score_adj` than its agent, and the kernel's most."""
_NAMES = ("pipe:", "/")
_MOST_DESCRIPTORS = 256
"""Descriptors of a process that are looked at, to find what it reads."""
_READ_SECONDS = 0.03
_ASLEEP_LOOKS = 3
_KERNEL = 2
"""The parent of all kernel threads, itself one."""


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
    def birth(self) -> tuple[int, int]:
        """Place in the order of births, as `moment` has it. `start` counts hundredths of a second;
        of those that are born in the same one, the pids say who came first."""
        return self.start, self.pid

    @property
    def cpu(self) -> float:
        """Seconds of a processor that it has used."""
        return self.ticks / _TICKS

    @property
    def dead(self) -> bool:
        """The process only waits to be reaped. A process whose first thread has ended looks like
        that, too, while its other threads work on."""
        return self.state in "ZX" and self.threads <= 1


Key = Tuple[int, int]


def read_process(pid: int) -> Process | None:
    """The process, or None when it is gone (or a zombie's entry cannot be read).

    Raises:
        OSError: no descriptor is left, here or on the whole machine.
    """
    fields = _stat(pid)
    if fields is None:
        return None
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


def _stat(pid: int) -> list[bytes] | None:
    """The words of a process's `stat` behind its name; None when it is gone.

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
    return raw[raw.rindex(b")") + 2 :].split(None, 22)  # the name in brackets may hold anything


def seconds_since_boot() -> float:
    """The present time by the clock of `Process.start`."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def oom_kills(proc: str = "/proc", cgroups: str = "/sys/fs/cgroup") -> int:
    """Number of processes that the kernel has killed for want of memory: in the nearest control
    group above us that counts them, else on the whole host. 0 where nobody says."""
    files = []
    for line in _lines(f"{proc}/self/cgroup"):
        _, controllers, path = [*line.rstrip("\n").split(":", 2), "", ""][:3]
        folder = path.rstrip("/")
        if "memory" in controllers.split(","):
            files.append(f"{cgroups}/memory{folder}/memory.oom_control")
        elif not controllers:
            while folder:
                files.append(f"{cgroups}{folder}/memory.events")
                folder = folder.rpartition("/")[0]
            files.append(f"{cgroups}/memory.events")
    for file in (*files, f"{proc}/vmstat"):
        for line in _lines(file):
            words = line.split()
            if words[:1] == ["oom_kill"] and words[1:2] and words[1].isdigit():
                return int(words[1])
    return 0


def prefer_for_oom_killer(file: str = "/proc/self/oom_score_adj") -> None:
    """Has the kernel end this process before the one that has forked it, where memory is short:
    who watches a task shall survive it, and raising the value needs no right."""
    with suppress(OSError, ValueError):  # it is not mounted, or cannot be written
        fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        try:
            value = min(_OOM_MOST, int(os.read(fd, 16)) + _OOM_MORE)
            os.pwrite(fd, b"%d" % value, 0)
        finally:
            os.close(fd)


def _lines(file: str) -> list[str]:
    """The lines of a small file of the kernel; none where there is no such file."""
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.readlines(1 << 16)
    except OSError:
        return []


def path_of(name: str) -> str:
    """The path of a program; empty where there is none. `shutil` would import libraries of
    compression, on each host of a launch."""
    paths = (os.path.join(folder, name) for folder in os.get_exec_path())
    return next((path for path in paths if os.path.isfile(path) and os.access(path, os.X_OK)), "")


def started_at(process: Process) -> float:
    """When it was started, in seconds since boot."""
    return process.start / _TICKS


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


def moment() -> tuple[int, int]:
    """The present: each process whose `birth` is not greater has been born by now. One of the last
    hundredth of a second may seem to be later where pids are not given in order (they have just
    begun again with small numbers), or the newest is not known."""
    newest = _newest_pid()
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * _TICKS), newest


def outlives(pid: int, number: int) -> bool:
    """The process has a handler for this signal, or ignores or blocks it: it is not simply ended.

    Raises:
        OSError: no descriptor is left, here or on the whole machine.
    """
    return _has(_status(pid), _MASKS, number)


def took(pid: int, number: int) -> bool:
    """The process has taken this signal, which was sent to it, and lives on. With one that ends it
    the signal mostly stays pending; where the process was just born, or had it blocked, it is taken
    first, and the process frees its memory afterwards, which lasts on a busy machine.

    Raises:
        OSError: no descriptor is left, here or on the whole machine.
    """
    lines = _status(pid)
    if not lines or _has(lines, _PENDING, number):
        return False
    fields = _stat(pid)  # behind the look at what is pending: whoever is not ending now lives on
    return fields is not None and not int(fields[_FLAGS]) & _EXITING


def _status(pid: int) -> list[bytes]:
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return file.read().splitlines()
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return []


def _has(lines: list[bytes], sets: tuple[bytes, ...], number: int) -> bool:
    masks = [line.split()[1] for line in lines if line.startswith(sets)]
    return any(int(mask, 16) >> (number - 1) & 1 for mask in masks)


def pipe_readers(pids: Iterable[int], candidates: Iterable[int]) -> dict[int, set[int]]:
    """Candidates that read what others of these processes write, as `tee` does behind `train | tee
    log`, or a program that captures another's output; each with the processes whose output it
    reads. Processes that read from each other in a ring, and from nobody else, are left out."""
    sinks = {pid: {_link(f"/proc/{pid}/fd/{number}") for number in (1, 2)} for pid in pids}
    named = {name for names in sinks.values() for name in names if name.startswith(_NAMES)}
    named = {name for name in named if not name.startswith("/dev/")}
    sources = {pid: _read_by(pid, named) for pid in candidates}
    behind = {
        pid: {one for one, read in sources.items() if one != pid and read & sinks[pid]}
        for pid in sinks
    }
    todo = list(set(sinks) - set().union(*behind.values()))
    found: set[int] = set()
    while todo:
        new = behind[todo.pop()] - found
        found |= new
        todo += new
    return {one: {pid for pid in sinks if one in behind[pid]} for one in found}


def _read_by(pid: int, named: set[str]) -> set[str]:
    """Files and pipes of `named` that a process has open for reading."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as listing:
            paths = [item.path for item in islice(listing, _MOST_DESCRIPTORS)]
    except OSError:
        return set()
    found = set()
    for path in paths:
        name = _link(path)
        if name in named and name not in found:
            with suppress(OSError):
                if os.lstat(path).st_mode & stat.S_IRUSR:  # of a link there it is how it was opened
                    found.add(name)
    return found


def _link(path: str) -> str:
    """The name of what a descriptor of a process is. A link's text says so, which touches no
    disk."""
    try:
        return os.readlink(path)
    except OSError:
        return ""


def variable(pid: int, name: bytes) -> bytes | None:
    """The value of an environment variable of another process, None when it has none or may
    not be read. `name` ends with `=`."""
    return _variable(environ_of(pid), name)


def environ_of(pid: int) -> bytes:
    """The environment of another process, each variable ended by NUL; empty where it may not be
    read.

    Raises:
        OSError: no descriptor is left, here or on the whole machine.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return b""


def _variable(environ: bytes, name: bytes) -> bytes | None:
    for one in environ.split(b"\0"):
        if one.startswith(name):
            return one[len(name) :]
    return None


def _is_in_exec(pid: int) -> bool:
    """Whether a process has a new program that has got no arguments yet; kernel threads never
    get any."""
    process = read_process(pid)
    if process is None or process.dead or _KERNEL in (pid, process.ppid):
        return False
    return arguments(pid) == ""


def printable(words: bytes) -> str:
    """At most 400 characters of something that another process has said of itself."""
    text = words.decode(errors="replace")[:400]
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def command_line(pid: int) -> str:
    """A process's arguments joined by blanks, or its name in brackets; at most 400 characters,
    all printable: it is shown to people at terminals, and may be anybody's process."""
    words = arguments(pid)
    return "" if words is None else words or short_name(pid)


def arguments(pid: int) -> str | None:
    """A process's arguments likewise; None where they cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return printable(file.read().rstrip(b"\0").replace(b"\0", b" "))
    except OSError:
        return None


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


_TGKILL = {"x86_64": 234, "aarch64": 131}.get(os.uname().machine)


def send_to_thread(process: Process, tid: int, number: int) -> bool:
    """Signals one thread of exactly this process; False when it is gone, or another thread than
    the first one cannot be named here. Between the look and the signal is a gap of microseconds.

    Raises:
        OSError: no descriptor is left to read the start time with.
    """
    if tid == process.pid:
        return send(process, (number,))
    now = read_process(process.pid)
    if _TGKILL is None or now is None or now.start != process.start:
        return False
    return bool(_libc.syscall(_TGKILL, process.pid, tid, number) == 0)


# --- descriptors --------------------------------------------------------------------------
#
# So few tasks are started that there are always some for a kill, a scan of `/proc` and other
# channels. Tasks are counted and not their numbers: those depend on what is open at a moment.

_MOST_FILES = 1 << 16
"""Limit where there is no hard one: some programs close each possible descriptor at their start."""
_KEPT_FILES = 64
AGENT_FILES = 15
"""Descriptors of an agent with one channel and no task."""
TASK_FILES = 4
"""Descriptors of a task: its log, its output, its gate, and why it could not be executed."""
_START_FILES = 3
"""The task's own ends of these, until it is forked."""

_file_limit_of_login: tuple[int, int] | None = None
_file_limit = _MOST_FILES


def raise_limit() -> None:
    """Raises the soft limit of this process to the hard one."""
    global _file_limit_of_login, _file_limit
    _file_limit_of_login = soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    _file_limit = _number(soft, resource.RLIM_INFINITY)
    wanted = min(_MOST_FILES, _number(hard, resource.RLIM_INFINITY))
    if wanted > _file_limit:
        with suppress(OSError, ValueError):  # the kernel's own limit has been lowered since
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            _file_limit = wanted


def most_descriptors() -> int:
    """The limit to which an agent can raise that of its login."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return min(_MOST_FILES, _number(hard, resource.RLIM_INFINITY))


def fits_descriptors(limit: int, tasks: int) -> bool:
    """Whether an agent with this limit starts so many tasks."""
    needed = AGENT_FILES + TASK_FILES * tasks + _START_FILES
    return needed <= limit - min(_KEPT_FILES, limit // 2)


def _number(limit: int, infinity: int) -> int:
    return _MOST_FILES if limit == infinity else limit


def restore_limit() -> None:
    """Restores the login's limit in a process that the agent has forked."""
    if _file_limit_of_login is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, _file_limit_of_login)


def close_others(keep: Sequence[int]) -> None:
    """Closes all descriptors but these."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with suppress(OSError):  # the listing's own descriptor
                os.close(int(name))


def check_for_task(tasks: int) -> None:
    """Checks that this agent may start another task, with which it has so many.

    Raises:
        OSError: it may not.
    """
    if not fits_descriptors(_file_limit, tasks):
        raise OSError(
            f"too many open files: each task takes {TASK_FILES}, and the hard limit of this login "
            f"(ulimit -Hn) is {_file_limit}"
        )


# --- children -----------------------------------------------------------------------------
#
# All calls are about the calling thread's children only: orphans fall to the main thread, while
# programs that other threads run (`nvidia-smi`) stay those threads' own.

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_WNOTHREAD = 0x20000000
_AHEAD = 32
_WINDOW = 2048
_SCAN_SECONDS = 0.02
_SCAN_SECONDS_MOST = 0.3
_END_PAUSE = 0.005

_libc = ctypes.CDLL(None, use_errno=True)


def set_parent_death_signal(number: int) -> None:
    """Asks the kernel for `number` when the parent thread ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def become_subreaper() -> None:
    """Orphaned descendants become our children instead of init's."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


_LOOK = os.WEXITED | os.WNOHANG | os.WNOWAIT | _WNOTHREAD
_REAP_SECONDS = 0.2
"""At a time: chains of forks may end faster than they can be reaped, and the loop must go on."""


class Ended(NamedTuple):
    """A child that has ended: its wait status, and the processor's seconds that it and those for
    which it had waited have used; where it was looked at, its last line of the process table and
    its short name."""

    pid: int
    status: int
    cpu: float
    process: Process | None = None
    name: str = ""


def reap(*, look: bool = False) -> tuple[list[Ended], bool]:
    """Reaps children that have ended; and whether the kernel says that no child at all is left.
    With `look` each is looked at before: afterwards nothing is known of it."""
    ended: list[Ended] = []
    until = time.monotonic() + _REAP_SECONDS
    while time.monotonic() < until:
        process, name, whose = None, "", -1
        try:
            if look:
                waiting = os.waitid(os.P_ALL, 0, _LOOK)
                if waiting is None:
                    break
                whose = waiting.si_pid
                with suppress(OSError):  # no descriptor is left
                    process, name = read_process(whose), short_name(whose)
            pid, status, used = os.wait4(whose, os.WNOHANG | _WNOTHREAD)
        except ChildProcessError:
            return ended, True
        if pid == 0:
            break
        ended.append(Ended(pid, status, used.ru_utime + used.ru_stime, process, name))
    return ended, False


def is_child(pid: int) -> bool:
    """Whether a process is an unreaped child of this one. One system call, no look at `/proc`."""
    try:
        os.waitid(os.P_PID, pid, _LOOK)
    except ChildProcessError:
        return False
    return True


def waits_to_be_reaped(pid: int) -> bool:
    """Whether a child of the calling thread has ended, or is none any more."""
    try:
        return os.waitid(os.P_PID, pid, _LOOK) is not None
    except ChildProcessError:
        return True


def end_children(known: Container[int], seconds: float) -> None:
    """Kills and reaps all children but the `known` ones, and what falls to this process then. To be
    called by a subreaper's only thread; those that cannot be ended in time are left."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        strangers = [pid for pid in _children() if pid not in known]
        if not strangers:
            return
        for pid in strangers:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_END_PAUSE)


class Killer:
    """Kills the children of the calling thread, those included that are yet to become ours.

    Call `step` whenever a child has ended and every few milliseconds, until `reap` says that
    none is left.
    """

    def __init__(self) -> None:
        self._pause = _SCAN_SECONDS
        self._next_scan = 0.0

    def step(self, reaped: Iterable[Ended] = ()) -> None:
        """One round. The next of a chain of forks has a pid soon after that of the one that has
        just been reaped, so those are tried at once; now and then the whole table is read."""
        ended = [each.pid for each in reaped]
        if ended:
            first = min(ended) + 1
            last = max(max(ended) + _AHEAD, _newest_pid())
            self._kill(range(first, min(last, first + _WINDOW) + 1))
            self._pause = _SCAN_SECONDS
        now = time.monotonic()
        if now >= self._next_scan:
            with suppress(OSError):  # no descriptor is left on the whole machine
                self._kill(_children())
            self._next_scan = time.monotonic() + self._pause
            self._pause = min(self._pause * 1.5, _SCAN_SECONDS_MOST)  # they cannot be killed

    @staticmethod
    def _kill(pids: Iterable[int]) -> None:
        for pid in pids:
            if is_child(pid):
                with suppress(PermissionError):  # it has become another user's
                    os.kill(pid, signal.SIGKILL)


def _newest_pid() -> int:
    """The pid that was given last, as far as this is known."""
    try:
        with open("/proc/loadavg", "rb") as file:
            return int(file.read().split()[-1])
    except (OSError, ValueError):
        return 0  # a container that shows figures of its own


def _children() -> list[int]:
    """Pids that are, or were a moment ago, our children."""
    me = os.getpid()
    try:
        with open(f"/proc/{me}/task/{me}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
        found = (read_process(pid) for pid in pids)
        return [process.pid for process in found if process is not None and process.ppid == me]


# --- the run's processes ------------------------------------------------------------------

STRANGER_SECONDS = 0.25
"""How long looks must find nothing when there was something that an earlier agent had started:
those are not our descendants, so that `waitpid` says nothing of them."""

_Mark = Tuple[Optional[str], bool]


class _ProcessMarks:
    """Marks in a process's environment: the run's task (None when it is none), and whether it is
    an agent of the run. Each is read once; of a process in the middle of an exec, which shows
    neither arguments nor environment, at the next look. `/proc/PID/environ` may hang with a process
    that waits in the kernel, and a kill must not: such a process is `unread`, and counts as a
    stranger until the reading comes to an end."""

    def __init__(self, run_id: str) -> None:
        self._prefix = f"{run_id}/".encode()
        self._agent = f"{run_id};".encode()
        self._known: dict[Key, _Mark] = {}
        self._at: Key = (0, 0)
        self.unread: set[Key] = set()
        self._failure: OSError | None = None

    def read(self, processes: dict[int, Process]) -> dict[Key, _Mark]:
        """The marks of all these processes.

        Raises:
            OSError: no descriptor is left to read them with.
        """
        keys = {(process.pid, process.start) for process in processes.values()}
        self._known = {key: mark for key, mark in self._known.items() if key in keys}
        self.unread &= keys
        while True:
            todo = [key for key in keys if key not in self._known and key not in self.unread]
            if not todo or bounded(lambda todo=todo: self._read_all(todo)):  # type: ignore[misc]
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                # Of all keys: a reading that ends just now takes its key out of `unread`.
                return {key: self._known.get(key, (None, False)) for key in keys}
            self.unread.add(self._at)

    def _read_all(self, todo: list[Key]) -> None:
        known = self._known
        for key in todo:
            self._at = key
            try:
                mark = self._read(key[0])
            except OSError as error:
                self._failure = error
                return
            if key in self.unread:  # we were left behind, and another thread does the rest
                self.unread.discard(key)
                return
            if mark is not None:
                known[key] = mark

    def _read(self, pid: int) -> _Mark | None:
        environ = environ_of(pid)
        if not environ.strip(b"\0") and _is_in_exec(pid):
            return None
        tag, agent = (_variable(environ, name) for name in (TAG, AGENT_TAG))
        task = None
        if tag is not None and tag.startswith(self._prefix) and tag.endswith(b";"):
            task = tag[len(self._prefix) : -1].rpartition(b"/")[0].decode(errors="replace")
        return task, agent == self._agent


class ProcessTracker:
    """Tracker of the processes of one run and of the task to which each belongs.

    A process's task is a name, or "" for one that is the run's but of no task that is known (a
    daemon whose birth was not seen). `agent_session` is the session of the agent itself: what is
    in it has just been forked, for a task's processes are in sessions of their own, and none can
    enter a foreign one. What the agent asks for itself (`nvidia-smi`) is no part of the run either.
    """

    def __init__(self, run_id: str, agent_session: int = 0) -> None:
        self._marks = _ProcessMarks(run_id)
        self._agent_session = agent_session
        self.known_processes: dict[Key, str] = {}
        self.roots: dict[Key, str] = {}
        """The first process of each task that this agent started; its session is the task's."""
        self.below: set[int] = set()
        """Our descendants, as the last look saw them."""

    @property
    def unread(self) -> list[int]:
        """Processes whose task cannot be read: they wait in the kernel."""
        return sorted(pid for pid, _ in list(self._marks.unread))

    def scan(self, processes: dict[int, Process] | None = None) -> dict[int, tuple[Process, str]]:
        """Scans the process table: the run's processes and their tasks.

        Raises:
            OSError: no descriptor is left, here or on the whole machine.
        """
        everyone = table() if processes is None else processes
        me = os.getpid()
        marks = self._marks.read(everyone)
        keys = {(p.pid, p.start) for p in everyone.values()}
        self.known_processes = {
            key: task for key, task in self.known_processes.items() if key in keys
        }
        children: dict[int, list[int]] = {}
        for process in everyone.values():
            children.setdefault(process.ppid, []).append(process.pid)
        self.below = self._below(me, children)
        sessions = self._sessions(everyone)
        owned: dict[int, str] = {}
        for process in everyone.values():
            task = self._own(process, sessions, everyone, marks)
            if task is not None:
                owned[process.pid] = task
        todo = list(owned)
        while todo:  # descent: below a task's process everything is the task's
            pid = todo.pop()
            for child in children.get(pid, ()):
                if child not in owned:
                    owned[child] = owned[pid]
                    todo.append(child)
        for child in self.below:
            owned.setdefault(child, "")
        owned.pop(me, None)
        of_agent = self._agent_sessions(everyone, children.get(me, ()))
        result = {}
        for pid, task in owned.items():
            process = everyone[pid]
            if process.sid in of_agent:
                continue
            key = (pid, process.start)
            if task or key not in self.known_processes:
                self.known_processes[key] = task
            result[pid] = (process, self.known_processes[key])
        return result

    def _agent_sessions(self, everyone: dict[int, Process], ours: Iterable[int]) -> set[int]:
        """The agent's session, and those of programs that its other threads ask: the kernel calls
        them no children of this thread, which starts all tasks, and gets all orphans."""
        if not self._agent_session:
            return set()
        leaders = (one for one in map(everyone.__getitem__, ours) if one.sid == one.pid)
        others = (one for one in leaders if (one.pid, one.start) not in self.roots)
        return {self._agent_session, *(one.pid for one in others if not is_child(one.pid))}

    def _sessions(self, everyone: dict[int, Process]) -> dict[int, str]:
        """The tasks of the sessions that first processes have made. A session outlives its first
        process, whose pid is not given again before the last of the session has ended; what has
        such a session by chance is not below us (`_own`)."""
        living = {everyone[pid].sid for pid in self.below}
        self.roots = {
            (pid, start): task
            for (pid, start), task in self.roots.items()
            if pid in living or ((first := everyone.get(pid)) and first.start == start)
        }
        return {pid: task for (pid, _), task in self.roots.items()}

    def _own(
        self,
        process: Process,
        sessions: dict[int, str],
        everyone: dict[int, Process],
        marks: dict[Key, _Mark],
    ) -> str | None:
        key = (process.pid, process.start)
        if self.known_processes.get(key):
            return self.known_processes[key]
        if process.sid in sessions and process.pid in self.below:
            return sessions[process.sid]
        tag = marks[key][0]
        if tag is not None and not self._below_another(process, everyone, marks):
            return tag
        return self.known_processes.get(key)

    @staticmethod
    def _below_another(
        process: Process,
        everyone: dict[int, Process],
        marks: dict[Key, _Mark],
    ) -> bool:
        """Whether a process belongs to another living agent of the run: two hosts of a cluster may
        be one machine, or containers whose processes this machine sees."""
        found = False
        parent = everyone.get(process.ppid)
        while parent is not None:
            if parent.pid == os.getpid():
                return False
            found = found or marks[(parent.pid, parent.start)][1]
            parent = everyone.get(parent.ppid)
        return found

    @staticmethod
    def _below(root: int, children: dict[int, list[int]]) -> set[int]:
        found: set[int] = set()
        todo = [root]
        while todo:
            for child in children.get(todo.pop(), ()):
                if child not in found:
                    found.add(child)
                    todo.append(child)
        return found
