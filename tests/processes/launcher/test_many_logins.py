"""Logins to many hosts at a time: lookups, handshakes, known_hosts, and a key agreed to once."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Any

import asyncssh
import pytest

from launcher.errors import UnreachableError
from launcher.hosts import dial, ssh
from launcher.hosts.auth_prompt import AuthPrompt
from launcher.hosts.host_keys import HostName, KnownHosts
from launcher.hosts.ssh import SshConnector
from launcher.plan.run_plan import SshTarget
from tests.testbed import keys
from tests.testbed.inprocess import SshServer


async def test_names_that_wait_for_a_slow_name_server_all_resolve(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The time of a lookup begins with the lookup, and not with the wait for its turn."""
    monkeypatch.setattr(dial, "RESOLVE_SECONDS", 6.0)
    asked: list[str] = []

    def slow(host: str, port: int, *_: object) -> list[Any]:
        asked.append(host)
        time.sleep(2.4)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))]

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def one(number: int) -> str:
        """Comes to the connection, which is refused."""
        with pytest.raises(UnreachableError) as told:
            await dial.dial("h", f"h{number}", 1, lambda step, found: None)
        return told.value.code

    assert set(await asyncio.gather(*map(one, range(150)))) == {"tcp-refused"}
    assert len(asked) == 150


async def test_a_name_server_that_does_not_answer_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And not the host, which was never asked."""
    monkeypatch.setattr(dial, "RESOLVE_SECONDS", 0.1)
    released = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: released.wait() and [])
    try:
        with pytest.raises(UnreachableError, match="the name server did not answer") as told:
            await dial.dial("far", "tf1.example", 22, lambda step, found: None)
    finally:
        released.set()
    assert told.value.code == "name-unresolved" and "IP address" in told.value.todo


async def test_handshakes_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand handshakes at a time each would take longer than a login may."""
    under_way, most = 0, 0

    async def connect(*_: object, **__: object) -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.02)
        under_way -= 1
        raise OSError("no server")

    monkeypatch.setattr(asyncssh, "connect", connect)
    monkeypatch.setattr(ssh, "HANDSHAKES_AT_ONCE", 3)
    logins = SshConnector()
    with socket.create_server(("127.0.0.1", 0)) as server:
        links = []

        async def dialled(*_: object, **__: object) -> socket.socket:
            links.append(socket.create_connection(server.getsockname()))
            return links[-1]

        monkeypatch.setattr(ssh, "dial", dialled)
        try:
            places = [SshTarget("me", f"127.0.0.{n}", 1, known_hosts="/nowhere") for n in range(12)]
            ends = await asyncio.gather(
                *(logins.connect(f"h{n}", place) for n, place in enumerate(places)),
                return_exceptions=True,
            )
        finally:
            for link in links:
                link.close()
    assert [type(end) for end in ends] == [UnreachableError] * 12
    assert most == 3


def test_known_hosts_is_parsed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it changes."""
    parsed = 0
    parse = asyncssh.SSHKnownHosts.load

    def counted(self: asyncssh.SSHKnownHosts, line: str) -> None:
        nonlocal parsed
        parsed += 1
        parse(self, line)

    monkeypatch.setattr(asyncssh.SSHKnownHosts, "load", counted)
    key = asyncssh.generate_private_key("ssh-ed25519").export_public_key().decode()
    file = tmp_path / "known_hosts"
    file.write_text("odd\n" + "".join(keys.known_hosts_line([f"h{n}"], key) for n in range(20)))
    for n in range(20):
        known = KnownHosts([str(file)], HostName(f"h{n}"))
        assert known.any and known.odd == (
            f"{file}:1: not a line of known_hosts (names, key type and key); the line is skipped",
        )
    assert parsed == 20
    with file.open("a") as more:
        more.write(keys.known_hosts_line(["h20"], key))
    assert KnownHosts([str(file)], HostName("h20")).any and parsed == 41


async def test_a_login_that_is_dropped_after_the_yes_does_not_ask_again(
    ssh_server: SshServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person has agreed to this key of this host."""
    asked: list[AuthPrompt] = []

    async def person(question: AuthPrompt) -> str | None:
        asked.append(question)
        return "yes"

    connecting = asyncssh.connect
    tries = 0

    async def connect(*args: Any, **options: Any) -> asyncssh.SSHClientConnection:
        nonlocal tries
        tries += 1
        if tries == 2:
            options["sock"].close()
            raise asyncssh.ConnectionLost("dropped")
        return await connecting(*args, **options)

    monkeypatch.setattr(asyncssh, "connect", connect)
    logins = SshConnector(person)
    target = SshTarget(
        ssh_server.user,
        "127.0.0.1",
        ssh_server.port,
        identity=str(ssh_server.client_key.path),
        known_hosts="/nowhere",
    )
    connection = await logins.connect("far", target)
    connection.abort()
    await connection.wait_closed()
    assert tries == 3 and len(asked) == 1
