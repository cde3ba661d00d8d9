"""Host keys: which are known, what is unknown or has changed, and the file of those that were
accepted here. The user's own known_hosts is read and never written.

asyncssh takes a key that is known for port 22 of a name for any other port of it; two servers
behind one address would then look like an impostor. Here a port has its own keys, and those
of port 22 count for it only where they fit, as OpenSSH does it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import asyncssh

from ..homes import config_home

SSH_PORT = 22


def accepted_keys() -> Path:
    """Host keys that were accepted here."""
    return config_home() / "known_hosts"


@dataclass(frozen=True)
class ShownKey:
    """A key as a server showed it, in the words that a person compares."""

    place: str
    """`host` or `[host]:port`, as known_hosts has it."""
    kind: str
    fingerprint: str
    line: str
    """Key type and base64, as known_hosts has it."""

    @classmethod
    def of(cls, host: str, port: int, key: asyncssh.SSHKey) -> ShownKey:
        """Describes a key of `host:port`."""
        place = host if port == SSH_PORT else f"[{host}]:{port}"
        words = key.export_public_key("openssh").decode().split()
        return cls(place, key.get_algorithm(), key.get_fingerprint(), " ".join(words[:2]))

    def __str__(self) -> str:
        return f"{self.kind} {self.fingerprint}"


class Known:
    """What is known of one server's keys."""

    def __init__(self, files: Sequence[str], host: str, address: str, port: int) -> None:
        """Reads the files that are there.

        Raises:
            ValueError: one of them holds something that is no line of known_hosts.
        """
        names = [name for name in files if os.access(name, os.R_OK)]
        hosts = asyncssh.read_known_hosts(names) if names else asyncssh.import_known_hosts("")
        trusted, authorities, revoked = _exactly(hosts, host, address, port)
        self.elsewhere: tuple[asyncssh.SSHKey, ...] = ()
        if not (trusted or authorities) and port != SSH_PORT:
            at_22 = hosts.match(host, address, None)
            self.elsewhere = tuple(at_22[0])
            revoked += at_22[2]
        self._own = (trusted, authorities, revoked)

    @property
    def any(self) -> bool:
        """A key (or an authority) is known for this server: another one is a change."""
        return bool(self._own[0] or self._own[1])

    def for_asyncssh(self) -> Any:
        """The argument `known_hosts`: a function, since an empty list would switch asyncssh
        back to the user's file."""
        return lambda _host, _address, _port: self._own


def remember(shown: ShownKey) -> None:
    """Appends a key to the file of those accepted here, once.

    Raises:
        OSError: the file cannot be written.
    """
    path = accepted_keys()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    line = f"{shown.place} {shown.line}\n"
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+") as file:
        before = file.read()
        if line not in before.splitlines(keepends=True):
            file.write(line if not before or before.endswith("\n") else f"\n{line}")


_Keys = list[asyncssh.SSHKey]


def _exactly(
    hosts: asyncssh.SSHKnownHosts, host: str, address: str, port: int
) -> tuple[_Keys, _Keys, _Keys]:
    """Trusted keys, authorities and revoked keys, without asyncssh's second look at the name
    alone: the place as a whole is given as the name."""
    if port == SSH_PORT:
        places = [(host, address)]
    else:
        places = [(f"[{each}]:{port}", "") for each in dict.fromkeys((host, address)) if each]
    found: tuple[_Keys, _Keys, _Keys] = ([], [], [])
    for name, at in places:
        matched = hosts.match(name, at, None)
        for number, into in enumerate(found):
            into.extend(cast(_Keys, matched[number]))
    return found
