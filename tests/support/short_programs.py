"""Both ends of a short program's pipe: the launcher's for a real one, the host's for a liar."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from launcher.hosts import bootstrap
from launcher.hosts.transport import Transport
from launcher.on_host.pipe import LENGTH, Pipe


def message(body: dict[str, Any]) -> bytes:
    """A message of a program, or to one."""
    raw = json.dumps(body).encode()
    return LENGTH.pack(len(raw)) + raw


class Talker(Transport):
    """A session of a program that says this, whatever it is told, and then ends."""

    def __init__(self, nonce: str, *said: bytes) -> None:
        self._said = [bootstrap.marker(nonce) + b"\n" + bootstrap.EVERY_BYTE, *said]
        self.closed = False

    async def read(self) -> bytes:
        """The next that it says."""
        await asyncio.sleep(0)
        return self._said.pop(0) if self._said else b""

    def write(self, data: bytes) -> None:
        """Hears nothing."""

    async def drain(self) -> None:
        """Takes everything."""

    async def aclose(self) -> None:
        """The end."""
        self.closed = True

    @property
    def complaint(self) -> str:
        return ""


class Obliging(Talker):
    """A session of a program on a host that has all contents."""

    def __init__(self, nonce: str) -> None:
        super().__init__(nonce, message({}))
        self._waiting = asyncio.Event()

    async def read(self) -> bytes:
        """The next answer, when there is a request."""
        while not (self._said or self.closed):
            self._waiting.clear()
            await self._waiting.wait()
        return await super().read()

    def write(self, data: bytes) -> None:
        """Takes a request."""
        if b'"what":"stage"' in data:
            self._said += [message({"missing": []}), message({"built": True})]
        self._waiting.set()

    async def aclose(self) -> None:
        """The end."""
        await super().aclose()
        self._waiting.set()


class Running:
    """A program's work in a thread of this process, seen from the launcher's end of its pipe."""

    def __init__(self, work: Callable[[Pipe], object]) -> None:
        (self._source, self._asked), (self._answers, self._sink) = os.pipe(), os.pipe()
        self._work = work
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hang_up()
        os.close(self._answers)
        self._thread.join()
        os.close(self._source)

    def hang_up(self) -> None:
        """Ends its input."""
        if self._asked >= 0:
            os.close(self._asked)
        self._asked = -1

    def write(self, data: bytes) -> None:
        """Sends bytes."""
        view = memoryview(data)
        while view:
            view = view[os.write(self._asked, view) :]

    def read(self, count: int) -> bytes:
        """The next bytes of it, fewer at its end."""
        data = b""
        while len(data) < count and (part := os.read(self._answers, count - len(data))):
            data += part
        return data

    def read_some(self) -> bytes:
        """The bytes that are there, b"" at its end."""
        return os.read(self._answers, 1 << 18)

    def receive(self) -> dict[str, Any]:
        """Its next message."""
        (length,) = LENGTH.unpack(self.read(LENGTH.size))
        body: dict[str, Any] = json.loads(self.read(length))
        return body

    def _run(self) -> None:
        try:
            self._work(Pipe(source=self._source, sink=self._sink))
        except Exception as error:
            self.error = error
        finally:
            os.close(self._sink)
