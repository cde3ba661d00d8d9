"""Addresses on which a task listens, as the agent reports them."""

from __future__ import annotations

import os
import socket

import pytest

from launcher.agent import ports, wire
from tests.support.agent_client import Client
from tests.support.ports import free_ports

SERVE = """
import socket, sys, time
for address in sys.argv[2:]:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    s = socket.socket(family)
    if address == "::":
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((address, int(sys.argv[1])))
    s.listen()
    globals()[address] = s
time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("addresses", "loopback"),
    [
        (("127.0.0.1",), "127.0.0.1"),
        (("127.0.1.1",), "127.0.1.1"),
        (("::1",), "::1"),
        (("::ffff:127.0.0.1",), "127.0.0.1"),
        (("127.0.0.1", "::1"), "127.0.0.1"),
        (("0.0.0.0",), ""),
        (("::",), ""),
    ],
)
def test_a_server_on_the_loopback_alone(
    client: Client, addresses: tuple[str, ...], loopback: str
) -> None:
    """Its address is told with its readiness; one that everybody reaches is not."""
    (port,) = free_ports(1)
    client.python("w:0", SERVE, str(port), *addresses, port=port)
    assert client.get(wire.LISTENING, task="w:0")["loopback"] == loopback


@pytest.mark.parametrize("address", ["127.0.1.1", "0.0.0.0", "::1"])
def test_both_ways_to_the_kernel_agree(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    """`/proc` says the same as netlink, which some machines forbid."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family) as server:
        port = server.getsockname()[1]
        by_netlink = ports.listeners()[port]

        def refuse(family: int) -> None:
            raise OSError(1, "refused")

        monkeypatch.setattr(ports, "_by_netlink", refuse)
        assert ports.listeners()[port] == by_netlink
        found = ports.held([os.getpid()], by_netlink)
        assert {each for _, each in found} == {socket.inet_pton(family, address)}
