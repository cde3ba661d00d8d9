"""Errors of SSH logins: what went wrong and what to do.

`explain` is the one place where an error of asyncssh gets its sentence. Only `cause_of` depends on
the words of an error: asyncssh has no class for these.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from enum import Enum, auto

from ..cluster.addresses import join
from ..errors import AuthError, HostKeyError, UnreachableError
from ..frozen import frozen
from ..plan.run_plan import SshTarget
from ..quantities import counted
from .auth_methods import OPTIONS, PERSONAL, PUBLICKEY, accepted_words
from .auth_methods import said as words_of
from .credentials import Client, LoginPrompts, described, display_path, encrypted, offered
from .host_keys import HostKey, KnownHosts
from .ssh_config import SshConfig
from .ssh_library import asyncssh

LOGIN_SECONDS = 20.0


class ErrorCause(Enum):
    """Meaning of an error for a login."""

    KEY_REVOKED = auto()
    NO_COMMON_HOST_KEY_TYPE = auto()
    """The server has no host key of a type that is known for it."""
    REFUSED = auto()
    """No way to log in was accepted, or sshd has closed after MaxAuthTries."""
    OTHER = auto()


def cause_of(error: BaseException) -> ErrorCause:
    """The cause of an error of asyncssh."""
    words = str(error.reason if isinstance(error, asyncssh.Error) else error).lower()
    match error:
        case asyncssh.PermissionDenied():
            return ErrorCause.REFUSED
        case asyncssh.HostKeyNotVerifiable() if "revoked" in words:
            return ErrorCause.KEY_REVOKED
        case asyncssh.KeyExchangeFailed() if "host key" in words:
            return ErrorCause.NO_COMMON_HOST_KEY_TYPE
        case asyncssh.KeyEncryptionError() | asyncssh.KeyImportError():
            return ErrorCause.OTHER
        case OSError() | asyncssh.Error() if "authentication" in words:
            return ErrorCause.REFUSED
    return ErrorCause.OTHER


@frozen
class LoginAttempt:
    """A login that failed."""

    name: str
    target: SshTarget
    through: str
    """The jump host, or empty."""
    options: asyncssh.SSHClientConnectionOptions
    key_files: list[str]
    known: KnownHosts
    client: Client
    prompts: LoginPrompts
    config: SshConfig
    host: SshTarget | None = None
    """The host at the end of the way, where the machine is a jump host."""

    @property
    def place(self) -> str:
        """The machine, as the cluster file or ssh_config has it."""
        return f"the jump host {place(self.target)}" if self.host else place(self.target)

    @property
    def ssh_words(self) -> list[str]:
        """The command by which `ssh` itself leads to the host."""
        target = self.host or self.target
        port = ["-p", str(target.port)] if target.port else []
        jump = ["-J", target.jump] if target.jump else []
        where = f"{target.user}@{target.host}" if target.user else target.host
        return ["ssh", "-T", *jump, *port, where, "{command}"]

    def unanswered(self, wanted: Sequence[str]) -> str:
        """Why nobody has given the server what it `wanted`; empty where somebody has."""
        off = [
            self.config.where(OPTIONS[method])
            for method in wanted
            if method in OPTIONS and self.config.get(OPTIONS[method]).lower() in ("no", "false")
        ]
        if off:
            return f"{', '.join(off)} switches that off"
        if not set(wanted).intersection(PERSONAL):
            return ""
        if self.config.on("batchmode"):
            return f"{self.config.where('batchmode')} lets nobody be asked"
        if not self.prompts.can_prompt or self.prompts.declined:
            return "nobody has answered"
        if times := self.client.progress.typed:
            return f"what was typed was refused ({counted(times, 'answer')})"
        return ""


async def explain(error: asyncssh.Error | OSError, attempt: LoginAttempt) -> Exception:
    """The error of a host, or `UnknownKey`."""
    name, target, known = attempt.name, attempt.target, attempt.known
    said = text_of(error)
    match error, cause_of(error):
        case asyncssh.HostKeyNotVerifiable(), _:
            return key_error(name, target, attempt.client.shown, known, error)
        case _, ErrorCause.REFUSED:
            said = "" if isinstance(error, asyncssh.PermissionDenied) else said
            return await refused(attempt, said)
        case _, ErrorCause.NO_COMMON_HOST_KEY_TYPE if known.known_before:
            return changed(name, target, known, "one of another type")
        case asyncssh.KeyExchangeFailed(), _:
            what = f"no common SSH algorithm with {place(target)}: {said}"
            return UnreachableError(name, what, code="ssh-failed")
        case TimeoutError(), _:
            step = "authentication" if attempt.client.proven else "handshake"
            what = f"{place(target)}: SSH {step} timed out after {LOGIN_SECONDS:.0f} s"
            todo = "check sshd's log there"
            return UnreachableError(name, what, code="login-timeout", todo=todo)
        case asyncssh.ChannelOpenError(), _:
            there = join(str(attempt.options.host), int(attempt.options.port))
            what = f"the jump host {attempt.through} cannot reach {there}: {said}"
            return UnreachableError(name, what, code="jump-failed")
        case ((asyncssh.KeyEncryptionError() | asyncssh.KeyImportError()), _):
            return AuthError(name, f"the key: {error}", code="key-file")
    return UnreachableError(name, f"{place(target)}: {said}", code="ssh-failed")


class UnknownKey(Exception):
    """The host is not known, and nobody has agreed to its key yet."""

    def __init__(self, shown: HostKey, other_names: list[str]) -> None:
        super().__init__(str(shown))
        self.shown = shown
        self._other_names = other_names

    @property
    def known_as(self) -> str:
        """Under which other names the same key is known."""
        names = ", ".join(self._other_names)
        return f"the same key is known as {names}" if names else ""


async def refused(attempt: LoginAttempt, said: str = "") -> AuthError:
    """Error that tells what the server has accepted and what it still wants, which keys were
    offered, and which files could not be."""
    progress = attempt.client.progress
    files = [display_path(path) for path in attempt.key_files]
    locked = await asyncio.to_thread(encrypted, files)
    keys = [f"{key} {what}" for key, what in await offered(attempt.options) if key not in locked]
    user, wanted = attempt.options.username, progress.wanted
    takes_keys = PUBLICKEY in wanted or not wanted
    what = f"permission denied for {user} on {attempt.place}"
    if said:
        what += f" ({said})"
    if progress.expired:
        what += ": the password has expired and must be changed"
    elif progress.accepted:
        done = accepted_words(progress.accepted, described)
        what += f": {done} was accepted, and the server also wants {words_of(wanted, another=True)}"
    elif progress.unsigned:
        key, why = progress.unsigned[-1]
        what += f": the server accepts the key {described(key)}, which could not sign here ({why})"
    elif not takes_keys:
        what += f": the server accepts no key here, it wants {words_of(wanted)}"
    else:
        what += f": no key was accepted (tried {', '.join(keys)})" if keys else ": no key to offer"
        others = [each for each in wanted if each != PUBLICKEY]
        what += f"; the server would accept {words_of(others)} instead" if others else ""
    if takes_keys and locked:
        what += f"; {', '.join(locked)} has a passphrase and could not be unlocked"
    if why := attempt.unanswered(wanted):
        what += f"; {why}"
    return AuthError(attempt.name, what, todo=_remedy(attempt, locked))


def _remedy(attempt: LoginAttempt, locked: Sequence[str]) -> str:
    """What to do about a login that was refused."""
    progress, user = attempt.client.progress, attempt.options.username
    wanted = set(progress.wanted)
    by_ssh = f"write via = {json.dumps(attempt.ssh_words)} instead of ssh"
    if progress.expired:
        return f"log in with ssh once as {user} and change it"
    if progress.unsigned and PUBLICKEY in wanted:
        return (
            "give the key to an ssh-agent (ssh-add), and touch or confirm it when that asks; or "
            f"{by_ssh}"
        )
    if locked and (PUBLICKEY in wanted or not wanted):
        return f"unlock it first: ssh-add {locked[0]}"
    if PUBLICKEY in wanted and progress.accepted:
        return "name another key, which the server knows as well: IdentityFile in ~/.ssh/config"
    if wanted.intersection(PERSONAL) and (progress.accepted or PUBLICKEY not in wanted):
        if progress.typed and not attempt.prompts.declined:
            return f"check what was typed, and the account {user} there"
        return (
            "launch it on a screen, which asks (tfmux FILE, or up without --headless); or open a "
            f"connection with ssh yourself (ControlMaster, ControlPersist), and {by_ssh}"
        )
    if wanted and PUBLICKEY not in wanted:
        return f"if ssh itself logs in there, {by_ssh}"
    return (
        f"put the public key into ~/.ssh/authorized_keys of {user} there, or name another one "
        "with identity; if it is there, sshd's log says why"
    )


def closed(attempt: LoginAttempt) -> AuthError:
    """Error of a server that closes the connection when it has a key's signature, as sshd does
    for accounts that PAM does not let in."""
    key, user = described(attempt.client.progress.signed), attempt.options.username
    what = f"{attempt.place} accepted the key {key}, and closed the connection without an answer"
    todo = f"the account {user} may have expired or be locked there: see sshd's log"
    return AuthError(attempt.name, what, todo=todo)


def key_error(
    name: str,
    target: SshTarget,
    shown: HostKey | None,
    known: KnownHosts,
    error: asyncssh.HostKeyNotVerifiable,
) -> Exception:
    """An unknown key, one that has changed, or one that is revoked or unreadable."""
    if shown is None:
        said = str(error.reason).partition(" for host ")[0]
        what = f"the host key of {place(target)} cannot be trusted: {said}"
        if cause_of(error) is ErrorCause.KEY_REVOKED and known.revocations:
            what += f" (by {', '.join(known.revocations)})"
        return HostKeyError(name, what, code="key-refused", todo="ask its administrator")
    if why := known.refusal(shown.key):
        what = f"the host key of {place(target)} cannot be trusted: {shown} {why}"
        return HostKeyError(name, what, code="key-refused", todo="ask its administrator")
    if known.known_before:
        return changed(name, target, known, str(shown))
    return UnknownKey(shown, known.other_names(shown))


def unknown(name: str, target: SshTarget, key: UnknownKey, why: str = "") -> HostKeyError:
    """A key that nobody has agreed to."""
    what = f"the host key of {place(target)} is not known here: {key.shown}"
    what += f"; {key.known_as}" if key.known_as else ""
    todo = "compare it with the host's own, then trust it with `tfmux check FILE --accept-new`"
    return HostKeyError(name, f"{what}; {why}" if why else what, code="key-unknown", todo=todo)


def changed(name: str, target: SshTarget, known: KnownHosts, what: str) -> HostKeyError:
    """Another key than the known one: never accepted, whoever asks."""
    lines = ", ".join(display_path(entry.where) for entry in known.standing())
    return HostKeyError(
        name,
        f"the host key of {place(target)} HAS CHANGED to {what}: the machine was reinstalled, "
        f"or another one answers at its address (known as {known.name.place} in {lines})",
        code="key-changed",
        todo=f"ask its administrator; if that is right, remove the old key with {known.removal()}",
    )


def place(target: SshTarget) -> str:
    """The destination as the cluster file has it, without the user."""
    return join(target.host, target.port) if target.port else target.host


def text_of(error: BaseException) -> str:
    """Text of an error without its class, number and path."""
    if isinstance(error, asyncssh.Error):
        return str(error.reason)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
