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
from launcher.plan import HostPlan, SshTarget
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
    """`Match`, `Host` and `Include` choose the same port."""
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
    """`CanonicalizeHostname` with `Match canonical`: the address of the second reading."""
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
    """It has a deadline, and nothing of it stays."""
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
    """File and line, in OpenSSH's words."""
    clients.configure("Port twentytwo")
    error = await only_refused(clients, r"config line 2: Bad port")
    assert error.code == "ssh-config"


async def test_a_configuration_that_others_may_write_is_refused(clients: Clients) -> None:
    """As `ssh` does for `~/.ssh/config`: who writes it decides what we run."""
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
    """With its tokens, as by `ssh`."""
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
    """A name that a shell would act on is refused, not passed on."""
    owned = tmp_path / "owned"
    clients.configure("ProxyCommand cat %n %h", before="Host *")
    logins = SshConnector()
    with pytest.raises(HostError):
        await logins.connect("far", SshTarget(None, f"$(touch${{IFS}}{owned})", None))
    assert not owned.exists()


async def test_a_jump_host_of_the_configuration_is_taken(clients: Clients) -> None:
    """`ProxyJump` by an alias; `none` switches it off again."""
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
    """`Host *` with a ProxyJump that it does not exclude: ssh goes round for ever."""
    before = f"Host gate\n  HostName 127.0.0.9\nHost *\n  ProxyJump {circle}"
    clients.configure(before=before)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(UnreachableError, match="ProxyJump leads in a circle") as told:
            await clients.ours()
    assert told.value.code == "ssh-config"


async def test_hosts_that_jump_through_each_other_are_named(clients: Clients) -> None:
    """Opened together, neither waits for the other's login for ever."""
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


async def test_jump_hosts_may_be_urls(clients: Clients) -> None:
    """`ssh -G` leaves the first of several as it is."""
    way = f"ssh://{clients.server.user}@127.0.0.1:{clients.server.port}"
    clients.configure(f"ProxyJump {way},ssh://nobody@127.0.0.1:1", before="Host 127.*\n  Port 1")
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1"):
        await clients.ours()


async def test_an_address_of_a_kind_that_this_machine_lacks_is_passed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where IPv6 is switched off a name still has such addresses."""
    real = socket.socket

    def without_ipv6(family: int = -1, *rest: int, **more: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *rest, **more)

    found = [(family, socket.SOCK_STREAM, 6, "", place) for family, place in (
        (socket.AF_INET, ("127.0.0.1", 1)), (socket.AF_INET6, ("::1", 1, 0, 0))
    )]  # fmt: skip
    monkeypatch.setattr(socket, "socket", without_ipv6)
    with pytest.raises(UnreachableError) as told:
        await dial._connect("far", "far", 1, found, "", 2.0)
    assert told.value.code == "tcp-failed" and "not supported by protocol" in told.value.reason


async def test_whatever_goes_wrong_with_one_host_is_an_error_of_that_host() -> None:
    """It ended the run on all hosts."""

    class Broken(SshConnector):
        async def open(self, name: str, target: SshTarget, command: str) -> SshTransport:
            raise LookupError("odd\x1b")

    host = HostPlan("far", SshTarget(None, "far", None), "python3", "far", {}, None)
    with pytest.raises(UnreachableError, match="connecting failed: LookupError: odd") as told:
        await transport_factory(host, Broken())("run", "nonce")
    assert told.value.host == "far" and "\x1b" not in str(told.value)


async def test_the_address_to_connect_from_is_the_configured_one(clients: Clients) -> None:
    """`BindAddress`."""
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
    """`ConnectTimeout`, here against a listener whose queue is full."""
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
    """asyncssh's own parser reads the user's file."""
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
    """Also an option that asyncssh would skip."""
    no_openssh.configure(option)
    with pytest.raises(UnreachableError, match=rf"{option.split()[0]} in ~/\.ssh/config:2"):
        await no_openssh.ours()


@pytest.mark.parametrize(
    "text", ["Match final\n  Port 1", "CanonicalizeHostname yes", "Match localnetwork 10.0.0.0/8"]
)
async def test_without_openssh_what_cannot_be_decided_is_refused(
    no_openssh: Clients, text: str
) -> None:
    """Rather than connecting to the wrong place."""
    no_openssh.configure(before=text)
    with pytest.raises(UnreachableError, match="SSH configuration cannot be used"):
        await no_openssh.ours()
