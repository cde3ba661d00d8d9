"""Errors of SSH logins: what went wrong and what to do.

`explain` is the one place where an error of asyncssh gets its sentence. Only `cause_of` depends on
the words of an error: asyncssh has no class for these.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto

from ..cluster.addresses import join
from ..errors import AuthError, HostKeyError, UnreachableError
from ..frozen import frozen
from ..plan.run_plan import SshTarget
from .credentials import Client, display_path, encrypted, offered
from .host_keys import HostKey, KnownHosts
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


async def explain(error: asyncssh.Error | OSError, attempt: LoginAttempt) -> Exception:
    """The error of a host, or `UnknownKey`."""
    name, target, known = attempt.name, attempt.target, attempt.known
    said = text_of(error)
    match error, cause_of(error):
        case asyncssh.HostKeyNotVerifiable(), _:
            return key_error(name, target, attempt.client.shown, known, error)
        case _, ErrorCause.REFUSED:
            said = "" if isinstance(error, asyncssh.PermissionDenied) else said
            return await refused(name, target, attempt.options, attempt.key_files, said)
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


async def refused(
    name: str,
    target: SshTarget,
    options: asyncssh.SSHClientConnectionOptions,
    identities: list[str],
    said: str = "",
) -> AuthError:
    """Error that names the keys that were offered, and the files that could not be."""
    files = [display_path(path) for path in identities]
    locked = await asyncio.to_thread(encrypted, files)
    keys = [f"{key} {what}" for key, what in await offered(options) if key not in locked]
    what = f"permission denied for {options.username} on {place(target)}"
    if said:
        what += f" ({said})"
    what += f": no key was accepted (tried {', '.join(keys)})" if keys else ": no key to offer"
    todo = f"put the public key into ~/.ssh/authorized_keys of {options.username} there, or "
    todo += "name another one with identity"
    if locked:
        what += f"; {', '.join(locked)} has a passphrase and could not be unlocked"
        todo = f"unlock it first: ssh-add {locked[0]}"
    return AuthError(name, what, todo=todo)


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
