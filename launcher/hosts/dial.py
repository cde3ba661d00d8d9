"""Dialling of an SSH server: from its name to a socket with its banner, an error for each step.

asyncssh does these steps in one. A name server that is down, a firewall that swallows packets and a
silent server end there in the same `TimeoutError`; another kind of server, whose words it drops,
and one with too many logins in the same `ConnectionResetError`. Several addresses end in a text
without an errno, and none of them has a limit of its own. Here, a host that is down takes no turn
among the handshakes, either.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import Any

from ..cluster.addresses import is_loopback, join
from ..errors import UnreachableError
from ..printable import printable

RESOLVE_SECONDS = 10.0
TCP_SECONDS = 10.0
BANNER_SECONDS = 10.0
_BANNER_BYTES = 4096
_TOO_MANY = b"Exceeded MaxStartups"
"""What sshd says instead of its version when too many log in at once."""
_MOST_HOSTS = 4
"""Hosts that are tried; a name that does not resolve may take seconds."""
_ANY_PORT = 9
_PREAMBLE_SECONDS = 2.0
"""A server may say some lines before its version (RFC 4253, 4.2); they come at once."""

_LOOKUPS = ThreadPoolExecutor(64, thread_name_prefix="lookup")
"""Lookups at a time. The loop's own threads are a handful: behind a name server that is dead each
lookup takes five seconds, and those that wait for a thread would be late before they begin."""

Step = Callable[[str, str], None]
"""Called for each step that was passed: its name and what was found (`name`, `10.77.0.1`)."""


async def dial(
    name: str,
    host: str,
    port: int,
    step: Step,
    family: int = socket.AF_UNSPEC,
    *,
    bind: str = "",
    seconds: float | None = None,
) -> socket.socket:
    """A connected socket on which a line of SSH waits to be read. `bind` is the address to
    connect from, `seconds` the deadline of the connection.

    Raises:
        UnreachableError: says which step failed: the name, the connection, or the banner.
        ConnectionResetError: accepted and closed again before a word, as sshd does with too
            many logins at once: worth another try.
    """
    addresses = await _resolve(name, host, port, family)
    step("name", str(addresses[0][4][0]))
    began = time.monotonic()
    link = await _connect(name, host, port, addresses, bind, seconds or TCP_SECONDS)
    step("tcp", f"{(time.monotonic() - began) * 1000:.0f} ms")
    try:
        version = await _peek_version(name, join(host, port), link)
    except BaseException:
        link.close()
        raise
    step("ssh", version)
    return link


_Address = tuple[socket.AddressFamily, socket.SocketKind, int, str, Any]


async def _resolve(name: str, host: str, port: int, family: int) -> list[_Address]:
    loop = asyncio.get_running_loop()
    begun = asyncio.Event()

    def resolve() -> list[_Address]:
        loop.call_soon_threadsafe(begun.set)
        return list(socket.getaddrinfo(host, port, family, socket.SOCK_STREAM))

    lookup = loop.run_in_executor(_LOOKUPS, resolve)
    try:
        await begun.wait()
        async with asyncio.timeout(RESOLVE_SECONDS):
            return await lookup
    except TimeoutError as error:
        raise UnreachableError(
            name,
            f"the name server did not answer for {host!r} in {RESOLVE_SECONDS:.0f} s",
            code="name-unresolved",
            todo="check this machine's network, or write the IP address in ssh",
        ) from error
    except (socket.gaierror, UnicodeError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise UnreachableError(
            name,
            f"the name {host!r} does not resolve here ({said})",
            code="name-unresolved",
            todo="check its spelling in ssh, or write the IP address or an alias of ~/.ssh/config",
        ) from error


async def _connect(
    name: str, host: str, port: int, addresses: list[_Address], bind: str, seconds: float
) -> socket.socket:
    """Tries the addresses one after the other within the deadline.

    Raises:
        UnreachableError: none of them answered; says how the last one failed.
    """
    loop = asyncio.get_running_loop()
    place = join(host, port)
    failure: OSError = TimeoutError()
    for family, kind, protocol, _, address in addresses:
        try:
            link = socket.socket(family, kind, protocol)
        except OSError as error:  # no IPv6 here, or no descriptor
            failure = error
            continue
        link.setblocking(False)
        try:
            async with asyncio.timeout(max(min(2.0, seconds), seconds / len(addresses))):
                if bind:
                    link.bind((bind, 0))
                await loop.sock_connect(link, address)
        except OSError as error:  # TimeoutError is one
            link.close()
            failure = error
        except BaseException:
            link.close()
            raise
        else:
            acknowledge_at_once(link)
            return link
    raise _refusal(name, place, failure, seconds) from failure


def acknowledge_at_once(link: Any) -> None:
    """Sends ACKs without a delay, until something else is sent: together with sshd's Nagle it
    takes 40 ms at a login, and as much when a session is opened behind it."""
    if link is not None and hasattr(socket, "TCP_QUICKACK"):  # Linux
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)


def _refusal(name: str, place: str, failure: OSError, seconds: float) -> UnreachableError:
    if isinstance(failure, ConnectionRefusedError):
        return UnreachableError(
            name,
            f"connection refused by {place}: the machine is up, but no SSH server listens there",
            code="tcp-refused",
            todo="start sshd there, or correct the port in ssh",
        )
    if isinstance(failure, TimeoutError) or failure.errno == errno.ETIMEDOUT:
        return UnreachableError(
            name,
            f"no answer from {place} in {seconds:.0f} s: the machine is off, or a "
            "firewall drops the packets",
            code="tcp-timeout",
            todo="check that it runs and that the port is open from here",
        )
    if failure.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
        return UnreachableError(
            name,
            f"no route to {place} from here ({failure.strerror})",
            code="tcp-no-route",
            todo="check that the machine runs and that this one is in its network (a VPN?)",
        )
    said = failure.strerror or str(failure)
    return UnreachableError(name, f"{place}: {said}", code="tcp-failed")


async def _peek_version(name: str, place: str, link: socket.socket) -> str:
    """The server's version line, left in the socket for asyncssh to read.

    Raises:
        UnreachableError: silence, or the words of another kind of server.
        ConnectionResetError: closed before a word.
    """
    seen = b""
    try:
        async with asyncio.timeout(BANNER_SECONDS) as limit:
            while True:
                await _readable(link)
                before, seen = seen, link.recv(_BANNER_BYTES, socket.MSG_PEEK)
                if not seen or seen.startswith(_TOO_MANY):
                    said = seen.decode(errors="replace").strip() or os.strerror(errno.ECONNRESET)
                    raise ConnectionResetError(errno.ECONNRESET, printable(said, 60))
                for line in seen.split(b"\n")[:-1]:
                    if line.startswith(b"SSH-"):
                        return line.decode(errors="replace").strip().removeprefix("SSH-2.0-")
                if len(seen) == _BANNER_BYTES:
                    raise TimeoutError
                if not before:
                    soon = asyncio.get_running_loop().time() + _PREAMBLE_SECONDS
                    limit.reschedule(min(soon, limit.when() or soon))
                await asyncio.sleep(0.02)  # what was peeked at keeps the socket readable
    except TimeoutError as error:
        raise _no_banner(name, place, seen) from error


async def _readable(link: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def set_ready() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(link, set_ready)
    try:
        await ready
    finally:
        loop.remove_reader(link)


def _no_banner(name: str, place: str, seen: bytes) -> UnreachableError:
    said = seen.split(b"\n")[0].decode(errors="replace").strip()[:60]
    if said:
        return UnreachableError(
            name,
            f"{place} is not an SSH server: it answered '{said}'",
            code="not-ssh",
            todo="correct the port in ssh",
        )
    return UnreachableError(
        name,
        f"{place} accepts connections but sent no SSH banner for {BANNER_SECONDS:.0f} s: its sshd "
        "hangs, or it is not an SSH server",
        code="ssh-silent",
        todo="correct the port in ssh, or restart sshd there",
    )


def own_address(hosts: Iterable[str]) -> str:
    """Finds the address from which this machine would connect to `hosts`, else its own name. A
    connected UDP socket knows its route; nothing is sent."""
    for host in islice(hosts, _MOST_HOSTS):
        with suppress(OSError, UnicodeError):
            found = socket.getaddrinfo(host, _ANY_PORT, type=socket.SOCK_DGRAM)
            for family, kind, protocol, _, place in found:
                with socket.socket(family, kind, protocol) as probe, suppress(OSError):
                    probe.connect(place)
                    address = str(probe.getsockname()[0])
                    if not is_loopback(address) and "%" not in address:  # of one cable only
                        return address
    return socket.gethostname()
