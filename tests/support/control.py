"""A launcher's control socket in this process, with the state and the prompts behind it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from launcher.ids import new_run_id
from launcher.process.control_socket import ControlSocket
from launcher.process.prompt_queue import PromptQueue
from launcher.run.snapshot import RunView
from launcher.run.states import RunPhase
from launcher.run.views import Views
from launcher.store.runs import socket_path
from tests.support.crash import failed
from tests.support.patience import PATIENCE


@dataclass
class Client:
    """A connection that has subscribed, and what it was told first."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    first: dict[str, Any]

    async def told(self) -> dict[str, Any]:
        """The next message."""
        message: dict[str, Any] = json.loads(await self.reader.readline())
        return message


class Launcher:
    """A control socket, and the state and prompts behind it."""

    def __init__(self, run_id: str = "", unattended: float = PATIENCE) -> None:
        self.run_id = run_id or new_run_id("unread")
        self.state = Views(RunView(self.run_id, "r", RunPhase.RUNNING, 0.0))
        self.prompts = PromptQueue(unattended)
        self.commands: list[object] = []
        run: Any = SimpleNamespace(
            data=self.state,
            command=self.commands.append,
            refresh=self.views,
            crash=failed,
        )
        self.control = ControlSocket(run, self.run_id, self.prompts)
        self.made = 0
        """States that were asked for."""

    def views(self) -> Views:
        self.made += 1
        return self.state

    async def client(self, on_close: str = "nothing") -> Client:
        """A client that has subscribed and read the first state."""
        reader, writer = await asyncio.open_unix_connection(socket_path(self.run_id))
        order = {"command": "subscribe", "on_close": on_close}
        writer.write(json.dumps(order).encode() + b"\n")
        return Client(reader, writer, json.loads(await reader.readline()))

    async def note(self, text: str) -> None:
        """Sends a state in which that is waited for."""
        self.state.update_run(waiting=text)
        self.control.changed(at_once=True)
        await asyncio.sleep(0)

    async def subscribed(self, count: int) -> None:
        """Waits for so many clients."""
        while self.prompts.others + self.prompts.responders < count:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(run_id: str = "", unattended: float = PATIENCE) -> AsyncIterator[Launcher]:
    """A launcher that listens; `unattended` seconds pass before nobody answers its prompts."""
    launcher = Launcher(run_id, unattended)
    async with launcher.control.listening(), asyncio.timeout(PATIENCE):
        yield launcher
