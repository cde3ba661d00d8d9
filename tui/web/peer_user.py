"""The user at the other end of a TCP connection within this machine, as the kernel tells it."""

from __future__ import annotations

import errno
import ipaddress
import socket
import sys
from contextlib import suppress
from pathlib import Path

_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED = "01"
_ORPHAN = "0"
"""The inode of a socket that no process holds. Its row says uid 0, whoever had it, and so does
the row of a closed connection."""

End = tuple[str, int] | tuple[str, int, int, int]
"""An end of a connection, as Python writes it."""


def are_known() -> bool:
    """The kernel tells a connection's user on this system."""
    return sys.platform == "linux"


def uid(peer: End, own: End) -> int | None:
    """The user who has the other end of an established connection; None: not to be told, as it
    is another machine's, or closed by now."""
    # A socket of either family can hold either end, and its row is in the table of its family.
    pairs = [(_ending(peer, v6), _ending(own, v6)) for v6 in (False, True)]
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                columns = line.split()
                alive = columns[3] == _ESTABLISHED and columns[9] != _ORPHAN
                if alive and (columns[1], columns[2]) in pairs:
                    return int(columns[7])
    return None


def is_here(end: End) -> bool:
    """The address may be one of this machine's: it can be listened on."""
    address = _plain(end[0])
    if address.is_loopback:
        return True
    v6 = address.version == 6
    with socket.socket(socket.AF_INET6 if v6 else socket.AF_INET, socket.SOCK_DGRAM) as trial:
        try:
            trial.bind((str(address), 0, 0, *end[3:]) if v6 else (str(address), 0))
        except OSError as error:
            return error.errno != errno.EADDRNOTAVAIL
    return True


def is_loopback(host: str) -> bool:
    """Nobody outside of this machine reaches it."""
    with suppress(ValueError):
        return _plain(host).is_loopback
    return host.lower() == "localhost"


def _plain(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address; one of IPv4 as such, also where it is written as IPv6."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return getattr(found, "ipv4_mapped", None) or found


def _ending(end: End, v6: bool) -> str:
    """An end of a connection as the kernel's tables write it: words of the host's byte order."""
    address = _plain(end[0])
    packed = address.packed
    if v6 and address.version == 4:
        packed = ipaddress.ip_address(f"::ffff:{address}").packed
    step = -1 if sys.byteorder == "little" else 1
    words = [packed[at : at + 4][::step] for at in range(0, len(packed), 4)]
    return f"{b''.join(words).hex().upper()}:{end[1]:04X}"
