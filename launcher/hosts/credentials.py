"""Credentials for an SSH login: keys, passphrases and passwords, and the check of the host key.
A person is prompted where needed, and the login's deadline does not run meanwhile.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from ..errors import HostError
from ..printable import printable
from .auth_methods import AuthProgress, watch
from .auth_prompt import YES, Answers, AuthPrompt, PromptHandler, PromptKind
from .host_keys import HostKey, KnownHosts
from .ssh_library import asyncssh

PASSWORDS = 3
_MOST_CHALLENGES, _MOST_PROMPTS = 20, 16
"""Requests for answers on one connection, and prompts of one: a server may send them for ever."""
_LONGEST_PROMPT = 1000
USUAL_KEYS = [f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa")]
AGENT_SECONDS = 20.0
"""Time for an ssh-agent to say its keys; a forwarded one may be gone and silent."""


class LoginPrompts:
    """Prompts of one login to a person, over the connections that the login takes.

    The login's deadline does not run while a person is prompted. The server's does
    (`LoginGraceTime`): when it hangs up, the question stays open, and its answer goes to the next
    connection. What a server accepted is kept in `told` for the next login.
    """

    def __init__(self, handler: PromptHandler | None, seconds: float, told: Answers) -> None:
        self.told = told
        self._handler = handler
        self._seconds = seconds
        self._timeout: asyncio.Timeout | None = None
        self._open: tuple[Hashable, asyncio.Task[str | None]] | None = None
        self._typed: dict[Hashable, str] = {}
        """Answers that no server has seen yet."""
        self._sent: dict[Hashable, str] = {}
        """Answers that the server of this connection has seen."""
        self.declined: set[Hashable] = set()
        """Questions that nobody answered."""
        self.closed: HostError | None = None
        """Why the server has closed the last connection, where that is known."""

    @property
    def can_prompt(self) -> bool:
        """There is a person to prompt."""
        return self._handler is not None

    def start(self) -> asyncio.Timeout:
        """The deadline of a connection as a context; `TimeoutError` when it has passed."""
        self._sent.clear()
        self._timeout = asyncio.timeout(self._seconds)
        return self._timeout

    @asynccontextmanager
    async def _paused(self) -> AsyncIterator[None]:
        """A time in which a person is waited for; afterwards the server has the whole time."""
        timeout = self._timeout
        if timeout is not None and not timeout.expired():
            timeout.reschedule(None)
        try:
            yield
        finally:
            if timeout is not None and not timeout.expired():
                with suppress(RuntimeError):  # the connection was lost meanwhile
                    timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)

    async def put(self, prompt: AuthPrompt) -> str | None:
        """Puts a prompt to the person."""
        return None if self._handler is None else await self._handler(prompt)

    async def ask(self, subject: Hashable, put: Callable[[], Awaitable[str | None]]) -> str | None:
        """The person's answer to a question, which stays open when the connection is lost."""
        if subject in self.declined:
            return None
        self._open = subject, asyncio.create_task(_awaited(self.told.ask(subject, put)))
        async with self._paused():
            answer = await asyncio.shield(self._open[1])
        self._open = None
        if answer is None:
            self.declined.add(subject)
        return answer

    def knows(self, subject: Hashable) -> bool:
        """An answer is there without a question."""
        return subject in self._typed or (
            self.told.get(subject) is not None and subject not in self._sent
        )

    async def reply(
        self, subject: Hashable, prompt: AuthPrompt, *, passing: bool = False
    ) -> str | None:
        """What the server asks for: the answer that it accepted last time, else the person's. A
        second request on a connection says that the first answer was wrong."""
        if (refused := self._sent.pop(subject, None)) is not None:
            self.told.forget(subject, refused, passing=passing)
        answer = self._typed.pop(subject, None)
        if answer is None:
            answer = self.told.get(subject) or await self.ask(subject, partial(self.put, prompt))
        if answer is not None:
            self._sent[subject] = answer
        return answer

    def accepted(self) -> None:
        """The server has let us in."""
        for subject, answer in self._sent.items():
            self.told.remember(subject, answer)

    def refused(self) -> None:
        """The server has not let us in."""
        for subject, answer in self._sent.items():
            self.told.forget(subject, answer)

    async def answered(self) -> bool:
        """Waits for the question that was open when the connection was lost; False where none
        was."""
        if self._open is None:
            return False
        subject, task = self._open
        answer = await task
        self._open = None
        if answer is None:
            self.declined.add(subject)
        else:
            self._typed[subject] = answer
        return True

    def close(self) -> None:
        """Withdraws the question that is open."""
        if self._open is not None:
            self._open[1].cancel()


async def _awaited(answer: Awaitable[str | None]) -> str | None:
    return await answer


class _Locked(Exception):
    """A key file whose passphrase is not known yet."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


class LockedKeys:
    """The locked key files of one login: each is asked about once in a launcher, and only when a
    server has accepted its public half, where that lies beside it."""

    def __init__(self, host: str, prompts: LoginPrompts) -> None:
        self._host = host
        self._prompts = prompts
        self._told = prompts.told
        self._loading = True

    async def load(self, given: dict[str, Any]) -> asyncssh.SSHClientConnectionOptions:
        """asyncssh's options, with these arguments."""
        while True:
            try:
                options = await asyncssh.SSHClientConnectionOptions.construct(
                    passphrase=self._passphrase, **given
                )
            except _Locked as locked:  # no public half lies beside it: asked for before the login
                given = given | {"client_keys": await self._opened(locked.path, given)}
            else:
                break
        self._loading = False
        pairs = options.client_keys
        for pair in pairs or ():
            if pair.use_executor:  # it may be locked: asyncssh would ask in a thread
                pair.sign_async = partial(self._sign, pair)
        if pairs:  # as they are: each further use of the options would load files anew
            given = {key: value for key, value in given.items() if key != "client_certs"}
            given["client_keys"] = list(pairs)
            options = await asyncssh.SSHClientConnectionOptions.construct(**given)
        return cast(asyncssh.SSHClientConnectionOptions, options)

    async def _opened(self, path: str, given: dict[str, Any]) -> list[Any] | None:
        """The key files, with this one opened, or left out where nobody opens it."""
        files = given.get("client_keys") or _usual_keys()
        await self._unlock(path)
        passphrase = self._told.get(_file(path))
        own = [asyncssh.read_private_key(path, passphrase)] if passphrase is not None else []
        opened: list[Any] = []
        for file in files:
            opened += own if str(file) == path else [file]
        return opened or None

    def _passphrase(self, path: str) -> str | None:
        """Called by asyncssh in a thread, which must not wait for a person there. While it loads
        keys it has no use for a passphrase that it is told by a function (2.24)."""
        path = str(path)
        passphrase = None if self._loading else self._told.get(_file(path))
        declined = _file(path) in self._prompts.declined
        if passphrase is None and (self._loading or not declined):
            raise _Locked(path)
        return passphrase

    async def _sign(self, pair: asyncssh.SSHKeyPair, data: bytes) -> bytes:
        while True:
            try:
                return bytes(await asyncio.to_thread(pair.sign, data))
            except _Locked as locked:
                await self._unlock(locked.path)

    async def _unlock(self, path: str) -> None:
        await self._prompts.ask(_file(path), partial(self._ask, path))

    async def _ask(self, path: str) -> str | None:
        text = f"Passphrase of {display_path(path)}"
        for again in ("", *[" (wrong passphrase, try again)"] * (PASSWORDS - 1)):
            prompt = AuthPrompt(self._host, text + again, True, PromptKind.PASSPHRASE)
            given = await self._prompts.put(prompt)
            if given is None:
                return None
            if await asyncio.to_thread(_unlocks, path, given):
                self._told.remember(_file(path), given)
                return given
        return None


def _usual_keys() -> list[str]:
    return [path for path in map(os.path.expanduser, USUAL_KEYS) if os.path.exists(path)]


def _file(path: str) -> tuple[PromptKind, str]:
    return PromptKind.PASSPHRASE, os.path.realpath(path)


class Client(asyncssh.SSHClient):
    """asyncssh's side of one login.

    A key that was agreed to is accepted for a place where none is known. A key that differs from
    a known one is never accepted.
    """

    def __init__(
        self,
        host: str,
        account: str,
        known: KnownHosts,
        prompts: LoginPrompts,
        step: Callable[[str, str], None],
    ) -> None:
        """`account` tells where we log in, and as whom: `me@tf1:22`."""
        self._host = host
        self._account = account
        self._known = known
        self._prompts = prompts
        self._step = step
        self._passwords = 0
        self._challenges = 0
        self._received = 0
        self._questioned = True
        """The last request for questions brought some."""
        self._connection: asyncssh.SSHClientConnection | None = None
        self.progress = AuthProgress()
        self.proven = False
        self.shown: HostKey | None = None
        """The key that is not known."""
        self.accepted: HostKey | None = None
        """The shown key, when it was accepted; the server has still to prove that the key is its
        own."""
        self.forced_command = False
        """authorized_keys there replaces our command by another one."""

    def validate_host_public_key(
        self, host: str, addr: str, port: int, key: asyncssh.SSHKey
    ) -> bool:
        """Called for a key that is not among the known ones."""
        if key in self._known.port22_keys:
            return True
        self.shown = HostKey.of(self._known.name.place, key)
        if self._prompts.told.get(self.shown) == YES and not self._known.known_before:
            self.accepted = self.shown
            return True
        return False

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        """Keeps the connection for a look at the key that it trusted, and follows its login."""
        self._connection = conn
        watch(conn, self.progress)

    def begin_auth(self, username: str) -> None:
        """The server has proved that the host key is its own."""
        key = self._connection.get_server_host_key() if self._connection else None
        kind = key.get_algorithm() if key is not None else "a certificate"
        self.proven = True
        self._step("key", f"{kind} {'accepted' if self.accepted else 'known'}")

    def debug_msg_received(self, msg: str, lang: str, always_display: bool) -> None:
        """sshd says which options the line of our key in authorized_keys has."""
        _, found, options = msg.partition("key options: ")
        if found and "command" in options.split():
            self.forced_command = True

    async def password_auth_requested(self) -> str | None:
        """Called until the password is right or we have none."""
        subject = PromptKind.PASSWORD, self._account
        if not self._may_answer(self._passwords, subject):
            return None
        if not self._prompts.knows(subject):
            self._passwords += 1
        again = " (permission denied, try again)" if self._passwords > 1 else ""
        prompt = AuthPrompt(self._host, f"Password{again}", True, PromptKind.PASSWORD)
        password = await self._prompts.reply(subject, prompt)
        self.progress.typed += password is not None
        return password

    def password_change_requested(self, prompt: str, lang: str) -> Any:
        """The password has expired: changing it is `ssh`'s business, or `passwd`'s."""
        self.progress.expired = True
        return NotImplemented

    async def kbdint_auth_requested(self) -> str | None:
        """None would switch the method off; an empty text offers all of its kinds."""
        if not self._questioned or not self._may_answer(self._challenges):
            return None  # without questions the next one would be refused as well
        self._questioned = False
        return ""

    async def kbdint_challenge_received(
        self, name: str, instructions: str, lang: str, prompts: Any
    ) -> list[str] | None:
        """Prompts in the server's own wording, such as for a one-time code."""
        self._questioned = True
        self._received += 1
        if self._received > _MOST_CHALLENGES or len(prompts) > _MOST_PROMPTS:
            return None
        answers = []
        asked = False
        for number, (text, echo) in enumerate(prompts):
            words = " ".join(part.strip() for part in (name, instructions, text) if part.strip())
            subject = PromptKind.PROMPT, self._account, words, number
            asked = asked or not self._prompts.knows(subject)
            prompt = AuthPrompt(self._host, printable(words, _LONGEST_PROMPT), secret=not echo)
            answer = await self._prompts.reply(subject, prompt, passing=True)
            if answer is None:
                return None
            answers.append(answer)
        self._challenges += asked
        self.progress.typed += bool(answers)
        return answers

    def _may_answer(self, wrong: int, subject: Hashable = None) -> bool:
        left = wrong < PASSWORDS or self._prompts.knows(subject)
        return left and self._prompts.can_prompt


async def agent_keys(
    path: str | None, only: list[str] | None
) -> tuple[asyncssh.SSHAgentClient | None, list[asyncssh.SSHKeyPair]]:
    """The keys of an agent, `only` those of these public files; the agent must stay open while
    they are used. One that does not answer has none."""
    agent = None
    try:
        async with asyncio.timeout(AGENT_SECONDS):
            wanted = [asyncssh.read_public_key(name).public_data for name in only or ()]
            agent = await asyncssh.connect_agent(path) if path else None
            return agent, list(await agent.get_keys(wanted or None)) if agent else []
    except (OSError, ValueError, asyncssh.Error):
        if agent is not None:
            agent.close()
        return None, []


async def offered(options: asyncssh.SSHClientConnectionOptions) -> list[tuple[str, str]]:
    """The keys that a login offers, in their order: file or agent's comment, and the key's kind
    and fingerprint."""
    names = []
    if options.agent_path:
        with suppress(OSError, asyncssh.Error, ValueError):
            async with asyncio.timeout(AGENT_SECONDS):
                agent = await asyncssh.connect_agent(options.agent_path)
                async with agent:
                    for key in await agent.get_keys(options.agent_identities):
                        names.append(
                            (f"{key.get_comment() or 'a key'} of ssh-agent", _describe(key))
                        )
    for key in options.client_keys or ():
        names.append((_file_of(key), _describe(key)))
    return names


def described(key: asyncssh.SSHKeyPair) -> str:
    """A key's file or comment, its kind and fingerprint."""
    return f"{_file_of(key)} {_describe(key)}"


def encrypted(paths: list[str]) -> list[str]:
    """Key files that need a passphrase."""
    found = []
    for path in paths:
        try:
            asyncssh.read_private_key(Path(path).expanduser())
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError) as error:
            if "passphrase" in str(error).lower():
                found.append(path)
        except OSError:
            continue
    return found


def _unlocks(path: str, passphrase: str) -> bool:
    try:
        asyncssh.read_private_key(path, passphrase)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, OSError):
        return False
    return True


def _describe(key: asyncssh.SSHKeyPair) -> str:
    try:
        line = b" ".join([key.algorithm, base64.b64encode(key.public_data)])
        public = asyncssh.import_public_key(line)
    except (asyncssh.KeyImportError, ValueError):
        return f"({key.get_algorithm()})"
    return f"({public.get_algorithm()} {public.get_fingerprint()})"


def _file_of(key: asyncssh.SSHKeyPair) -> str:
    """The file that a key was read from (of its public half where it is locked), or its
    comment."""
    name = getattr(key, "_filename", None)
    if isinstance(name, bytes):
        return display_path(name.decode(errors="replace").removesuffix(".pub"))
    return str(key.get_comment() or "a key")


def display_path(path: str) -> str:
    """A path with the home as `~`."""
    home = os.path.expanduser("~")
    return "~" + path[len(home) :] if path.startswith(home + "/") else path
