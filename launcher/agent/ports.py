"""Ports of this host: which process listens on each, and on which a server could listen.

Listening sockets come from netlink's sock_diag (0.1 ms, LISTEN only), or from
`/proc/net/tcp*` where netlink is forbidden. Joined with the descriptors of processes they tell
which process holds a port.
"""

from __future__ import annotations

import errno
import os
import pwd
import socket
import struct
from contextlib import suppress
from typing import Dict, Iterable, Iterator

from .processes import TAG, bounded, command_line, short_name, variable
from .wire import Json

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_LISTEN = 10
_NOBODY = 65534


Sockets = Dict[int, bytes]
"""Sockets by their inodes, with the addresses on which they listen: 4 or 16 bytes."""


def listeners() -> dict[int, Sockets]:
    """The sockets that listen, by port, IPv4 and IPv6 together."""
    found: dict[int, Sockets] = {}
    each = _listening()
    for port, inode, address, _ in each:
        found.setdefault(port, {})[inode] = address
    return found


def _listening() -> list[tuple[int, int, bytes, int]]:
    """Port, inode, address and account of each socket that listens."""
    try:
        return [*_by_netlink(socket.AF_INET), *_by_netlink(socket.AF_INET6)]
    except OSError:
        return [*_by_proc("/proc/net/tcp"), *_by_proc("/proc/net/tcp6")]


def loopback(addresses: Iterable[bytes]) -> str:
    """The first of these addresses where all of them are this host's loopback; else empty."""
    texts = []
    for address in addresses:
        if len(address) == 16 and address[:12] == b"\0" * 10 + b"\xff\xff":
            address = address[12:]  # an IPv4 address of an IPv6 socket
        if address[:1] != b"\x7f" if len(address) == 4 else address != b"\0" * 15 + b"\1":
            return ""
        family = socket.AF_INET if len(address) == 4 else socket.AF_INET6
        texts.append(socket.inet_ntop(family, address))
    return texts[0] if texts else ""


def _by_netlink(family: int) -> Iterable[tuple[int, int, bytes, int]]:
    head = struct.Struct("=LHHLL")
    request = struct.pack("=BBBBL48s", family, socket.IPPROTO_TCP, 0, 0, 1 << _LISTEN, b"")
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as link:
        link.settimeout(1.0)
        link.send(head.pack(head.size + len(request), _SOCK_DIAG_BY_FAMILY, 0x301, 1, 0) + request)
        while True:
            raw = link.recv(1 << 16)
            at = 0
            while at < len(raw):
                length, kind, _, _, _ = head.unpack_from(raw, at)
                if kind == 3:  # NLMSG_DONE
                    return
                if kind == 2:  # NLMSG_ERROR
                    raise OSError(errno.EPERM, "sock_diag refused")
                (port,) = struct.unpack_from("!H", raw, at + head.size + 4)
                uid, inode = struct.unpack_from("=LL", raw, at + head.size + 64)
                source, length_of = at + head.size + 8, 4 if family == socket.AF_INET else 16
                yield port, inode, raw[source : source + length_of], uid
                at += (length + 3) & ~3


def _by_proc(path: str) -> Iterable[tuple[int, int, bytes, int]]:
    try:
        with open(path) as file:
            lines = file.readlines()[1:]
    except OSError:  # no IPv6 in this kernel
        return
    for line in lines:
        fields = line.split()
        if fields[3] == "0A":
            address, _, port = fields[1].rpartition(":")
            words = [int(address[at : at + 8], 16) for at in range(0, len(address), 8)]
            packed = struct.pack(f"={len(words)}L", *words)
            yield int(port, 16), int(fields[9]), packed, int(fields[7])


def held(pids: Iterable[int], sockets: Sockets) -> Iterator[tuple[int, bytes]]:
    """Sockets that `pids` have open: each with its process and its address."""
    for pid in pids:
        try:
            names = os.listdir(f"/proc/{pid}/fd")
        except OSError:
            continue
        for name in names:
            try:
                target = os.readlink(f"/proc/{pid}/fd/{name}")
            except OSError:
                continue
            if target.startswith("socket:[") and int(target[8:-1]) in sockets:
                yield pid, sockets[int(target[8:-1])]


def owner(port: int) -> Json | None:
    """The process that listens on a port; None when nobody does. For one whose descriptors we may
    not see pid 0, no command, and the account of its socket, by the kernel."""
    sockets = listeners().get(port)
    if not sockets:
        return None
    try:
        pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
        pid = next((pid for pid, _ in held(pids, sockets)), None)
    except OSError:  # no descriptor is left
        pid = None
    if pid is None:
        return {"port": port, "pid": 0, "command": "", **_account(port)}
    command, task = short_name(pid), ""

    def read() -> None:
        nonlocal command, task
        command = command_line(pid)
        with suppress(OSError):  # no descriptor is left
            task = (variable(pid, TAG) or b"").decode(errors="replace").rstrip(";")

    with suppress(OSError):  # no thread can be started
        bounded(read)
    return {"port": port, "pid": pid, "command": command, "task": task}


def _account(port: int) -> Json:
    """The account that has made a socket, and whether it is ours; empty where the kernel does not
    tell, as of an account outside of a user namespace."""
    uid = next((uid for found, _, _, uid in _listening() if found == port), _NOBODY)
    if uid == _NOBODY:
        return {}
    name = f"uid {uid}"

    def read() -> None:
        nonlocal name
        with suppress(KeyError):
            name = pwd.getpwuid(uid).pw_name

    with suppress(OSError):  # no thread can be started
        bounded(read)
    return {"account": name, "own": uid == os.getuid()}


def look(check: Iterable[int], candidates: Iterable[int]) -> Json:
    """Who listens on the ports to check, and on which candidates no server could listen now."""
    owners = [owner(port) for port in check]
    return {
        "owners": [each for each in owners if each],
        "busy": [port for port in candidates if not free(port)],
    }


def free(port: int) -> bool:
    """A server could listen on it now."""
    for family, address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        try:
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                if family == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind((address, port))
        except OSError as error:
            if error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                continue
            return False
    return True
