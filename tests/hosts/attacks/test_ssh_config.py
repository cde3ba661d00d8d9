"""Options of ssh_config: which hosts are trusted, how we log in, and that bytes pass unchanged."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import asyncssh
import pytest

from launcher.errors import AuthError, HostKeyError, UnreachableError
from launcher.hosts import credentials, ssh_config, ssh_options
from launcher.hosts.host_keys import accepted_keys
from launcher.hosts.ssh import SshConnector
from launcher.plan.run_plan import SshTarget
from tests.support import command
from tests.support.clients import Clients, Person, both_log_in, only_refused
from tests.support.patience import PATIENCE, until
from tests.testbed import keys, proc
from tests.testbed.namespaces import Testbed

# --- who is trusted ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "option",
    [
        "KnownHostsCommand /bin/cat /nowhere",
        "RevokedHostKeys /nowhere",
        "BindInterface lo",
        "ProxyUseFdpass yes",
    ],
)
async def test_what_is_not_supported_is_refused(clients: Clients, option: str) -> None:
    """Given an option of ssh_config that cannot be honoured, when the launcher logs in, then the
    error has option, file, line and what to do; set for another host it does no harm."""
    clients.configure(option)
    name = option.split()[0]
    with pytest.raises(UnreachableError, match=rf"{name} in ~/\.ssh/config:2 is not supp") as told:
        await clients.ours()
    assert told.value.code == "ssh-config" and "remove the option" in told.value.todo
    assert 'via = ["ssh", "-T", "far", "{command}"]' in told.value.todo
    clients.configure(before=f"Host other\n  {option}")
    await clients.ours()


async def test_every_option_of_ssh_has_its_use(clients: Clients) -> None:
    """Given the launcher's table of options, then all that `ssh -G` prints stand in it; when one is
    set that it refuses or lacks, then the error names it and gives `ssh` itself as the way."""
    config = await ssh_config.read_config("far", "far", None, None)
    assert set(config.values) <= set(ssh_options.OPTIONS)
    refused = [name for name, use in ssh_options.OPTIONS.items() if use.refused]
    assert "refuseconnection" in refused  # which this machine's `ssh` need not know
    for name in (*refused, "trusteverybody"):
        odd = replace(config, values={**config.values, name: ("yes",)})
        with pytest.raises(UnreachableError, match=f"{name} in ssh_config is not supp") as told:
            ssh_options.arguments(odd, None)
        assert 'write via = ["ssh", "-T", "far", "{command}"]' in told.value.todo


def test_the_way_for_an_option_that_is_refused(
    testbed: Testbed, tfmux_home: Path, tmp_path: Path
) -> None:
    """Given `RevokedHostKeys`, which the launcher refuses, when each host has the `via` that the
    error gives, then a run succeeds on both, and `ssh` refuses a host whose key is revoked."""
    testbed.give_access(tfmux_home)
    both = [testbed["tf1"], testbed["tf3"]]
    revoked = tfmux_home / "revoked"
    other = keys.make_key(tmp_path / "other", "other").path.with_suffix(".pub")
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", revoked, other], check=True)
    config = tfmux_home / ".ssh/config"
    config.write_text(f"RevokedHostKeys {revoked}\n{config.read_text()}")

    def cluster(tables: str) -> str:
        tasks = json.dumps([f"{host.name}:auto" for host in both])
        job = f'[jobs.worker]\ntasks = {tasks}\nready = "started"\n'
        run = '[run]\ncommand = ["uname", "-n"]\nworkdir = ""\nsuccess = "all"\n'
        return str(command.write(tmp_path, f"{tables}{job}{run}"))

    def host(name: str, way: str) -> str:
        return f'[hosts.{name}]\n{way}\naddress = "{name}"\npython = "{testbed[name].python}"\n'

    done = command.run("check", cluster("".join(host(h.name, f'ssh = "{h.name}"') for h in both)))
    ways = set(re.findall(r"via = \[[^]]*\]", " ".join(done.stdout.split())))
    assert len(ways) == 2, done.stdout
    assert all(way.startswith('via = ["ssh", "-T", "tf') for way in ways), ways
    ours = f'"-F", "{config}", "-T"'  # OpenSSH looks into the account's home, not into $HOME
    tables = "".join(
        host(json.loads(way[6:])[2], way.replace('"-T"', ours)) for way in sorted(ways)
    )
    done = command.run("up", "--headless", cluster(tables))
    assert done.returncode == 0, done
    for h in both:
        assert h.name in done.stdout
    subprocess.run(
        ["ssh-keygen", "-q", "-k", "-f", revoked, testbed["tf3"].host_key.path.with_suffix(".pub")],
        check=True,
    )
    done = command.run("up", "--headless", cluster(tables))
    assert done.returncode == 3 and "tf3 refused" in done.stderr, done


@pytest.mark.parametrize("option", ["IdentityFile", "CertificateFile"])
async def test_a_home_of_nobody_is_named(clients: Clients, option: str) -> None:
    """Given an ssh_config with a path below the home of a user who does not exist, when the
    launcher logs in, then the error names option, file, line and that reason."""
    clients.configure(f"{option} ~no-such-user/key")
    where = rf"{option} in ~/\.ssh/config:2: ~no-such-user/key: there is no such user"
    with pytest.raises(UnreachableError, match=where) as told:
        await clients.ours()
    assert told.value.code == "ssh-config"


async def test_strict_checking_asks_nobody(clients: Clients) -> None:
    """Given `StrictHostKeyChecking yes` and an unknown host key, when the launcher logs in, then it
    refuses the key without a question; `--accept-new` counts more, as `ssh -o` would."""
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
    """Given `StrictHostKeyChecking` with `accept-new`, `no` or `off`, when a host key is new, then
    it is put on file; when it has changed, then it is refused, also where `ssh` would go on."""
    clients.configure(f"StrictHostKeyChecking {value}")
    clients.known_hosts.unlink()
    await clients.ours()
    assert clients.host_key in accepted_keys().read_text()
    clients.server.new_host_key()
    with pytest.raises(HostKeyError, match="HAS CHANGED"):
        await clients.ours()


async def test_batch_mode_asks_nobody(clients: Clients) -> None:
    """Given `BatchMode yes` and an unknown host key, when the launcher logs in, then it refuses the
    key and asks nobody."""
    clients.configure("BatchMode yes")
    clients.known_hosts.unlink()
    person = Person("yes")
    with pytest.raises(HostKeyError):
        await clients.ours(person)
    assert person.asked == []


@pytest.mark.parametrize("value", ["none", "/dev/null", "/nowhere/known"])
async def test_other_files_of_known_hosts(clients: Clients, tmp_path: Path, value: str) -> None:
    """Given a `UserKnownHostsFile` that holds no key, when `ssh` and the launcher log in, then both
    are refused; when the system's file holds the host's key, then both get in."""
    clients.configure(f"UserKnownHostsFile {value}", "GlobalKnownHostsFile none")
    await only_refused(clients, "not known here")
    system = tmp_path / "system"
    system.write_text(clients.known_hosts.read_text())
    clients.configure(f"UserKnownHostsFile {value}", f"GlobalKnownHostsFile {system}")
    await both_log_in(clients)


@pytest.mark.parametrize("option", ["VerifyHostKeyDNS yes", "NoHostAuthenticationForLocalhost yes"])
async def test_what_would_trust_more_is_said_to_be_unused(clients: Clients, option: str) -> None:
    """Given an option that has `ssh` trust more host keys, when the launcher logs in, then it
    accepts a known key, and refuses an unknown one with the remark that the option is not used."""
    clients.configure(option)
    await clients.ours()
    clients.known_hosts.unlink()
    name = option.split()[0]
    with pytest.raises(HostKeyError, match=rf"{name} in ~/\.ssh/config:2 is not used"):
        await clients.ours()


async def test_algorithms_of_host_keys_are_kept(clients: Clients) -> None:
    """Given a `HostKeyAlgorithms` without the type of the host's key, when `ssh` and the launcher
    log in, then both are refused; with that type both get in."""
    clients.configure("HostKeyAlgorithms ecdsa-sha2-nistp256,no-such-one")
    theirs = await asyncio.to_thread(clients.openssh)
    assert theirs.returncode == 255
    clients.configure("HostKeyAlgorithms ecdsa-sha2-nistp256")
    await only_refused(clients, "HAS CHANGED|no common SSH")
    clients.configure("HostKeyAlgorithms ssh-ed25519")
    await both_log_in(clients)


async def test_a_list_of_algorithms_makes_no_change_of_a_known_key(clients: Clients) -> None:
    """Given a host with two keys, one known but second in `HostKeyAlgorithms`, when the launcher
    logs in, then no key has changed; when none is known, then it accepts the list's first."""
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


@pytest.mark.parametrize(
    ("option", "offers", "common", "other"),
    [
        ("Ciphers", "encryption_algs", "aes256-ctr", "aes128-ctr"),
        ("MACs", "mac_algs", "hmac-sha2-512", "hmac-sha1"),
        ("KexAlgorithms", "kex_algs", "ecdh-sha2-nistp384", "ecdh-sha2-nistp521"),
    ],
)
async def test_algorithms_are_narrowed(
    clients: Clients, option: str, offers: str, common: str, other: str
) -> None:
    """Given a server with one cipher, MAC or key exchange, when ssh_config allows that one alone,
    then `ssh` and the launcher get in; when it allows another one alone, neither does."""
    acceptor = clients.server._acceptor
    assert acceptor is not None
    clients.server._call(lambda: acceptor.update(encryption_algs=["aes256-ctr", "aes128-ctr"]))
    clients.server._call(lambda: acceptor.update(**{offers: [common]}))
    clients.configure(f"{option} {other}", "Ciphers aes256-ctr")
    await only_refused(clients, "(?i)no matching")
    clients.configure(f"{option} {common}", "Ciphers aes256-ctr")
    await both_log_in(clients)


async def test_a_quick_cipher_comes_first_unless_the_file_names_one(clients: Clients) -> None:
    """Given an ssh_config without `Ciphers`, when the launcher logs in, then the cipher is AES-GCM,
    else the first of the list. Log bytes cost half as much under AES-GCM as under ChaCha20."""
    assert "gcm" in await clients.ours()
    clients.configure("Ciphers chacha20-poly1305@openssh.com,aes256-gcm@openssh.com")
    assert "chacha20" in await clients.ours()


async def test_short_rsa_keys_are_not_trusted(clients: Clients) -> None:
    """Given a host with a known RSA key of 2048 bits, when `ssh` and the launcher log in, then both
    get in; under `RequiredRSASize 3072` both are refused, also with `--accept-new`."""
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
    """Given an ssh_config that leaves no key to be offered, when `ssh` and the launcher log in,
    then both are refused, although the server would take the key in `~/.ssh`."""
    clients.configure(option)
    usual = clients.folder / "id_ed25519"
    usual.write_bytes(clients.server.client_key.path.read_bytes())
    usual.chmod(0o600)
    assert isinstance(await only_refused(clients, "permission denied for"), AuthError)


def _listens(path: Path) -> bool:
    """A socket has its name before anybody listens."""
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.mark.parametrize("given", ["IdentityAgent", "SSH_AUTH_SOCK"])
async def test_the_agent_is_the_configured_one(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """Given an ssh-agent with the right key, when `ssh` and the launcher log in, then both get in;
    with `IdentitiesOnly` only if the file names that key, with `IdentityAgent none` not at all."""
    path = tmp_path / "agent"
    other = keys.make_key(tmp_path / "id_other", "other")
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(path)], stdout=subprocess.DEVNULL) as agent:
        try:
            await until(lambda: _listens(path), "ssh-agent listens")
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


async def test_an_agent_that_says_nothing_has_no_keys(
    clients: Clients, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an ssh-agent that never answers, as one that was forwarded from a machine that is gone,
    when the launcher logs in, then permission is denied, and the login does not wait for ever."""
    monkeypatch.setattr(credentials, "AGENT_SECONDS", 0.5)
    path = tmp_path / "silent"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        public = f"{clients.server.client_key.path}.pub"
        clients.configure(f"IdentityAgent {path}", f"IdentityFile {public}")
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(AuthError, match="permission denied for"):
                await clients.ours()


async def test_a_certificate_file_logs_in(testbed: Testbed, tfmux_home: Path) -> None:
    """Given a real sshd that trusts an authority and no key, when the launcher logs in with a
    `CertificateFile`, then it gets in; without it permission is denied."""
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


async def test_a_session_is_bytes_whatever_the_configuration(
    testbed: Testbed, tfmux_home: Path, tmp_path: Path
) -> None:
    """Given an ssh_config that wants a terminal, another command, a shared connection and the like,
    when a session is opened, then each byte passes unchanged, and no `LocalCommand` is run."""
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
            async with asyncio.timeout(PATIENCE):
                while len(seen) < len(data):
                    seen += await transport.read()
        finally:
            await transport.aclose()
            await logins.aclose()
        assert seen == data, option
    assert not (tmp_path / "owned").exists()


async def test_variables_are_sent(
    testbed: Testbed, tfmux_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a `SetEnv` and a `SendEnv`, each with a variable that the server accepts and one that
    it does not, when a session is opened, then its command sees the accepted ones alone."""
    monkeypatch.setenv("LC_SENT", "sent")
    monkeypatch.setenv("NOT_SENT", "sent")
    testbed.give_access(tfmux_home)
    config = tfmux_home / ".ssh/config"
    options = "SetEnv LANG=C.UTF-8 OTHER=x\nSendEnv LC_SENT NOT_SENT\n"
    config.write_text(options + config.read_text())
    shown = "echo $LANG/$OTHER/$LC_SENT/$NOT_SENT"
    logins = SshConnector()
    transport = await logins.open("tf3", SshTarget(None, "tf3", None), shown)
    try:
        assert await transport.read() == b"C.UTF-8//sent/\n"
    finally:
        await transport.aclose()
        await logins.aclose()


async def test_a_name_is_never_an_option_of_ssh(clients: Clients, tmp_path: Path) -> None:
    """Given a host name that is an option, has a blank or holds shell code, when its configuration
    is read, then the name is refused and nothing of it is run; an IPv6 address passes."""
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


def test_a_forced_tty_of_the_client_does_no_harm(
    testbed: Testbed, tfmux_home: Path, tmp_path: Path
) -> None:
    """Given an ssh_config with `RequestTTY force` and a `RemoteCommand` for all hosts, when
    `tfmux check` connects to a host, then the agent comes up there."""
    testbed.give_access(tfmux_home)
    config = tfmux_home / ".ssh/config"
    config.write_text(f"Host *\n  RequestTTY force\n  RemoteCommand tmux\n{config.read_text()}")
    done = command.run("check", cluster_file(tmp_path, testbed, "tf3"))
    assert "[agent-failed]" not in done.stdout and "[shell-blocked]" not in done.stdout, done
    assert "agent" in done.stdout


def test_a_terminal_in_between_is_told_at_once(
    testbed: Testbed, tfmux_home: Path, tmp_path: Path
) -> None:
    """Given an authorized_keys whose `command=` runs ours in a terminal, when `tfmux check`
    connects to that host, then it says that the way is not 8-bit clean, instead of a time-out."""
    testbed.give_access(tfmux_home)
    host = testbed["tf3"]
    public = (tfmux_home / ".ssh/id_ed25519.pub").read_text()
    spawn = "import os,pty;pty.spawn(['sh','-c',os.environ['SSH_ORIGINAL_COMMAND']])"
    host.write(f"{host.account.home}/spawn.py", spawn)
    host.write(f"{host.account.home}/.ssh/authorized_keys", f'command="python3 spawn.py" {public}')
    done = command.run("check", cluster_file(tmp_path, testbed, "tf3"))
    for process in host.leftovers():  # its terminal gets no end of input from this spawn.py
        proc.signal_process(process, signal.SIGKILL)
        assert proc.wait_gone(process, PATIENCE)
    assert "not 8-bit clean" in done.stdout, done
    assert "[shell-blocked]" in done.stdout


def test_a_forced_command_is_named(testbed: Testbed, tfmux_home: Path, tmp_path: Path) -> None:
    """Given an authorized_keys whose `command=` runs something else, when `tfmux check` connects to
    that host, then it says that authorized_keys there runs another command."""
    testbed.give_access(tfmux_home)
    public = (tfmux_home / ".ssh/id_ed25519.pub").read_text()
    host = testbed["tf3"]
    text = f'command="echo only backups" {public}'
    host.write(f"{host.account.home}/.ssh/authorized_keys", text, mode=0o600)
    done = command.run("check", cluster_file(tmp_path, testbed, "tf3"))
    assert "authorized_keys there runs another command" in done.stdout, done
