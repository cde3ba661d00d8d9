"""Host keys: which are known, what is unknown or has changed, and the file of those that were
accepted here. The user's own known_hosts is read and never written.

As with OpenSSH's `CheckHostIP no` a key is known for a name (`HostKeyAlias` where it is set),
not for the address behind it. A port has its own keys; those of port 22 count for it only where
they fit.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from ..paths import config_home
from .known_hosts import KnownHostsLine, Marker, read_entries
from .revoked_keys import RevocationError, RevokedKeys

SSH_PORT = 22
_WRITING = threading.Lock()
"""Hosts are accepted side by side."""
_NAMED = 5


def accepted_keys() -> Path:
    """Host keys that were accepted here."""
    return config_home() / "known_hosts"


def place_of(host: str, port: int) -> str:
    """`host` or `[host]:port`, as known_hosts has it."""
    return host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"


@dataclass(frozen=True)
class HostKey:
    """A key as a server showed it, in the words that a person compares."""

    place: str
    """`host` or `[host]:port`, as known_hosts has it."""
    kind: str
    fingerprint: str
    line: str
    """Key type and base64, as known_hosts has it."""
    key: asyncssh.SSHKey = field(compare=False, repr=False)

    @classmethod
    def of(cls, place: str, key: asyncssh.SSHKey) -> HostKey:
        """Describes a key that was shown under a name of known_hosts."""
        words = key.export_public_key("openssh").decode().split()
        return cls(place, key.get_algorithm(), key.get_fingerprint(), " ".join(words[:2]), key)

    def __str__(self) -> str:
        return f"{self.kind} {self.fingerprint}"


@dataclass(frozen=True)
class HostName:
    """Under which names a server is looked up."""

    host: str
    port: int = SSH_PORT
    alias: str = ""
    """`HostKeyAlias`: stands alone, without a port."""
    address: str = ""
    """The address that must fit as well (`CheckHostIP yes`)."""

    @property
    def place(self) -> str:
        """Name under which known_hosts has the server's keys."""
        return self.alias.lower() or place_of(self.host, self.port)


class KnownHosts:
    """Known keys of one server."""

    def __init__(self, files: Sequence[str], name: HostName) -> None:
        """Reads the files that are there.

        Raises:
            OSError: one of them cannot be read.
        """
        self.name = name
        self.odd: list[str] = []
        """A sentence for each line that was skipped."""
        self._entries = list(read_entries(files, self.odd))
        self.trusted = self._keys(name.place, Marker.TRUSTED)
        self.authorities = self._keys(name.place, Marker.AUTHORITY)
        self.revoked = self._keys(name.place, Marker.REVOKED)
        self.revocations = [
            each.where
            for each in self._entries
            if each.marker is Marker.REVOKED and each.matches(name.place)
        ]
        self.port22_keys: list[asyncssh.SSHKey] = []
        if not (self.any or name.alias or name.port == SSH_PORT):
            self.port22_keys = self._keys(name.host.lower(), Marker.TRUSTED)
            self.revoked += self._keys(name.host.lower(), Marker.REVOKED)
        self._revoked_by: tuple[RevokedKeys, str] | None = None
        self._rsa_size = 0
        self.address_place = place_of(name.address, name.port) if name.address else ""
        self.known_before = self.any
        """Another key than the known ones is a change."""
        if self.address_place and (of_address := self._keys(self.address_place, Marker.TRUSTED)):
            self.trusted = [key for key in self.trusted if key in of_address]
            self.known_before = True

    @property
    def any(self) -> bool:
        """A key (or an authority) is known for this server."""
        return bool(self.trusted or self.authorities)

    async def revoke(self, revoked: RevokedKeys, option: str) -> None:
        """Adds what `RevokedHostKeys` revokes.

        Raises:
            RevocationError: the list cannot be read.
        """
        if self.authorities and revoked.krl is not None:
            if not self.trusted:
                why = "it is a KRL, which is asked here about keys and not about certificates"
                raise RevocationError(f"{revoked.krl}: {why}")
            self.authorities.clear()
        for key in (*self.trusted, *self.port22_keys, *self.authorities):
            if await revoked.contains(key):
                self.revoked.append(key)  # asyncssh looks there first
        if self.authorities:  # a certificate's own key is looked up by asyncssh
            self.revoked += revoked.keys()
        self.revocations.append(option)
        self._revoked_by = (revoked, option)

    def require(self, rsa_size: int, ca_algorithms: str) -> None:
        """`RequiredRSASize` and `CASignatureAlgorithms`: weaker keys are not trusted."""
        self._rsa_size = rsa_size
        self.trusted = [key for key in self.trusted if not self._is_short(key)]
        self.port22_keys = [key for key in self.port22_keys if not self._is_short(key)]
        if ca_algorithms:
            kinds = {"ssh-rsa" if "rsa" in each else each for each in ca_algorithms.split(",")}
            self.authorities = [
                key
                for key in self.authorities
                if key.get_algorithm() in kinds and not self._is_short(key)
            ]

    async def refusal(self, key: asyncssh.SSHKey) -> str:
        """Reason for which an unknown key must not be accepted; empty if there is none.

        Raises:
            RevocationError: the list of revoked keys cannot be read.
        """
        if self._revoked_by is not None and await self._revoked_by[0].contains(key):
            return f"is revoked (by {self._revoked_by[1]})"
        if self._is_short(key):
            return f"is shorter than RequiredRSASize allows ({self._rsa_size} bits)"
        return ""

    def _is_short(self, key: asyncssh.SSHKey) -> bool:
        bits = getattr(getattr(key, "pyca_key", None), "key_size", 0)
        return key.get_algorithm() == "ssh-rsa" and bits < self._rsa_size

    def for_asyncssh(self) -> Any:
        """The argument `known_hosts`: a function, since an empty list would switch asyncssh
        back to the user's file."""
        return lambda _host, _address, _port: (self.trusted, self.authorities, self.revoked)

    def other_names(self, shown: HostKey) -> list[str]:
        """Other entries with the same key: `tf1 (~/.ssh/known_hosts:3)`."""
        kind, blob = shown.line.split()
        found = [each for each in self._entries if (each.kind, each.blob) == (kind, blob)]
        return [
            f"{'a hashed name' if each.names.startswith('|') else each.names} ({each.where})"
            for each in found
            if each.marker is Marker.TRUSTED
        ][:_NAMED]

    def standing(self) -> list[KnownHostsLine]:
        """The lines that a changed key contradicts."""
        places = [place for place in (self.name.place, self.address_place) if place]
        return [
            each
            for each in self._entries
            if each.marker is not Marker.REVOKED and any(each.matches(place) for place in places)
        ]

    def removal(self) -> str:
        """The commands that remove those lines, and those that only a person can remove."""
        commands: dict[str, None] = {}
        by_hand = []
        for entry in self.standing():
            if entry.marker is Marker.AUTHORITY:
                by_hand.append(entry.where)
                continue
            for place in (self.name.place, self.address_place):
                if place and entry.matches(place):
                    argv = ["ssh-keygen", "-f", os.path.abspath(entry.file), "-R", place]
                    commands[shlex.join(argv)] = None
        ways = [f"`{' && '.join(commands)}`"] if commands else []
        if by_hand:
            ways.append(f"an editor (the authority in {', '.join(by_hand)})")
        return " and ".join(ways)

    def _keys(self, place: str, marker: Marker) -> list[asyncssh.SSHKey]:
        found = []
        for entry in self._entries:
            if entry.marker is marker and entry.matches(place):
                key = entry.key()
                if key is not None:
                    found.append(key)
                else:
                    note = f"{entry.where}: keys of the type {entry.kind} are not supported"
                    self.odd.append(f"{note}; the line is skipped")
        return found


def add_known_host(shown: HostKey) -> None:
    """Appends a key to the file of those accepted here, once.

    Raises:
        OSError: the file cannot be written.
    """
    with _WRITING:
        _append(accepted_keys(), f"{shown.place} {shown.line}\n")


def _append(path: Path, line: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600), "r+b") as file:
        before = file.read()
        if line.encode() not in before.splitlines(keepends=True):
            file.write((line if not before or before.endswith(b"\n") else f"\n{line}").encode())
