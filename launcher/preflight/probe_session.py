"""Connection to an agent that runs on a host only while a preflight checks it."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from ..agent.messages import Answer, Message, PortsAnswer, Welcome
from ..agent.probes import PROBES
from ..agent.requests import Ports
from ..errors import AgentError, HostError
from ..hosts.handshake import LinkSettings
from ..hosts.link import Link
from ..hosts.log_sink import NoLogs
from ..hosts.ssh import SshConnector
from ..hosts.transport import Transport
from ..hosts.transport_factory import transport_factory
from ..plan.plan import HostPlan

LEASE = 20.0
"""Seconds after which the agent ends by itself when this process has died."""
LEAVE_SECONDS = 5.0
QUICK = 10.0
SLOW = 35.0
"""For checks that start a program there: longer than the agent's own timeout."""
_NOISE_BYTES = 4096


class ProbeSession:
    """Link to a host's agent, which is removed with its folder by `aclose`."""

    def __init__(self, host: HostPlan, run_id: str, logins: SshConnector) -> None:
        self._host = host.name
        self._open = transport_factory(host, logins)
        self._arrived: asyncio.Future[Welcome] = asyncio.get_running_loop().create_future()
        settings = LinkSettings(
            run_id=run_id,
            host=host.name,
            lease=LEASE,
            grace=0.0,
            on_disconnect="stop",
            local=host.local,
        )
        self._link = Link(settings, self._open_tapped, NoLogs(), self)
        self._task: asyncio.Task[None] | None = None
        self._transport: _TappedTransport | None = None
        self._opened = 0.0
        self.start_seconds = 0.0
        """From the login, in which a person may have been asked, to the agent's first message."""

    @property
    def noise(self) -> bytes:
        """Output of the login shell before our command ran."""
        return b"" if self._transport is None else self._transport.noise

    async def arrive(self) -> Welcome:
        """Logs in and starts the agent; returns its first message.

        Raises:
            HostError: says which step failed and why.
        """
        self._task = asyncio.create_task(self._link.run())
        self._task.add_done_callback(self._ended)
        return await self._arrived

    async def ask(self, what: str, timeout: float, **said: Any) -> dict[str, Any]:
        """Sends the agent's `probe` a question and returns the answer.

        Raises:
            AgentError: no answer in `timeout` seconds, or the check failed on the host.
        """
        answer: Answer = await self._link.ask(PROBES[what](**said), timeout)
        return answer.to_json()

    async def ports(self, look: list[int], pick: int, seconds: float) -> PortsAnswer:
        """Finds who holds these ports, and picks `pick` others that are free.

        Raises:
            AgentError: no answer, or there are too few free ports.
        """
        return await self._link.ask(Ports(tuple(look), pick, tuple(look)), seconds)

    async def aclose(self) -> None:
        """Ends the agent and waits until it has removed its folder."""
        if self._task is None:
            return
        if self._link.connected:
            if self._transport is not None:
                self._transport.leaving = True
            self._link.leave(remove=True)
            await asyncio.wait([self._task], timeout=LEAVE_SECONDS)
            if self._transport is not None:
                self._transport.leaving = False  # the end of the stream was waited for already
        await self._link.aclose()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _open_tapped(
        self, run_id: str, nonce: str, beside: Transport | None = None
    ) -> Transport:
        self._transport = _TappedTransport(await self._open(run_id, nonce))
        self._opened = time.monotonic()
        return self._transport

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._arrived.done() or task.cancelled():
            return
        error = task.exception()
        if error is None:
            reason = "the connection was closed before the agent had started"
        else:
            reason = f"{type(error).__name__}: {error}"
        self._arrived.set_exception(AgentError(self._host, reason))

    # --- events of the link ---------------------------------------------------------------

    def link_up(self, host: str, welcome: Welcome) -> None:
        """Lets the probes begin: the agent has started and is connected."""
        if not self._arrived.done():
            self.start_seconds = time.monotonic() - self._opened
            self._arrived.set_result(welcome)

    def link_refused(self, host: str, error: HostError) -> None:
        """The host cannot be reached."""
        if not self._arrived.done():
            self._arrived.set_exception(error)

    def link_lost(self, host: str, reason: str) -> None:
        """Does nothing: questions fail by themselves, and the link reconnects."""

    def link_superseded(self, host: str, by: str) -> None:
        """Never happens: no other process knows this run."""

    def agent_said(self, host: str, message: Message) -> None:
        """Does nothing: there are no tasks."""


class _TappedTransport(Transport):
    """Transport that keeps the output before the agent's, and waits for the end of the stream.

    The agent closes the stream after it has removed its folder: closing it from here earlier
    would leave that to chance.
    """

    def __init__(self, inner: Transport) -> None:
        self.noise = b""
        self._inner = inner
        self._seen: bytes | None = b""
        self.leaving = False

    async def read(self) -> bytes:
        data = await self._inner.read()
        if self._seen is not None:
            self._seen += data
            before, found, _ = self._seen.partition(b"tfmux-agent-")
            self.noise = before[:_NOISE_BYTES]
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
