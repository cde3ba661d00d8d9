"""An agent on a host for as long as a preflight asks it; nothing of it stays behind."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from ..agent.answers import Answer, PortsAnswer
from ..agent.messages import Message, Welcome
from ..agent.probes import PROBES
from ..agent.requests import Ports
from ..errors import AgentError, HostError
from ..hosts.handshake import LinkSettings
from ..hosts.link import Link, NoLogs
from ..hosts.ssh import SshConnector
from ..hosts.transport import Transport
from ..hosts.transport_factory import transport_factory
from ..plan.plan import HostPlan

LEASE = 20.0
"""Seconds after which an agent goes by itself when the one who asks has died."""
LEAVE_SECONDS = 5.0
_NOISE_BYTES = 4096


class Visit:
    """A link to a host's agent that ends when the questions have been asked (`aclose`)."""

    def __init__(self, host: HostPlan, run_id: str, logins: SshConnector) -> None:
        self.noise = b""
        """What the login shell printed before our command ran."""
        self._host = host.name
        self._open = transport_factory(host, logins)
        self._arrived: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        settings = LinkSettings(
            run_id=run_id,
            host=host.name,
            lease=LEASE,
            grace=0.0,
            on_disconnect="stop",
            local=host.ssh is None,
        )
        self._link = Link(settings, self._watched, NoLogs(), self)
        self._task: asyncio.Task[None] | None = None
        self._transport: _Watched | None = None

    async def arrive(self) -> Welcome:
        """Logs in and starts the agent; returns its greeting.

        Raises:
            HostError: says which step failed and why.
        """
        self._task = asyncio.create_task(self._link.run())
        self._task.add_done_callback(self._ended)
        return await self._arrived

    async def ask(self, what: str, timeout: float, **said: Any) -> dict[str, Any]:
        """Asks the agent's `probe` a question.

        Raises:
            AgentError: no answer in `timeout` seconds, or the host cannot tell.
        """
        answer: Answer = await self._link.ask(PROBES[what](**said), timeout)
        return answer.to_json()

    async def ports(self, look: list[int], pick: int, seconds: float) -> PortsAnswer:
        """Who holds these ports, and `pick` others that are free.

        Raises:
            AgentError: no answer, or there are not as many.
        """
        return await self._link.ask(Ports(tuple(look), pick, tuple(look)), seconds)

    async def aclose(self) -> None:
        """Sends the agent away and waits until it has taken its folder with it."""
        if self._task is None:
            return
        if self._link.connected:
            if self._transport is not None:
                self._transport.leaving = True
            self._link.leave(remove=True)
            await asyncio.wait([self._task], timeout=LEAVE_SECONDS)
        await self._link.aclose()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watched(self, run_id: str, nonce: str) -> Transport:
        inner = await self._open(run_id, nonce)
        self._transport = _Watched(inner, self._heard)
        return self._transport

    def _heard(self, noise: bytes) -> None:
        self.noise = noise

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._arrived.done() or task.cancelled():
            return
        error = task.exception()
        if error is None:
            reason = "the connection ended before the agent had greeted us"
        else:
            reason = f"{type(error).__name__}: {error}"
        self._arrived.set_exception(AgentError(self._host, reason))

    # --- what the link hears --------------------------------------------------------------

    def link_up(self, host: str, welcome: Welcome) -> None:
        """The agent greets us."""
        if not self._arrived.done():
            self._arrived.set_result(welcome)

    def link_refused(self, host: str, error: HostError) -> None:
        """There is no way to the host."""
        if not self._arrived.done():
            self._arrived.set_exception(error)

    def link_lost(self, host: str, reason: str) -> None:
        """Whoever asks something meanwhile gets an error; the link comes back by itself."""

    def link_superseded(self, host: str, by: str) -> None:
        """Nobody else knows our run."""

    def agent_said(self, host: str, message: Message) -> None:
        """There are no tasks to speak of."""


class _Watched(Transport):
    """Passes everything on; keeps what comes before the agent, and waits for its end.

    The end of the stream is when the agent has let go of the bridge, and it does so after it
    has removed its folder: closing earlier would leave that to chance.
    """

    def __init__(self, inner: Transport, heard: Any) -> None:
        self._inner = inner
        self._heard = heard
        self._seen: bytes | None = b""
        self.leaving = False

    async def read(self) -> bytes:
        data = await self._inner.read()
        if self._seen is not None:
            self._seen += data
            before, found, _ = self._seen.partition(b"tfmux-agent-")
            self._heard(before[:_NOISE_BYTES])
            self._seen = None if found else self._seen[-_NOISE_BYTES:]
        return data

    def write(self, data: bytes) -> None:
        self._inner.write(data)

    async def drain(self) -> None:
        await self._inner.drain()

    async def aclose(self) -> None:
        if self.leaving:
            with suppress(TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    while await self._inner.read():
                        continue
        await self._inner.aclose()

    @property
    def complaint(self) -> str:
        return self._inner.complaint

    async def forward(self, port: int, wanted: int = 0) -> int:
        return await self._inner.forward(port, wanted)
