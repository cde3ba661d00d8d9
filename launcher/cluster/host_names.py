"""Names of hosts in a cluster file: those of destinations, of tasks, and the next of a series."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .addresses import LOCALHOST, TaskAddress, check_host

_NUMBER = re.compile(r"\d+")


def missing_hosts(tasks: Mapping[str, list[str]], known: Mapping[str, Any]) -> list[str]:
    """Lists the hosts that are used by tasks and not defined."""
    missing: dict[str, None] = {}
    for task in (task for job in tasks.values() for task in job):
        try:
            host = TaskAddress.parse(task).host
        except ValueError:
            continue
        if host != LOCALHOST and host not in known:
            missing[host] = None
    return list(missing)


def host_name(host: str, taken: Mapping[str, Any]) -> str:
    """Returns a name for a host in a cluster file: its own, or `host1` for an IP address."""
    try:
        check_host(host)
        named = not re.fullmatch(r"[\d.]+", host) and ":" not in host
    except ValueError:
        named = True
    if named and host not in taken:
        return host
    stem = host if named else "host"
    return next(name for n in range(1, 10**6) if (name := f"{stem}{n}") not in taken)


def next_like(names: list[str], pattern: str) -> str:
    """Returns the first free name after `pattern` in its series (`tf1` → `tf2`)."""
    found = list(_NUMBER.finditer(pattern))
    if not found:
        return next(name for n in range(2, 10**6) if (name := f"{pattern}{n}") not in names)
    last = found[-1]
    before, after = pattern[: last.start()], pattern[last.end() :]
    first = int(last[0]) + 1
    return next(
        name for n in range(first, first + 10**6) if (name := f"{before}{n}{after}") not in names
    )
