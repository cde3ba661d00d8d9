"""An SSH server in this process, for tests that need no root: real protocol, real commands.

A command runs as a real process of this machine, started by a shell as OpenSSH does it: in a
session of its own, its three streams pipes, its environment the server's and not the tests'.
The server has its own thread and event loop, so it serves tests that block as well as
coroutines, and programs in other processes.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

import asyncssh

from tests.support.patience import PATIENCE, until
from tests.testbed import guard, keys
from tests.testbed.relay import Relay
from tests.testbed.streams import ended, pass_streams

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/games"


class SshServer:
    """One host, `127.0.0.1:port`, with the runner's account and a home of its own.

    The attributes may be set at any time and hold for the logins that follow. `relay` is the
    wire: silence, refusals and cuts are its business.

    Attributes:
        home: the home directory that commands see; what its `.bashrc` does, happens.
        shell: the login shell that runs the commands.
        refuse_keys: no key is good any more.
        password: when set, keys are useless and this is asked for.
        interactive: the password is asked for by keyboard-interactive alone, or (False) by the
            plain method alone; None offers both.
        refused: the passwords that were wrong.
        login_delay: seconds that a login takes.
        logins: how many logins have succeeded.
        commands: the commands that were run, in order.
    """

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.home = directory / "home"
        self.home.mkdir(mode=0o700)
        self.user = getpass.getuser()
        self.shell = "/bin/bash"
        self.refuse_keys = False
        self.password: str | None = None
        self.interactive: bool | None = None
        self.refused: list[str] = []
        self.login_delay = 0.0
        self.logins = 0
        self.commands: list[str] = []
        self.client_key = keys.make_key(directory / "id_ed25519", "launcher")
        self.host_key = keys.make_key(directory / "host_key", "host")
        self.known_hosts = directory / "known_hosts"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ssh-server")
        self._acceptor: asyncssh.SSHAcceptor | None = None
        self._running: set[subprocess.Popen[bytes]] = set()
        self.relay = Relay()

    def __enter__(self) -> SshServer:
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(PATIENCE)
        except BaseException:
            self._end()
            raise
        self.write_known_hosts()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(PATIENCE)
        finally:
            self._end()

    @property
    def port(self) -> int:
        """The port to connect to."""
        return self.relay.port

    def host_toml(self, name: str, python: str) -> str:
        """Return a `[hosts.NAME]` table of a cluster file for this server."""
        return (
            f'[hosts.{name}]\nssh = "{self.user}@127.0.0.1:{self.port}"\n'
            f'identity = "{self.client_key.path}"\nknown_hosts = "{self.known_hosts}"\n'
            f'address = "127.0.0.1"\npython = "{python}"\n\n'
        )

    def write_known_hosts(self) -> None:
        """Write the file that vouches for the server's present key."""
        line = keys.known_hosts_line(["127.0.0.1"], self.host_key.public, self.port)
        self.known_hosts.write_text(line)

    def bashrc(self, text: str) -> None:
        """Set what bash runs at each login, as it does for a command over SSH on Debian."""
        (self.home / ".bashrc").write_text(text)

    def new_host_key(self) -> None:
        """Show another key from now on; `known_hosts` still holds the old one."""
        self.host_key = keys.make_key(self.directory / "host_key", "host")
        acceptor = self._acceptor
        assert acceptor is not None
        self._call(lambda: acceptor.update(server_host_keys=[str(self.host_key.path)]))

    def grace_time(self, seconds: float) -> None:
        """Give logins that follow so long, as `LoginGraceTime` of sshd_config does."""
        acceptor = self._acceptor
        assert acceptor is not None
        self._call(lambda: acceptor.update(login_timeout=seconds))

    def drop_connections(self) -> None:
        """Break all connections with a reset; what the commands started lives on."""
        self._call(self.relay.cut_off)

    def pull(self) -> None:
        """Let the network go silent: nothing passes and nothing is closed."""
        self._call(self.relay.pull)

    def heal(self) -> None:
        """End the silence; what was under way arrives now."""
        self._call(self.relay.heal)

    # --- in the server's own thread -------------------------------------------------------

    async def run(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        """Run the command of a session and pass its streams on, until all have ended."""
        command = process.command
        if command is None:
            process.stderr.write(b"this server runs commands only\n")
            process.exit(1)
            return
        self.commands.append(command)
        child = subprocess.Popen(
            [self.shell, "-c", command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.home,
            env=self._environ(),
            start_new_session=True,
            bufsize=0,
        )
        self._running.add(child)
        # A session's streams end before it does: what the command started may still write.
        await pass_streams(process, child)
        await ended(child.pid)
        status = child.wait()
        self._running.discard(child)
        if not process.is_closing():
            _exit(process, status)

    def _environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "USER": self.user,
            "LOGNAME": self.user,
            "SHELL": self.shell,
            "PATH": _PATH,
            "SSH_CLIENT": f"127.0.0.1 1 {self.port}",
            "SSH_CONNECTION": f"127.0.0.1 1 127.0.0.1 {self.port}",
            guard.MARK: os.environ.get(guard.MARK, ""),
        }

    async def _start(self) -> None:
        self._acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Login(self),
            server_host_keys=[str(self.host_key.path)],
            process_factory=self.run,
            encoding=None,
            allow_pty=False,
            line_editor=False,
        )
        await self.relay.start(self._acceptor.get_port())

    async def _stop(self) -> None:
        assert self._acceptor is not None
        await self.relay.close()
        self._acceptor.close()
        await self._acceptor.wait_closed()
        for child in self._running:
            # Its session is its own, so this ends the shell and what stayed with it.
            os.killpg(child.pid, signal.SIGKILL)
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=PATIENCE)

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def _call(self, action: Callable[[], object]) -> None:
        """Do something in the server's thread and wait until it is done."""
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(act)
        if not done.wait(PATIENCE):
            raise TimeoutError("the SSH server's loop does not answer")


class _Login(asyncssh.SSHServer):
    """Who may log in, for one connection."""

    def __init__(self, server: SshServer) -> None:
        self._server = server
        self._port = 0

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._port = conn.get_extra_info("peername")[1]

    async def begin_auth(self, username: str) -> bool:
        begun, server = time.monotonic(), self._server
        over = lambda: time.monotonic() - begun >= server.login_delay  # noqa: E731  a test may end it
        await until(over, "the end of a login's delay", 2 * PATIENCE)
        return True

    def auth_completed(self) -> None:
        self._server.logins += 1
        self._server.relay.logged_in(self._port)

    def public_key_auth_supported(self) -> bool:
        return self._server.password is None

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        ours = asyncssh.import_public_key(self._server.client_key.public)
        return key == ours and username == self._server.user and not self._server.refuse_keys

    def password_auth_supported(self) -> bool:
        return self._server.password is not None and self._server.interactive is not True

    def validate_password(self, username: str, password: str) -> bool:
        return self._is_right(password)

    def kbdint_auth_supported(self) -> bool:
        return self._server.password is not None and self._server.interactive is not False

    def get_kbdint_challenge(
        self, username: str, lang: str, submethods: str
    ) -> tuple[str, str, str, list[tuple[str, bool]]]:
        return "", "", "", [("Password: ", False)]

    def validate_kbdint_response(self, username: str, responses: Sequence[str]) -> bool:
        return self._is_right(*responses)

    def _is_right(self, password: str) -> bool:
        if password != self._server.password:
            self._server.refused.append(password)
        return password == self._server.password

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> bool:
        return True


def _exit(process: asyncssh.SSHServerProcess[bytes], status: int) -> None:
    if status < 0:
        process.exit_with_signal(signal.Signals(-status).name.removeprefix("SIG"))
    else:
        process.exit(status)
