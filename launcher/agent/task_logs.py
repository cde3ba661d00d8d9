"""Logs of the tasks on this host, drained into files; reports of their sizes as they grow."""

from __future__ import annotations

import errno
from typing import Callable

from .channel import Channel, OpenLog
from .channels import Channels
from .descriptors import EXHAUSTED, check_for_task
from .drain import Drain, Log
from .folders import Folders
from .log import error_text, log_line
from .messages import LogSize, Note
from .requests import ReadLog
from .task_id import TaskId
from .workers import WorkerThread

_SIZE_SECONDS = (0.06, 0.0125)
"""Between two messages of sizes: at least so much, and so much for each log that grows. Each size
costs the launcher a millisecond: with 16 flooding tasks a fifth of a core. The screen draws logs
ten times a second."""


class TaskLogs:
    """Logs of all tasks: one each, whatever number of attempts writes to it.

    `on_change` is called from another thread when a log has grown or ended. A launcher of this
    machine (`local`) reads the files itself and is told their sizes only.
    """

    def __init__(
        self,
        folders: Folders,
        channels: Channels,
        logs: dict[str, Log],
        on_change: Callable[[], None],
        *,
        local: bool,
    ) -> None:
        self._folders = folders
        self._channels = channels
        self._logs = logs
        self._local = local
        self._on_change = on_change
        self.drain = Drain(on_change)
        self._opener = WorkerThread("log opener")
        self._sent_sizes: dict[str, int] = {}
        self.next_sizes = 0.0
        """Time before which no sizes are sent."""
        self._sent_losses: set[tuple[str, str]] = set()

    def log(self, task: str, limit: int) -> Log:
        """The log of a task, with the limit that holds from now on."""
        log = self._logs.get(task)
        if log is None:
            log = self._logs[task] = Log(self._folders.log(task), limit)
        log.limit = limit
        return log

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
        check_for_task(log.fd)

    def open(self, channel: Channel, wanted: ReadLog) -> None:
        """Opens a log for a launcher, from some byte on."""
        log = self.log(str(wanted.task), wanted.log_limit)
        channel.open_logs[wanted.number] = OpenLog(wanted.number, log, wanted.offset)
        if log.fd < 0:
            self._opener.do(lambda: self._open(log))

    def _open(self, log: Log) -> None:
        try:
            log.open()  # which finds its size
        except OSError as error:
            log_line(error_text(error))
        log.close()
        self._on_change()  # there may be something to read now

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
            self._channels.send(LogSize(TaskId.parse(task), size))

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
                (log.cut, "limit", "it has reached its log_limit; further output is dropped"),
            ):
                if lost and (task, word) not in self._sent_losses:
                    self._sent_losses.add((task, word))
                    self._channels.send(Note(f"the log of {task}: {text}"))
