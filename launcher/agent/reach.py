"""Reachability between hosts: one listens as a task would, another connects as one would."""

from __future__ import annotations

import errno
import os
import select
import socket
import threading
import time
from typing import Any, Iterable

from .probes import ConnectAnswer, ListenAnswer
from .threads import start_thread

_KEEP_OPEN = 10.0
_TOKEN_SECONDS = 2.0


def connect(host: str, port: int, token: str, seconds: float) -> ConnectAnswer:
    """Connects as a task would, by name: how it went, to which address, and how long the name
    and the connection took."""
    began = time.monotonic()
    addresses, why = _resolve(host, port, seconds)
    resolved = time.monotonic() - began
    if not addresses:
        return ConnectAnswer("unresolved", why, "", resolved)
    for family, kind, protocol, _, address in addresses:
        began = time.monotonic()
        outcome, text = _try(family, kind, protocol, address, token, seconds / len(addresses))
        answer = ConnectAnswer(outcome, text, address[0], resolved, time.monotonic() - began)
        if outcome == "ok":
            break
    return answer


class Listeners:
    """Listeners on the tasks' ports that send a token to whoever connects, so that the other side
    knows that it reached this host and not another program or machine."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._wake_read, self._wake_write = os.pipe()
        self._thread = start_thread(self._serve, "probe")

    def open(self, ports: Iterable[int]) -> ListenAnswer:
        """Listens on these ports too; says why where it cannot."""
        failed, forbidden = {}, []
        for port in ports:
            try:
                listener = _listener(port)
            except OSError as error:
                failed[str(port)] = os.strerror(error.errno or 0)
                if error.errno in (errno.EACCES, errno.EPERM):
                    forbidden.append(port)
                continue
            with self._lock:
                self._sockets.append(listener)
        os.write(self._wake_write, b"o")
        return ListenAnswer(failed, tuple(forbidden))

    def close(self) -> None:
        """Ends; the ports are free when this returns."""
        os.write(self._wake_write, b"q")
        self._thread.join(2.0)

    def _serve(self) -> None:
        guests: dict[socket.socket, float] = {}
        while True:
            with self._lock:
                listening = list(self._sockets)
            poll = select.poll()  # `select` knows 1,024 descriptors
            for waiting in (self._wake_read, *(each.fileno() for each in (*listening, *guests))):
                poll.register(waiting, select.POLLIN)
            ready = {fd for fd, _ in poll.poll(1000)}
            if self._wake_read in ready and b"q" in os.read(self._wake_read, 64):
                break
            for each in [each for each in (*listening, *guests) if each.fileno() in ready]:
                if each in guests:  # it has read the token and left; only then do we
                    each.close()
                    del guests[each]
                else:
                    self._greet(each, guests)
            now = time.monotonic()
            for guest in [guest for guest, since in guests.items() if now - since > _KEEP_OPEN]:
                guest.close()
                del guests[guest]
        for each in [*listening, *guests]:
            each.close()

    def _greet(self, listener: socket.socket, guests: dict[socket.socket, float]) -> None:
        try:
            guest, _ = listener.accept()
            guest.setblocking(False)
            guest.send(self._token)
        except OSError:
            return  # it left before we came to it
        guests[guest] = time.monotonic()


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
    """The addresses of a name. A name server that is silent would hold us for half a minute."""
    found: list[Any] = []
    failed: list[str] = []

    def resolve() -> None:
        try:
            found.extend(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            failed.append(error.strerror or str(error))
        except UnicodeError:
            failed.append("it is no host name")

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
