"""Why a login failed, in sentences: each error with what is wrong and what to do."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

import asyncssh

from ..cluster.addresses import join
from ..errors import AuthError, HostKeyError
from . import host_keys
from .credentials import encrypted, lacks_bcrypt, offered, shown_path
from .host_keys import Known, ShownKey, accepted_keys


class Target(Protocol):
    """Where to log in: `plan.SshTarget`."""

    @property
    def user(self) -> str | None: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int | None: ...
    @property
    def identity(self) -> str | None: ...
    @property
    def jump(self) -> str | None: ...
    @property
    def known_hosts(self) -> str | None: ...


class UnknownKey(Exception):
    """The host is not known, and nobody has agreed to its key yet."""

    def __init__(self, shown: ShownKey) -> None:
        super().__init__(str(shown))
        self.shown = shown


async def refused(
    name: str,
    target: Target,
    options: asyncssh.SSHClientConnectionOptions,
    said: str = "",
) -> AuthError:
    """Says which keys were offered, one by one, and which could not be."""
    files = [shown_path(path) for path in _identities(target, options)]
    locked = await asyncio.to_thread(encrypted, files)
    keys = [f"{key} {what}" for key, what in await offered(options) if key not in locked]
    what = f"{place(target)} refused the login of {options.username}"
    if said:
        what += f" ({said})"
    what += ": it takes none of " + ", ".join(keys) if keys else ": there was no key to offer"
    todo = f"put the public key into ~/.ssh/authorized_keys of {options.username} there, or "
    todo += "name another one with identity"
    if locked:
        what += f"; {', '.join(locked)} has a passphrase and could not be unlocked"
        todo = f"unlock it first: ssh-add {locked[0]}"
        if lacks_bcrypt(locked[0]):
            todo += " (to be asked for it here, install the Python package bcrypt)"
    return AuthError(name, what, todo=todo)


def _identities(target: Target, options: asyncssh.SSHClientConnectionOptions) -> list[str]:
    """The key files that a login would look at."""
    if target.identity is not None:
        return [target.identity]
    configured = cast("str | list[str]", options.config.get("IdentityFile", ()))
    names = [configured] if isinstance(configured, str) else list(configured)
    return names or [f"~/.ssh/id_{kind}" for kind in ("ed25519", "ecdsa", "rsa")]


def key_error(
    name: str,
    target: Target,
    shown: ShownKey | None,
    known: Known,
    error: asyncssh.HostKeyNotVerifiable,
) -> Exception:
    """An unknown key, one that has changed, or one that is revoked or unreadable."""
    if shown is None:
        what = f"the key of {place(target)} cannot be trusted: {error.reason}"
        return HostKeyError(name, what, code="key-refused")
    if known.any:
        return changed(name, target, str(shown))
    return UnknownKey(shown)


def changed(name: str, target: Target, what: str) -> HostKeyError:
    """Another key than the known one: never accepted, whoever asks."""
    return HostKeyError(
        name,
        f"the key of {place(target)} HAS CHANGED to {what}: the machine was installed anew, "
        "or another one answers in its place",
        code="key-changed",
        todo="ask its administrator; if that is right, remove the old key with "
        f"`ssh-keygen -R {_known_as(target)}` (and from {accepted_keys()})",
    )


def _known_as(target: Target) -> str:
    if target.port in (None, host_keys.SSH_PORT):
        return target.host
    return f"'[{target.host}]:{target.port}'"


def place(target: Target) -> str:
    """The destination as the cluster file has it, without the user."""
    return join(target.host, target.port) if target.port else target.host


def text_of(error: BaseException) -> str:
    """An error's own words."""
    if isinstance(error, asyncssh.Error):
        return str(error.reason)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
