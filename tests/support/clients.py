"""One login by OpenSSH's client and by ours, with one configuration for both."""

from __future__ import annotations

import asyncio
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from launcher.errors import HostError
from launcher.hosts.auth_prompt import AuthPrompt
from launcher.hosts.ssh import SshConnector
from launcher.plan.run_plan import SshTarget
from tests.support.patience import PATIENCE
from tests.testbed.inprocess import SshServer


@dataclass
class Person:
    """Gives every question the same answer, and keeps the questions."""

    answer: str | None = None
    asked: list[AuthPrompt] = field(default_factory=list)

    async def __call__(self, question: AuthPrompt) -> str | None:
        self.asked.append(question)
        return self.answer


class Clients:
    """Logs in to the in-process server under the alias `far` of `~/.ssh/config`."""

    def __init__(self, home: Path, server: SshServer) -> None:
        self.server = server
        self.folder = home / ".ssh"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        self.config = self.folder / "config"
        self.known_hosts = self.folder / "known_hosts"
        self.known_hosts.write_text(server.known_hosts.read_text())
        self.notes: list[str] = []
        self.configure()

    @property
    def place(self) -> str:
        """The server in known_hosts."""
        return f"[127.0.0.1]:{self.server.port}"

    @property
    def host_key(self) -> str:
        """Type and base64 of the server's key."""
        return " ".join(self.server.host_key.public.split()[:2])

    def configure(self, *options: str, before: str = "", **instead: str) -> None:
        """Writes `~/.ssh/config`: `options` first, since the first value counts."""
        usual = {
            "HostName": "127.0.0.1",
            "Port": str(self.server.port),
            "User": self.server.user,
            "IdentityFile": str(self.server.client_key.path),
            "UserKnownHostsFile": str(self.known_hosts),
        } | instead
        given = [option.split()[0].lower() for option in options if option]
        lines = [f"{key} {value}" for key, value in usual.items() if key.lower() not in given]
        text = "\n  ".join(["Host far", *options, *lines])
        self.config.write_text(f"{before}\n{text}\n" if before else f"{text}\n")
        self.config.chmod(0o600)

    def openssh(self, *options: str) -> subprocess.CompletedProcess[str]:
        """What `ssh far` does; it asks nobody."""
        argv = ["ssh", "-F", str(self.config), "-o", "BatchMode=yes", *options, "far", "true"]
        return subprocess.run(
            argv, capture_output=True, text=True, timeout=PATIENCE, stdin=subprocess.DEVNULL
        )

    async def ours(self, ask: Person | None = None, *, accept_new: bool = False) -> str:
        """Logs in and out again; returns the cipher of what was received."""
        logins = SshConnector(
            ask, accept_new=accept_new, on_note=lambda host, note: self.notes.append(note)
        )
        try:
            connection = await logins.connect("far", SshTarget(None, "far", None))
            cipher = str(connection.get_extra_info("recv_cipher"))
            connection.abort()
            await connection.wait_closed()
        finally:
            await logins.aclose()
        return cipher


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
