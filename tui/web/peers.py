"""Who may talk to the server: this user, from a page that the server itself has sent.

A page can launch commands, so a port on the loopback is not enough. Other pages in the same
browser reach it too (their requests carry a foreign `Origin`), a name of theirs can be pointed at
it afterwards (DNS rebinding: the `Host` is then that name), and so can other users of this
machine (the kernel knows whose socket is on the other end).
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from aiohttp import web

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "font-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Doorkeeper:
    """Looks at every request before anything else does."""

    def __init__(self, host: str) -> None:
        """`host` is where the server listens."""
        self._names = {host.lower(), "localhost"}
        if not is_loopback(host):
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    @web.middleware
    async def __call__(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Refuses, or lets through and tells the browser to load nothing from elsewhere."""
        reason = self.refusal(request)
        if reason:
            return web.Response(status=403, text=f"tfmux: {reason}\n")
        response = await handler(request)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    def refusal(self, request: web.Request) -> str:
        """Why a request is not answered; empty when it is."""
        host = request.headers.get("Host", "")
        name = _name(host)
        if not name or not (name in self._names or _is_address(name)):
            return f"this server is not called {name or host!r}; use its address"
        origin = request.headers.get("Origin")
        if origin is None and request.path == "/ws":
            return "a page says where it comes from"
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return f"not for a page of {origin}"
        if request.headers.get("Sec-Fetch-Site", "none") == "cross-site" and request.path != "/":
            return "not for a page from elsewhere"
        other = _user(request)
        if other not in (None, 0, os.getuid()):
            return f"this server belongs to another user, not to uid {other}"
        return ""


def is_loopback(host: str) -> bool:
    """Nobody outside of this machine reaches it."""
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host.lower() == "localhost"


def _name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    with suppress(ValueError):
        return urlsplit(f"//{host}").hostname or ""
    return ""


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False


def _user(request: web.Request) -> int | None:
    """The user at the other end of a connection within this machine; None when unknown."""
    transport = request.transport
    if transport is None:
        return None
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not peer or not own or not is_loopback(peer[0]):
        return None
    ends = [_ending(peer), _ending(own)]
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                columns = line.split()
                if columns[1:3] == ends:
                    return int(columns[7])
    return None


def _ending(end: tuple[str, int]) -> str:
    """An end of a connection as the kernel's tables write it: words of the host's byte order."""
    packed = ipaddress.ip_address(end[0]).packed
    words = [packed[i : i + 4][::-1] for i in range(0, len(packed), 4)]
    return f"{b''.join(words).hex().upper()}:{end[1]:04X}"
