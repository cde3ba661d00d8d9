"""Link to one host: a transport, the agent's frames, beats, and reconnecting after a cut.

The link turns frames into plain calls on its `Listener` and keeps nothing of the run but what
a reconnect needs: which logs it reads and how far they have come. Log bytes are handed to a
`LogSink`, and more are asked for (credit) only when it has them on disk: neither side's memory
grows, and whatever else comes, receipts above all, never waits for a disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar

from ..agent import wire
from ..errors import AgentError, HostError, ProtocolError
from ..ids import TaskId
from ..printable import printable
from ..run.states import Purpose
from .bootstrap import START_SECONDS, LinkSettings, greet
from .frame_checks import LogBytes, Reply
from .frames import (
    Answer,
    Beat,
    Credit,
    Gone,
    Kill,
    Leave,
    LogSize,
    Message,
    Pong,
    Question,
    ReadLog,
    Refusal,
    Request,
    Rules,
    Welcome,
)
from .transport import Transport, TransportFactory

if TYPE_CHECKING:
    from .programs import HostProgram

WINDOW = 1 << 20
REPLY_SECONDS = 20.0
ROUSE_SECONDS = 2.0
"""Silence behind a kill after which another bridge looks whether the agent was stopped."""
_ROUSED_TIMES = 3
_SILENT_SECONDS = 2.0
"""A bridge that has arrived on a host has an answer of its agent in this time."""
_FRAMES_AT_ONCE = 4
"""Frames of a host that are handled without a look at others: after a kill a thousand hosts answer
at the same time, and beats, clients and a second kill must not wait for all that they say."""
_STEADY_SECONDS = 10.0
"""A connection of which lasts as long: after it the next one is made at once. A host that hangs up
again and again is contacted less often, and each time leaves fewer lines in the run's records."""
_LOST_INPUT = "via-input"
"""Code of an error after which a host is tried once more: `podman exec` closes the input of a
command at times (podman's issues 3302 and 5046)."""

A = TypeVar("A", bound=Answer)
Stored = Callable[[int], None]
"""Called, on the loop, with the number of further bytes that are on disk."""


class LogSink(Protocol):
    """Receiver of log bytes; no method waits for a disk. By itself it keeps nothing."""

    def size(self, task: TaskId) -> int:
        return 0

    def store(self, task: TaskId, offset: int, data: bytes, stored: Stored) -> None:
        return

    def forget(self, stored: Stored) -> None:
        return

    def grown(self, task: TaskId, size: int) -> None:
        return


class Listener(Protocol):
    """Receiver of what the agent says."""

    def link_up(self, host: str, welcome: Welcome) -> None: ...
    def link_lost(self, host: str, reason: str) -> None: ...
    def link_refused(self, host: str, error: HostError) -> None: ...
    def link_superseded(self, host: str, by: str, purpose: Purpose) -> None: ...
    def agent_silent(self, host: str) -> None: ...
    def agent_said(self, host: str, message: Message) -> None: ...


class Link:
    """Link to a host's agent, which reconnects until it is closed."""

    def __init__(
        self,
        settings: LinkSettings,
        open_transport: TransportFactory,
        logs: LogSink,
        listener: Listener,
        ending: Callable[[], bool] = lambda: False,
    ) -> None:
        """`ending` says whether the run is being ended: then an agent of another version, which
        takes no order from us, is replaced by one of ours, and a launcher whose place we take
        hears what for."""
        self.settings = settings
        self.last_heard = 0.0
        self.connected = False
        self.agent_gone = False
        """The agent that an engine had started is there no more."""
        self._open = open_transport
        self._logs = logs
        self._listener = listener
        self._ending = ending
        self._other_version = False
        """The agent that answered last is of another version."""
        self._transport: Transport | None = None
        self._token = secrets.token_hex(8)
        self.sessions = 0
        """How many times an agent has answered the handshake."""
        self._numbers: dict[int, TaskId] = {}
        self._checker = settings.frame_checker()
        self._replies: dict[int, asyncio.Future[Reply]] = {}
        self._ids = itertools.count(1)
        self._stored: Stored = lambda count: None
        """This session's own, by which the sink knows its bytes."""
        self._written = 0
        self._granted = 0
        self.closed = False
        """The link has ended and will not come back."""
        self._leaving = False
        self._heard = 0
        """Number of chunks that have come from the agent."""
        self._rousing: asyncio.Task[None] | None = None
        self._farewell: Leave | None = None
        """How we have left; sent again where the connection ended before the agent read it."""

    # --- what the launcher does -----------------------------------------------------------

    async def run(self) -> None:
        """Connects and stays connected. Returns when closed, refused, or superseded."""
        first, tried_again = True, False
        delay = 0.25
        while True:
            broken, gone = False, self.agent_gone
            try:
                began = time.monotonic()
                await self._session()
                if time.monotonic() - began > _STEADY_SECONDS:
                    delay = 0.25
                reason = "the connection ended"
            except HostError as error:
                broken = isinstance(error, ProtocolError)
                if not self.sessions and first and not self.settings.persistent:
                    if error.code == _LOST_INPUT and not tried_again and not self.closed:
                        tried_again = True
                        continue
                    self._listener.link_refused(self.settings.host, error)
                    return
                reason = error.reason
            finally:
                was, self.connected = self.connected, False
                await self._drop()
            if self.closed:
                return
            if broken:  # who lies once is not asked again
                self.closed = True
            if was or first or broken or self.agent_gone > gone:
                self._listener.link_lost(self.settings.host, reason)
            if broken:
                return
            first = False
            await asyncio.sleep(delay * random.uniform(0.8, 1.2))
            delay = min(5.0, delay * 2)

    def change_rules(self, rules: Rules) -> None:
        """Has the next greeting say these rules; the agent of this connection has to be asked."""
        self.settings = replace(self.settings, rules=rules)

    def send(self, request: Request, ident: int | None = None) -> bool:
        """Sends a frame, a question with its number; False when the host cannot be reached now. A
        kill wants a sign of life soon."""
        if isinstance(request, Kill) and (self._rousing is None or self._rousing.done()):
            self._rousing = asyncio.create_task(self._rouse(), name=f"rouse {self.settings.host}")
        if self._transport is None or not self.connected:
            return False
        self._transport.write(request.encode(ident))
        self._checker.sent(request)
        if isinstance(request, Kill):
            self._transport.write(Beat().encode())
        return True

    async def ask(self, question: Question[A], timeout: float = REPLY_SECONDS) -> A:
        """Sends a question and waits for its answer.

        Raises:
            AgentError: no reply came, or it says that something failed.
        """
        ident = next(self._ids)
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._replies[ident] = future
        self._checker.expect(ident, question)
        try:
            if not self.send(question, ident):
                raise AgentError(self.settings.host, "the host cannot be reached")
            async with asyncio.timeout(timeout):
                reply = await future
        except TimeoutError as error:
            name = wire.NAMES[question.TYPE]
            reason = f"the agent did not answer {name} in {timeout:.0f} s"
            raise AgentError(self.settings.host, reason) from error
        finally:
            self._replies.pop(ident, None)
        if not isinstance(reply.answer, question.ANSWER):
            raise AgentError(self.settings.host, reply.error)
        answer: A = reply.answer
        return answer

    async def start_program(self) -> HostProgram:
        """Starts the short program on the host, over a session of its own.

        Raises:
            HostError: the host cannot be reached, or the program cannot be started.
        """
        beside, run_id = self._transport, self.settings.run_id
        if beside is None or not self.connected:
            raise AgentError(self.settings.host, "the host cannot be reached")
        from .programs import HostProgram  # as what sends files has done before

        return await HostProgram.start(
            run_id, self.settings.host, lambda nonce: self._open(run_id, nonce, beside)
        )

    def follow(self, task: TaskId, number: int, log_limit: int, attempt: int = 0) -> None:
        """Reads a task's log from where our copy ends; a log of this machine lies here. `attempt`
        is the last that had a process."""
        self._numbers[number] = task
        if not self.settings.local or attempt:
            self.send(ReadLog(task, number, self._logs.size(task), log_limit, attempt))

    async def forward(self, port: int, wanted: int = 0) -> int:
        """A port of this machine's loopback that leads to `port` of the host: `wanted`, when
        that is free. A channel to it has been opened once.

        Raises:
            AgentError: the host cannot be reached.
            OSError: no channel can be opened (`Transport.try_channel`), or no port be had here.
        """
        if self._transport is None:
            raise AgentError(self.settings.host, "the host cannot be reached")
        await self._transport.try_channel(port)
        return await self._transport.forward(port, wanted)

    def leave(self, *, remove: bool, brought: tuple[str, ...] = ()) -> None:
        """Tells the agent that the run is over, and which paths have been `brought` here; the link
        ends when the agent has gone."""
        self._leaving = True
        self._farewell = Leave(remove=remove, brought=brought)
        self.send(self._farewell)

    async def aclose(self) -> None:
        """Lets go of the host; its agent goes on by its lease, or has been told to leave."""
        self.closed = True
        if self._rousing is not None:
            self._rousing.cancel()
        await self._drop()

    # --- one connection -------------------------------------------------------------------

    async def _session(self) -> None:
        """From login to the end of one connection.

        Raises:
            HostError: the handshake failed.
        """
        host = self.settings.host
        nonce = secrets.token_hex(8)
        transport = self._transport = await self._open(self.settings.run_id, nonce)
        end_before, self._other_version = self._other_version and self._ending(), False
        known, rouse = self.sessions > 0, self._ending()
        config = self.settings.config(known=known, rouse=rouse, end_before=end_before)
        hello = self.settings.hello(self._token, ends=rouse)
        rest = await greet(transport, nonce, config, hello)
        decoder = wire.Decoder()
        self._checker.connected()
        self._written = self._granted = 0
        self._logs.forget(self._stored)  # asked for anew: from where the files end
        self._stored = self._count_for(transport)
        self.last_heard = time.monotonic()
        beats = asyncio.create_task(self._beat(transport))
        try:
            data = rest or await self._read_first(transport)
            while data and not self.closed:
                self.last_heard = time.monotonic()
                self._heard += 1
                for number, frame in enumerate(decoder.feed(data), 1):
                    self._handle(frame)
                    if number % _FRAMES_AT_ONCE == 0:
                        await asyncio.sleep(0)  # meanwhile `aclose` may let go of the host
                data = b"" if self.closed else await transport.read()
        except wire.WireError as error:
            raise AgentError(host, f"received data that is not from an agent: {error}") from error
        finally:
            beats.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beats
        if not self.connected:
            said = printable(transport.complaint)
            raise AgentError(
                host, f"the agent did not answer the handshake{': ' + said if said else ''}"
            )

    async def _read_first(self, transport: Transport) -> bytes:
        host = self.settings.host
        loop = asyncio.get_running_loop()
        silent = loop.call_later(_SILENT_SECONDS, self._listener.agent_silent, host)
        try:
            async with asyncio.timeout(START_SECONDS):
                return await transport.read()
        except TimeoutError as error:
            reason = f"the agent did not answer the handshake within {START_SECONDS:.0f} s"
            raise AgentError(host, reason) from error
        finally:
            silent.cancel()

    async def _rouse(self) -> None:
        """Where nothing comes back of a kill, has another bridge beside the channel wake an agent
        that was stopped, and its watchdog: the silence of the channel itself is seen much later."""
        heard = self._heard
        for _ in range(_ROUSED_TIMES):
            await asyncio.sleep(ROUSE_SECONDS)
            if self._heard != heard or self.closed:
                return
            beside = self._transport
            if beside is None and not self.settings.local:
                continue  # a login is under way, and its bridge does the same
            with contextlib.suppress(HostError, OSError):  # the next one may arrive
                await self._knock(beside)

    async def _knock(self, beside: Transport | None) -> None:
        """Makes one bridge ask the agent for a sign of life.

        Raises:
            HostError: it does not arrive, or nothing answers it.
        """
        nonce = secrets.token_hex(8)
        transport = await self._open(self.settings.run_id, nonce, beside)
        try:
            config = self.settings.config(make=False, rouse=True)
            hello = self.settings.hello("", query=True)
            if not await greet(transport, nonce, config, hello):
                await self._read_first(transport)
        finally:
            await transport.aclose()

    async def _beat(self, transport: Transport) -> None:
        """Beats, and gives the connection up when nothing came back for three beats."""
        every = self.settings.beat
        silence = max(3 * every, 1.5)
        woke = began = time.monotonic()
        while True:
            await asyncio.sleep(every)
            now = time.monotonic()
            # For so long nothing could be heard: the loop was busy, or we slept (Ctrl-Z, a lid).
            self.last_heard = min(now, self.last_heard + max(0.0, now - woke - every))
            woke = now
            if self.connected and now - self.last_heard > silence:
                await transport.aclose()
                return
            if not self.connected and now - began > START_SECONDS:
                await transport.aclose()  # half a welcome, and then nothing
                return
            transport.write(Beat().encode())

    async def _drop(self) -> None:
        transport, self._transport = self._transport, None
        for future in self._replies.values():
            if not future.done():
                error = AgentError(self.settings.host, "the connection ended")
                future.set_exception(error)
                future.exception()  # whoever asked may be gone already
        if transport is not None:
            await transport.aclose()

    # --- what the agent says --------------------------------------------------------------

    def _handle(self, frame: wire.RawFrame) -> None:
        host = self.settings.host
        match self._checker.check(frame):
            case LogBytes(number, offset, chunk):
                self._logs.store(self._numbers[number], offset, chunk, self._stored)
            case Welcome() as welcome:
                self.connected, self.agent_gone = True, False
                self.sessions += 1
                self._listener.link_up(host, welcome)
                self._grant()
                if self._farewell is not None:
                    self.send(self._farewell)
            case Reply() as reply:
                future = self._replies.get(reply.id)
                if future is not None and not future.done():
                    future.set_result(reply)
            case Gone(by="", why=why) if self.settings.has_agent and not self._leaving:
                self.agent_gone = True
                raise AgentError(host, f"its agent has gone{why and f' ({why})'}")
            case Gone() as gone:
                self.closed = True
                if not self._leaving:
                    self._listener.link_superseded(host, gone.by, gone.purpose)
            case Refusal() as refusal:
                self._other_version = refusal.code == wire.OTHER_VERSION
                raise self.settings.refused(refusal)
            case LogSize(attempt=None) as grown:
                self._logs.grown(grown.task, grown.size)
            case Pong():
                pass
            case Message() as message:
                self._listener.agent_said(host, message)

    def _count_for(self, transport: Transport) -> Stored:
        def stored(count: int) -> None:
            if transport is self._transport:
                self._count(count)

        return stored

    def _count(self, count: int) -> None:
        """Counts bytes that are where they belong."""
        self._written += count
        if self._granted - self._written <= WINDOW // 2:
            self._grant()

    def _grant(self) -> None:
        self._granted = self._written + WINDOW
        self.send(Credit(self._granted))
