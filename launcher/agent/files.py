"""Files that come and go: the trees that the launcher stages, the results that it collects."""

from __future__ import annotations

import os
from typing import Any, Callable

from . import collect, stage, tree, wire
from .channel import Channel, OpenLog
from .folders import FolderError, Folders
from .notes import reason

Apart = Callable[[Channel, int, Callable[[], "dict[str, Any]"]], None]
"""Does what may block (a disk, a name server) in a thread, and replies with what it says."""


class Files:
    """What the launcher asks about a host's files; the work itself is in `stage` and
    `collect`."""

    def __init__(self, folders: Folders, apart: Apart) -> None:
        self._folders = folders
        self._apart = apart
        self._stage: stage.Stage | None = None
        self._archive: collect.Archive | None = None

    def put_aside(self) -> None:
        """The run is over: its trees are kept for the next launch."""
        if self._stage is not None:
            self._stage.put_aside()

    def manifest(self, channel: Channel, said: dict[str, Any]) -> None:
        """Parts of a manifest; with the last one it is told what is missing, and where nothing
        is, the trees are built at once: an unchanged launch costs one round trip."""
        try:
            if said.get("first"):
                if self._stage is not None:
                    self._stage.close()
                self._stage = None
                cache = self._folders.cache
                self._stage = stage.Stage(cache, self._folders.stage, said["key"])
            work = self._stage
            if work is None:
                raise wire.WireError("a manifest that never began")
            for fields in said["entries"]:
                entry = tree.Entry(*fields)
                stage.check(entry)
                work.entries.append(entry)
        except (stage.StageError, FolderError) as error:
            self._stage = None
            channel.send(wire.REPLY, {"id": said["id"] or "stage", "error": reason(error)})
            return
        if said.get("build"):
            self._apart(channel, said["id"], work.build)
        elif said.get("last"):
            self._apart(channel, said["id"], work.begin)

    def contents(self, channel: Channel, data: bytes) -> None:
        """Bytes of staged files."""
        if self._stage is None:
            return  # what was on its way when staging failed
        try:
            self._stage.feed(data)
        except (stage.StageError, OSError) as error:
            channel.send(wire.REPLY, {"id": "stage", "error": reason(error)})

    def collect(self, channel: Channel, said: dict[str, Any]) -> None:
        """Results for the launcher: it asks for an archive, opens it, and says when it has all."""
        if "upto" in said and self._archive is not None:
            self._archive.allow(said["upto"])
            if "open" in said:
                number = said["open"]
                channel.open_logs[number] = OpenLog(number, self._archive, said["from"])
        elif said.get("done"):
            problems = []
            if self._archive is not None:
                problems = self._archive.problems
                for number in [n for n, o in channel.open_logs.items() if o.log is self._archive]:
                    del channel.open_logs[number]
                self._archive.close()
            channel.send(wire.REPLY, {"id": said["id"], "problems": problems})
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
