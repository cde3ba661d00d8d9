"""Files that come and go: the trees that the launcher stages, the results that it collects."""

from __future__ import annotations

import os
from typing import Sequence

from . import collect, stage, wire
from .channel import Channel, OpenLog
from .folders import Folders
from .log import error_text
from .messages import Answer, ArchiveAnswer, CollectedAnswer, Done, StageFailed, StageStored
from .requests import (
    Collect,
    CollectCredit,
    CollectEnd,
    CollectOpen,
    StageBuild,
    StageManifest,
)
from .workers import Later, WorkerThread

_WAIT_FOR_STAGING = 3.0


class FileRequests:
    """Handler of requests about a host's files; the work itself is in `stage` and `collect`.

    Staging is done by a thread, in the order in which its frames have come.
    """

    def __init__(self, folders: Folders, later: Later) -> None:
        self._folders = folders
        self._later = later
        self._staging = WorkerThread("staging")
        self._stage: stage.Stage | None = None
        self._archive: collect.Archive | None = None

    @property
    def staged(self) -> bool:
        """Files of the run have come to this host."""
        return self._stage is not None

    def close(self) -> None:
        """Waits until nothing is being staged any more, and keeps the trees of a run that is over
        for the next launch."""
        self._staging.do(self._keep_for_reuse).wait(_WAIT_FOR_STAGING)

    def _keep_for_reuse(self) -> None:
        if self._stage is not None:
            self._stage.close()
            self._stage.keep_for_reuse()

    def manifest(self, channel: Channel, part: StageManifest) -> None:
        """Adds a part of a manifest; with the last one it is answered what is missing, and where
        nothing is, the trees are built at once: an unchanged launch costs one round trip."""
        self._staging.do(lambda: self._manifest(channel, part))

    def _manifest(self, channel: Channel, part: StageManifest) -> None:
        try:
            if part.first:
                cache, target = self._folders.cache, self._folders.stage
                self._stage = stage.Stage(cache, target, part.key, self._stage)
            work = self._stage
            if work is None:
                raise stage.StageError("the first part of the manifest is missing")
            for entry in part.entries:
                stage.check(entry)
                work.entries.append(entry)
            if part.last:
                self._answer(channel, part.id, work.begin())
        except Exception as error:
            self._drop()
            self._fail(channel, part.id, error_text(error))

    def _drop(self) -> None:
        if self._stage is not None:
            self._stage.close()
        self._stage = None

    def build(self, channel: Channel, wanted: StageBuild) -> None:
        """Builds the trees when all contents before it have been stored."""
        self._staging.do(lambda: self._build(channel, wanted))

    def _build(self, channel: Channel, wanted: StageBuild) -> None:
        try:
            if self._stage is None:
                raise stage.StageError("there is no manifest")
            self._stage.build()
            self._answer(channel, wanted.id, Done())
        except Exception as error:
            self._fail(channel, wanted.id, error_text(error))

    def contents(self, channel: Channel, data: bytes) -> None:
        """Stores bytes of staged files.

        Raises:
            WireError: more wait for the disk than a launcher may send.
        """
        channel.contents_received += len(data)
        if channel.contents_received - channel.contents_stored > wire.STAGE_WINDOW:
            raise wire.WireError("STAGE_CONTENTS beyond what may wait for the disk")
        received = channel.contents_received
        self._staging.do(lambda: self._contents(channel, data, received))

    def _contents(self, channel: Channel, data: bytes, received: int) -> None:
        try:
            if self._stage is not None:  # else it was on its way when staging failed
                self._stage.feed(data)
        except Exception as error:
            self._fail(channel, None, error_text(error))
        self._later(lambda: self._stored(channel, received))

    def _stored(self, channel: Channel, up_to: int) -> None:
        """Tells the launcher now and then, and long before it would wait for it."""
        if up_to - channel.contents_stored >= wire.STAGE_WINDOW // 4:
            channel.contents_stored = up_to
            channel.send(StageStored(up_to))

    def _answer(self, channel: Channel, ident: int | None, answer: Answer) -> None:
        self._later(lambda: channel.answer(ident, answer))

    def _fail(self, channel: Channel, ident: int | None, text: str) -> None:
        """An error that is nobody's answer is a message of its own."""
        if ident is None:
            self._later(lambda: channel.send(StageFailed(text)))
        else:
            self._later(lambda: channel.refuse(ident, text))

    def collect(self, channel: Channel, wanted: Collect) -> None:
        """Makes the archive of some paths."""
        channel.answer_in_thread(wanted.id, lambda: self._archived(wanted.paths))

    def collect_open(self, channel: Channel, wanted: CollectOpen) -> None:
        """Sends the archive from a byte on."""
        if self._archive is not None:
            self._archive.allow(wanted.up_to)
            number = wanted.number
            channel.open_logs[number] = OpenLog(number, self._archive, wanted.offset)

    def collect_credit(self, _: Channel, wanted: CollectCredit) -> None:
        """Sends more of the archive."""
        if self._archive is not None:
            self._archive.allow(wanted.up_to)

    def collect_end(self, channel: Channel, wanted: CollectEnd) -> None:
        """Sends no more of the archive."""
        archive = self._archive
        for number in [n for n, o in channel.open_logs.items() if o.log is archive]:
            del channel.open_logs[number]
        channel.answer_in_thread(wanted.id, lambda: _closed(archive))

    def _archived(self, paths: Sequence[tuple[str, str]]) -> ArchiveAnswer:
        """The archive of these paths; asked again after a cut it is the same one."""
        # A launcher that only attached to kill may not know this home.
        wanted = [(name, os.path.expanduser(path)) for name, path in paths]
        archive = self._archive
        if archive is None or archive.wanted != wanted:
            self._archive = archive = collect.Archive(wanted)
        return archive.announcement


def _closed(archive: collect.Archive | None) -> CollectedAnswer:
    if archive is None:
        return CollectedAnswer(())
    archive.close()
    return CollectedAnswer(tuple(archive.problems))
