"""Access to the server: its own user alone, with the token, from a page that the server has sent.

A page can launch commands, so a port on the loopback is not enough. Other pages in the same
browser reach it too (their requests carry a foreign `Origin`), a name of theirs can be pointed at
it afterwards (DNS rebinding: the `Host` is then that name), and so can other users of this
machine (the kernel knows whose socket is on the other end). Whoever passes as this user for the
kernel, a program that forwards connections for others, still lacks the token.

Root is let in where the kernel says so: it may do anything here anyway, and programs that bring
the owner's own browser to a port (WSL's, a container engine's) run as root.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from urllib.parse import urlsplit

from aiohttp import web

from tui.web import peer_user

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_BYTES = 32
_PUBLIC = ("/static/", "/page/")
"""Files that are the same for everyone: only these may a browser keep."""
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
        "font-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class RequestGuard:
    """Looks at every request before anything else does."""

    def __init__(self, host: str, *, tls: bool = False) -> None:
        """`host` is where the server listens."""
        self.token = secrets.token_urlsafe(_BYTES)
        """Secret at the end of the printed address. It is kept in this process alone: command lines
        and environments can be read by others."""
        self._cookie = secrets.token_urlsafe(_BYTES)
        self._tls = tls
        self._names = {host.lower(), "localhost"}
        if not peer_user.is_loopback(host):
            self._names |= {socket.gethostname().lower(), socket.getfqdn().lower()}

    def watch(self, app: web.Application) -> None:
        """Puts itself before all that the application does."""
        app.middlewares.insert(0, self._admit)
        app.on_response_prepare.append(self._add_headers)

    @web.middleware
    async def _admit(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        reason = self._foreign(request)
        if not reason and request.path == "/" and "token" in request.query:
            if _equal(request.query["token"], self.token):
                return self._logged_in(request)
            reason = "the token is wrong; open the address that `tfmux serve` printed last"
        elif not reason and not _equal(request.cookies.get(_name(request), ""), self._cookie):
            reason = "open the address that `tfmux serve` printed, with its ?token="
        if reason:
            return web.Response(status=403, text=f"tfmux: {reason}\n")
        return await handler(request)

    def _logged_in(self, request: web.Request) -> web.Response:
        """Turns the token into a cookie, and leaves it out of the address bar and the history."""
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(
            _name(request),
            self._cookie,
            path="/",
            httponly=True,
            samesite="Strict",
            secure=self._tls,
        )
        return response

    def _foreign(self, request: web.Request) -> str:
        """Reason to refuse a request that is not of this user and one of our pages; else empty."""
        host = request.headers.get("Host", "")
        name = _host_name(host)
        if not name or not (name in self._names or _is_address(name)):
            return f"this server is not called {name or host!r}; use its address"
        origin = request.headers.get("Origin")
        if origin is None and request.path == "/ws":
            return "the request has no Origin"
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return f"not for a page of {origin}"
        # Another port of this machine is the same *site*: the browser adds the cookie.
        if request.headers.get("Sec-Fetch-Site", "none") in ("cross-site", "same-site") and not (
            request.path == "/" and request.headers.get("Sec-Fetch-Dest", "document") == "document"
        ):
            return "not for a page of another site"
        return _other_user(request)

    async def _add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        response.headers.update(_HEADERS)
        if not (response.status == 200 and request.path.startswith(_PUBLIC)):
            response.headers["Cache-Control"] = "no-store"


def _other_user(request: web.Request) -> str:
    """Reason to refuse a connection of another user of this machine; empty if it is this user's, if
    it comes from another machine, or where only the token tells."""
    if not peer_user.are_known():
        return ""
    transport = request.transport
    if transport is None:
        return "the connection is closed"
    peer, own = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not peer or not own:
        return "the connection is closed"
    user = peer_user.uid(peer, own)
    if user is not None and user not in (0, os.getuid()):
        return f"this server belongs to another user, not to uid {user}"
    if user is None and (peer_user.is_loopback(own[0]) or peer_user.is_here(peer)):
        return "the kernel does not say which user of this machine asks; load the page again"
    return ""


def _equal(one: str, other: str) -> bool:
    return secrets.compare_digest(one.encode(errors="replace"), other.encode())


def _name(request: web.Request) -> str:
    """The cookie's name. Browsers send a cookie to all ports of a host: the one that the browser
    knows the server by, also through a forwarded port, keeps two servers apart."""
    with suppress(ValueError):
        return f"tfmux-{urlsplit(f'//{request.host}').port or 0}"
    return "tfmux-0"


def _host_name(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    with suppress(ValueError):
        return urlsplit(f"//{host}").hostname or ""
    return ""


def _is_address(name: str) -> bool:
    with suppress(ValueError):
        return bool(ipaddress.ip_address(name))
    return False
