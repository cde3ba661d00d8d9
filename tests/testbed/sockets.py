"""Listeners on the ports of a host, as its kernel reports them.

`/proc/net/tcp` tells the same but takes 4 to 30 ms a look, too slow to be an eyewitness of the
order of things; a `sock_diag` question takes a fraction of one.
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.testbed import proc

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20
_REQUEST_DUMP = 0x301
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_LISTEN = 1 << 10
_CLONE_NEWNET = 0x40000000
_HEADER = struct.Struct("=IHHII")
# inet_diag_req_v2: family, protocol, extensions, padding, states, socket id (unused here)
_QUESTION = struct.Struct("=BBBxI48x")
# inet_diag_msg: family, three bytes, source port, destination port, source address, …, inode
_ANSWER = struct.Struct("=B3x2s2x16s28x16xI")
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Listener:
    """A listening TCP socket; `pids` are the processes (root namespace) that hold it open."""

    address: str
    port: int
    pids: tuple[int, ...]


def listening_ports(pid: int) -> set[int]:
    """Return the TCP ports that anything in this process's network namespace listens on.

    Raises:
        OSError: the process is gone.
    """
    return {port for _, port, _ in _listening(pid)}


def listeners(pid: int) -> list[Listener]:
    """Return the listening sockets of the host of `pid`, with the processes that hold them.

    Raises:
        OSError: the process is gone.
    """
    found = _listening(pid)
    owners: dict[int, list[int]] = {}
    for process in proc.scan(proc.pid_namespace(pid)):
        for inode in _held(process.pid):
            owners.setdefault(inode, []).append(process.pid)
    return [Listener(address, port, tuple(owners.get(inode, ()))) for address, port, inode in found]


def _listening(pid: int) -> list[tuple[str, int, int]]:
    with _inside(pid):
        # A socket stays in the namespace it was made in, wherever its thread goes.
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG)
    with link:
        return [*_ask(link, socket.AF_INET), *_ask(link, socket.AF_INET6)]


def _ask(link: socket.socket, family: socket.AddressFamily) -> Iterator[tuple[str, int, int]]:
    size = _HEADER.size + _QUESTION.size
    link.send(
        _HEADER.pack(size, _SOCK_DIAG_BY_FAMILY, _REQUEST_DUMP, 1, 0)
        + _QUESTION.pack(family, socket.IPPROTO_TCP, 0, _LISTEN)
    )
    while True:
        data = link.recv(1 << 16)
        while data:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind == _NLMSG_DONE:
                return
            if kind == _NLMSG_ERROR:
                (number,) = struct.unpack_from("=i", data, _HEADER.size)
                raise OSError(-number, f"sock_diag: {os.strerror(-number)}")
            _, port, address, inode = _ANSWER.unpack_from(data, _HEADER.size)
            raw = address[:4] if family == socket.AF_INET else address
            yield socket.inet_ntop(family, raw), int.from_bytes(port, "big"), inode
            data = data[(length + 3) & ~3 :]


@contextmanager
def _inside(pid: int) -> Iterator[None]:
    """Move this thread, and no other, into the network namespace of a process for a moment."""
    here = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            _enter(there)
        finally:
            os.close(there)
        try:
            yield
        finally:
            _enter(here)
    finally:
        os.close(here)


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _held(pid: int) -> Iterator[int]:
    """Return the inodes of the sockets that a process has open."""
    folder = f"/proc/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith("socket:["):
            yield int(target[8:-1])
