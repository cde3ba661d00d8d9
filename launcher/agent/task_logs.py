"""Logs of the tasks on this host: output into files, in a thread of its own, and reports of sizes.

A disk that hangs blocks `write`, and must block neither heartbeats nor kills. A full disk must
not block the tasks: their pipes are read on and what found no room is counted. The pipe stays
between a task and its file because `> /dev/stderr` inside a task would cut the file to zero.

A log only grows, and never beyond its limit. What a task writes when the first part of the limit is
used goes to a second file of bounded size, which keeps the end of it; that is appended to the log,
behind a mark of what was cut, when the attempt has ended.
"""

from __future__ import annotations

import errno
import fcntl
import os
import select
import termios
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Callable

from . import wire
from .folders import Folders
from .log_end import LogEnd, end_room
from .processes import EXHAUSTED
from .terminals import hides_input
from .threads import Later, WorkerThread, error_text, log_line
from .wire import Json

if TYPE_CHECKING:
    from .channel import Channel, Channels

_CHUNK = 256 * 1024
_CALL_SECONDS = 0.03
_SIZE_SECONDS = (0.06, 0.0125)
"""Between two messages of sizes: at least so much, and so much for each log that grows. Each size
costs the launcher a millisecond: with 16 flooding tasks a fifth of a core. The screen draws logs
ten times a second."""


_AT_LIMIT = (
    "it has reached its log_limit; of further output only the end is kept, and shown when the "
    "attempt has ended"
)


class Log:
    """One task's log file on this host; attempts follow each other in it.

    `size` is the bytes written, `lost` those that found no room on the disk, `cut` those that the
    limit has cost, `beyond` all that came when its first part was used. Changed by the drain
    thread, read by the loop, which never opens it. It is open while a task writes to it or a
    launcher reads it: a host has more logs than descriptors.
    """

    def __init__(self, path: str, limit: int) -> None:
        self.path = path
        self.limit = limit
        self.fd = -1
        self.size = 0
        self.lost = 0
        self.cut = 0
        self.beyond = 0
        self._end = LogEnd(path + ".end")
        self._users = 0
        self._lock = threading.Lock()

    def open(self) -> None:
        """Opens the file if it is not open yet, until `close` has been called as often as this,
        calls that raise included. May hang with its disk.

        Raises:
            OSError: a link stands in its place, or there is no room for even an empty file.
        """
        with self._lock:
            self._users += 1
            self._open()

    def close(self) -> None:
        """Closes the file if nobody else has it open."""
        with self._lock:
            self._users -= 1
            if not self._users and self.fd >= 0:
                fd, self.fd = self.fd, -1
                self._end.close()
                with suppress(OSError):  # of NFS: the server has not taken all of it
                    os.close(fd)

    def _open(self) -> None:
        if self.fd < 0:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            fd = os.open(self.path, flags, 0o600)
            self.size = os.fstat(fd).st_size
            self.fd = fd
            if self._end.take_up():  # of an agent that has died
                self.append_end()

    def pread(self, limit: int, offset: int) -> bytes:
        """At most `limit` bytes from `offset` on."""
        try:
            self.open()
            return os.pread(self.fd, limit, offset)
        finally:
            self.close()

    def append_from(self, fd: int, buffer: bytearray) -> int:
        """Moves what stands in a pipe to the file's end; how many bytes left the pipe, 0 at its
        end. Never raises: whatever is wrong with the disk, the tasks' pipes are read on.

        They are read into `buffer` and written; what finds no room is counted. `splice` would
        copy them once less, but it holds the pipe until they are in the file: the task waits.
        """
        if self.fd < 0:
            with suppress(OSError), self._lock:  # who must know why has called `open`
                self._open()
        try:
            count = os.readv(fd, [buffer])
        except OSError:  # a terminal whose last user has gone says EIO
            return 0
        self._write(memoryview(buffer)[:count])
        return count

    def _write(self, data: memoryview) -> None:
        room = max(0, self.limit - end_room(self.limit) - self.size)
        if self._end.used:
            room = 0  # what follows on the end that is kept belongs behind it
        self._append(data[:room])
        data = data[room:]
        if data:
            self.beyond += len(data)
            if not self._end.used:
                self._end.begin(self.limit - self.size)
            cut, lost = self._end.write(data)
            self.cut += cut
            self.lost += lost

    def _append(self, data: bytes | memoryview) -> None:
        while data:
            try:
                written = os.pwrite(self.fd, data, self.size)
            except OSError:
                self.lost += len(data)
                return
            self.size += written
            data = data[written:]

    @property
    def holds_end(self) -> bool:
        """Output is kept that stands in no log yet."""
        return self._end.used

    def append_end(self) -> None:
        """Appends the end that is kept to the log, behind a mark of what is missing. Never
        raises."""
        if not self._end.used:
            return
        for part in self._end.parts(self._last_byte(), self.limit - self.size):
            self._append(part)
        self.cut += self._end.left_out
        self._end.remove()

    def _last_byte(self) -> bytes:
        try:
            return os.pread(self.fd, 1, self.size - 1) if self.size else b"\n"
        except OSError:
            return b""


class Drain(threading.Thread):
    """Reads all tasks' pipes until each has no writer left.

    `on_change` is called from this thread when a log has grown or ended, at most thirty times a
    second while logs grow: the loop looks again by itself 40 ms after a call. Under a flood a
    call a chunk would have the loop and this thread fight for the interpreter's lock.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__(name="drain", daemon=True)
        self._on_change = on_change
        self._logs: dict[int, Log] = {}
        self._epoll = select.epoll()
        self._lock = threading.Lock()
        self._asked, self._ask = os.pipe()
        self._epoll.register(self._asked, select.EPOLLIN)
        self._settling: list[tuple[Log, threading.Event]] = []
        """Logs whose kept ends are wanted, and whom to tell."""
        self._reading = False
        self._buffer = bytearray(_CHUNK)  # one for all: a fresh one a read costs page faults
        self._called = 0.0

    def add(self, fd: int, log: Log) -> None:
        """Drains `fd` into `log`, which is open, from now on; closes both when it has ended."""
        with self._lock:
            self._logs[fd] = log
            self._epoll.register(fd, select.EPOLLIN)

    def draining(self, log: Log) -> bool:
        """Somebody still holds a pipe of this log open."""
        with self._lock:
            return log in self._logs.values()

    def idle(self, log: Log) -> bool:
        """All that was written to this log's pipes so far is in its file."""
        waiting = bytearray(4)
        with self._lock:
            for fd, drained in self._logs.items():
                if drained is log:
                    fcntl.ioctl(fd, termios.FIONREAD, waiting)
                    if any(waiting):
                        return False
        return not self._reading  # looked at last: what left the pipe meanwhile is being written

    def hides_input(self, log: Log) -> bool:
        """A terminal that is drained into this log does not show what is typed."""
        with self._lock:
            return any(hides_input(fd) for fd, drained in self._logs.items() if drained is log)

    def settle(self, log: Log) -> threading.Event:
        """Has the end that is kept of a log appended to it, without a wait; the event is set
        then."""
        done = threading.Event()
        if log.holds_end:
            with self._lock:
                self._settling.append((log, done))
            os.write(self._ask, b"s")
        else:
            done.set()
        return done

    def run(self) -> None:
        """Reads until the process ends."""
        while True:
            for fd, _ in self._epoll.poll():
                if fd == self._asked:
                    self._settle()
                else:
                    self._read(fd)

    def _settle(self) -> None:
        os.read(self._asked, 4096)
        with self._lock:
            settling, self._settling = self._settling, []
        for log, done in settling:
            log.append_end()
            done.set()
        self._on_change()

    def _read(self, fd: int) -> None:
        log: Log | None = self._logs.get(fd)
        if log is None:
            return
        self._reading = True
        if log.append_from(fd, self._buffer):
            self._reading = False
            now = time.monotonic()
            if now - self._called < _CALL_SECONDS:
                return
            self._called = now
        else:
            self._reading = False
            with self._lock:
                self._epoll.unregister(fd)
                last = list(self._logs.values()).count(log) == 1
            if last and log.holds_end:
                log.append_end()  # first: who asks takes a log that nobody drains for whole
            with self._lock:
                del self._logs[fd]
            os.close(fd)
            log.close()
        self._on_change()


class TaskLogs:
    """Logs of all tasks: one each, whatever number of attempts writes to it.

    `on_change` is called from another thread when a log has grown or ended. A launcher of this
    machine (`local`) reads the files itself and is told their sizes only.
    """

    def __init__(
        self,
        folders: Folders,
        channels: Channels,
        on_change: Callable[[], None],
        disk: WorkerThread,
        *,
        local: bool,
    ) -> None:
        self._folders = folders
        self._channels = channels
        self._logs: dict[str, Log] = {}
        self._local = local
        self._on_change = on_change
        self.drain = Drain(on_change)
        self._disk = disk
        self._sent_sizes: dict[str, int] = {}
        self.next_sizes = 0.0
        """Time before which no sizes are sent."""
        self._sent_losses: set[tuple[str, str]] = set()

    def log(self, task: str, limit: int) -> Log:
        """The log of a task, with the limit that holds from now on.

        Raises:
            ValueError: the task's name is none that may become a file's.
        """
        if not wire.TASK_NAME.fullmatch(task):
            raise ValueError(f"{task[:100]!r} is not the name of a task")
        log = self._logs.get(task)
        if log is None:
            log = self._logs[task] = Log(self._folders.log(task), limit)
        log.limit = limit
        return log

    def shell_file(self, task: str) -> str:
        """The file in which our shells in front of a task leave its directory and `PATH`."""
        return os.path.join(self._folders.shells, os.path.basename(self._folders.log(task)))

    def make_shell_folder(self) -> None:
        """Makes the folder of those files. May hang with the disk."""
        with suppress(OSError):  # a full disk: then less is known of a failed start
            os.mkdir(self._folders.shells, 0o700)

    def begin(self, log: Log, task: str) -> None:
        """Opens the log for an attempt, whose losses will be told anew. May hang with the disk:
        not for the loop.

        A full disk starts a task without a log; a link where its log should be does not, nor does
        a lack of descriptors.

        Raises:
            OSError: there is one. The log needs a `close` all the same.
        """
        self._sent_losses.discard((task, "limit"))
        try:
            log.open()
        except OSError as error:
            if error.errno in (errno.ELOOP, *EXHAUSTED):
                raise

    def open(self, channel: Channel, wanted: Json, later: Later | None = None) -> None:
        """Opens a log for a launcher, from some byte on; one of this machine, which asks about an
        attempt, reads it itself. Where it is given what to do `later` with, nobody writes to the
        log any more, and the launcher is told its size."""
        log = self.log(wanted["task"], int(wanted.get("log_limit", 1 << 62)))
        number, offset = int(wanted["number"]), int(wanted["offset"])
        if not (0 <= number < 1 << 16 and 0 <= offset < 1 << 62):
            raise ValueError("a number of 16 bits and an offset of 62 are needed")
        attempt = int(wanted.get("attempt", 0))
        if not (self._local and attempt):
            channel.open_log(number, log, offset)

        def tell() -> None:
            if not channel.closed:
                said = {"task": wanted["task"], "size": log.size, "attempt": attempt}
                channel.send(wire.LOG_SIZE, said)

        def look() -> None:
            self._open(log)
            if later is not None:
                later(tell)

        if log.fd < 0 or later is not None:
            self._disk.do(look)

    def _open(self, log: Log) -> None:
        try:
            log.open()  # which finds its size
        except OSError as error:
            log_line(error_text(error))
        log.close()
        self._on_change()  # there may be something to read now

    def beyond(self) -> dict[str, int]:
        """Bytes of each task that have come since the first part of its log's limit was used."""
        return {task: log.beyond for task, log in self._logs.items() if log.beyond}

    def has_grown(self) -> bool:
        """There are sizes to be sent."""
        return bool(self._grown())

    def send_sizes(self, now: float) -> None:
        """Sends how far logs have grown, unless the launcher has not read the last message yet."""
        if now < self.next_sizes or self._channels.queued:
            return
        grown = self._grown()
        least, each = _SIZE_SECONDS
        self.next_sizes = now + max(least, each * len(grown))
        for task, size in grown:
            self._sent_sizes[task] = size
            self._channels.send(wire.LOG_SIZE, {"task": task, "size": size})

    def _grown(self) -> list[tuple[str, int]]:
        if not self._local:
            return []
        sizes = ((task, log.size) for task, log in self._logs.items())
        return [(task, size) for task, size in sizes if size != self._sent_sizes.get(task, 0)]

    def send_losses(self) -> None:
        """Tells the launcher once that a log is incomplete; its end says how much was lost."""
        if not self._channels.has_launcher:
            return
        for task, log in self._logs.items():
            for lost, word, text in (
                (log.lost, "disk", "the disk is full; output is dropped"),
                (log.cut, "limit", _AT_LIMIT),
            ):
                if lost and (task, word) not in self._sent_losses:
                    self._sent_losses.add((task, word))
                    self._channels.send(wire.NOTE, {"text": f"the log of {task}: {text}"})
