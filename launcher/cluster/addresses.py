"""Parser of host names, ports and SSH destinations as people write them.

What is wrong raises `AddressError` with a sentence that says what to write instead; where blanks
or quotes are all that is wrong, the sentence has the corrected text. Nothing is looked up on the
network.
"""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum

from ..frozen import frozen

AUTO = "auto"
LOCALHOST = "localhost"
_STRAY = re.compile(r"[\s'\"`\u2018\u2019\u201c\u201d]")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_USER = re.compile(r"[^\s:/'\"`$;&|<>(){}\\\x00-\x1f-][^\s:/'\"`$;&|<>(){}\x00-\x1f]*")
_MAX_NAME = 253  # RFC 1035
_MOST_JUMPS = 16


class AddressPart(StrEnum):
    """Half of a task's address."""

    HOST = "host"
    PORT = "port"


class AddressError(ValueError):
    """Text that is not an address; `part` is the half of it that is wrong."""

    def __init__(self, message: str, part: AddressPart = AddressPart.HOST) -> None:
        super().__init__(message)
        self.part = part


@frozen
class TaskAddress:
    """Address of a task: a host of the cluster file and a port (None = `auto`)."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return join(self.host, self.port)

    @classmethod
    def parse(cls, text: str) -> TaskAddress:
        """Reads `tf1:2222`, `tf1:auto`, `[fd00::1]:2222`.

        Raises:
            AddressError: it is none of these.
        """
        host, port = _split(text, "tf1:2222")
        if port is None:
            raise AddressError(
                f'the port is missing: write "{join(host, 2222)}", or "{join(host, None)}" '
                "for a free port picked on that host",
                AddressPart.PORT,
            )
        return cls(host, None if port == AUTO else _port(port, or_auto=True))


@frozen
class SshDestination:
    """Login at an SSH server, `user@host:port`; what is None is left to ssh_config."""

    user: str | None
    host: str
    port: int | None

    def __str__(self) -> str:
        user = f"{self.user}@" if self.user else ""
        return user + (bracketed(self.host) if self.port is None else join(self.host, self.port))

    @classmethod
    def parse(cls, text: str) -> SshDestination:
        """Reads `user@host:port`, `host`, an alias of ssh_config, `user@[fd00::1]:22`.

        Raises:
            AddressError: it is none of these.
        """
        if text.startswith("ssh "):
            raise AddressError('write only the destination, such as "root@tf1:22"')
        user, at, place = text.rpartition("@")
        if _STRAY.search(text):
            repaired = _STRAY.sub("", text)
            try:
                cls.parse(repaired)
            except ValueError:
                repaired = "root@tf1:22"
            raise AddressError(f'it contains blanks or quotes: write "{repaired}"')
        if at and not _USER.fullmatch(user):
            raise AddressError('the part before @ is not a user name: write "user@host:port"')
        host, port = _split(place, "root@tf1:22")
        return cls(user or None, host, None if port is None else _port(port))


HERE = SshDestination(None, LOCALHOST, None)
"""This machine, which needs no login."""


def parse_user(text: str) -> str:
    """Checks the name of an account.

    Raises:
        AddressError: it is something else.
    """
    if not _USER.fullmatch(text) or "@" in text:
        raise AddressError('it is not a user name: write such as "root"')
    return text


def parse_jump(text: str) -> str:
    """Checks `user@host:port`, or several of them with commas, as `ssh -J` takes them.

    Raises:
        AddressError: one of them is not a destination.
    """
    hops = text.split(",", _MOST_JUMPS)
    if len(hops) > _MOST_JUMPS:
        raise AddressError(f"more than {_MOST_JUMPS} hosts to jump over")
    return ",".join(str(SshDestination.parse(hop)) for hop in hops)


def parse_address(text: str) -> str:
    """Checks what other hosts call a host: a name or an IP address, no port.

    An IPv6 address may have brackets and comes back without.

    Raises:
        AddressError: it is something else.
    """
    if text.count(":") > 1 and "[" not in text and not _STRAY.search(text):
        return check_host(text)
    host, port = _split(text, "tf1")
    if port is not None:
        raise AddressError(f'write only the name, "{bracketed(host)}": each task has its own port')
    return host


def bracketed(host: str) -> str:
    """`[fd00::1]` for an IPv6 literal, anything else as it is."""
    return f"[{host}]" if ":" in host else host


def join(host: str, port: int | None) -> str:
    """`host:port` as TensorFlow writes it; an unpicked port is `auto`."""
    return f"{bracketed(host)}:{AUTO if port is None else port}"


def is_loopback(host: str) -> bool:
    """Whether the name means *this machine* on every machine, so that it is of no use to others."""
    if host.lower().rstrip(".") in (LOCALHOST, "localhost.localdomain", "ip6-localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def loopback_problem(address: str, host: str, other: str) -> str:
    """Why a host among others cannot be called so."""
    return (
        f"{address} means another machine on {other}: set the name that the other hosts use for "
        f'{host}, address = "its-name"'
    )


def check_host(host: str) -> str:
    """Returns `host` if it can be a host's name or IP address.

    Raises:
        AddressError: it cannot.
    """
    if not host:
        raise AddressError("the host name is missing")
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise AddressError("not an IPv6 address; write such as [fd00::1]") from None
        if "%" in host and not _NAME.fullmatch(host.partition("%")[2]):
            raise AddressError("the part after % is not a network interface")
        return host
    if not host.isascii():
        raise AddressError("a host name must be ASCII: write its xn--… form or its IP address")
    if len(host) > _MAX_NAME:
        raise AddressError(f"a host name has at most {_MAX_NAME} characters")
    if host.startswith("-"):
        raise AddressError("a host name cannot begin with '-'")
    if not _NAME.fullmatch(host):
        raise AddressError("a host name can contain only letters, digits, '.', '-' and '_'")
    if re.fullmatch(r"[\d.]+", host) and "." in host:
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise AddressError("not an IPv4 address; write such as 10.77.0.1") from None
    return host


def _split(text: str, example: str) -> tuple[str, str | None]:
    if not text:
        raise AddressError(f'it is empty: write such as "{example}"')
    if _STRAY.search(text):
        only_port = ":" in text and not _STRAY.search(text.rpartition(":")[0])
        part = AddressPart.PORT if only_port else AddressPart.HOST
        raise AddressError(_without_strays(text, example), part)
    if "://" in text:
        raise AddressError(f'leave out the "{text.partition("://")[0]}://": write "{example}"')
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in inside or (rest and not rest.startswith(":")):
            raise AddressError('an IPv6 address with a port is written "[fd00::1]:2222"')
        return check_host(inside), rest[1:] if rest else None
    if text.count(":") > 1:
        raise AddressError('an IPv6 address needs brackets: write "[fd00::1]:2222"')
    host, colon, port = text.partition(":")
    return check_host(host), port if colon else None


def _without_strays(text: str, example: str) -> str:
    repaired = _STRAY.sub("", text)
    try:
        _split(repaired, example)
    except ValueError:
        repaired = example
    return f'it contains blanks or quotes: write "{repaired}"'


def _port(text: str, or_auto: bool = False) -> int:
    more = " or auto" if or_auto else ""
    if not (text.isascii() and text.isdecimal()):
        raise AddressError(f"a port is a number from 1 to 65535{more}", AddressPart.PORT)
    if len(text) > 5 or not 1 <= int(text) <= 65535:
        message = f"the port is out of range: write 1 to 65535{more}"
        raise AddressError(message, AddressPart.PORT)
    return int(text)
