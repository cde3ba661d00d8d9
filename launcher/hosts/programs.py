"""Short programs on a host, each over a session of its own: a request, answers, bytes, its end.

They do what the agent is not troubled with: files and the questions of a preflight. A program that
hangs on a disk holds up its own session and nothing else. The host is not trusted: what it answers
is checked here.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import struct
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from ..errors import AgentError
from ..printable import printable
from . import bootstrap
from .handshake import wait_for_marker
from .transport import Transport

_LENGTH = struct.Struct(">I")
_MOST_ANSWER = 1 << 20
_ANSWER_SECONDS = 20.0
_TAKE_SECONDS = 600.0
"""Time in which a host must take what is sent: its disk may be slow."""

Text = Annotated[str, AfterValidator(lambda text: printable(text, 2000))]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]


class Answer(BaseModel):
    """Base of what a program answers."""

    model_config = ConfigDict(frozen=True, strict=True, extra="ignore")


class Failure(Answer):
    """A program says why it cannot do what it was asked for."""

    error: Text
    code: Text = ""


A = TypeVar("A", bound=Answer)
Opener = Callable[[str], Awaitable[Transport]]
"""Opens a session in which the interpreter starts, given a nonce for its marker."""


class Program:
    """A program that runs on `host`."""

    def __init__(self, host: str, transport: Transport, rest: bytes) -> None:
        self.host = host
        self._transport = transport
        self._buffer = bytearray(rest)

    @classmethod
    async def start(cls, name: str, run_id: str, host: str, open_session: Opener) -> Program:
        """Starts the program `name` of `on_host` for a run, or for a check.

        Raises:
            HostError: it cannot be started.
        """
        nonce = secrets.token_hex(8)
        transport = await open_session(nonce)
        try:
            magic, rest = await wait_for_marker(transport, bootstrap.marker(nonce), host)
            config = {"run": run_id, "host": host}
            transport.write(bootstrap.program_payload(name, config, magic))
            program = cls(host, transport, rest)
            await program.answer(Answer)
        except BaseException:
            await transport.aclose()
            raise
        return program

    async def aclose(self) -> None:
        """Ends the session, and with it the program."""
        await self._transport.aclose()

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
                (length,) = _LENGTH.unpack(await self._read(_LENGTH.size))
                if length > most:
                    raise AgentError(self.host, f"received an answer of {length} bytes")
                raw = await self._read(length)
        except TimeoutError as error:
            raise AgentError(self.host, f"no answer in {timeout:.0f} s") from error
        try:
            failure = _failure(raw)
            if failure is not None:
                raise AgentError(self.host, failure.error, code=failure.code)
            return kind.model_validate_json(raw)
        except ValidationError as error:
            what = error.errors(include_url=False)[0]
            where = ".".join(map(str, what["loc"]))
            text = printable(f"received an answer that is not valid: {where}: {what['msg']}", 300)
            raise AgentError(self.host, text) from error

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


def _failure(raw: bytes) -> Failure | None:
    try:
        return Failure.model_validate_json(raw)
    except ValidationError:
        return None
