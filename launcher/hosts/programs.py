"""Short program on a host, over a session of its own: requests, answers, bytes, its end.

It does what the agent is not troubled with: files and questions. One that hangs on a disk holds up
its own session and nothing else. The host is not trusted: what it answers is checked here.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from ..errors import AgentError, AnswerError, HostError
from ..printable import printable
from ..run.fields import Code, Count, Text
from . import bootstrap
from .bootstrap import Arrival, arrive
from .frames import Answer, Frame
from .transport import Transport

_LENGTH = struct.Struct(">I")
_MOST_ANSWER = 1 << 20
_ANSWER_SECONDS = 20.0
_END_SECONDS = 5.0
_TAKE_SECONDS = 600.0
"""Time in which a host must take what is sent: its disk may be slow."""


class ProgramFailure(Frame):
    """A program says why it cannot do what it was asked for."""

    error: Text
    code: Code = ""


class Tagged(Frame):
    """Any answer to a question: which one."""

    id: Count


class Ready(Frame):
    """The first word of a program."""


A = TypeVar("A", bound=Frame)
Q = TypeVar("Q", bound=Answer)
Opener = Callable[[str], Awaitable[Transport]]
"""Opens a session in which the interpreter starts, given a nonce for its marker."""


class HostProgram:
    """A program that runs on `host`."""

    def __init__(self, host: str, transport: Transport, arrival: Arrival) -> None:
        self.host = host
        self.noise = arrival.noise
        """Output of the login shell before our command ran."""
        self._transport = transport
        self._buffer = bytearray(arrival.rest)

    @classmethod
    async def start(
        cls,
        run_id: str,
        host: str,
        open_session: Opener,
        lease: float | None = None,
        *,
        alone: bool = False,
    ) -> HostProgram:
        """Starts the program for a run, which ends with the run's agent, unless it is there
        `alone`; for a preflight it ends when nothing came for the seconds of its `lease`.

        Raises:
            HostError: it cannot be started.
        """
        nonce = secrets.token_hex(8)
        transport = await open_session(nonce)
        try:
            arrival = await arrive(transport, nonce, host)
            config = {"run": run_id, "host": host, "lease": lease, "alone": alone}
            transport.write(bootstrap.program_payload(config, arrival.magic))
            program = cls(host, transport, arrival)
            await program.answer(Ready)
        except BaseException:
            await transport.aclose()
            raise
        return program

    async def aclose(self) -> None:
        """Ends the session, and with it the program."""
        await self._transport.aclose()

    async def end(self) -> None:
        """Lets the program end, and waits a little until it has removed what it has made."""
        try:
            with suppress(TimeoutError, HostError):
                async with asyncio.timeout(_END_SECONDS):
                    self.send({"what": "end"})
                    while True:
                        await self.receive()
        finally:
            await self.aclose()

    async def try_channel(self, port: int) -> None:
        """Opens a channel to a port of the host once, as `Transport.try_channel` does."""
        await self._transport.try_channel(port)

    def send(self, request: dict[str, Any]) -> None:
        """Sends a request, however large."""
        raw = json.dumps(request, separators=(",", ":")).encode()
        self._transport.write(_LENGTH.pack(len(raw)) + raw)

    def write(self, data: bytes) -> None:
        """Sends bytes without waiting."""
        self._transport.write(data)

    async def drain(self) -> None:
        """Waits until the host takes more bytes.

        Raises:
            AgentError: it takes none.
        """
        try:
            async with asyncio.timeout(_TAKE_SECONDS):
                await self._transport.drain()
        except TimeoutError as error:
            what = f"it has not stored anything for {_TAKE_SECONDS:.0f} s"
            raise AgentError(self.host, what) from error
        except OSError as error:
            raise AgentError(self.host, "the connection ended") from error

    async def answer(
        self, kind: type[A], timeout: float | None = _ANSWER_SECONDS, most: int = _MOST_ANSWER
    ) -> A:
        """The next answer, of at most so many bytes; without a timeout however long it takes.

        Raises:
            AgentError: the program could not do what it was asked for, none came in time, or what
                came is no such answer.
        """
        try:
            async with asyncio.timeout(timeout):
                raw = await self.receive_answer(most)
        except TimeoutError as error:
            raise AgentError(self.host, f"no answer in {timeout:.0f} s") from error
        return read_answer(self.host, kind, raw)

    async def ask(
        self, kind: type[Q], timeout: float, questions: Sequence[Mapping[str, Any]] = ({},)
    ) -> list[Q]:
        """The answers to questions of a kind, which are asked together.

        Raises:
            AgentError: the host could not find it out, or not in time.
        """
        for number, question in enumerate(questions):
            self.send({"what": kind.WHAT, "id": number, **question})
        found: dict[int, Q] = {}
        try:
            async with asyncio.timeout(timeout):
                while len(found) < len(questions):
                    raw = await self.receive_answer()
                    number = read_answer(self.host, Tagged, raw).id
                    if number in found or not 0 <= number < len(questions):
                        raise AgentError(self.host, "it sent an answer to no question")
                    found[number] = read_answer(self.host, kind, raw)
        except TimeoutError as error:
            what = f"no answer about {kind.WHAT} in {timeout:.0f} s"
            raise AgentError(self.host, what) from error
        return [found[number] for number in range(len(questions))]

    async def receive_answer(self, most: int = _MOST_ANSWER) -> bytes:
        """The next answer, of at most so many bytes, as it comes.

        Raises:
            AgentError: the connection ended, or the answer is longer.
        """
        (length,) = _LENGTH.unpack(await self._read(_LENGTH.size))
        if length > most:
            raise AgentError(self.host, f"received an answer of {length} bytes")
        return await self._read(length)

    async def receive(self) -> bytes:
        """The next bytes.

        Raises:
            AgentError: the connection ended.
        """
        data = bytes(self._buffer) or await self._transport.read()
        self._buffer.clear()
        if not data:
            raise AgentError(self.host, self._end())
        return data

    @property
    def unread(self) -> int:
        """Number of bytes that have been received and not been asked for."""
        return len(self._buffer)

    def put_back(self, data: bytes) -> None:
        """Bytes of what was received that belong to the next answer."""
        self._buffer[:0] = data

    async def _read(self, count: int) -> bytes:
        while len(self._buffer) < count:
            data = await self._transport.read()
            if not data:
                raise AgentError(self.host, self._end())
            self._buffer += data
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data

    def _end(self) -> str:
        said = printable(self._transport.complaint.strip().rpartition("\n")[2], 300)
        return f"the connection ended{': ' + said if said else ''}"


def read_answer(host: str, kind: type[A], raw: bytes) -> A:
    """An answer of this kind.

    Raises:
        AgentError: the program could not do what it was asked for, or this is no such answer.
    """
    try:
        if kind is not Tagged and (failure := _failure(raw)) is not None:
            raise AnswerError(host, failure.error, code=failure.code)
        return kind.read(raw)
    except ValueError as error:
        text = printable(f"received an answer that is not valid: {error}", 300)
        raise AgentError(host, text) from error


def _failure(raw: bytes) -> ProgramFailure | None:
    try:
        return ProgramFailure.read(raw)
    except ValueError:
        return None
