"""Reachability between hosts: one listens as a task would, another connects as one would."""

from __future__ import annotations

import errno
import os
import random
import socket
import time
from typing import Any, Iterable

from ..agent.threads import start_thread

_KEEP_OPEN = 10.0
_TOKEN_SECONDS = 2.0
_LOW, _HIGH = 15000, 32000
"""Ports that a launch picks for `auto`, too."""
_MOST_TRIES = 4000


def connect(host: str, port: int, token: str, seconds: float) -> dict[str, Any]:
    """Connects by name and waits for the token: how it went, to which address, and how long the
    name and the connection took."""
    began = time.monotonic()
    addresses, why = _resolve(host, port, seconds)
    resolved = time.monotonic() - began
    if not addresses:
        return {"outcome": "unresolved", "text": why, "address": "", "resolved": resolved}
    for family, kind, protocol, _, address in addresses:
        began = time.monotonic()
        outcome, text = _try(family, kind, protocol, address, token, seconds / len(addresses))
        connected = time.monotonic() - began
        if outcome == "ok":
            break
    said = {"outcome": outcome, "text": text, "address": address[0]}
    return {**said, "resolved": resolved, "connected": connected}


def resolve(host: str, seconds: float) -> dict[str, Any]:
    """The addresses of a name on this host, in the order in which they are used."""
    addresses, _ = _resolve(host, 0, seconds)
    return {"addresses": list(dict.fromkeys(address[0] for *_, address in addresses))[:16]}


class Listeners:
    """Listeners on the tasks' ports that send a token to whoever connects, so that the other side
    knows that it reached this host and not another program or machine."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._sockets: dict[int, socket.socket] = {}
        self._guests: dict[int, tuple[socket.socket, float]] = {}

    def open(self, ports: Iterable[int], pick: int = 0) -> dict[str, Any]:
        """Listens on these ports too, and on `pick` others that are free; says why where it
        cannot."""
        failed, forbidden = {}, []
        for port in ports:
            try:
                self._listen(port)
            except OSError as error:
                failed[str(port)] = os.strerror(error.errno or 0)
                if error.errno in (errno.EACCES, errno.EPERM):
                    forbidden.append(port)
        return {"failed": failed, "forbidden": forbidden, "picked": self._pick(pick, {*ports})}

    def descriptors(self) -> list[int]:
        """What is to be waited for."""
        return [*self._sockets, *self._guests]

    def serve(self, ready: int) -> None:
        """Greets whoever has connected, and lets go of whoever has read the token and left: only
        then do we."""
        if ready in self._guests:
            self._guests.pop(ready)[0].close()
        elif ready in self._sockets:
            try:
                guest, _ = self._sockets[ready].accept()
                guest.setblocking(False)
                guest.send(self._token)
            except OSError:
                return  # it left before we came to it
            self._guests[guest.fileno()] = (guest, time.monotonic())
        for fd, (guest, since) in list(self._guests.items()):
            if time.monotonic() - since > _KEEP_OPEN:
                guest.close()
                del self._guests[fd]

    def close(self) -> None:
        """Ends; the ports are free when this returns."""
        for each in (*self._sockets.values(), *(guest for guest, _ in self._guests.values())):
            each.close()
        self._sockets.clear()
        self._guests.clear()

    def _listen(self, port: int) -> None:
        listener = _listener(port)
        self._sockets[listener.fileno()] = listener

    def _pick(self, count: int, taken: Iterable[int]) -> list[int]:
        picked: list[int] = []
        for port in random.sample(range(_LOW, _HIGH), _MOST_TRIES if count else 0):
            if len(picked) == count:
                break
            if port not in taken:
                try:
                    self._listen(port)
                except OSError as error:
                    if error.errno in (errno.EMFILE, errno.ENFILE):
                        raise
                    continue
                picked.append(port)
        if len(picked) < count:
            raise OSError(errno.EADDRNOTAVAIL, "no free port on this host")
        return picked


def _listener(port: int) -> socket.socket:
    """A socket that listens on all addresses, as TensorFlow's server does."""
    listener = None
    if socket.has_dualstack_ipv6():
        try:
            listener = socket.create_server(
                ("::", port), family=socket.AF_INET6, backlog=128, dualstack_ipv6=True
            )
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:  # IPv6 is built in and switched off
                raise
    listener = listener or socket.create_server(("", port), backlog=128)
    listener.setblocking(False)
    return listener


def _resolve(host: str, port: int, seconds: float) -> tuple[list[Any], str]:
    """The addresses of a name, and why there is none. A name server that is silent would hold us
    for half a minute: it is left to a thread, which ends with the process of this question."""
    found: list[Any] = []
    failed: list[str] = []

    def resolve() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            failed.append(error.strerror or str(error))
        except UnicodeError:
            failed.append("not a host name")

    thread = start_thread(resolve, "resolve")
    thread.join(seconds)
    if thread.is_alive():
        return [], f"the name server did not answer in {seconds:.0f} s"
    return found, failed[0] if failed else ""


def _try(
    family: int, kind: int, protocol: int, address: Any, token: str, seconds: float
) -> tuple[str, str]:
    with socket.socket(family, kind, protocol) as link:
        link.settimeout(seconds)
        try:
            link.connect(address)
        except ConnectionRefusedError:
            return "refused", ""
        except socket.timeout:
            return "filtered", ""
        except OSError as error:
            unreachable = error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH)
            timed_out = error.errno == errno.ETIMEDOUT
            outcome = "no-route" if unreachable else "filtered" if timed_out else "failed"
            return outcome, error.strerror or str(error)
        if not token:
            return "ok", ""
        link.settimeout(_TOKEN_SECONDS)
        try:
            said = link.recv(len(token))
        except OSError:
            said = b""
        return ("ok", "") if said == token.encode() else ("stranger", "")
