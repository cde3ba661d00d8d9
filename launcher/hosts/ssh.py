"""SSH connections to hosts, with the user's own configuration, keys and known_hosts.

Facts about the two ends that shape this module: asyncssh has no keepalive unless asked and
does not honour `StrictHostKeyChecking`; sshd drops logins at random when more than ten are
under way, so at most five go to one server (or through one jump host) at a time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, cast

import asyncssh

from ..cluster.addresses import join
from ..errors import AuthError, HostKeyError, UnreachableError
from ..plan.model import SshTarget
from ..printable import printable
from . import host_keys
from .auth_prompt import YES, Answers, AuthPrompt, OfferedKey, PromptHandler, PromptKind
from .credentials import Client, Deadline, LockedKeys, agent_keys
from .dial import acknowledge_at_once, dial
from .error_causes import ErrorCause, cause_of
from .host_keys import HostKey, HostName, KnownHosts, accepted_keys
from .jumps import Jump, first_machine, jump_of, last_jump
from .revoked_keys import RevocationError, RevokedKeys
from .ssh_config import READS_AT_ONCE, SshConfig, read_config
from .ssh_errors import UnknownKey, changed, key_error, place, refused, text_of, unknown
from .ssh_options import arguments, host_key_algs, key_files, known_hosts_files
from .ssh_transport import SshTransport

LOGIN_SECONDS = 20.0
SESSION_SECONDS = 10.0
LOGINS_AT_ONCE = 5
"""To one server."""
HANDSHAKES_AT_ONCE = 64
"""To all servers. A handshake takes some 20 ms of this process: of a thousand at a time all would
take longer than a login may."""
_TRIES = 4

OnStep = Callable[[str, str, str], None]
"""Called for each step of a login: host, step (`name`, `tcp`, `ssh`, `key`, `login`), finding."""
OnNote = Callable[[str, str], None]
"""Called with what is odd and stops nothing: host, sentence."""
OnAccepted = Callable[[str, HostKey], None]
"""Called for each host key that was accepted and stored."""


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
        self._jumps: dict[str, asyncssh.SSHClientConnection] = {}
        self._jump_locks: dict[str, asyncio.Lock] = {}

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
        gate = self._gates.setdefault(first_machine(target), asyncio.Semaphore(LOGINS_AT_ONCE))
        for attempt in range(1, _TRIES + 1):
            try:
                return await self._login(name, target, gate)
            except (asyncssh.ConnectionLost, ConnectionResetError) as error:
                if attempt == _TRIES:
                    raise UnreachableError(
                        name,
                        f"{place(target)} accepts connections and closes them ({text_of(error)})",
                        code="ssh-dropped",
                        todo="check sshd's log there: it may allow fewer logins at once, "
                        "or none from this machine",
                    ) from error
            await asyncio.sleep(random.uniform(0.2, 0.6) * attempt)
        raise AssertionError("unreachable")

    async def aclose(self) -> None:
        """Closes the connections to jump hosts and those without a session."""
        for connection in (*self._jumps.values(), *self._connections):
            connection.abort()
        self._jumps.clear()
        self._connections.clear()

    async def _login(
        self, name: str, target: SshTarget, gate: AbstractAsyncContextManager[None]
    ) -> asyncssh.SSHClientConnection:
        """One login; a second one when an unknown key was agreed to meanwhile. The gate is not
        held while a person is asked about it: hosts behind it ask then, too."""
        async with self._reading:
            config = await read_config(name, target.host, target.user, target.port)
        agreed = False
        while True:
            try:
                async with gate:
                    return await self._connect_once(name, target, config)
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
        self, name: str, target: SshTarget, config: SshConfig
    ) -> asyncssh.SSHClientConnection:
        deadline = Deadline(None if config.on("batchmode") else self._ask, LOGIN_SECONDS)
        given = arguments(name, target.host, config, target.identity)
        agent = None
        if given.get("client_keys") == []:
            only = given.pop("agent_identities", None)
            agent, found = await agent_keys(given.pop("agent_path"), only)
            given |= {"client_keys": found or None, "agent_path": None}
        try:
            return await self._login_with(name, target, config, given, deadline)
        finally:
            if agent is not None:
                agent.close()

    async def _login_with(
        self,
        name: str,
        target: SshTarget,
        config: SshConfig,
        given: dict[str, Any],
        deadline: Deadline,
    ) -> asyncssh.SSHClientConnection:
        options = await self._options(name, given, deadline)
        step = self._stepper(name, target)
        tunnel = await self._tunnel(name, target, config)
        host, port = str(options.host), int(options.port)
        through: dict[str, Any] = {}
        address = ""
        if tunnel is not None:
            through["tunnel"] = tunnel
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
        client = Client(
            name,
            known,
            deadline,
            step,
            told=self._told,
        )
        try:
            async with self._handshakes, deadline.start():
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
        except asyncssh.HostKeyNotVerifiable as error:
            if client.shown is not None and (why := await self._refusal(client.shown, known)):
                what = f"the host key of {place(target)} cannot be trusted: {client.shown} {why}"
                todo = "ask its administrator"
                raise HostKeyError(name, what, code="key-refused", todo=todo) from error
            raise key_error(name, target, client.shown, known, error) from error
        except asyncssh.KeyExchangeFailed as error:
            if known.known_before and cause_of(error) is ErrorCause.NO_COMMON_HOST_KEY_TYPE:
                raise changed(name, target, known, "one of another type") from error
            what = f"no common SSH algorithm with {place(target)}: {error.reason}"
            raise UnreachableError(name, what, code="ssh-failed") from error
        except asyncssh.PermissionDenied as error:
            await self._store_accepted_key(name, client)
            raise await refused(name, target, options, key_files(given)) from error
        except (asyncssh.ConnectionLost, ConnectionResetError):
            raise
        except TimeoutError as error:
            step_name = "authentication" if client.proven else "handshake"
            what = f"{place(target)}: SSH {step_name} timed out after {LOGIN_SECONDS:.0f} s"
            raise UnreachableError(
                name, what, code="login-timeout", todo="check sshd's log there"
            ) from error
        except asyncssh.ChannelOpenError as error:
            what = f"the jump host {jump_of(target, config)} cannot reach {join(host, port)}"
            raise UnreachableError(name, f"{what}: {text_of(error)}", code="jump-failed") from error
        except (asyncssh.KeyEncryptionError, asyncssh.KeyImportError) as error:
            raise AuthError(name, f"the key: {error}", code="key-file") from error
        except (OSError, asyncssh.Error) as error:
            if cause_of(error) is ErrorCause.TOO_MANY_ATTEMPTS:
                said = text_of(error)
                raise await refused(name, target, options, key_files(given), said) from error
            what = f"{place(target)}: {text_of(error)}"
            raise UnreachableError(name, what, code="ssh-failed") from error
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
        if file := config.get("revokedhostkeys"):
            option = f"{config.where('revokedhostkeys')}, {file}"
            try:
                revoked = await asyncio.to_thread(RevokedKeys.read, file)
                await known.revoke(revoked, option)
            except RevocationError as error:
                what = f"{config.where('revokedhostkeys')}: {error}; no host is trusted without it"
                raise HostKeyError(name, what, code="key-refused") from error
        known.require(int(config.get("requiredrsasize") or 0), config.get("casignaturealgorithms"))
        return known

    @staticmethod
    async def _refusal(shown: HostKey, known: KnownHosts) -> str:
        """Reason for which an unknown key may not be trusted even if the user agrees."""
        try:
            return await known.refusal(shown.key)
        except RevocationError as error:
            return f"cannot be looked up in RevokedHostKeys: {error}"

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
        self, name: str, given: dict[str, Any], deadline: Deadline
    ) -> asyncssh.SSHClientConnectionOptions:
        given |= {"login_timeout": 0, "keepalive_interval": 5, "keepalive_count_max": 3}
        try:
            if self._ask is not None and deadline.can_prompt:
                return await LockedKeys(name, self._ask, deadline, self._told).load(given)
            # The agent may hold what an encrypted file would need a person for.
            given |= {"password_auth": False, "kbdint_auth": False, "ignore_encrypted": True}
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

    async def _tunnel(
        self, name: str, target: SshTarget, config: SshConfig
    ) -> asyncssh.SSHClientConnection | None:
        if not (jump := jump_of(target, config)):
            return None
        last = last_jump(name, target, jump)  # not one that is being logged in to for this login
        lock = self._jump_locks.setdefault(jump, asyncio.Lock())
        async with lock:  # one connection for all hosts behind it
            connection = self._jumps.get(jump)
            if connection is None or connection.is_closed():
                connection = await self._login(name, last, nullcontext())
                self._jumps[jump] = connection
        return connection

    def _stepper(self, name: str, target: SshTarget) -> Callable[[str, str], None]:
        if isinstance(target, Jump):
            return lambda step, found: None
        return lambda step, found: self._on_step(name, step, found)


def _unused(config: SshConfig) -> str:
    """Options that make `ssh` trust a key without a line in known_hosts; not here."""
    options = ("verifyhostkeydns", "nohostauthenticationforlocalhost")
    found = [config.where(each) for each in options if config.differs(each)]
    return f"{', '.join(found)} is not used: the key must be in known_hosts" if found else ""
