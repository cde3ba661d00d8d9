"""Lines of known_hosts files, read as OpenSSH reads them: an odd line is skipped and noted,
never the reason to refuse all hosts.

asyncssh's reader refuses a file for one line that it cannot parse, and does not say where a key
stands, which a person needs to remove it.
"""

from __future__ import annotations

import binascii
import hmac
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha1

import asyncssh


class Marker(StrEnum):
    """Marker at the beginning of a line: the use of its key."""

    TRUSTED = ""
    AUTHORITY = "@cert-authority"
    REVOKED = "@revoked"


@dataclass(frozen=True)
class KnownHostsLine:
    """One line: for which names which key."""

    file: str
    line: int
    marker: Marker
    names: str
    """Patterns with commas, or one hashed name."""
    kind: str
    blob: str
    """The key in base64."""

    @property
    def where(self) -> str:
        """Place of the line, for messages: `FILE:LINE`."""
        return f"{self.file}:{self.line}"

    def key(self) -> asyncssh.SSHKey | None:
        """The key, or None where it is of a kind that is not supported here."""
        try:
            return asyncssh.import_public_key(f"{self.kind} {self.blob}")
        except (asyncssh.KeyImportError, ValueError):
            return None

    def matches(self, name: str) -> bool:
        """The line is about this name: `host`, or `[host]:port`."""
        if self.names.startswith("|"):
            return _hash_matches(self.names, name)
        found = False
        for pattern in self.names.lower().split(","):
            negated = pattern.startswith("!")
            if fnmatchcase(name, pattern.removeprefix("!").replace("[", "[[]")):
                if negated:
                    return False
                found = True
        return found


def read_entries(files: Iterable[str], odd: list[str]) -> Iterator[KnownHostsLine]:
    """The lines of those files that are there; `odd` gets a sentence for each line skipped.

    Raises:
        OSError: a file is there and cannot be read.
    """
    for file in map(os.path.expanduser, files):
        try:
            found = os.stat(file)
            entries, skipped = _read(file, found.st_ino, found.st_size, found.st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            continue
        yield from entries
        odd += skipped[: max(0, 20 - len(odd))]


@lru_cache(maxsize=16)
def _read(file: str, *_version: int) -> tuple[list[KnownHostsLine], list[str]]:
    """The lines of a file, and a sentence for each line skipped. A thousand hosts that log in
    together read the same files."""
    with open(file, "rb") as opened:
        data = opened.read()
    entries: list[KnownHostsLine] = []
    odd: list[str] = []
    for number, raw in enumerate(data.split(b"\n"), 1):
        line = raw.strip()
        if not line or line.startswith(b"#"):
            continue
        found = _entry(file, number, line.decode("latin-1"))
        if isinstance(found, KnownHostsLine):
            entries.append(found)
        elif len(odd) < 20:
            odd.append(f"{file}:{number}: {found}; the line is skipped")
    return entries, odd


def _entry(file: str, number: int, line: str) -> KnownHostsLine | str:
    """The line as an entry, or what is odd about it."""
    words = line.split(maxsplit=4)
    marker = Marker.TRUSTED
    if words[0].startswith("@"):
        try:
            marker = Marker(words.pop(0))
        except ValueError:
            return "unknown marker"
    if len(words) < 3:
        return "not a line of known_hosts (names, key type and key)"
    names, kind, blob = words[:3]
    try:
        data = binascii.a2b_base64(blob, strict_mode=True)
    except (binascii.Error, ValueError):
        return "the key is not base64"
    said = kind.encode("latin-1")
    if not data.startswith(len(said).to_bytes(4, "big") + said):
        return f"the key is not of the type {kind[:40]}"
    return KnownHostsLine(file, number, marker, names, kind, blob)


def _hash_matches(hashed: str, name: str) -> bool:
    try:
        magic, salt, digest = hashed[1:].split("|")
        wanted = binascii.a2b_base64(digest)
        made = hmac.new(binascii.a2b_base64(salt), name.encode(), sha1).digest()
    except (ValueError, binascii.Error):
        return False
    return magic == "1" and hmac.compare_digest(made, wanted)
