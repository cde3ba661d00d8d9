"""Four hosts with OpenSSH in namespaces of this machine, and programs to be compared on them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.report import own_home
from tests.testbed import namespaces
from tests.testbed.namespaces import Testbed

TASKS = 16


@contextmanager
def ssh_hosts(count: int = 4) -> Iterator[Testbed]:
    """The hosts, and a home for tfmux."""
    if reason := namespaces.missing():
        raise SystemExit(reason)
    with own_home(), Testbed(hosts=count) as hosts:
        yield hosts


def cluster(
    hosts: Testbed | None, command: Sequence[str], tasks: int = TASKS, run: str = ""
) -> str:
    """A cluster of tasks with one command, dealt out to the hosts; without hosts, here."""
    names = [host.name for host in hosts] if hosts else ["localhost"]
    places = [f"{names[number % len(names)]}:auto" for number in range(tasks)]
    return (
        f'name = "bench"\n{hosts.hosts_toml() if hosts else ""}[jobs.worker]\n'
        f"tasks = {json.dumps(places)}\n"
        f'[run]\ncommand = {json.dumps(list(command))}\nworkdir = ""\nsuccess = "all"\n{run}'
        f'[start]\norder = [["worker"]]\n[start.ready]\nworker = "started"\n'
    )


def ssh(hosts: Testbed, *words: str) -> list[str]:
    """An `ssh` command that knows the hosts."""
    return ["ssh", "-F", str(hosts.directory / "ssh_config"), *words]


def clush(hosts: Testbed, command: str) -> list[str]:
    """A `clush` command on all hosts."""
    names = ",".join(host.name for host in hosts)
    config = f"-F {hosts.directory / 'ssh_config'}"
    return ["clush", "-o", config, "-w", names, command]


def without_clush() -> str:
    """Why there is no clush to be compared with; empty where there is one."""
    return "" if shutil.which("clush") else "clush is not installed"


class Commands:
    """Processes with one command line on all hosts, as the kernel shows them."""

    def __init__(self, *argv: str) -> None:
        self._line = b"\0".join(map(os.fsencode, argv)) + b"\0"

    def pids(self) -> list[int]:
        """Pids of the living commands."""
        return [int(name) for name in os.listdir("/proc") if name.isdigit() and self._is_one(name)]

    def _is_one(self, name: str) -> bool:
        try:
            return Path(f"/proc/{name}/cmdline").read_bytes() == self._line
        except OSError:
            return False
