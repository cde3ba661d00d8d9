"""The logs of the tasks on this host: drained into files, and told of as they grow."""

from __future__ import annotations

import errno
from typing import Any, Callable

from . import wire
from .channel import Channel
from .channels import Channels
from .drain import Drain, Log
from .folders import Folders
from .log_reader import OpenLog
from .notes import reason, say
from .workers import Worker

_NO_LIMIT = 1 << 62


class Outputs:
    """One log a task, whatever number of attempts writes to it.

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
        self._drain = Drain(on_change)
        self._opener = Worker("log opener")
        self._told_sizes: dict[str, int] = {}
        self._told_losses: set[tuple[str, str]] = set()

    def start(self) -> None:
        """Begins to drain."""
        self._drain.start()

    def log(self, task: str, limit: int) -> Log:
        """The log of a task, with the limit that holds from now on."""
        log = self._logs.get(task)
        if log is None:
            log = self._logs[task] = Log(self._folders.log(task), limit)
        log.limit = limit
        return log

    def begin(self, log: Log, task: str) -> None:
        """An attempt is about to write to its log, and what it loses will be told anew. May hang
        with the disk: not for the loop.

        A full disk starts a task without a log; a link where its log should be does not.

        Raises:
            OSError: there is one.
        """
        self._told_losses.discard((task, "limit"))
        try:
            log.open()
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise

    def take(self, pipe: int, log: Log) -> None:
        """What an attempt writes goes to its log from now on."""
        self._drain.add(pipe, log)

    def ended(self, log: Log) -> bool:
        """Nobody holds a pipe to this log open."""
        return not self._drain.draining(log)

    def settled(self, log: Log) -> bool:
        """What was written so far is in the file."""
        return self._drain.idle(log)

    def open(self, channel: Channel, said: dict[str, Any]) -> None:
        """A launcher wants a log from some byte on.

        Raises:
            WireError: there can be no such log, or no such byte.
        """
        number, start = int(said["number"]), int(said["from"])
        if not 0 <= number < 1 << 16 or start < 0:
            raise wire.WireError(f"OPEN: no log {number} from {start}")
        log = self.log(str(said["task"]), int(said.get("log_limit", _NO_LIMIT)))
        channel.open_logs[number] = OpenLog(number, log, start)
        if log.fd < 0:
            self._opener.do(lambda: self._open(log))

    def _open(self, log: Log) -> None:
        try:
            log.open()
        except OSError as error:
            say(reason(error))
        self._on_change()  # there may be something to read now

    def has_grown(self) -> bool:
        """There are sizes to tell."""
        return bool(self._grown())

    def tell_sizes(self) -> None:
        """Tells how far logs have grown, unless the launcher has not read the last word yet."""
        if self._channels.queued:
            return
        for task, size in self._grown():
            self._told_sizes[task] = size
            self._channels.tell(wire.SIZE, {"task": task, "size": size})

    def _grown(self) -> list[tuple[str, int]]:
        if not self._local:
            return []
        sizes = ((task, log.size) for task, log in self._logs.items())
        return [(task, size) for task, size in sizes if size != self._told_sizes.get(task, 0)]

    def tell_losses(self) -> None:
        """Says once that a log has become incomplete; how much was lost, its end tells."""
        if not self._channels.tended:
            return
        for task, log in self._logs.items():
            for lost, word, text in (
                (log.lost, "disk", "the disk is full; output finds no room and is dropped"),
                (log.cut, "limit", "it has reached its log_limit; what follows is dropped"),
            ):
                if lost and (task, word) not in self._told_losses:
                    self._told_losses.add((task, word))
                    self._channels.tell(wire.NOTE, {"text": f"the log of {task}: {text}"})
