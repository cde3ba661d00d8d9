"""Both ends of the link of a host, in memory: a transport, what hears, and what stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from launcher.agent import wire
from launcher.hosts import bootstrap
from launcher.hosts.link import Stored
from launcher.hosts.transport import Transport
from launcher.ids import TaskId
from launcher.store.logs import LogStore
from tests.support.patience import PATIENCE


class Scripted(Transport):
    """A transport whose other side is the test."""

    def __init__(self, nonce: str) -> None:
        self.said: asyncio.Queue[bytes] = asyncio.Queue()
        self.heard = b""
        self.closed = False
        self.said.put_nowait(b"motd\n" + bootstrap.marker(nonce) + b"\n" + bootstrap.EVERY_BYTE)

    async def read(self) -> bytes:
        return b"" if self.closed else await self.said.get()

    def write(self, data: bytes) -> None:
        self.heard += data

    async def drain(self) -> None:
        return

    async def aclose(self) -> None:
        self.closed = True
        self.said.put_nowait(b"")

    @property
    def complaint(self) -> str:
        return "\x1b]52;c;eA==\x07the shell complains"

    def frames(self) -> list[wire.RawFrame]:
        """What the launcher has said after the agent's source."""
        loader = 8 + int(self.heard[:8])
        packed = int(self.heard[loader : loader + 8])
        return [*wire.Decoder().feed(self.heard[loader + 8 + packed :])]


class Ears:
    """Hears what a link says."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.news = asyncio.Event()

    def __getattr__(self, name: str) -> Callable[..., None]:
        def hear(*words: Any) -> None:
            self.heard.append((name, words))
            self.news.set()

        return hear

    async def wait(self, name: str) -> Any:
        """The words of the first call of that name."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = [words for said, words in self.heard if said == name]
                if found:
                    return found[0]
                self.news.clear()
                await self.news.wait()


class Sink:
    """Stores in this thread; while `takes` is unset, nothing."""

    def __init__(self, folder: Path) -> None:
        self.takes = True
        self.waiting: list[tuple[TaskId, int, bytes, Stored]] = []
        self._logs = LogStore(folder)

    def size(self, task: TaskId) -> int:
        return self._logs.open(task).size

    def store(self, task: TaskId, offset: int, data: bytes, stored: Stored) -> None:
        self.waiting.append((task, offset, data, stored))
        if self.takes:
            self.store_waiting()

    def store_waiting(self) -> None:
        while self.waiting:
            task, offset, data, stored = self.waiting.pop(0)
            self._logs.open(task).append(offset, data, 1.0)
            stored(len(data))

    def forget(self, stored: Stored) -> None:
        self.waiting = [one for one in self.waiting if one[3] is not stored]

    def grown(self, task: TaskId, size: int) -> None:
        """A log of this machine would be counted."""
