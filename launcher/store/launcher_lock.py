"""Lock of a run's launcher process, held while it lives: there is one launcher for a run.

It goes with the process, and nothing stale is left after a crash. Its first part is the run's
entry in the index of this machine (`living_runs`), by the run's id: whoever starts a launcher
process takes it and hands the descriptor over, so there is no moment without one. The second part
is `launcher.lock` in the run's folder, for launchers of other machines that share the folder, and
of earlier versions. Both name the holder by machine, pid and start time: whoever takes the run over
from a launcher that stands still ends that process first, and no other one.

A home may lie on a file system whose locks fail (NFS without its lock service) or never answer.
That matters only where the file names a launcher of another machine, or this machine's index cannot
be used: then nobody knows whether there is one, and everybody here says so (`LockError`).
"""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from ..agent.folders import FolderError, local_folder
from ..errors import LockError
from .living_runs import (
    Holder,
    LivingRun,
    entry_path,
    is_file_of,
    lock_entry,
    remove_entry,
    this_boot,
)
from .living_runs import holder_of as holder_in_index

_NAME = "launcher.lock"
_RETRY_SECONDS = 0.2
_LONGEST = 200
"""Bytes of the line that names the holder; blanks overwrite what an earlier one has left."""
_ANSWER_SECONDS = 5.0
"""Longest wait for the lock service of a file system, which answers in milliseconds."""
_END_SECONDS = 2.0
"""Longest wait for the end of a launcher that was killed: one that sleeps in the kernel, on a disk
that does not answer, keeps its lock until the disk does."""
_REMEDY = "have XDG_DATA_HOME name a folder on a file system with locks, such as a local disk"
_hanging: set[Path] = set()
"""Lock files for which a thread hangs: no other one is sent after it."""
_guard = threading.Lock()
"""Guards `_hanging`, and the moment in which a thread is given up."""
_Found = TypeVar("_Found")


def acquire(folder: Path, run_id: str, *, new: bool = False) -> int | None:
    """Takes the lock of a run; returns its descriptor, or None where a launcher holds it. Nobody
    can hold that of a `new` run.

    Raises:
        LockError: it cannot be seen whether a launcher holds it.
    """

    def take() -> int | None:
        try:
            fd = lock_entry(run_id)
        except (OSError, FolderError):
            return _lock_file(folder / _NAME)
        try:
            if fd is not None and not new and _other_holder(folder / _NAME) is not None:
                os.close(fd)
                fd = None
        except BaseException:
            if fd is not None:
                os.close(fd)
            raise
        return fd

    return _answer(folder / _NAME, take, os.close)


def _lock_file(path: Path) -> int | None:
    """Locks the file in a run's folder.

    Raises:
        OSError: it cannot be opened, or its lock not be taken.
    """
    create = 0 if path.exists() else os.O_CREAT  # a disk that does not answer may be read
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    fd = os.open(path, flags | create, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, BlockingIOError):
            return None
        raise
    return fd


def _other_holder(path: Path) -> Holder | None:
    """The launcher that the index of this machine does not know: one that has locked the file in
    the run's folder. None: there is none.

    Raises:
        OSError: the lock cannot be seen, and the file names a launcher of another machine.
    """
    try:
        return _file_holder(path)
    except OSError:
        with suppress(OSError):
            if _named_in(path).machine in ("", this_boot()):
                return None
        raise


def _file_holder(path: Path) -> Holder | None:
    """The launcher that has locked the file in a run's folder; None: nobody has.

    Raises:
        OSError: the lock cannot be seen.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:  # a shared lock: of two that looked at once, each took the other for a launcher
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return Holder.parse(os.pread(fd, _LONGEST, 0))
    finally:
        os.close(fd)
    return None


def _named_in(path: Path) -> Holder:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return Holder.parse(os.pread(fd, _LONGEST, 0))
    finally:
        os.close(fd)


def holder_of(folder: Path, run_id: str) -> Holder | None:
    """The launcher that holds the lock of a run; None: nobody does.

    Raises:
        LockError: it cannot be seen whether somebody holds the lock.
    """

    def look() -> Holder | None:
        path = folder / _NAME
        try:
            holder = holder_in_index(run_id)
        except (OSError, FolderError):
            return _file_holder(path)
        return _other_holder(path) if holder is None else holder

    return _answer(folder / _NAME, look)


def launcher_pid(folder: Path, run_id: str) -> int | None:
    """The pid of the process that holds the lock (0 where it has not written it), or None.

    Raises:
        LockError: it cannot be seen whether somebody holds the lock.
    """
    holder = holder_of(folder, run_id)
    return None if holder is None else holder.pid


class FollowedError(Exception):
    """Another launcher has the lock of the one that was killed."""


def take_over(folder: Path, run_id: str) -> int | None:
    """The lock of a run whose launcher does not answer: that process is killed first, so that
    there are never two. None where it cannot be: another machine's, or one that has not said who
    it is, or sleeps in the kernel.

    Raises:
        FollowedError: somebody else, who follows the run, was quicker to take it.
        LockError: the lock cannot be used.
    """
    deadline = time.monotonic() + _END_SECONDS
    killed: Holder | None = None
    while (fd := acquire(folder, run_id)) is None:
        holder = holder_of(folder, run_id)
        if holder is not None:
            # The next one has written another line, or not yet its own over that of the dead one.
            if killed is not None and (holder != killed or not holder.is_here):
                raise FollowedError
            if not holder.is_here or time.monotonic() > deadline:
                return None
            _kill(holder)
            killed = holder
        time.sleep(_RETRY_SECONDS / 10)
    return fd


def is_abandoned(folder: Path, run_id: str) -> bool:
    """A launcher process has held the lock, and none does, as far as this can be seen."""
    try:
        return (folder / _NAME).exists() and launcher_pid(folder, run_id) is None
    except LockError:
        return False


class LauncherLock:
    """The lock of a run in its launcher process."""

    def __init__(self, folder: Path, run_id: str, fd: int | None) -> None:
        """`fd` holds the lock already; None where a launcher on another machine keeps it, from
        which this one takes the hosts."""
        self._folder, self._run_id = folder, run_id
        self._held = [] if fd is None else [fd]
        self._ended = False
        self._guard = threading.Lock()
        """Guards what is held, against a renewal that ends after the run."""
        self._place: int | None = None
        """The run's folder, opened: it is found again when somebody renames it."""

    def renew(self, hosts: Sequence[str]) -> str:
        """Says in the index and in the run's folder who holds the lock, makes again what somebody
        has removed there, and shows cleaners of `/tmp` that it is in use. Returns why the index
        has no entry of the run; empty where it has one. Waits for disks."""
        trouble = ""
        with self._guard:
            if not self._ended:
                try:
                    self._write_entry(hosts)
                except (OSError, FolderError) as error:
                    trouble = getattr(error, "strerror", None) or str(error)
        # The disk of the run's folder comes last: it may not answer.
        with suppress(OSError):
            self._sign(self._folder / _NAME)
        return trouble

    def end(self) -> None:
        """Lets go of the lock, and removes the entry."""
        with self._guard:
            self._ended = True
            for fd in self._held:
                remove_entry(self._run_id, fd)
                os.close(fd)
            if self._place is not None:
                os.close(self._place)

    def _write_entry(self, hosts: Sequence[str]) -> None:
        path = entry_path(self._run_id)
        held = next((fd for fd in self._held if is_file_of(fd, path)), None)
        if held is None:
            held = lock_entry(self._run_id)
            if held is None:
                return  # another launcher has begun: the hosts choose between them
            self._held.append(held)
        entry = LivingRun(
            self._run_id,
            self._present_folder(),
            tuple(hosts),
            Holder.this_process(),
            os.path.expanduser("~"),
            living=True,
        )
        line = entry.line()
        if os.pread(held, len(line) + 1, 0) != line:
            os.pwrite(held, line, 0)
            os.ftruncate(held, len(line))
        for used in (held, local_folder()):
            os.utime(used)

    def _present_folder(self) -> Path:
        """Path of the run's folder now; where it is gone or that cannot be seen, the last one."""
        with suppress(OSError):
            if self._place is None:
                self._place = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            if os.fstat(self._place).st_nlink:
                self._folder = Path(os.readlink(f"/proc/self/fd/{self._place}"))
        return self._folder

    def _sign(self, path: Path) -> None:
        """Writes who this is into the file in the run's folder, and locks it."""
        if not any(is_file_of(fd, path) for fd in self._held):
            fd = _lock_file(path)
            if fd is None:
                return
            with self._guard:
                if self._ended:
                    os.close(fd)
                    return
                self._held.append(fd)
        with open(path, "r+b", buffering=0) as file:
            file.write(Holder.this_process().line().ljust(_LONGEST))


@contextmanager
def held(folder: Path, run_id: str, fd: int | None) -> Iterator[LauncherLock]:
    """Holds the lock in the launcher process; see `LauncherLock`."""
    lock = LauncherLock(folder, run_id, fd)
    try:
        yield lock
    finally:
        lock.end()


def _kill(holder: Holder) -> None:
    """Kills the process of a holder, and no other that has got its pid."""
    from ..agent import processes  # which a list of runs does not need

    process = processes.read_process(holder.pid)
    with suppress(ProcessLookupError):
        if process is None:  # no /proc
            os.kill(holder.pid, signal.SIGKILL)
        elif str(process.start) == holder.started:
            processes.send(process, [signal.SIGKILL])


def _answer(
    path: Path, work: Callable[[], _Found], give_back: Callable[[Any], None] | None = None
) -> _Found:
    """What `work` returns, on a thread that is left behind when it hangs; what that returns when
    nobody waits any more goes to `give_back`.

    Raises:
        LockError: it failed, or hangs.
    """
    found: list[_Found] = []
    failed: list[OSError] = []
    done = threading.Event()

    def run() -> None:
        try:
            found.append(work())
        except OSError as error:
            failed.append(error)
        with _guard:
            done.set()
            if path in _hanging:
                _hanging.remove(path)
                if found and found[0] is not None and give_back is not None:
                    give_back(found[0])

    with _guard:
        hangs = path in _hanging
    if not hangs:
        threading.Thread(target=run, name="file lock", daemon=True).start()
        done.wait(_ANSWER_SECONDS if not _hanging else _RETRY_SECONDS)
        with _guard:
            hangs = not done.is_set()
            if hangs:
                _hanging.add(path)
    if hangs:
        reason = "its file system does not answer"
        raise LockError(f"the lock {path} cannot be used: {reason}; {_REMEDY}")
    if failed:
        reason = failed[0].strerror or str(failed[0])
        raise LockError(f"the lock {path} cannot be used: {reason}; {_REMEDY}") from failed[0]
    return found[0]
