"""Host keys: which are known, what is unknown or has changed, and the file of those that were
accepted here. The user's own known_hosts is read and never written.

asyncssh reads the files, a line at a time: an odd line is skipped and noted, never the reason to
refuse all hosts, and the place of a line is what a person needs to remove it. As with OpenSSH's
`CheckHostIP no` a key is known for a name (`HostKeyAlias` where it is set), not for the address
behind it. A port has its own keys; those of port 22 count for it only where they fit.
"""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Sequence
from dataclasses import field
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..frozen import frozen
from ..paths import config_home
from ..printable import printable
from .ssh_library import asyncssh

SSH_PORT = 22
_MOST_NOTES = 20
_WRITING = threading.Lock()
"""Hosts are accepted side by side."""
_NAMED = 5


def accepted_keys() -> Path:
    """Host keys that were accepted here."""
    return config_home() / "known_hosts"


def place_of(host: str, port: int) -> str:
    """`host` or `[host]:port`, as known_hosts has it."""
    return host.lower() if port == SSH_PORT else f"[{host.lower()}]:{port}"


@frozen
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


@frozen
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


@frozen
class _Line:
    """One line of a known_hosts file."""

    file: str
    number: int
    text: str

    @property
    def where(self) -> str:
        """Place of the line, for messages: `FILE:LINE`."""
        return f"{self.file}:{self.number}"

    @property
    def marker(self) -> str:
        """`@cert-authority`, `@revoked`, or empty."""
        first = self.text.split(maxsplit=1)[0]
        return first if first.startswith("@") else ""

    def matches(self, place: str) -> bool:
        """The line is about this name: `host`, or `[host]:port`."""
        return any(asyncssh.import_known_hosts(self.text).match(place, "", None))


@frozen
class _Files:
    """What some known_hosts files say together."""

    known: asyncssh.SSHKnownHosts
    lines: tuple[_Line, ...]
    odd: tuple[str, ...]
    """A sentence for each line that was skipped."""


def _read_files(names: Sequence[str]) -> _Files:
    """Reads those files that are there.

    Raises:
        OSError: one of them cannot be read.
    """
    versions = []
    for name in map(os.path.expanduser, names):
        try:
            found = os.stat(name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        versions.append((name, found.st_ino, found.st_size, found.st_mtime_ns))
    return _parse_files(tuple(versions))


@lru_cache(maxsize=16)
def _parse_files(versions: tuple[tuple[str, int, int, int], ...]) -> _Files:
    """A thousand hosts that log in together read the same files."""
    known = asyncssh.SSHKnownHosts()
    lines: list[_Line] = []
    odd: list[str] = []
    for name, *_ in versions:
        for number, raw in enumerate(Path(name).read_bytes().split(b"\n"), 1):
            text = raw.decode("latin-1").strip()
            if not text or text.startswith("#"):
                continue
            try:
                line = _Line(name, number, _as_ssh_reads(text))
                known.load(line.text)
            except ValueError as error:
                odd.append(f"{name}:{number}: {printable(str(error), 100)}; the line is skipped")
            else:
                lines.append(line)
    return _Files(known, tuple(lines), tuple(odd[:_MOST_NOTES]))


def _as_ssh_reads(text: str) -> str:
    """A line for asyncssh, of which `ssh` and asyncssh have the same understanding: `ssh` compares
    names in lower case and knows no networks.

    Raises:
        ValueError: there is no such line.
    """
    words = text.split()
    marker = [words.pop(0)] if text.startswith("@") else []
    if len(words) < 3:
        raise ValueError("not a line of known_hosts (names, key type and key)")
    names = words[0]
    if not names.startswith("|"):
        names = names.lower()
        if "/" in names:
            raise ValueError("not names of hosts, but a network")
    return " ".join([*marker, names, *words[1:3]])


class KnownHosts:
    """Known keys of one server."""

    def __init__(self, files: Sequence[str], name: HostName) -> None:
        """Reads the files that are there.

        Raises:
            OSError: one of them cannot be read.
        """
        self.name = name
        self._files = _read_files(files)
        self.odd = self._files.odd
        """A sentence for each line that was skipped."""
        self.trusted, self.authorities, self.revoked = self._keys(name.place)
        self.port22_keys: list[asyncssh.SSHKey] = []
        if not (self.any or name.alias or name.port == SSH_PORT):
            self.port22_keys, _, revoked = self._keys(name.host.lower())
            self.revoked += revoked
        self._rsa_size = 0
        self.address_place = place_of(name.address, name.port) if name.address else ""
        self.known_before = self.any
        """Another key than the known ones is a change."""
        if self.address_place and (of_address := self._keys(self.address_place)[0]):
            self.trusted = [key for key in self.trusted if key in of_address]
            self.known_before = True

    def _keys(self, place: str) -> list[list[asyncssh.SSHKey]]:
        """Trusted keys, authorities and revoked keys."""
        return [list(keys) for keys in self._files.known.match(place, "", None)[:3]]

    @property
    def any(self) -> bool:
        """A key (or an authority) is known for this server."""
        return bool(self.trusted or self.authorities)

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

    def refusal(self, key: asyncssh.SSHKey) -> str:
        """Reason for which an unknown key must not be accepted; empty if there is none."""
        if self._is_short(key):
            return f"is shorter than RequiredRSASize allows ({self._rsa_size} bits)"
        return ""

    @property
    def revocations(self) -> list[str]:
        """The lines by which keys of this server are revoked."""
        lines = [each for each in self._files.lines if each.marker == "@revoked"]
        return [each.where for each in lines if each.matches(self.name.place)]

    def _is_short(self, key: asyncssh.SSHKey) -> bool:
        bits = getattr(getattr(key, "pyca_key", None), "key_size", 0)
        return key.get_algorithm() == "ssh-rsa" and bits < self._rsa_size

    def for_asyncssh(self) -> Any:
        """The argument `known_hosts`: a function, since an empty list would switch asyncssh
        back to the user's file."""
        return lambda _host, _address, _port: (self.trusted, self.authorities, self.revoked)

    def other_names(self, shown: HostKey) -> list[str]:
        """Other entries with the same key: `tf1 (~/.ssh/known_hosts:3)`."""
        found = []
        for line in self._files.lines:
            names, *key = line.text.split()[:3]
            if " ".join(key) == shown.line:
                names = "a hashed name" if names.startswith("|") else printable(names)
                found.append(f"{names} ({line.where})")
        return found[:_NAMED]

    def standing(self) -> list[_Line]:
        """The lines that a changed key contradicts."""
        places = [place for place in (self.name.place, self.address_place) if place]
        return [
            each
            for each in self._files.lines
            if each.marker != "@revoked" and any(each.matches(place) for place in places)
        ]

    def removal(self) -> str:
        """The commands that remove those lines, and those that only a person can remove."""
        commands: dict[str, None] = {}
        by_hand = []
        for entry in self.standing():
            if entry.marker:
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
