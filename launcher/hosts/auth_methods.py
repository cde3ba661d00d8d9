"""Authentication methods: what a server has accepted of a login, and what it still asks for.

sshd answers each request with the methods that may follow, and says whether the request was a
success in part (RFC 4252, 5.1): with `AuthenticationMethods publickey,password` a key that is
accepted ends in the same refusal as one that is not. asyncssh keeps these answers to itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..frozen import frozen
from ..printable import printable
from .ssh_library import asyncssh

PUBLICKEY, PASSWORD = "publickey", "password"
QUESTIONS = "keyboard-interactive"
PERSONAL = (PASSWORD, QUESTIONS)
"""Methods that need a person."""
OPTIONS = {
    PUBLICKEY: "pubkeyauthentication",
    PASSWORD: "passwordauthentication",
    QUESTIONS: "kbdinteractiveauthentication",
}
"""The options of ssh_config that switch these methods off."""
_WORDS = {
    PUBLICKEY: "a key",
    PASSWORD: "a password",
    QUESTIONS: "answers to its own questions, such as a one-time code (keyboard-interactive)",
    "hostbased": "a host key of this machine (hostbased)",
    "gssapi-with-mic": "a Kerberos ticket (gssapi-with-mic)",
}
_MOST_METHODS = 8
_MOST_REPLIES = 64


@frozen
class AuthReply:
    """A server's refusal of one request."""

    method: str
    """The method of the request."""
    partial: bool
    """The request was accepted; it is not enough."""
    methods: tuple[str, ...]
    """The methods that may follow."""
    key: Any = None
    """The key of the request (`asyncssh.SSHKeyPair`), where it had one."""


@dataclass
class AuthProgress:
    """The replies of a server to one login."""

    replies: list[AuthReply] = field(default_factory=list)
    signed: Any = None
    """The key (`asyncssh.SSHKeyPair`) whose public half the server has accepted, and whose
    signature it got last; it has not replied to that."""
    unsigned: list[tuple[Any, str]] = field(default_factory=list)
    """Keys whose public half the server has accepted, and why they could not sign."""
    typed: int = 0
    """Answers and passwords that the server got."""
    expired: bool = False
    """The password was right, and is to be changed."""

    def add(self, reply: AuthReply) -> None:
        """Keeps a reply; of a server that never ends with them the first."""
        self.signed = None
        if len(self.replies) < _MOST_REPLIES:
            self.replies.append(reply)

    @property
    def accepted(self) -> list[AuthReply]:
        """The requests that were accepted."""
        return [reply for reply in self.replies if reply.partial]

    @property
    def wanted(self) -> tuple[str, ...]:
        """The methods that may follow, as the server has said last."""
        return self.replies[-1].methods if self.replies else ()


def watch(connection: Any, progress: AuthProgress) -> None:
    """Keeps the server's replies to a login that begins, and what it got. asyncssh gives them to
    nobody: its table of messages gets an entry of ours for this connection, which passes each
    message on."""
    send = connection.send_userauth_request

    async def request(method: bytes, *args: bytes, key: Any = None, trivial: bool = True) -> None:
        try:
            await send(method, *args, key=key, trivial=trivial)
        except ValueError as error:  # a security key, or an agent that was not allowed to
            progress.unsigned.append((key, printable(str(error), 100)))
            raise
        progress.signed = key

    connection.send_userauth_request = request
    failure, handlers = asyncssh.constants.MSG_USERAUTH_FAILURE, connection._packet_handlers
    process = handlers[failure]

    def look(link: Any, kind: int, number: int, packet: Any) -> Any:
        request = link._auth
        reply = _reply(packet.get_remaining_payload(), request)
        if reply is not None:
            progress.add(reply)
        return process(link, kind, number, packet)

    connection._packet_handlers = {**handlers, failure: look}


def _reply(payload: bytes, request: Any) -> AuthReply | None:
    """The reply in a message; None where it is none: asyncssh says so."""
    packet = asyncssh.packet.SSHPacket(payload)
    try:
        names, partial = packet.get_namelist(), packet.get_boolean()
    except asyncssh.packet.PacketDecodeError:
        return None
    methods = (printable(name.decode(errors="replace"), 40) for name in names[:_MOST_METHODS])
    method = getattr(request, "_method", b"none").decode()
    return AuthReply(method, partial, tuple(methods), getattr(request, "_keypair", None))


def said(methods: Iterable[str], *, another: bool = False) -> str:
    """What methods ask of who logs in, in words; `another`: beside a key that was accepted."""
    words = _WORDS | ({PUBLICKEY: "another key"} if another else {})
    return " or ".join(words.get(method, method) for method in methods)


def accepted_words(accepted: Iterable[AuthReply], name: Callable[[Any], str]) -> str:
    """What was accepted, in words; `name` names a key."""
    words: Mapping[str, str] = {PASSWORD: "the password", QUESTIONS: "the answers"}
    found = dict.fromkeys(
        f"the key {name(one.key)}" if one.key is not None else words.get(one.method, one.method)
        for one in accepted
    )
    return " and ".join(found)
