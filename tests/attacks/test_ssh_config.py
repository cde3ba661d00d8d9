"""Options of ssh_config: honoured as `ssh` does it, harmless, or refused with file and line."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import asyncssh
import pytest

from launcher.errors import AuthError, HostError, HostKeyError, UnreachableError
from launcher.hosts import ssh_config
from launcher.hosts.host_keys import accepted_keys
from launcher.hosts.ssh import SshConnector
from launcher.plan.model import SshTarget
from tests import command
from tests.attacks.clients import Clients, Person
from tests.testbed import keys, proc
from tests.testbed.namespaces import Testbed


async def both_log_in(clients: Clients) -> None:
    """`ssh far` and we get in."""
    theirs = await asyncio.to_thread(clients.openssh)
    assert theirs.returncode == 0, theirs
    await clients.ours()


async def only_refused(clients: Clients, match: str) -> HostError:
    """Neither gets in."""
    theirs = await asyncio.to_thread(clients.openssh)
    assert theirs.returncode == 255, theirs
    with pytest.raises(HostError, match=match) as told:
        await clients.ours()
    assert clients.server.logins == 0
    return told.value


# --- where we connect -------------------------------------------------------------------------


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
    clients.configure(before='Match exec "sleep 987654"\n  Port 1')
    with pytest.raises(UnreachableError, match="Match exec"):
        await clients.ours()
    here = await asyncio.to_thread(
        subprocess.run, ["ps", "-eo", "args"], capture_output=True, text=True
    )
    assert "sleep 987654" not in here.stdout


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


# --- who is trusted ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    ["KnownHostsCommand /bin/cat /nowhere", "BindInterface lo", "ProxyUseFdpass yes"],
)
async def test_what_is_not_supported_is_refused(clients: Clients, option: str) -> None:
    """Never skipped: the sentence names option, file and line."""
    clients.configure(option)
    name = option.split()[0]
    with pytest.raises(UnreachableError, match=rf"{name} in ~/\.ssh/config:2 is not supp") as told:
        await clients.ours()
    assert told.value.code == "ssh-config" and "remove the option" in told.value.todo
    clients.configure(before=f"Host other\n  {option}")
    await clients.ours()


async def test_strict_checking_asks_nobody(clients: Clients) -> None:
    """`StrictHostKeyChecking yes`: an unknown key is refused without a question; a person's
    own --accept-new counts more, as an option of the command line does for `ssh`."""
    clients.configure("StrictHostKeyChecking yes")
    clients.known_hosts.unlink()
    person = Person("yes")
    with pytest.raises(HostKeyError, match=r"StrictHostKeyChecking in ~/\.ssh/config:2"):
        await clients.ours(person)
    assert person.asked == []
    await clients.ours(accept_new=True)


@pytest.mark.parametrize("value", ["accept-new", "no", "off"])
async def test_new_keys_are_accepted_where_the_configuration_says_so(
    clients: Clients, tmp_path: Path, value: str
) -> None:
    """New ones are put on file; a changed one is refused, also where `ssh` would go on."""
    clients.configure(f"StrictHostKeyChecking {value}")
    clients.known_hosts.unlink()
    await clients.ours()
    assert clients.host_key in accepted_keys().read_text()
    clients.server.new_host_key()
    with pytest.raises(HostKeyError, match="HAS CHANGED"):
        await clients.ours()


async def test_batch_mode_asks_nobody(clients: Clients) -> None:
    """No question of any kind."""
    clients.configure("BatchMode yes")
    clients.known_hosts.unlink()
    person = Person("yes")
    with pytest.raises(HostKeyError):
        await clients.ours(person)
    assert person.asked == []


@pytest.mark.parametrize("value", ["none", "/dev/null", "/nowhere/known"])
async def test_other_files_of_known_hosts(clients: Clients, tmp_path: Path, value: str) -> None:
    """`UserKnownHostsFile` replaces the usual file; the system's counts beside it."""
    clients.configure(f"UserKnownHostsFile {value}", "GlobalKnownHostsFile none")
    await only_refused(clients, "not known here")
    system = tmp_path / "system"
    system.write_text(clients.known_hosts.read_text())
    clients.configure(f"UserKnownHostsFile {value}", f"GlobalKnownHostsFile {system}")
    await both_log_in(clients)


@pytest.mark.parametrize("option", ["VerifyHostKeyDNS yes", "NoHostAuthenticationForLocalhost yes"])
async def test_what_would_trust_more_is_said_to_be_unused(clients: Clients, option: str) -> None:
    """Stricter than `ssh`, and it says so."""
    clients.configure(option)
    await clients.ours()
    clients.known_hosts.unlink()
    name = option.split()[0]
    with pytest.raises(HostKeyError, match=rf"{name} in ~/\.ssh/config:2 is not used"):
        await clients.ours()


async def test_algorithms_of_host_keys_are_kept(clients: Clients) -> None:
    """A server that has none of them is refused."""
    clients.configure("HostKeyAlgorithms ecdsa-sha2-nistp256,no-such-one")
    theirs = await asyncio.to_thread(clients.openssh)
    assert theirs.returncode == 255
    clients.configure("HostKeyAlgorithms ecdsa-sha2-nistp256")
    await only_refused(clients, "HAS CHANGED|no common SSH")
    clients.configure("HostKeyAlgorithms ssh-ed25519")
    await both_log_in(clients)


async def test_a_list_of_algorithms_makes_no_change_of_a_known_key(clients: Clients) -> None:
    """A server with two keys, of which the one is known that the list has second."""
    server = clients.server
    other = asyncssh.generate_private_key("ecdsa-sha2-nistp256")
    acceptor = server._acceptor
    assert acceptor is not None
    ours = str(server.host_key.path)
    server._call(lambda: acceptor.update(server_host_keys=[other, ours]))
    clients.configure("HostKeyAlgorithms ecdsa-sha2-nistp256,ssh-ed25519")
    await clients.ours()
    clients.known_hosts.unlink()
    await clients.ours(accept_new=True)
    assert "ecdsa" in accepted_keys().read_text()


@pytest.mark.parametrize("option", ["Ciphers", "MACs", "KexAlgorithms"])
async def test_algorithms_are_narrowed(clients: Clients, option: str) -> None:
    """What the file allows and nothing else; nothing in common is said."""
    good = {"Ciphers": "aes256-ctr", "MACs": "hmac-sha2-512", "KexAlgorithms": "curve25519-sha256"}
    clients.configure(f"{option} {good[option]}", "Ciphers aes256-ctr")
    await both_log_in(clients)


async def test_a_quick_cipher_comes_first_unless_the_file_names_one(clients: Clients) -> None:
    """Log bytes cost half as much under AES-GCM as under ChaCha20."""
    assert "gcm" in await clients.ours()
    clients.configure("Ciphers chacha20-poly1305@openssh.com,aes256-gcm@openssh.com")
    assert "chacha20" in await clients.ours()


async def test_short_rsa_keys_are_not_trusted(clients: Clients) -> None:
    """`RequiredRSASize`."""
    server = clients.server
    short = asyncssh.generate_private_key("ssh-rsa", key_size=2048)
    acceptor = server._acceptor
    assert acceptor is not None
    server._call(lambda: acceptor.update(server_host_keys=[short]))
    line = f"{clients.place} {short.export_public_key().decode()}"
    clients.known_hosts.write_text(line)
    await both_log_in(clients)
    clients.configure("RequiredRSASize 3072")
    theirs = await asyncio.to_thread(clients.openssh)
    assert theirs.returncode == 255
    with pytest.raises(HostKeyError, match="shorter than RequiredRSASize"):
        await clients.ours(accept_new=True)


# --- who we are -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option", ["PubkeyAuthentication no", "PreferredAuthentications password", "IdentityFile none"]
)
async def test_ways_to_log_in_are_narrowed(clients: Clients, option: str) -> None:
    """Our key would be taken, and is not offered."""
    clients.configure(option)
    usual = clients.folder / "id_ed25519"
    usual.write_bytes(clients.server.client_key.path.read_bytes())
    usual.chmod(0o600)
    assert isinstance(await only_refused(clients, "permission denied for"), AuthError)


@pytest.mark.parametrize("given", ["IdentityAgent", "SSH_AUTH_SOCK"])
async def test_the_agent_is_the_configured_one(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """`IdentityAgent` by path, variable and `none`; `IdentitiesOnly` offers no other key of it."""
    path = tmp_path / "agent"
    other = keys.make_key(tmp_path / "id_other", "other")
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as agent:
        try:
            deadline = time.monotonic() + 20
            while not path.exists():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.01)
            private = clients.server.client_key.path
            add = ["ssh-add", "-q", str(private)]
            await asyncio.to_thread(
                subprocess.run, add, env={"SSH_AUTH_SOCK": str(path)}, check=True
            )
            monkeypatch.setenv("SSH_AUTH_SOCK" if given == "SSH_AUTH_SOCK" else "MINE", str(path))
            option = "" if given == "SSH_AUTH_SOCK" else "IdentityAgent $MINE"
            identity = f"IdentityFile {other.path}"
            clients.configure(option, identity)
            await both_log_in(clients)
            clients.server.logins = 0
            clients.configure(option, identity, "IdentitiesOnly yes")
            await only_refused(clients, "permission denied for")
            clients.configure("IdentityAgent none", identity)
            await only_refused(clients, "permission denied for")
            clients.configure(option, f"IdentityFile {private}.pub", "IdentitiesOnly yes")
            await both_log_in(clients)
        finally:
            agent.terminate()


@pytest.mark.testbed
async def test_a_certificate_file_logs_in(testbed: Testbed, tfmux_home: Path) -> None:
    """`CertificateFile`, with a real sshd that trusts the authority and no key."""
    testbed.give_access(tfmux_home)
    host = testbed["tf3"]
    authority = asyncssh.generate_private_key("ssh-ed25519")
    private = asyncssh.read_private_key(tfmux_home / ".ssh/id_ed25519")
    made = authority.generate_user_certificate(private, "me", principals=[host.account.name])
    (tfmux_home / ".ssh/mine").write_bytes(made.export_certificate())
    host.write(
        f"{host.account.home}/.ssh/authorized_keys",
        f"cert-authority {authority.export_public_key().decode()}",
    )
    logins = SshConnector()
    with pytest.raises(AuthError):
        await logins.connect("tf3", SshTarget(None, "tf3", None))
    config = tfmux_home / ".ssh/config"
    config.write_text(f"CertificateFile {tfmux_home}/.ssh/mine\n{config.read_text()}")
    connection = await logins.connect("tf3", SshTarget(None, "tf3", None))
    connection.abort()
    await connection.wait_closed()


# --- the session ------------------------------------------------------------------------------

HARMLESS = (
    "RequestTTY force",
    "RequestTTY yes",
    "RemoteCommand echo other",
    "SessionType none",
    "StdinNull yes",
    "ForkAfterAuthentication yes",
    "ControlMaster auto\n  ControlPath /nowhere/%C\n  ControlPersist yes",
    "AddKeysToAgent yes",
    "PermitLocalCommand yes\n  LocalCommand touch OWNED",
    "LocalForward 127.0.0.1:1 127.0.0.1:1\n  ExitOnForwardFailure yes",
    "ForwardX11 yes",
    "SendEnv LANG LC_*\n  SetEnv LANG=C.UTF-8",
    "VisualHostKey yes\n  HashKnownHosts yes\n  LogLevel DEBUG3",
)


@pytest.mark.testbed
async def test_a_session_is_bytes_whatever_the_configuration(
    testbed: Testbed, tfmux_home: Path, tmp_path: Path
) -> None:
    """No terminal, no other command, no shared connection: each byte passes unchanged."""
    testbed.give_access(tfmux_home)
    config = tfmux_home / ".ssh/config"
    usual = config.read_text()
    data = bytes(range(256)) * 64
    for option in HARMLESS:
        config.write_text(f"Host tf3\n  {option.replace('OWNED', f'{tmp_path}/owned')}\n{usual}")
        logins = SshConnector()
        transport = await logins.open("tf3", SshTarget(None, "tf3", None), "exec cat")
        try:
            transport.write(data)
            await transport.drain()
            seen = b""
            async with asyncio.timeout(30):
                while len(seen) < len(data):
                    seen += await transport.read()
        finally:
            await transport.aclose()
        assert seen == data, option
    assert not (tmp_path / "owned").exists()


@pytest.mark.testbed
async def test_variables_are_sent(testbed: Testbed, tfmux_home: Path) -> None:
    """`SetEnv` and `SendEnv`, as far as the server's AcceptEnv goes."""
    testbed.give_access(tfmux_home)
    config = tfmux_home / ".ssh/config"
    config.write_text(f"SetEnv LANG=C.UTF-8 OTHER=x\n{config.read_text()}")
    transport = await SshConnector().open("tf3", SshTarget(None, "tf3", None), "echo $LANG/$OTHER")
    try:
        assert await transport.read() == b"C.UTF-8/\n"
    finally:
        await transport.aclose()


async def test_a_name_is_never_an_option_of_ssh(clients: Clients, tmp_path: Path) -> None:
    """Addresses pass; what is no name of a host is refused and not run."""
    assert (await ssh_config.read_config("far", "::1", None, None)).get("hostname") == "::1"
    owned = tmp_path / "owned"
    for name in (f"-oProxyCommand=touch {owned}", "a b", f"$(touch {owned})"):
        with pytest.raises(UnreachableError, match="hostname contains invalid"):
            await ssh_config.read_config("far", name, None, None)
    assert not owned.exists()


def cluster_file(tmp_path: Path, testbed: Testbed, name: str) -> str:
    """A cluster of one host, by its alias."""
    text = (
        f'[hosts.{name}]\nssh = "{name}"\naddress = "{name}"\npython = "{testbed[name].python}"\n'
    )
    text += f'[jobs.worker]\ntasks = ["{name}:auto"]\nready = "started"\n'
    return str(command.write(tmp_path, text + '[run]\ncommand = ["true"]\nworkdir = ""\n'))


@pytest.mark.testbed
def test_a_forced_tty_of_the_client_does_no_harm(
    testbed: Testbed, tfmux_home: Path, tmp_path: Path
) -> None:
    """`RequestTTY force` for all hosts: the agent comes up."""
    testbed.give_access(tfmux_home)
    config = tfmux_home / ".ssh/config"
    config.write_text(f"Host *\n  RequestTTY force\n  RemoteCommand tmux\n{config.read_text()}")
    done = command.run("check", cluster_file(tmp_path, testbed, "tf3"))
    assert "[agent-failed]" not in done.stdout and "[shell-blocked]" not in done.stdout, done
    assert "agent" in done.stdout


@pytest.mark.testbed
def test_a_terminal_in_between_is_told_at_once(
    testbed: Testbed, tfmux_home: Path, tmp_path: Path
) -> None:
    """A command= in authorized_keys that runs ours in a terminal: no time-out, but the reason."""
    testbed.give_access(tfmux_home)
    host = testbed["tf3"]
    public = (tfmux_home / ".ssh/id_ed25519.pub").read_text()
    spawn = "import os,pty;pty.spawn(['sh','-c',os.environ['SSH_ORIGINAL_COMMAND']])"
    host.write(f"{host.account.home}/spawn.py", spawn)
    host.write(f"{host.account.home}/.ssh/authorized_keys", f'command="python3 spawn.py" {public}')
    began = time.monotonic()
    done = command.run("check", cluster_file(tmp_path, testbed, "tf3"))
    for process in host.leftovers():  # its terminal gets no end of input from this spawn.py
        proc.signal_process(process, signal.SIGKILL)
        assert proc.wait_gone(process, 20)
    assert "not 8-bit clean" in done.stdout, done
    assert "[shell-blocked]" in done.stdout
    assert time.monotonic() - began < 25


@pytest.mark.testbed
def test_a_forced_command_is_named(testbed: Testbed, tfmux_home: Path, tmp_path: Path) -> None:
    """A command= that runs something else: the sentence says so."""
    testbed.give_access(tfmux_home)
    public = (tfmux_home / ".ssh/id_ed25519.pub").read_text()
    host = testbed["tf3"]
    text = f'command="echo only backups" {public}'
    host.write(f"{host.account.home}/.ssh/authorized_keys", text, mode=0o600)
    done = command.run("check", cluster_file(tmp_path, testbed, "tf3"))
    assert "authorized_keys there runs another command" in done.stdout, done


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


@pytest.mark.parametrize("option", ["KnownHostsCommand /bin/echo %H", "BindInterface lo"])
async def test_without_openssh_what_is_unsupported_is_refused(
    no_openssh: Clients, option: str
) -> None:
    """Also an option that asyncssh would skip."""
    no_openssh.configure(option)
    with pytest.raises(UnreachableError, match=rf"{option.split()[0]} in ~/\.ssh/config:2"):
        await no_openssh.ours()


async def test_without_openssh_revoked_keys_are_refused(
    no_openssh: Clients, tmp_path: Path
) -> None:
    """Plain files need no ssh-keygen."""
    (tmp_path / "revoked").write_text(f"{no_openssh.host_key}\n")
    no_openssh.configure(f"RevokedHostKeys {tmp_path}/revoked")
    with pytest.raises(HostKeyError, match=r"RevokedHostKeys in ~/\.ssh/config:2"):
        await no_openssh.ours(accept_new=True)


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
