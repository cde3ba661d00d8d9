"""Host names, ports and SSH destinations as people write them.

Everything that is wrong raises `ValueError` with a sentence that says what to write instead;
where blanks or quotes are all that is wrong, the sentence holds the repaired text. Nothing is
looked up here.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

AUTO = "auto"
LOCALHOST = "localhost"
_STRAY = re.compile(r"[\s'\"`\u2018\u2019\u201c\u201d]")
_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_USER = re.compile(r"[^\s:/'\"`$;&|<>(){}\\\x00-\x1f-][^\s:/'\"`$;&|<>(){}\x00-\x1f]*")
_MAX_NAME = 253  # RFC 1035


@dataclass(frozen=True)
class TaskAddress:
    """Where one task shall run: a host of the cluster file and a port (None = `auto`)."""

    host: str
    port: int | None

    def __str__(self) -> str:
        return join(self.host, self.port)

    @classmethod
    def parse(cls, text: str) -> TaskAddress:
        """Reads `tf1:2222`, `tf1:auto`, `[fd00::1]:2222`.

        Raises:
            ValueError: it is none of these; says what to write.
        """
        host, port = _split(text, "tf1:2222")
        if port is None:
            raise ValueError(
                f'the port is missing: write "{join(host, 2222)}", or "{join(host, None)}" '
                "for a free port picked on that host"
            )
        return cls(host, None if port == AUTO else _port(port, or_auto=True))


@dataclass(frozen=True)
class SshDestination:
    """Whom to log in to: `user@host:port`; what is None is left to ssh_config."""

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
            ValueError: it is none of these; says what to write.
        """
        if text.startswith("ssh "):
            raise ValueError('write the destination alone, such as "root@tf1:22"')
        user, at, place = text.rpartition("@")
        if _STRAY.search(text):
            repaired = _STRAY.sub("", text)
            try:
                cls.parse(repaired)
            except ValueError:
                repaired = "root@tf1:22"
            raise ValueError(f'there are blanks or quotes inside: write "{repaired}"')
        if at and not _USER.fullmatch(user):
            raise ValueError('the part before @ is no user name: write "user@host:port"')
        host, port = _split(place, "root@tf1:22")
        return cls(user or None, host, None if port is None else _port(port))


def parse_jump(text: str) -> str:
    """Checks `user@host:port`, or several of them with commas, as `ssh -J` takes them.

    Raises:
        ValueError: one of them is no destination.
    """
    return ",".join(str(SshDestination.parse(hop)) for hop in text.split(","))


def parse_address(text: str) -> str:
    """Checks what other hosts call a host: a name or an IP address, no port.

    An IPv6 address may have brackets and comes back without.

    Raises:
        ValueError: it is something else; says what to write.
    """
    if text.count(":") > 1 and "[" not in text and not _STRAY.search(text):
        return check_host(text)
    host, port = _split(text, "tf1")
    if port is not None:
        raise ValueError(f'write the name alone, "{bracketed(host)}": each task has its own port')
    return host


def bracketed(host: str) -> str:
    """`[fd00::1]` for an IPv6 literal, anything else as it is."""
    return f"[{host}]" if ":" in host else host


def join(host: str, port: int | None) -> str:
    """`host:port` as TensorFlow writes it; an unpicked port is `auto`."""
    return f"{bracketed(host)}:{AUTO if port is None else port}"


def is_loopback(host: str) -> bool:
    """The name means *this machine* to whoever uses it, and so names nobody to others."""
    if host.lower().rstrip(".") in (LOCALHOST, "localhost.localdomain", "ip6-localhost"):
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def check_host(host: str) -> str:
    """Returns `host` when it can be a host's name or IP address.

    Raises:
        ValueError: it cannot; says why.
    """
    if not host:
        raise ValueError("the host name is missing")
    if ":" in host:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError("this is no IPv6 address; one looks like [fd00::1]") from None
        if "%" in host and not _NAME.fullmatch(host.partition("%")[2]):
            raise ValueError("the part after % is no network interface")
        return host
    if not host.isascii():
        raise ValueError("host names are ASCII: write its xn--… form or its IP address")
    if len(host) > _MAX_NAME:
        raise ValueError(f"a host name has at most {_MAX_NAME} characters")
    if host.startswith("-"):
        raise ValueError("a host name does not begin with '-'")
    if not _NAME.fullmatch(host):
        raise ValueError("a host name has only letters, digits, '.', '-' and '_'")
    if re.fullmatch(r"[\d.]+", host) and "." in host:
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError("this is no IPv4 address; one looks like 10.77.0.1") from None
    return host


def _split(text: str, example: str) -> tuple[str, str | None]:
    if not text:
        raise ValueError(f'it is empty: write such as "{example}"')
    if _STRAY.search(text):
        raise ValueError(_without_strays(text, example))
    if "://" in text:
        raise ValueError(f'leave out the "{text.partition("://")[0]}://": write "{example}"')
    if text.startswith("["):
        inside, bracket, rest = text[1:].partition("]")
        if not bracket or ":" not in inside or (rest and not rest.startswith(":")):
            raise ValueError('an IPv6 address with a port is written "[fd00::1]:2222"')
        return check_host(inside), rest[1:] if rest else None
    if text.count(":") > 1:
        raise ValueError('an IPv6 address stands in brackets: write "[fd00::1]:2222"')
    host, colon, port = text.partition(":")
    return check_host(host), port if colon else None


def _without_strays(text: str, example: str) -> str:
    repaired = _STRAY.sub("", text)
    try:
        _split(repaired, example)
    except ValueError:
        repaired = example
    return f'there are blanks or quotes inside: write "{repaired}"'


def _port(text: str, or_auto: bool = False) -> int:
    """Raises `ValueError` unless the text is a port."""
    more = " or auto" if or_auto else ""
    if not (text.isascii() and text.isdecimal()):
        raise ValueError(f"a port is a number from 1 to 65535{more}")
    if len(text) > 5 or not 1 <= int(text) <= 65535:
        raise ValueError(f"the port is out of range: write 1 to 65535{more}")
    return int(text)
