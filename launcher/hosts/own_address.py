"""Address of this machine for other hosts."""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice

from ..cluster.addresses import is_loopback

_MOST_HOSTS = 4
"""Of those that are tried; a name that does not resolve may take seconds."""
_ANY_PORT = 9


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
