"""Addresses in cluster files: machines of several names, this machine among others, IPv6."""

from __future__ import annotations

from pathlib import Path

from launcher.cluster.read import loads
from tests.support.cluster_texts import GOOD, changed, problems


def test_two_names_of_one_machine_share_its_ports() -> None:
    """A port used through two host names with the same SSH destination is found."""
    text = changed("10.77.0.2", "10.77.0.1:22").replace('"tf2:2222", ', '"tf1:9", "tf2:2222", ')
    (problem,) = problems(text)
    assert (problem.key, problem.line) == ("jobs.worker.tasks[1]", 14)
    assert "same machine" in problem.message


def test_two_hosts_of_one_address_are_told_apart() -> None:
    """Hosts behind one name with different SSH ports need addresses of their own."""
    text = GOOD.replace('"root@10.77.0.2"', '"root@10.77.0.1:2022"').replace('address = "tf1"', "")
    (problem,) = problems(text)
    assert problem.key == "jobs.worker.tasks[0]"
    assert "10.77.0.1:2222" in problem.message
    assert "address in [hosts.tf2]" in problem.message


def test_localhost_among_others_needs_an_address() -> None:
    """With an address for this machine, local and remote tasks may be mixed; a helper may be
    here without one, for nobody calls it."""
    text = changed("tf1:2222", "localhost:2222")
    assert loads(f'{text}\n[hosts.localhost]\naddress = "desk"', "c", Path("/"))
    helper = '\n[jobs.board]\ntasks = ["localhost:6006"]\nin_cluster = false\n'
    assert loads(GOOD + helper, "c", Path("/"))


def test_servers_on_ports_of_this_machine_are_one_machine_only_where_the_file_says_so() -> None:
    """SSH servers behind ports of the loopback are mostly tunnels to other machines, each of which
    is 127.0.0.1 to itself; an address that the file gives says that they are not."""
    text = GOOD.replace("10.77.0.1:22", "127.0.0.1:2201").replace("10.77.0.2", "127.0.0.1:2202")
    text = text.replace('address = "tf1"\n', "").replace(
        'tasks = ["tf1:2222"]', 'tasks = ["tf1:1"]'
    )
    first, second = problems(text)
    assert (first.key, second.key) == ("hosts.tf1.ssh", "hosts.tf2.ssh")
    assert "127.0.0.1 means another machine on tf2" in first.message
    text = text.replace('2201"', '2201"\naddress = "127.0.0.1"')
    text = text.replace('2202"', '2202"\naddress = "127.0.0.1"')
    assert loads(text, "c", Path("/")).address("tf2") == "127.0.0.1"


def test_ipv6_works() -> None:
    """IPv6 literals in brackets are hosts, addresses and SSH destinations."""
    text = (
        GOOD.replace("[hosts.tf1]", '[hosts."fd00::1"]')
        .replace("root@10.77.0.1:22", "root@[fd00::1]:22")
        .replace('"tf1"', '"[fd00::1]"')
        .replace("tf1:2222", "[fd00::1]:2222")
    )
    cluster = loads(text, "c", Path("/"))
    assert cluster.address("fd00::1") == "fd00::1"
    assert str(cluster.jobs["ps"].tasks[0]) == "[fd00::1]:2222"
    assert str(cluster.hosts["fd00::1"].ssh) == "root@[fd00::1]:22"
