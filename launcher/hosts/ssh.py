"""SSH connections to hosts, with the user's own configuration, keys and known_hosts.

Facts about the two ends that shape this module: asyncssh has no keepalive unless asked and
does not honour `StrictHostKeyChecking`; sshd drops logins at random when more than ten are
under way, so at most five go to one server (or through one jump host) at a time.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from ..cluster.addresses import AddressError, SshDestination, join
from ..errors import AuthError, HostKeyError, UnreachableError
from ..frozen import frozen
from ..plan.run_plan import SshTarget
from ..printable import printable
from . import host_keys
from .auth_prompt import YES, Answers, AuthPrompt, OfferedKey, PromptHandler, PromptKind
from .credentials import Client, LockedKeys, LoginPrompts, agent_keys
from .dial import acknowledge_at_once, dial
from .host_keys import HostKey, HostName, KnownHosts, accepted_keys
from .ssh_config import READS_AT_ONCE, SshConfig, read_config
from .ssh_errors import (
    LOGIN_SECONDS,
    ErrorCause,
    LoginAttempt,
    UnknownKey,
    cause_of,
    closed,
    explain,
    place,
    text_of,
    unknown,
)
from .ssh_library import asyncssh
from .ssh_options import arguments, host_key_algs, key_files, known_hosts_files
from .transport import STDERR_BYTES, Transport

SESSION_SECONDS = 10.0
LOGINS_AT_ONCE = 5
"""To one server."""
HANDSHAKES_AT_ONCE = 64
"""To all servers. A handshake takes some 20 ms of this process: of a thousand at a time all would
take longer than a login may."""
_BRACKETED_IPV4 = re.compile(r"\[([\d.]+)\]")
_TRIES = 4

OnStep = Callable[[str, str, str], None]
"""Called for each step of a login: host, step (`name`, `tcp`, `ssh`, `key`, `login`), finding."""
OnNote = Callable[[str, str], None]
"""Called with what is odd and stops nothing: host, sentence."""
OnAccepted = Callable[[str, HostKey], None]
"""Called for each host key that was accepted and stored."""


@frozen
class _Machine:
    """One machine on the way to a host, the host itself being the last."""

    target: SshTarget
    config: SshConfig
    through: str = ""
    """The way to this machine, as ProxyJump has it; empty for the first one."""

    @property
    def server(self) -> str:
        """The server's own name and port, whatever alias leads to it."""
        return f"{self.config.get('hostname') or self.target.host}:{self.config.get('port')}"


@dataclass
class _JumpHost:
    """The connection that all hosts behind a jump host share."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    connection: asyncssh.SSHClientConnection | None = None


@frozen
class _Login:
    """A login to one machine on the way to a host."""

    machine: _Machine
    gate: asyncio.Semaphore
    tunnel: asyncssh.SSHClientConnection | None
    """The connection to the jump host before it."""
    step: Callable[[str, str], None] = lambda step, found: None
    host: SshTarget | None = None
    """The host at the end of the way, where the machine is a jump host."""

    @property
    def target(self) -> SshTarget:
        return self.machine.target

    @property
    def config(self) -> SshConfig:
        return self.machine.config

    @property
    def through(self) -> str:
        return self.machine.through


class SshTransport(Transport):
    """One channel of an SSH connection, running the bridge."""

    def __init__(
        self,
        connection: asyncssh.SSHClientConnection,
        process: asyncssh.SSHClientProcess[bytes],
        *,
        forced: bool = False,
        shared: bool = False,
    ) -> None:
        """`shared`: the connection belongs to another transport, and stays when this one ends."""
        self.connection = connection
        self._process = process
        self._forced = forced
        self._shared = shared
        self._said = bytearray()
        self._listener = asyncio.create_task(self._listen())
        self._forwards: dict[int, asyncssh.SSHListener] = {}

    async def read(self) -> bytes:
        try:
            return await self._process.stdout.read(1 << 18)
        except (asyncssh.Error, OSError):
            return b""

    def write(self, data: bytes) -> None:
        with suppress(OSError):  # the reading side says that the connection has gone
            self._process.stdin.write(data)

    async def drain(self) -> None:
        with suppress(asyncssh.Error, OSError):  # here too
            await self._process.stdin.drain()

    async def aclose(self) -> None:
        self._listener.cancel()
        for listener in self._forwards.values():
            listener.close()
        self._process.close()
        if self._shared:
            return
        self.connection.close()
        with suppress(TimeoutError, asyncssh.Error, OSError):
            async with asyncio.timeout(2):
                await self.connection.wait_closed()
        self.connection.abort()

    @property
    def complaint(self) -> str:
        said = self._said.decode(errors="replace").strip()
        if self._forced:
            last = said.rpartition("\n")[2]
            return f"authorized_keys there runs another command for this key (command=…): {last}"
        return said

    async def open_session(self, command: str) -> SshTransport | None:
        try:
            async with asyncio.timeout(SESSION_SECONDS):
                process = await self.connection.create_process(command, encoding=None)
        except (asyncssh.Error, OSError):  # TimeoutError, too
            return None
        return SshTransport(self.connection, process, forced=self._forced, shared=True)

    async def try_channel(self, port: int) -> bool:
        try:
            async with asyncio.timeout(SESSION_SECONDS):
                _, writer = await self.connection.open_connection("127.0.0.1", port, encoding=None)
        except asyncssh.ChannelOpenError as error:
            if error.code == asyncssh.OPEN_ADMINISTRATIVELY_PROHIBITED:
                raise PermissionError(error.reason) from error
            if error.code == asyncssh.OPEN_CONNECT_FAILED:
                raise ConnectionRefusedError(error.reason) from error
            raise ConnectionError(error.reason) from error
        except asyncssh.Error as error:  # the connection has just ended
            raise ConnectionError(str(error)) from error
        writer.close()
        return True

    async def forward(self, port: int, wanted: int = 0) -> int:
        if port not in self._forwards:
            try:
                self._forwards[port] = await self._listen_for(port, wanted)
            except OSError:  # somebody took it while the connection was away
                self._forwards[port] = await self._listen_for(port, 0)
        return int(self._forwards[port].get_port())

    async def _listen_for(self, port: int, here: int) -> asyncssh.SSHListener:
        try:
            return await self.connection.forward_local_port("127.0.0.1", here, "127.0.0.1", port)
        except asyncssh.Error as error:  # the connection has just ended
            raise ConnectionError(str(error)) from error

    async def _listen(self) -> None:
        with suppress(asyncssh.Error, OSError):
            while data := await self._process.stderr.read(STDERR_BYTES):
                self._said = (self._said + data)[-STDERR_BYTES:]


class SshConnector:
    """Opener of connections for one launcher: never too many at once to one server.

    `ask` answers what only a person can, a host key at first contact too; `accept_new` trusts
    unknown host keys without asking. A changed key is refused whatever is set.
    """

    def __init__(
        self,
        ask: PromptHandler | None = None,
        *,
        accept_new: bool = False,
        on_step: OnStep = lambda host, step, found: None,
        on_accepted: OnAccepted = lambda host, key: None,
        on_note: OnNote = lambda host, note: None,
    ) -> None:
        self._ask = ask
        self._accept_new = accept_new
        self._on_step = on_step
        self._on_accepted = on_accepted
        self._on_note = on_note
        self._noted: set[str] = set()
        self._reading = asyncio.Semaphore(READS_AT_ONCE)
        self._gates: dict[str, asyncio.Semaphore] = {}
        self._told = Answers()
        self._handshakes = asyncio.Semaphore(HANDSHAKES_AT_ONCE)
        self._connections: list[asyncssh.SSHClientConnection] = []
        self._jumps: dict[SshTarget, _JumpHost] = {}
        self.configs: dict[str, SshConfig] = {}
        """What `ssh_config` says of each host that was connected to."""

    async def open(self, name: str, target: SshTarget, command: str) -> SshTransport:
        """Logs in to the host called `name` and runs `command` there.

        Raises:
            HostError: says which step failed and why.
        """
        connection = await self._connect(name, target)
        link = connection.get_extra_info("socket")
        asyncio.get_running_loop().call_soon(acknowledge_at_once, link)  # once it is asked for
        try:
            async with asyncio.timeout(SESSION_SECONDS):
                process = await connection.create_process(command, encoding=None)
        except TimeoutError as error:
            connection.abort()
            what = f"logged in to {target.host}, but opening a session timed out"
            raise UnreachableError(name, what, code="no-session") from error
        except (asyncssh.Error, OSError) as error:
            connection.abort()
            what = f"logged in to {target.host}, but a session was refused: {text_of(error)}"
            raise UnreachableError(name, what, code="no-session") from error
        except BaseException:
            connection.abort()
            raise
        client = connection.get_extra_info("client")
        return SshTransport(connection, process, forced=client.forced_command)

    async def connect(self, name: str, target: SshTarget) -> asyncssh.SSHClientConnection:
        """A login without a session; `aclose` ends it.

        Raises:
            HostError: says which step failed and why.
        """
        connection = await self._connect(name, target)
        self._connections.append(connection)
        return connection

    async def _connect(self, name: str, target: SshTarget) -> asyncssh.SSHClientConnection:
        *jumps, last = await _find_way(name, target, partial(self._read, name))
        self.configs[name] = last.config
        first = jumps[0] if jumps else last
        gate = self._gates.setdefault(first.server, asyncio.Semaphore(LOGINS_AT_ONCE))
        tunnel = None
        for machine in jumps:
            jump = self._jumps.setdefault(machine.target, _JumpHost())
            async with jump.lock:  # one connection for all hosts behind it
                if jump.connection is None or jump.connection.is_closed():
                    way = _Login(machine, gate, tunnel, host=target)
                    jump.connection = await self._login(name, way)
                tunnel = jump.connection
        step = partial(self._on_step, name)
        return await self._login(name, _Login(last, gate, tunnel, step))

    async def _read(self, name: str, target: SshTarget) -> SshConfig:
        async with self._reading:
            return await read_config(name, target.host, target.user, target.port)

    async def _login(self, name: str, login: _Login) -> asyncssh.SSHClientConnection:
        """Logs in to one machine, on a new connection where the server drops the first one."""
        ask = None if login.config.on("batchmode") else self._ask
        prompts = LoginPrompts(ask, LOGIN_SECONDS, self._told)
        tries = 1
        try:
            while True:
                try:
                    return await self._login_once(name, login, prompts)
                except (asyncssh.ConnectionLost, ConnectionResetError) as error:
                    if await prompts.answered():
                        continue  # the server did not wait as long as the person took
                    if tries == _TRIES and prompts.closed is not None:
                        raise prompts.closed from error
                    if tries == _TRIES:
                        what = f"{place(login.target)} accepts connections and closes them"
                        raise UnreachableError(
                            name,
                            f"{what} ({text_of(error)})",
                            code="ssh-dropped",
                            todo="check sshd's log there: it may allow fewer logins at once, "
                            "or none from this machine",
                        ) from error
                await asyncio.sleep(random.uniform(0.2, 0.6) * tries)
                tries += 1
        finally:
            prompts.close()

    async def aclose(self) -> None:
        """Closes the connections to jump hosts and those without a session."""
        jumps = [jump.connection for jump in self._jumps.values() if jump.connection is not None]
        for connection in (*jumps, *self._connections):
            connection.abort()
        self._jumps.clear()
        self._connections.clear()

    async def _login_once(
        self, name: str, login: _Login, prompts: LoginPrompts
    ) -> asyncssh.SSHClientConnection:
        """One login; a second one when an unknown key was agreed to meanwhile. The gate is not
        held while a person is asked about it: hosts behind it ask then, too."""
        agreed = False
        target, config = login.target, login.config
        while True:
            try:
                async with login.gate:
                    return await self._connect_once(name, login, prompts)
            except UnknownKey as error:
                # In --accept-new a person has spoken, as with -o StrictHostKeyChecking=….
                policy = config.get("stricthostkeychecking").lower()
                new = self._accept_new or policy in ("accept-new", "no", "off", "false")
                if not new and policy in ("yes", "true"):
                    why = f"{config.where('stricthostkeychecking')} allows only known keys"
                    raise unknown(name, target, error, why) from error
                if agreed or not (new or await self._approves(name, config, error)):
                    raise unknown(name, target, error, _unused(config)) from error
                agreed = True
                self._told.remember(error.shown, YES)

    async def _approves(self, name: str, config: SshConfig, unknown: UnknownKey) -> bool:
        ask = self._ask
        if ask is None or config.on("batchmode"):
            return False
        shown = unknown.shown
        known_as = f"T{unknown.known_as[1:]}." if unknown.known_as else ""
        words = (shown.place, shown.kind, shown.fingerprint, known_as)
        key = OfferedKey(*map(printable, words))
        text = f"First contact with {key.place}. Its key: {key.kind} {key.fingerprint}. "
        text += f"{key.known_as} Trust it? ({YES}/no)".lstrip()
        question = AuthPrompt(name, text, secret=False, kind=PromptKind.HOST_KEY, key=key)
        answer = await self._told.ask(shown, lambda: ask(question))
        return answer is not None and answer.strip().lower() == YES

    async def _connect_once(
        self, name: str, login: _Login, prompts: LoginPrompts
    ) -> asyncssh.SSHClientConnection:
        target = login.target
        given = arguments(login.config, target.identity)
        agent = None
        if given.get("client_keys") == []:
            only = given.pop("agent_identities", None)
            agent, found = await agent_keys(given.pop("agent_path"), only)
            given |= {"client_keys": found or None, "agent_path": None}
        try:
            return await self._connect_with(name, login, given, prompts)
        finally:
            if agent is not None:
                agent.close()

    async def _connect_with(
        self, name: str, login: _Login, given: dict[str, Any], prompts: LoginPrompts
    ) -> asyncssh.SSHClientConnection:
        target, config, step = login.target, login.config, login.step
        options = await self._options(name, given, prompts)
        host, port = str(options.host), int(options.port)
        through: dict[str, Any] = {}
        address = ""
        if login.tunnel is not None:
            through["tunnel"] = login.tunnel
        elif not options.proxy_command:
            through["sock"] = await dial(
                name,
                host,
                port,
                step,
                int(options.family),
                bind=config.get("bindaddress"),
                seconds=float(config.get("connecttimeout") or 0) or None,
            )
        try:
            if "sock" in through and config.on("checkhostip"):
                address = str(through["sock"].getpeername()[0])
            called = HostName(host, port, config.get("hostkeyalias"), address)
            known = await self._known_hosts(name, target, config, called)
        except BaseException:
            if "sock" in through:
                through["sock"].close()
            raise
        if algorithms := host_key_algs(known, given.get("server_host_key_algs")):
            through["server_host_key_algs"] = algorithms
        account = f"{options.username}@{join(host, port)}"
        account += f" through {login.through}" if login.through else ""
        client = Client(name, account, known, prompts, step)
        attempt = LoginAttempt(
            name,
            target,
            login.through,
            options,
            key_files(given),
            known,
            client,
            prompts,
            config,
            login.host,
        )
        try:
            async with self._handshakes, prompts.start():
                connection = await asyncssh.connect(
                    host,
                    port,
                    config=None,
                    options=options,
                    family=options.family,
                    host_key_alias=called.alias or host,
                    known_hosts=known.for_asyncssh(),
                    client_factory=lambda: client,
                    **through,
                )
        except (asyncssh.ConnectionLost, ConnectionResetError):
            prompts.closed = None if client.progress.signed is None else closed(attempt)
            raise
        except (OSError, asyncssh.Error) as error:
            if cause_of(error) is ErrorCause.REFUSED:
                prompts.refused()
            if isinstance(error, asyncssh.PermissionDenied):
                await self._store_accepted_key(name, client)
            raise await explain(error, attempt) from error
        prompts.accepted()
        try:
            await self._store_accepted_key(name, client)
        except BaseException:
            connection.abort()
            raise
        connection.set_extra_info(client=client)
        step("login", f"as {options.username}")
        return connection

    async def _known_hosts(
        self, name: str, target: SshTarget, config: SshConfig, called: HostName
    ) -> KnownHosts:
        """Known keys of a server, without those that are revoked."""
        own = target.known_hosts
        files = known_hosts_files(config) if own is None else [own]
        try:
            known = await asyncio.to_thread(KnownHosts, [*files, str(accepted_keys())], called)
        except OSError as error:
            what = f"known hosts cannot be read: {error.filename}: {text_of(error)}"
            raise HostKeyError(name, what, code="known-hosts-broken") from error
        for note in known.odd:
            if note not in self._noted:
                self._noted.add(note)
                self._on_note(name, note)
        known.require(int(config.get("requiredrsasize") or 0), config.get("casignaturealgorithms"))
        return known

    async def _store_accepted_key(self, name: str, client: Client) -> None:
        """Stores an accepted key, now that the server has proved it to be its own."""
        if client.accepted is None or not client.proven:
            return
        try:
            await asyncio.to_thread(host_keys.add_known_host, client.accepted)
        except OSError as error:
            what = f"the accepted key cannot be stored in {accepted_keys()}: {text_of(error)}"
            raise HostKeyError(name, what, code="key-not-stored") from error
        self._on_accepted(name, client.accepted)

    async def _options(
        self, name: str, given: dict[str, Any], prompts: LoginPrompts
    ) -> asyncssh.SSHClientConnectionOptions:
        given |= {"login_timeout": 0, "keepalive_interval": 5, "keepalive_count_max": 3}
        try:
            if prompts.can_prompt:
                return await LockedKeys(name, prompts).load(given)
            # The agent may hold what an encrypted file would need a person for.
            given |= {"ignore_encrypted": True}
            options = await asyncssh.SSHClientConnectionOptions.construct(**given)
            return cast(asyncssh.SSHClientConnectionOptions, options)
        except (OSError, ValueError, asyncssh.Error) as error:
            path = f" {error.filename}" if isinstance(error, OSError) and error.filename else ""
            raise AuthError(
                name,
                f"the key file or the SSH configuration{path} cannot be used: {text_of(error)}",
                code="key-file",
                todo="correct identity, or ~/.ssh/config",
            ) from error


def _unused(config: SshConfig) -> str:
    """Options that make `ssh` trust a key without a line in known_hosts; not here."""
    options = ("verifyhostkeydns", "nohostauthenticationforlocalhost")
    found = [config.where(each) for each in options if config.differs(each)]
    return f"{', '.join(found)} is not used: the key must be in known_hosts" if found else ""


# --- the way to a host -----------------------------------------------------------------------


async def _find_way(
    name: str, target: SshTarget, read: Callable[[SshTarget], Awaitable[SshConfig]]
) -> list[_Machine]:
    """The machines on the way to a host, the first one first, found before any is logged in to:
    logins that wait for each other's jump host would wait for ever.

    Raises:
        UnreachableError: a jump is no destination, or the way leads back to where it comes from.
    """
    machines: list[_Machine] = []
    passed: list[str] = []
    while True:
        config = await read(target)
        jumps = target.jump or config.get("proxyjump")
        machines.append(_Machine(target, config, jumps))
        if not jumps:
            return machines[::-1]
        if jumps in passed:
            what = f"ProxyJump leads in a circle: {printable(' to '.join([*passed, jumps]))}"
            raise UnreachableError(name, what, code="ssh-config", todo="exclude it: Host * !NAME")
        passed.append(jumps)
        target = _last_jump(name, target, jumps)


def _last_jump(name: str, target: SshTarget, jumps: str) -> SshTarget:
    """The last one of `jumps`, with the target's key and known hosts; it is checked like any
    other host.

    Raises:
        UnreachableError: it is no destination.
    """
    way, _, last = jumps.rpartition(",")
    # `ssh -G` prints the last one with brackets around an IPv4 address, too, and those before it as
    # they were written, which may be URLs.
    place = _BRACKETED_IPV4.sub(r"\1", last.strip().removeprefix("ssh://"))
    try:
        at = SshDestination.parse(place)
    except AddressError as error:
        what = f"ProxyJump {printable(jumps)}: {error}"
        raise UnreachableError(name, what, code="ssh-config") from error
    return SshTarget(at.user, at.host, at.port, target.identity, way or None, target.known_hosts)
