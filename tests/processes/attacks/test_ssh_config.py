"""Places that ssh_config leads to: as `ssh` goes there, or refused with file and line."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from launcher.errors import HostError, UnreachableError
from launcher.hosts import dial, ssh_config
from launcher.hosts.ssh import SshConnector, SshTransport
from launcher.hosts.ways import transport_factory
from launcher.plan.run_plan import HostPlan, SshTarget
from tests.support.clients import Clients, both_log_in, only_refused
from tests.support.patience import PATIENCE


@pytest.mark.parametrize(
    "text",
    [
        "Match originalhost far\n  Port PORT",
        "Match host 127.0.0.1\n  Port PORT",
        "Match user USER\n  Port PORT",
        "Match exec true\n  Port PORT",
        'Match exec "test %n = far"\n  Port PORT',
        "Match exec false\n  Port 1\nMatch all\n  Port PORT",
        "Match final host 127.0.0.1\n  Port PORT",
        "Match !final\n  Port PORT",
        "Match localnetwork 127.0.0.0/8\n  Port PORT",
        "Host other\n  Port 1\nHost f* !fa\n  Port PORT # with a comment",
        "Host far !f*\n  Port 1\nHost *\n  Port PORT",
        "Host * !far\n  Port 1\nHost *\n  Port=PORT",
        "Include FOLDER/more*",
        "Host other\n  Include FOLDER/wrong\nHost *\n  Include FOLDER/more",
    ],
)
async def test_conditions_lead_where_ssh_goes(clients: Clients, text: str) -> None:
    """Given an ssh_config whose `Match`, `Host` or `Include` decide on the port, when `ssh` and the
    launcher log in, then both get to the same server."""
    (clients.folder / "more").write_text(f"Port {clients.server.port}\n")
    (clients.folder / "wrong").write_text("Port 1\n")
    for path in ("more", "wrong"):
        (clients.folder / path).chmod(0o600)
    for word, value in (
        ("PORT", str(clients.server.port)),
        ("USER", clients.server.user),
        ("FOLDER", str(clients.folder)),
    ):
        text = text.replace(word, value)
    clients.configure()
    lines = clients.config.read_text().splitlines()
    base = "\n".join(line for line in lines if "Port" not in line)
    clients.config.write_text(f"{base}\n{text}\n")
    if "localnetwork" in text:  # newer than Debian 12's OpenSSH
        version = await asyncio.to_thread(subprocess.run, ["ssh", "-V"], capture_output=True)
        if b"OpenSSH_9.2" in version.stderr:
            with pytest.raises(UnreachableError, match="config line 6"):
                await clients.ours()
            return
    await both_log_in(clients)


async def test_a_canonical_name_counts(clients: Clients) -> None:
    """Given `CanonicalizeHostname` with `Match canonical`, when the launcher reads the
    configuration of a host, then name and port are those of `ssh -G`."""
    text = f"Match canonical\n  Port {clients.server.port}\n"
    clients.config.write_text(
        "Host localhost\n  CanonicalizeHostname yes\n  CanonicalDomains invalid\n"
        f"  User {clients.server.user}\n  IdentityFile {clients.server.client_key.path}\n"
        f"  UserKnownHostsFile {clients.known_hosts}\n  AddressFamily inet\n{text}"
    )
    clients.config.chmod(0o600)
    config = await ssh_config.read_config("far", "localhost", None, None)
    argv = ["ssh", "-F", str(clients.config), "-G", "localhost"]
    theirs = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True)
    assert f"\nport {config.get('port')}\n" in theirs.stdout
    assert f"\nhostname {config.get('hostname')}\n" in theirs.stdout


async def test_a_command_of_match_that_hangs_ends(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a `Match exec` whose command hangs, when the launcher logs in, then that is an error
    after a deadline, and nothing of the command stays."""
    monkeypatch.setattr(ssh_config, "READ_SECONDS", 0.5)
    mark = f"sleep 987654.{os.getpid()}"
    clients.configure(before=f'Match exec "{mark}"\n  Port 1')
    with pytest.raises(UnreachableError, match="Match exec"):
        await clients.ours()
    here = await asyncio.to_thread(
        subprocess.run, ["ps", "-eo", "args"], capture_output=True, text=True
    )
    assert mark not in here.stdout


async def test_a_broken_configuration_is_named(clients: Clients) -> None:
    """Given an ssh_config with a bad port, when `ssh` and the launcher log in, then both refuse,
    and the error names file and line in OpenSSH's words."""
    clients.configure("Port twentytwo")
    error = await only_refused(clients, r"config line 2: Bad port")
    assert error.code == "ssh-config"


async def test_a_configuration_that_others_may_write_is_refused(clients: Clients) -> None:
    """Given an ssh_config, or a file included in it, that others may write, when the launcher logs
    in, then it refuses that file, as `ssh` does: who writes it decides what is run here."""
    included = clients.folder / "more"
    included.write_text("Compression no\n")
    clients.configure(before=f"Include {included}")
    await clients.ours()
    for path in (clients.config, included):
        path.chmod(0o666)
        with pytest.raises(UnreachableError, match=f"permissions on {path}"):
            await clients.ours()
        path.chmod(0o600)


@pytest.mark.parametrize("words", ["%h %p", "'%h' '%p' && true"])
async def test_a_proxy_command_is_run_by_a_shell(
    clients: Clients, tmp_path: Path, words: str
) -> None:
    """Given a `ProxyCommand` with tokens and syntax of a shell, when `ssh` and the launcher log in,
    then both get in by way of it."""
    script = tmp_path / "pass"
    script.write_text(
        "import os, socket, sys, threading\n"
        "link = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def back():\n"
        "    while data := link.recv(65536):\n"
        "        os.write(1, data)\n"
        "threading.Thread(target=back, daemon=True).start()\n"
        "while data := os.read(0, 65536):\n"
        "    link.sendall(data)\n"
    )
    clients.configure(f"ProxyCommand {sys.executable} {script} {words}")
    await both_log_in(clients)


async def test_a_proxy_command_gets_no_shell_code(clients: Clients, tmp_path: Path) -> None:
    """Given a `ProxyCommand` with a host's name in it, when the launcher logs in to a name that
    holds shell code, then the name is refused, and the code is not run."""
    owned = tmp_path / "owned"
    clients.configure("ProxyCommand cat %n %h", before="Host *")
    logins = SshConnector()
    with pytest.raises(HostError):
        await logins.connect("far", SshTarget(None, f"$(touch${{IFS}}{owned})", None))
    assert not owned.exists()


async def test_a_jump_host_of_the_configuration_is_taken(clients: Clients) -> None:
    """Given a `ProxyJump` to an alias, when the launcher logs in, then it first logs in to the jump
    host; with `none` it goes to the host itself."""
    jump = f"Host way\n  HostName 127.0.0.1\n  Port {clients.server.port}\n"
    jump += f"  User {clients.server.user}\n  IdentityFile {clients.server.client_key.path}\n"
    jump += f"  UserKnownHostsFile {clients.known_hosts}\n"
    clients.configure("ProxyJump way", before=jump)
    await clients.ours()
    assert clients.server.logins == 2
    clients.configure("ProxyJump none", before=f"{jump}Host far\n  ProxyJump none")
    await clients.ours()
    assert clients.server.logins == 3


@pytest.mark.parametrize("circle", ["far", "far,gate", "gate"])
async def test_a_way_that_leads_in_a_circle_is_named(clients: Clients, circle: str) -> None:
    """Given a `ProxyJump` that applies to the jump host, too, when the launcher logs in, then the
    error names the circle. `ssh` goes round for ever."""
    before = f"Host gate\n  HostName 127.0.0.9\nHost *\n  ProxyJump {circle}"
    clients.configure(before=before)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(UnreachableError, match="ProxyJump leads in a circle") as told:
            await clients.ours()
    assert told.value.code == "ssh-config"


async def test_hosts_that_jump_through_each_other_are_named(clients: Clients) -> None:
    """Given two hosts that jump through each other, when the launcher logs in to both at once, then
    neither waits for the other for ever, and each error names the circle."""
    clients.configure("ProxyJump gate", before="Host gate\n  ProxyJump far")
    logins = SshConnector()
    async with asyncio.timeout(PATIENCE):
        ends = await asyncio.gather(
            *(logins.connect(name, SshTarget(None, name, None)) for name in ("far", "gate")),
            return_exceptions=True,
        )
    for end in ends:
        assert isinstance(end, UnreachableError) and end.code == "ssh-config", end
        assert "ProxyJump leads in a circle" in str(end)


@pytest.mark.parametrize("jumps", ["USER@127.0.0.1:PORT", "ssh://USER@127.0.0.1:PORT,LAST"])
async def test_jump_hosts_may_be_addresses_and_urls(clients: Clients, jumps: str) -> None:
    """Given a `ProxyJump` of one IPv4 address, or of two as URLs, when the launcher logs in, then
    it goes through each. `ssh -G` puts the last address into brackets, and leaves a URL before it
    as it is."""
    last = jumps.replace("LAST", "ssh://USER@127.0.0.1:PORT")
    way = last.replace("USER", clients.server.user).replace("PORT", str(clients.server.port))
    before = f"Host 127.*\n  IdentityFile {clients.server.client_key.path}\n"
    before += f"  UserKnownHostsFile {clients.known_hosts}\n  Port 1\n"
    with clients.known_hosts.open("a") as file:
        file.write(f"[localhost]:{clients.server.port} {clients.host_key}\n")
    clients.configure(f"ProxyJump {way}", before=before, HostName="localhost")
    await clients.ours()
    assert clients.server.logins == 2 + way.count(",")


async def test_an_address_of_a_kind_that_this_machine_lacks_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Given a name with an IPv4 and an IPv6 address, and a machine without IPv6, when the launcher
    connects, then it is by IPv4; when nothing listens there, the error is the usual one."""
    real = socket.socket

    def without_ipv6(family: int = -1, *rest: int, **more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *rest, **more)

    six = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 1, 0, 0))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        four = (socket.AF_INET, socket.SOCK_STREAM, 6, "", listener.getsockname())
        monkeypatch.setattr(socket, "socket", without_ipv6)
        with await dial._connect("far", "far", 1, [six, four], "", PATIENCE) as link:
            assert link.getpeername() == listener.getsockname()
    with pytest.raises(UnreachableError) as told:
        await dial._connect("far", "far", 1, [four, six], "", 2.0)
    assert told.value.code == "tcp-failed" and "not supported by protocol" in told.value.reason


async def test_whatever_goes_wrong_with_one_host_is_an_error_of_that_host() -> None:
    """Given an error that nobody thought of, when the launcher connects to a host, then it is a
    printable error of that host. It used to end the run on all hosts."""

    class Broken(SshConnector):
        async def open(self, name: str, target: SshTarget, command: str) -> SshTransport:
            raise LookupError("odd\x1b")

    host = HostPlan("far", SshTarget(None, "far", None), "python3", "far", {}, None)
    with pytest.raises(UnreachableError, match="connecting failed: LookupError: odd") as told:
        await transport_factory(host, Broken())("run", "nonce")
    assert told.value.host == "far" and "\x1b" not in str(told.value)


async def test_the_address_to_connect_from_is_the_configured_one(clients: Clients) -> None:
    """Given a `BindAddress`, when the launcher logs in, then its connection comes from that
    address; what listens there speaks no SSH, and the error says so."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        clients.configure("BindAddress 127.0.0.5", Port=str(listener.getsockname()[1]))
        login = asyncio.create_task(clients.ours())
        guest, address = await asyncio.to_thread(listener.accept)
        with guest:
            assert address[0] == "127.0.0.5"
            guest.sendall(b"220 no SSH\r\n")
            with pytest.raises(UnreachableError, match="not an SSH server"):
                await login


async def test_connect_timeout_is_the_configured_one(clients: Clients) -> None:
    """Given a `ConnectTimeout` of a second, when the launcher logs in to a listener whose queue is
    full, then the error says that nobody answered in 1 s."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        try:
            for each in waiting:
                each.setblocking(False)
                each.connect_ex(address)
            clients.configure("ConnectTimeout 1", Port=str(address[1]))
            with pytest.raises(UnreachableError, match=r"no answer from .* in 1 s"):
                await clients.ours()
        finally:
            for each in waiting:
                each.close()


# --- without an OpenSSH client ----------------------------------------------------------------


@pytest.fixture
def no_openssh(clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clients:
    """A machine on which no OpenSSH client is installed."""
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    return clients


async def test_without_openssh_the_alias_still_works(no_openssh: Clients) -> None:
    """Given a machine without an OpenSSH client, when the launcher logs in by an alias, then
    asyncssh's own parser reads the user's file, and the launcher gets in."""
    no_openssh.configure("Compression yes", before="Host other\n  KnownHostsCommand /bin/true")
    await no_openssh.ours()
    assert no_openssh.server.logins == 1


@pytest.mark.parametrize(
    "option",
    [
        "KnownHostsCommand /bin/echo %H",
        "RevokedHostKeys /nowhere",
        "BindInterface lo",
        "IdentityAgent ~no-such-user/agent",
    ],
)
async def test_without_openssh_what_is_unsupported_is_refused(
    no_openssh: Clients, option: str
) -> None:
    """Given no OpenSSH client and an option that cannot be honoured, also one that asyncssh would
    skip, when the launcher logs in, then the error names option, file and line."""
    no_openssh.configure(option)
    with pytest.raises(UnreachableError, match=rf"{option.split()[0]} in ~/\.ssh/config:2"):
        await no_openssh.ours()


@pytest.mark.parametrize(
    "text", ["Match final\n  Port 1", "CanonicalizeHostname yes", "Match localnetwork 10.0.0.0/8"]
)
async def test_without_openssh_what_cannot_be_decided_is_refused(
    no_openssh: Clients, text: str
) -> None:
    """Given no OpenSSH client and a condition that only it can decide, when the launcher logs in,
    then the configuration is refused, rather than connecting to the wrong place."""
    no_openssh.configure(before=text)
    with pytest.raises(UnreachableError, match="SSH configuration cannot be used"):
        await no_openssh.ours()
