"""Sessions under any ssh_config and behind any login: bytes pass unchanged."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from launcher.errors import UnreachableError
from launcher.hosts import ssh_config
from launcher.hosts.ssh import SshConnector
from launcher.plan.run_plan import SshTarget
from tests.support import command
from tests.support.clients import Clients
from tests.support.patience import PATIENCE
from tests.testbed import proc
from tests.testbed.namespaces import Testbed

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
