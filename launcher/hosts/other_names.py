"""Addresses of hosts for the other hosts, where the cluster file gives none: they do not know the
aliases of this machine's `ssh_config`, and mostly know the names behind `HostName`."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..cluster.addresses import AddressError, check_host, is_loopback
from ..cluster.file_model import ClusterModel
from ..errors import UnreachableError
from ..frozen import frozen

if TYPE_CHECKING:
    from .ssh_config import SshConfig


@frozen
class OtherNames:
    """What `HostName` says of hosts whose addresses are not in the cluster file."""

    addresses: Mapping[str, str]
    """The addresses by which the other hosts know hosts, where that is not the name in `ssh`."""
    unusable: Mapping[str, str]
    """`HostName` of hosts where it leads from this machine alone: a tunnel, a forwarded port."""


def other_names(cluster: ClusterModel, configs: Mapping[str, SshConfig]) -> OtherNames:
    """Chooses the addresses of the hosts whose `ssh_config` is known."""
    names: dict[str, str] = {}
    ports: dict[str, set[str]] = defaultdict(set)
    for host, config in configs.items():
        entry, name = cluster.hosts[host], config.get("hostname")
        if entry.ssh is None or entry.address is not None or not _is_name(name):
            continue
        ports[name].add(config.get("port"))
        if name.lower() != entry.ssh.host.lower():
            names[host] = name
    unusable = {
        host: name
        for host, name in names.items()
        # A name with several servers is that of a machine which forwards ports to the hosts.
        if is_loopback(name) or "%" in name or len(ports[name]) > 1
    }
    addresses = {host: name for host, name in names.items() if host not in unusable}
    return OtherNames(addresses, unusable)


async def read_other_names(cluster: ClusterModel) -> OtherNames:
    """Reads the `ssh_config` of each host that has tasks and no address; what cannot be read is
    told by the login."""
    used = {place.host for job in cluster.jobs.values() for place in job.tasks}
    names = [n for n, e in cluster.hosts.items() if n in used and e.ssh and e.address is None]
    if not names:
        return OtherNames({}, {})
    from .ssh_config import READS_AT_ONCE, read_config  # it loads asyncssh

    gate = asyncio.Semaphore(READS_AT_ONCE)

    async def read(name: str) -> SshConfig | None:
        entry = cluster.hosts[name]
        assert entry.ssh is not None
        try:
            async with gate:
                user = entry.ssh.user or entry.user
                return await read_config(name, entry.ssh.host, user, entry.ssh.port)
        except UnreachableError:
            return None

    found = zip(names, await asyncio.gather(*map(read, names)), strict=True)
    return other_names(cluster, {name: config for name, config in found if config is not None})


def unusable_name(host: str, name: str) -> str:
    """Says what a host is called where its `HostName` is of no use to the other hosts."""
    return (
        f"{host} is {name} in ssh_config, which works on this machine only: the other hosts must "
        f"resolve {host}, or set address in [hosts.{host}]"
    )


def _is_name(name: str) -> bool:
    try:
        check_host(name)
    except AddressError:
        return False
    return True
