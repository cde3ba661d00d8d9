"""Files that come and go: the trees that the launcher stages, the results that it collects."""

from __future__ import annotations

import os
from typing import Any, Callable

from . import collect, stage, tree, wire
from .channel import Channel
from .channels import Channels
from .folders import FolderError, Folders
from .log_reader import OpenLog
from .notes import reason
from .workers import Worker

Apart = Callable[[Channel, int, Callable[[], "dict[str, Any]"]], None]
"""Does what may block (a disk, a name server) in a thread, and replies with what it says."""


_MOST_WAITING = 16 << 20
_FEW_WAITING = 4 << 20
"""Bytes of staged files that wait for the disk: beyond the first no more are read from the
channel until it is less than the second."""


class Files:
    """What the launcher asks about a host's files; the work itself is in `stage` and `collect`.

    Staging is done by a thread, in the order in which its frames have come.
    """

    def __init__(
        self,
        folders: Folders,
        channels: Channels,
        apart: Apart,
        later: Callable[[Callable[[], None]], None],
    ) -> None:
        self._folders = folders
        self._channels = channels
        self._apart = apart
        self._later = later
        self._staging = Worker("staging")
        self._waiting = 0
        self._stage: stage.Stage | None = None
        self._archive: collect.Archive | None = None

    def put_aside(self) -> None:
        """The run is over: its trees are kept for the next launch."""
        if self._stage is not None:
            self._stage.put_aside()

    def manifest(self, channel: Channel, said: dict[str, Any]) -> None:
        """Parts of a manifest; with the last one it is told what is missing, and where nothing
        is, the trees are built at once: an unchanged launch costs one round trip."""
        self._staging.do(lambda: self._manifest(channel, said))

    def _manifest(self, channel: Channel, said: dict[str, Any]) -> None:
        answer: dict[str, Any] | None = None
        try:
            if said.get("first"):
                if self._stage is not None:
                    self._stage.close()
                self._stage = None
                cache = self._folders.cache
                self._stage = stage.Stage(cache, self._folders.stage, said["key"])
            work = self._stage
            if work is None:
                raise stage.StageError("a manifest that never began")
            for fields in said["entries"]:
                entry = tree.Entry(*fields)
                stage.check(entry)
                work.entries.append(entry)
            if said.get("build"):
                answer = work.build()
            elif said.get("last"):
                answer = work.begin()
        except (
            stage.StageError,
            FolderError,
            OSError,
            LookupError,
            ValueError,
            TypeError,
        ) as error:
            if not said.get("build"):
                self._stage = None
            answer = {"error": reason(error)}
        if answer is not None:
            self._reply(channel, {"id": said["id"] or "stage", **answer})

    def contents(self, channel: Channel, data: bytes) -> None:
        """Bytes of staged files."""
        self._waiting += len(data)
        if self._waiting > _MOST_WAITING:
            self._channels.pause(channel)
        self._staging.do(lambda: self._contents(channel, data))

    def _contents(self, channel: Channel, data: bytes) -> None:
        try:
            if self._stage is not None:  # else it was on its way when staging failed
                self._stage.feed(data)
        except (stage.StageError, OSError) as error:
            self._reply(channel, {"id": "stage", "error": reason(error)})
        self._later(lambda: self._written(channel, len(data)))

    def _written(self, channel: Channel, count: int) -> None:
        self._waiting -= count
        if self._waiting < _FEW_WAITING:
            self._channels.resume(channel)

    def _reply(self, channel: Channel, answer: dict[str, Any]) -> None:
        self._later(lambda: channel.send(wire.REPLY, answer))

    def collect(self, channel: Channel, said: dict[str, Any]) -> None:
        """Results for the launcher: it asks for an archive, opens it, and says when it has all."""
        if "upto" in said and self._archive is not None:
            self._archive.allow(said["upto"])
            if "open" in said:
                number = said["open"]
                channel.open_logs[number] = OpenLog(number, self._archive, said["from"])
        elif said.get("done"):
            archive = self._archive
            for number in [n for n, o in channel.open_logs.items() if o.log is archive]:
                del channel.open_logs[number]
            self._apart(channel, said["id"], lambda: _closed(archive))
        elif "paths" in said:
            self._apart(channel, said["id"], lambda: self._archived(said["paths"]))

    def _archived(self, paths: list[list[str]]) -> dict[str, Any]:
        """The archive of these paths; asked again after a cut it is the same one."""
        # A launcher that only attached to kill may not know this home.
        wanted = [(name, os.path.expanduser(path)) for name, path in paths]
        archive = self._archive
        if archive is None or archive.wanted != wanted:
            self._archive = archive = collect.Archive(wanted)
        return archive.announcement


def _closed(archive: collect.Archive | None) -> dict[str, Any]:
    if archive is None:
        return {"problems": []}
    archive.close()
    return {"problems": archive.problems}
