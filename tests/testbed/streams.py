"""Between an SSH session and the pipes of a local process, as sshd does it.

asyncssh has `process.redirect` for this, but it was seen to lose the end of a command's output,
and to hang for good when the connection breaks.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
from typing import IO

import asyncssh

_CHUNK = 1 << 16
Session = asyncssh.SSHServerProcess[bytes]


async def pass_streams(session: Session, child: subprocess.Popen[bytes]) -> None:
    """Pass the three streams on until both outputs have ended or the session has.

    The command is not told of the session's end but by its pipes: the end of its input, and
    SIGPIPE when it writes.
    """
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    feeding = asyncio.create_task(_feed(session, child.stdin))
    outputs = asyncio.gather(
        _drain(child.stdout, session.stdout), _drain(child.stderr, session.stderr)
    )
    closed = asyncio.create_task(session.channel.wait_closed())
    try:
        await asyncio.wait((outputs, closed), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (feeding, outputs, closed):
            task.cancel()
        await asyncio.gather(feeding, outputs, closed, return_exceptions=True)


async def ended(pid: int) -> None:
    """Wait for a child of this process without a thread and without reaping it."""
    loop = asyncio.get_running_loop()
    event = asyncio.Event()
    descriptor = os.pidfd_open(pid)
    loop.add_reader(descriptor, event.set)
    try:
        await event.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def _feed(session: Session, pipe: IO[bytes]) -> None:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.streams.FlowControlMixin(loop), pipe
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    try:
        while True:
            try:
                data = await session.stdin.read(_CHUNK)
            except (asyncssh.SignalReceived, asyncssh.BreakReceived):
                continue  # sshd passes none to the commands of root
            if not data:
                return
            writer.write(data)
            await writer.drain()
    except (OSError, asyncssh.Error):
        return  # the command reads no more, or the session is gone
    finally:
        transport.close()


async def _drain(pipe: IO[bytes], to: asyncssh.SSHWriter[bytes]) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(_CHUNK)
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while data := await reader.read(_CHUNK):
            to.write(data)
            await to.drain()
    except (OSError, asyncssh.Error):
        return  # the session is gone
    finally:
        transport.close()
