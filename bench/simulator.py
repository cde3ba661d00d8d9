"""Simulated hosts: one process that speaks the agents' frames for any number of them.

    python -m bench.simulator SOCKET                  the hosts
    python -m bench.simulator --launcher SOCKET FD    a launcher process whose ways lead there

The launcher is the real one, with its links, checks and frames; only the login is replaced by a
connection to the socket, on which the host's name and the marker's nonce come first. Tasks start,
and end when they are killed; nothing runs, and nothing is printed.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress

from launcher.agent import wire
from launcher.hosts import bootstrap
from launcher.hosts.transport import Transport, TransportFactory
from launcher.plan.run_plan import HostPlan
from launcher.process import entry, host_links
from tests.support.agent_frames import Body, facts, welcome
from tests.support.short_programs import Obliging

_FIGURES = {"cpu": 0.5, "memory_total": 2, "memory_used": 1, "gpus": [], "tasks": {}}


class Agent:
    """The agent of one host."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._decoder = wire.Decoder()
        self._attempts: dict[str, int] = {}

    def receive(self, data: bytes) -> bool:
        """Answers the frames in what has come; False when the launcher lets go."""
        for frame in self._decoder.feed(data):
            if frame.type == wire.LEAVE:
                self._send(wire.GONE, {"by": ""})
                return False
            self._answer(frame.type, frame.json())
        return True

    def _answer(self, kind: int, body: Body) -> None:
        reply = {"id": body.get("id")}
        match kind:
            case wire.HELLO:
                self._send(wire.WELCOME, welcome())
            case wire.BEAT:
                self._send(wire.PONG, {})
            case wire.PORTS:
                self._send(wire.REPLY, {**reply, "busy": [], "owners": []})
            case wire.STATS:
                self._send(wire.REPLY, {**reply, **_FIGURES})
            case wire.GPUS:
                self._send(wire.REPLY, {**reply, "gpus": []})
            case wire.START:
                self._attempts[body["task"]] = body["attempt"]
                self._send(wire.STARTED, facts(body["task"], attempt=body["attempt"]))
            case wire.KILL:
                for task, attempt in self._attempts.items():
                    said = facts(task, attempt=attempt, ended=True, signal="KILL", size=0)
                    self._send(wire.EXITED, said)
                    self._send(wire.EOF, {**said, "eof": True})
                self._attempts.clear()
                tasks = body.get("tasks")
                receipt = {"ids": [body["id"]], "tasks": tasks, "confirmed": tasks is None}
                more = {"signalled": 8, "survivors": [], "seconds": 0.01}
                self._send(wire.RECEIPT, {**receipt, **more})

    def _send(self, kind: int, body: Body) -> None:
        self._writer.write(wire.encode(kind, body))


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        _, nonce = (await reader.readline()).decode().split()
        writer.write(bootstrap.marker(nonce) + b"\n" + bootstrap.EVERY_BYTE)
        for _ in range(2):  # the loader and the agent's modules
            await reader.readexactly(int(await reader.readexactly(8)))
        agent = Agent(writer)
        while (data := await reader.read(1 << 16)) and agent.receive(data):
            continue
        await writer.drain()
    except (OSError, asyncio.IncompleteReadError):
        pass  # the launcher has gone
    finally:
        writer.close()


async def serve(path: str) -> None:
    """Serves all hosts until the process ends."""
    server = await asyncio.start_unix_server(_serve, path, backlog=4096)
    await server.serve_forever()


class SocketTransport(Transport):
    """Way to a simulated host."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        try:
            return await self._reader.read(1 << 18)
        except OSError:
            return b""

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    async def drain(self) -> None:
        with suppress(OSError):
            await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()

    @property
    def complaint(self) -> str:
        return ""


def launch(path: str, words: list[str]) -> int:
    """Runs a launcher process whose hosts are simulated."""

    def transport_factory(host: HostPlan, _: object) -> TransportFactory:
        async def open_transport(
            run_id: str, nonce: str, beside: Transport | None = None
        ) -> Transport:
            if beside is not None:  # files: nothing is missing
                return Obliging(nonce)
            reader, writer = await asyncio.open_unix_connection(path)
            writer.write(f"{host.name} {nonce}\n".encode())
            return SocketTransport(reader, writer)

        return open_transport

    setattr(host_links, "transport_factory", transport_factory)  # noqa: B010
    return entry.main(words)


if __name__ == "__main__":
    if sys.argv[1] == "--launcher":
        sys.exit(launch(sys.argv[2], sys.argv[3:]))
    asyncio.run(serve(sys.argv[1]))
