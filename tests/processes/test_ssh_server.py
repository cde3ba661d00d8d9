"""The in-process SSH server: a stand-in for a host must behave as OpenSSH does."""

from __future__ import annotations

import asyncio
import signal

import asyncssh
import pytest

from tests.support.patience import PATIENCE, until
from tests.testbed import proc
from tests.testbed.inprocess import SshServer
from tests.testbed.proc import Process


def connect(server: SshServer) -> asyncssh.misc._ACMWrapper[asyncssh.SSHClientConnection]:
    """Log in with the server's own key, and nothing of who runs the tests."""
    return asyncssh.connect(
        "127.0.0.1",
        server.port,
        username=server.user,
        client_keys=None if server.password else [str(server.client_key.path)],
        password=server.password,
        known_hosts=str(server.known_hosts),
        config=None,
        agent_path=None,
    )


async def gone(process: Process) -> bool:
    """Wait, beside the loop, until a process has ended."""
    return await asyncio.to_thread(proc.wait_gone, process)


async def test_logins_at_once_are_measured(ssh_server: SshServer) -> None:
    """`peak_logins` is the number of clients that were logging in at the same time."""
    ssh_server.login_delay = 0.3
    connections = await asyncio.gather(*(connect(ssh_server) for _ in range(4)))
    for connection in connections:
        connection.close()
    ssh_server.login_delay = 0.0
    async with connect(ssh_server):
        assert (ssh_server.relay.peak_logins, ssh_server.logins) == (4, 5)


async def test_dropped_connection_ends_input_and_spares_the_command(ssh_server: SshServer) -> None:
    """A command whose client was cut off sees the end of its input, and no signal."""
    async with connect(ssh_server) as connection:
        process = await connection.create_process("echo $$; cat; echo end > told; exec sleep 1000")
        pid = int(await process.stdout.readline())
        child = proc.read(pid)
        assert child is not None
        ssh_server.drop_connections()
        await asyncio.wait_for(connection.wait_closed(), PATIENCE)
    told = ssh_server.home / "told"
    await until(lambda: told.exists() and told.read_text() == "end\n", "its input has ended")
    assert proc.signal_process(child, signal.SIGKILL)
    assert await gone(child)


async def test_pulled_wire_is_silent_and_a_healed_one_loses_nothing(ssh_server: SshServer) -> None:
    """While pulled nothing passes in either direction; afterwards every byte arrives."""
    async with connect(ssh_server) as connection:
        process = await connection.create_process("cat", encoding=None)
        ssh_server.pull()
        process.stdin.write(b"through\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.stdout.readline(), 0.3)
        ssh_server.heal()
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"through\n"
