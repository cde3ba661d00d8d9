"""The in-process SSH server: a stand-in for a host must behave as OpenSSH does."""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import subprocess

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


async def test_command_is_a_real_process_with_bytes_both_ways(ssh_server: SshServer) -> None:
    """Any byte passes unchanged; stdout, stderr and the status are told apart."""
    data = os.urandom(3_000_000)
    async with connect(ssh_server) as connection:
        done = await connection.run(
            "sha256sum; echo oops >&2; echo $PPID; exit 7", input=data, encoding=None
        )
        echo = await connection.run("cat", input=data, encoding=None)
    assert isinstance(done.stdout, bytes) and isinstance(echo.stdout, bytes)
    digest, _, parent = done.stdout.split()
    assert digest.decode() == hashlib.sha256(data).hexdigest()
    assert (done.stderr, done.exit_status) == (b"oops\n", 7)
    assert int(parent) == os.getpid()
    assert echo.stdout == data


async def test_command_sees_a_hosts_environment_and_not_the_tests(
    ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A home of its own, a login's variables, a session of its own; `.bashrc` is sourced."""
    monkeypatch.setenv("SECRET_OF_THE_TEST", "1")
    ssh_server.bashrc("echo noise\n")
    async with connect(ssh_server) as connection:
        done = await connection.run("pwd; echo $HOME $SECRET_OF_THE_TEST; ps -o sid= $$; echo $$")
    assert isinstance(done.stdout, str)
    noise, place, home, session, pid = done.stdout.split()
    assert noise == "noise" and place == home == str(ssh_server.home)
    assert session == pid
    assert len(ssh_server.commands) == ssh_server.logins == 1


async def test_end_by_a_signal_is_told(ssh_server: SshServer) -> None:
    """A command that a signal ends is reported with that signal."""
    async with connect(ssh_server) as connection:
        done = await connection.run("kill -KILL $$")
    assert done.exit_signal is not None and done.exit_signal[0] == "KILL"


def test_openssh_client_logs_in_while_the_test_blocks(ssh_server: SshServer) -> None:
    """The server runs in its own thread, so a program in another process is served."""
    argv = ["ssh", "-F", "none", "-o", "BatchMode=yes", "-i", str(ssh_server.client_key.path)]
    argv += ["-o", f"UserKnownHostsFile={ssh_server.known_hosts}", "-p", str(ssh_server.port)]
    done = subprocess.run(
        [*argv, f"{ssh_server.user}@127.0.0.1", "cat; exit 3"],
        input=b"\x00\xff",
        capture_output=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stdout) == (3, b"\x00\xff"), done.stderr


async def test_changed_host_key_and_refused_key_are_told(ssh_server: SshServer) -> None:
    """A changed host key and a key that is not let in are two different errors."""
    ssh_server.refuse_keys = True
    with pytest.raises(asyncssh.PermissionDenied):
        await connect(ssh_server)
    ssh_server.new_host_key()
    with pytest.raises(asyncssh.HostKeyNotVerifiable):
        await connect(ssh_server)
    ssh_server.write_known_hosts()
    ssh_server.refuse_keys = False
    async with connect(ssh_server):
        assert ssh_server.logins == 1


async def test_password_is_asked_for_instead_of_a_key(ssh_server: SshServer) -> None:
    """With a password set, the key is useless and the password logs in."""
    ssh_server.password = "correct horse"
    async with connect(ssh_server):
        assert ssh_server.logins == 1
    key = str(ssh_server.client_key.path)
    with pytest.raises(asyncssh.PermissionDenied):
        await asyncssh.connect(
            "127.0.0.1",
            ssh_server.port,
            username=ssh_server.user,
            client_keys=[key],
            known_hosts=str(ssh_server.known_hosts),
            config=None,
            agent_path=None,
        )


async def test_silent_server_accepts_and_says_nothing(ssh_server: SshServer) -> None:
    """TCP connects, no version comes; others that come later are served again."""
    ssh_server.relay.silent = True
    reader, writer = await asyncio.open_connection("127.0.0.1", ssh_server.port)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(reader.read(1), 0.3)
    ssh_server.relay.silent = False
    async with connect(ssh_server):
        assert ssh_server.logins == 1
    writer.close()


async def test_refused_connections_are_counted_down(ssh_server: SshServer) -> None:
    """The next ones are closed before a byte, as sshd does with too many, the rest served."""
    ssh_server.relay.refuse_next = 2
    for _ in range(2):
        with pytest.raises((asyncssh.ConnectionLost, ConnectionError)):
            await connect(ssh_server)
    async with connect(ssh_server):
        assert (ssh_server.relay.connections, ssh_server.logins) == (3, 1)


async def test_logins_at_once_are_measured(ssh_server: SshServer) -> None:
    """`peak_logins` is the number of clients that were logging in at the same time."""
    ssh_server.login_delay = 0.3
    connections = await asyncio.gather(*(connect(ssh_server) for _ in range(4)))
    for connection in connections:
        connection.close()
    ssh_server.login_delay = 0.0
    async with connect(ssh_server):
        assert (ssh_server.relay.peak_logins, ssh_server.logins) == (4, 5)


async def test_dropped_connection_ends_input_and_spares_the_command(
    ssh_server: SshServer,
) -> None:
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


async def test_pulled_wire_is_silent_and_a_healed_one_loses_nothing(
    ssh_server: SshServer,
) -> None:
    """While pulled nothing passes in either direction; afterwards every byte arrives."""
    async with connect(ssh_server) as connection:
        process = await connection.create_process("cat", encoding=None)
        ssh_server.pull()
        process.stdin.write(b"through\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(process.stdout.readline(), 0.3)
        ssh_server.heal()
        assert await asyncio.wait_for(process.stdout.readline(), PATIENCE) == b"through\n"


async def test_output_outlives_the_shell_that_began_it(ssh_server: SshServer) -> None:
    """As with OpenSSH the session ends when the last holder of its streams has ended."""
    async with connect(ssh_server) as connection:
        done = await connection.run("(sleep 0.3; echo late) & echo early")
    assert done.stdout == "early\nlate\n"


async def test_stopped_server_ends_its_commands(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What still runs in a session goes with the server."""
    with SshServer(tmp_path_factory.mktemp("ssh")) as server:
        async with connect(server) as connection:
            process = await connection.create_process("echo $$; exec sleep 1000")
            child = proc.read(int(await process.stdout.readline()))
            assert child is not None and child.alive
    assert await gone(child)
